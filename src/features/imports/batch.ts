/**
 * Imports a batch: parses lines, validates each as POST would, and adds the
 * valid ones to a transaction. An invalid line is rejected with its errors,
 * and the others are imported.
 *
 * A line may refer to one that comes later, to itself, or in a circle. So the
 * files are read in passes. In the first, an optional reference to a record that
 * may still come is left empty: one with an id above all that were used before
 * the import. The second sets it; by then the record is there, or the line is
 * rejected after all and its record deleted. What referred to that one is
 * checked in another pass.
 */

import { performance } from "node:perf_hooks";
import type { Actor } from "../../auth/access.ts";
import { deletionOf } from "../../api/records/deleting.ts";
import { ownerOfImported } from "../../api/records/imported.ts";
import { ApiError, type FieldError } from "../../http/errors.ts";
import { parseJsonObject } from "../../http/json.ts";
import type { Document, Mutation, Row } from "../../store/store.ts";
import type { Line } from "../../store/log/files.ts";
import {
  type Json,
  recordId,
  type Values,
} from "../../api/declaration/properties.ts";
import type { Records } from "../../api/records/records.ts";
import {
  type Body,
  enforceRules,
  readSent,
  validate,
} from "../../api/declaration/validation.ts";
import {
  type NamedProperty,
  ownerOf,
  readValue,
  type Reference,
} from "../../api/declaration/declaration.ts";

/** A rejected line, as a task lists it. */
type RejectedLine = {
  /** Its collection, if the import has several. */
  readonly collection?: string;
  readonly line: number;
  readonly errors: readonly Pick<FieldError, keyof FieldError>[];
};

/** The progress of an import: a part of its task. */
export interface Progress {
  /** How often all files have been read before: 0 in the first pass. */
  readonly pass?: number;
  /** True if another pass is needed, as references were left empty or lines were rejected. */
  readonly isOpen?: boolean;
  /** True if lines without an id are left for the last pass, as they refer to others. */
  readonly hasLate?: boolean;
  readonly isLast?: boolean;
  /** The number of the file, from 0. */
  readonly part?: number;
  /** The offset of the next line in the spool file. */
  readonly byte: number;
  /** The number of the last line, counting blank ones. */
  readonly line: number;
  readonly lines: number;
  readonly imported: number;
  readonly rejected: number;
  /** The errors of the first rejected lines. */
  readonly errors: readonly RejectedLine[];
}

/** The destination and the sender of the records. */
interface Target {
  readonly records: Records;
  /** The user who sent them. */
  readonly caller: Actor | undefined;
  /** The values that the URL provides for each record. */
  readonly given: Values;
  /** True if the sender has the highest role. */
  readonly isTrusted: boolean;
  /** The highest ids that were used before the import, by the names of its collections. */
  readonly lastIds: Readonly<Record<string, number>>;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** Adds a mutation to the transaction. */
  readonly apply: (mutation: Mutation) => void;
}

/** How long validating a batch may take; writing it takes about as long. */
const maxBatchMs = 3;

/** The longest line, with its newline: validating one never takes more than about 20 ms. */
export const maxLineBytes = 1 << 17;

const lineTooLong: FieldError = {
  field: "",
  code: "length",
  message: `The line is longer than ${maxLineBytes} bytes.`,
};

/** How far above the highest used id that of a line may be, so that higher ids remain available. */
const maxIdGap = 1_000_000;

// Each batch writes the errors again, and 250 tasks are stored: as each error
// takes at most some 300 bytes, those of a task take about 150 KB.
const maxErrors = 100;
const maxErrorsPerLine = 5;

/** A task with this many rejected lines fails: it is probably the wrong file. */
export const maxRejectedLines = 100_000;

/** The most references to a rejected record that are emptied at once. */
const maxEmptied = 1000;

const idProperty = recordId();

/**
 * Imports lines until all are done or {@linkcode maxBatchMs} have passed, and
 * removes them from the array.
 *
 * @returns the progress after them
 */
export function importBatch(
  pending: Line[],
  { progress, ...target }: Target & {
    readonly progress: Progress;
    /** True if the import has several files. */
    readonly hasParts: boolean;
  },
): Progress {
  const { pass = 0, isLast = false } = progress;
  const { name } = target.records.collection;
  const of = target.hasParts ? name : undefined;
  const place = of === undefined ? {} : { collection: of };
  let { byte, line, imported, rejected, errors } = progress;
  let { isOpen = false, hasLate = false } = progress;
  let used = 0;
  const deadline = performance.now() + maxBatchMs;
  for (const { bytes, end } of pending) {
    if (used > 0 && performance.now() > deadline) break;
    used++;
    line++;
    const isTooLong = end - byte > maxLineBytes; // the beginning is missing
    byte = end;
    if (!isTooLong && bytes.every(isBlank)) continue;
    const listed = pass === 0
      ? undefined
      : errors.find((each) => each.line === line && each.collection === of);
    // Its id was used before: the record is another one.
    if (listed?.errors.some(({ field }) => field === "id")) continue;
    const result = isTooLong
      ? (pass === 0 ? { errors: [lineTooLong], rejected: 1 } : {})
      : importLine(
        bytes,
        target,
        isLast ? "last" : pass === 0 ? "first" : "next",
      );
    imported += result.imported ?? 0;
    rejected += result.rejected ?? 0;
    isOpen ||= result.isOpen ?? false;
    hasLate ||= result.isLate ?? false;
    const { errors: found = [] } = result;
    if (found.length > 0 && errors.length < maxErrors && !listed) {
      const first = found.slice(0, maxErrorsPerLine);
      errors = [...errors, { ...place, line, errors: first }];
    }
    if (rejected >= maxRejectedLines) break;
  }
  pending.splice(0, used);
  const lines = imported + rejected;
  return {
    ...progress,
    byte,
    line,
    lines,
    imported,
    rejected,
    errors,
    isOpen,
    hasLate,
  };
}

/** Returns whether a byte is a space, tab or carriage return. */
function isBlank(byte: number): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0d;
}

/** The part of the progress that a line adds. */
interface LineResult {
  readonly imported?: number;
  readonly rejected?: number;
  readonly errors?: readonly FieldError[];
  readonly isOpen?: boolean;
  readonly isLate?: boolean;
}

/** Adds the mutations of a line to the transaction. */
function importLine(
  bytes: Uint8Array,
  target: Target,
  pass: "first" | "next" | "last",
): LineResult {
  let body: Body;
  try {
    body = parseJsonObject(bytes, "line");
  } catch (error) {
    return pass === "first" ? { rejected: 1, errors: errorsOf(error) } : {};
  }
  const references = newReferences(body, target);
  // Nothing can refer to a line without an id, so it waits until all else is there.
  const isLate = references.length > 0 && !Object.hasOwn(body, "id");
  switch (pass) {
    case "first":
      return isLate ? { isLate } : createRecord(body, target, true);
    case "next":
      return isLate ? {} : complete(body, target, references);
    case "last":
      return isLate ? createRecord(body, target, false) : {};
  }
}

/** Returns the errors of an invalid line. */
function errorsOf(error: unknown): readonly FieldError[] {
  if (!(error instanceof ApiError)) throw error;
  const { message, errors } = error;
  const code = error.code === 40002 ? "type" : "format";
  return errors ?? [{ field: "", code, message }];
}

/** Returns the optional references of a line to records that did not exist before the import. */
function newReferences(
  body: Body,
  { records, lastIds }: Target,
): readonly Reference[] {
  return records.collection.parents.filter(
    ({ isRequired, property, target: { name } }) =>
      !isRequired && Number(body[property]) > (lastIds[name] ?? Infinity),
  );
}

/** Creates the record of a line, without the references to records that are not there yet. */
function createRecord(
  body: Body,
  { records, caller, given, now, apply, isTrusted, lastIds }: Target,
  isFirst: boolean,
): LineResult {
  const errors = checkId(body, records, isTrusted);
  const missing: Record<string, null> = {};
  const defersCheck = (
    { name, nullable, target: of }: NamedProperty,
    id: number,
  ) => {
    const isNew = isFirst && nullable &&
      id > (lastIds[of?.name ?? ""] ?? Infinity);
    if (isNew) missing[name] = null;
    return isNew;
  };
  try {
    const document = records.buildRecord(body, {
      caller,
      valuesFromUrl: given,
      owner: ownerOfImported(records, body, caller),
      imported: importedValues(body, now),
      defersCheck,
    });
    if (errors.length > 0) return { rejected: 1, errors };
    const isOpen = Object.keys(missing).length > 0;
    // Until then it has a time, and so a validator, of its own.
    const updated_at = records.timestamp(document["updated_at"]);
    apply(records.putMutation(
      isOpen ? { ...document, ...missing, updated_at } : document,
    ));
    return { imported: 1, isOpen };
  } catch (error) {
    return { rejected: 1, errors: [...errors, ...errorsOf(error)] };
  }
}

/**
 * Sets the references of a record that the first pass has created. If one of them
 * leads nowhere, the line is rejected and its record deleted, unless others
 * require it: then it stays without the reference.
 */
function complete(
  body: Body,
  { records, caller, given, now, apply, lastIds }: Target,
  references: readonly Reference[],
): LineResult {
  const { collection, store, table } = records;
  const id = Number(body["id"]);
  const row = id > (lastIds[collection.name] ?? Infinity)
    ? table.get(id)
    : undefined;
  if (row === undefined) return {}; // rejected, or deleted since
  const previous = row.document;
  const {
    created_at = previous["created_at"],
    updated_at = records.timestamp(previous["updated_at"]),
  } = importedValues(body, now);
  const isEmpty = (name: string) =>
    previous[name] === null &&
    references.some(({ property }) => property === name);
  // A record that somebody has changed, or created with this id, stays as it is.
  const isSame = created_at === previous["created_at"] &&
    collection.properties.every((each) => {
      const value = readSent(each, body) ?? given[each.name] ?? each.default;
      return value === readValue(previous, each) || isEmpty(each.name);
    });
  const empty = references.map(({ property }) => property).filter(isEmpty);
  if (empty.length === 0) return {};
  if (!isSame) {
    return {
      errors: empty.map((field) => ({
        field,
        code: "reference",
        message: `"${field}" stays empty: the record was changed meanwhile.`,
      })),
    };
  }
  try {
    const owner = ownerOf(collection, previous);
    const values = validate(collection, body, {
      ...{ store, table, caller, owner, previous },
      valuesFromUrl: given,
    });
    const next: Record<string, Json> = {};
    for (const name of empty) next[name] = values[name] ?? null;
    const document = { ...previous, ...next, updated_at };
    enforceRules(collection, document); // they may be others than in the first pass
    apply(records.putMutation(document));
    return {};
  } catch (error) {
    const errors = errorsOf(error);
    const changes = emptyReferences(records, id, lastIds);
    if (changes === undefined) return { errors };
    for (const change of changes) apply(change);
    apply(deletionOf(collection, previous));
    return { imported: -1, rejected: 1, errors, isOpen: true };
  }
}

/**
 * Returns the changes that empty all references to a record; undefined if there
 * are very many, or one is required, or of a record that the import did not
 * create.
 */
function emptyReferences(
  records: Records,
  id: number,
  lastIds: Target["lastIds"],
): readonly Mutation[] | undefined {
  const { collection, store } = records;
  const changed = new Map<Row, Document>();
  const tables = new Map<Row, string>();
  for (const { source, property, isRequired } of collection.children) {
    const { [source.name]: lastId = Infinity } = lastIds;
    for (const row of store.table(source.name).rowsWith(property, id)) {
      const isOwn = row.document.id > lastId;
      if (isRequired || !isOwn || changed.size === maxEmptied) return undefined;
      const updated_at = records.timestamp(row.document["updated_at"]);
      const next = changed.get(row) ?? { ...row.document, updated_at };
      changed.set(row, { ...next, [property]: null });
      tables.set(row, source.name);
    }
  }
  return Array.from(
    changed,
    ([row, next]) => ["put", tables.get(row) ?? "", next],
  );
}

/** Checks that an id was never used before: it must be higher than all used ids. */
function checkId(
  body: Body,
  { table: { lastId } }: Records,
  isTrusted: boolean,
): FieldError[] {
  if (!Object.hasOwn(body, "id")) return [];
  const id = body["id"];
  const invalid = idProperty.check(id);
  const highest = isTrusted ? Infinity : lastId + maxIdGap;
  const code = invalid?.code ??
    (Number(id) <= lastId
      ? "unique"
      : Number(id) > highest
      ? "range"
      : undefined);
  if (code === undefined) return [];
  const reason = invalid?.reason ?? `is ${id}`;
  const limit = isTrusted ? "" : `, at most ${highest}`;
  return [{
    field: "id",
    code,
    message:
      `"id" ${reason}: it must be ${idProperty.expected}, above ${lastId}, the highest id used so far${limit}; or omit it.`,
  }];
}

/**
 * Returns the id of an exported line, and its times if they are plausible. A
 * line without an id is a new record.
 */
function importedValues(
  { id, created_at, updated_at }: Body,
  now: number,
): Partial<Document> {
  if (typeof id !== "number") return {};
  const created = parseTime(created_at);
  const updated = parseTime(updated_at);
  return created <= updated && updated <= now
    ? { id, created_at: String(created_at), updated_at: String(updated_at) }
    : { id };
}

/** Parses a time as records show it to milliseconds since 1970; NaN if it is not one. */
function parseTime(value: unknown): number {
  const time = typeof value === "string" ? Date.parse(value) : NaN;
  return time >= 0 && new Date(time).toISOString() === value ? time : NaN;
}
