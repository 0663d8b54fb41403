/**
 * Imports a batch: parses lines, validates each as POST would, and adds the
 * valid ones to a transaction. An invalid line is rejected with its errors,
 * and the others are imported.
 *
 * A line may refer to one that comes later, to itself, or in a circle. So an
 * optional reference to a record that may still come is left empty: one with an
 * id above all that were used before the import. It is set once all lines are
 * read (awaited.ts). Nothing can refer to a line without an id, so one that has
 * such a reference waits until all else is there: then the files are read again.
 */

import { performance } from "node:perf_hooks";
import type { Actor } from "../../auth/access.ts";
import { importedValues, ownerOfImported } from "../../api/records/imported.ts";
import { localOperator } from "../../api/operator.ts";
import { maxRecordBytes } from "../../api/operations.ts";
import { ApiError, type FieldError } from "../../http/errors.ts";
import { parseJsonObject } from "../../http/json.ts";
import { type Document, formatTime, type Mutation } from "../../store/store.ts";
import type { Line } from "../../store/log/files.ts";
import { recordId, type Values } from "../../api/declaration/properties.ts";
import type { Records } from "../../api/records/records.ts";
import { type Body, fieldError } from "../../api/declaration/validation.ts";
import type {
  Collection,
  NamedProperty,
} from "../../api/declaration/declaration.ts";

/** A rejected line, as a task lists it. */
type RejectedLine = {
  /** Its collection, if the import has several. */
  readonly collection?: string;
  readonly line: number;
  readonly errors: readonly Pick<FieldError, keyof FieldError>[];
};

/** Ids, as ranges from the first to the last, in the order in which they were given. */
type Ids = readonly (readonly [first: number, last: number])[];

/** The most ranges of ids, which others interrupt by records of theirs. What comes after them is not taken for a record of the import. */
const maxRanges = 1000;

/** The progress of an import: a part of its task. */
export interface Progress {
  /** True if lines without an id wait for others. */
  readonly hasLate?: boolean;
  /** True while the files are read again for these. */
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
  /** The records that it has created with the ids that their lines name, by the names of its collections; undefined if an earlier version began it. A record that got the next id is not what another line means by that. */
  readonly created?: Readonly<Record<string, Ids>>;
  /** The last id that it has used, whether or not a line names it. */
  readonly usedId?: number;
  /** The errors of the first rejected lines. */
  readonly errors: readonly RejectedLine[];
}

/** A record, the number of its line, the references that it awaits, and the time of its last change in milliseconds since 1970, if its line has that. */
export type AwaitedItem = readonly [
  record: number,
  line: number,
  references: Readonly<Record<string, number>>,
  updated?: number | undefined,
];

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
  /** The latest time that a line of another machine may have, in milliseconds since 1970. */
  readonly latest: number;
  /** Adds a mutation to the transaction. */
  readonly apply: (mutation: Mutation) => void;
}

/** How long validating a batch may take; writing it takes about as long. */
export const maxBatchMs = 3;

/** Returns the most bytes of a line, with its newline: whatever a POST accepts, and what the server adds when it exports that. */
export function maxLineBytes({ collection }: Records): number {
  return (1 << 16) + maxRecordBytes(collection);
}

function lineTooLong(maxBytes: number): FieldError {
  const message = `The line is longer than ${maxBytes} bytes.`;
  return { field: "", code: "length", message };
}

/** How far above the highest used id that of a line may be, so that higher ids remain available. */
const maxIdGap = 1_000_000;

// Each batch writes the errors again, and 250 tasks are stored: as each error
// takes at most some 300 bytes, those of a task take about 150 KB.
const maxErrors = 100;
const maxErrorsPerLine = 5;

/** A task with this many rejected lines fails: it is probably the wrong file. */
export const maxRejectedLines = 100_000;

const idProperty = recordId();

/**
 * Imports lines until all are done or {@linkcode maxBatchMs} have passed, and
 * removes them from the array.
 *
 * @returns the progress after them, and what their records await
 */
export function importBatch(
  pending: Line[],
  { progress, ...target }: Target & {
    readonly progress: Progress;
    /** True if the import has several files. */
    readonly hasParts: boolean;
  },
): { readonly progress: Progress; readonly awaited: readonly AwaitedItem[] } {
  const { isLast = false, created } = progress;
  const { collection: { name }, table } = target.records;
  const maxBytes = maxLineBytes(target.records);
  const place = target.hasParts ? { collection: name } : {};
  let { byte, line, imported, rejected, errors } = progress;
  let { hasLate = false, usedId = 0 } = progress;
  const awaited: AwaitedItem[] = [];
  const ids = [...created?.[name] ?? []];
  const knowsAll = created !== undefined || progress.lines === 0;
  const isCreated = (of: string, id: number) =>
    !knowsAll || includesId(of === name ? ids : created?.[of] ?? [], id);
  let used = 0;
  const deadline = performance.now() + maxBatchMs;
  for (const { bytes, end } of pending) {
    if (used > 0 && performance.now() > deadline) break;
    used++;
    line++;
    const isTooLong = end - byte > maxBytes; // the beginning is missing
    byte = end;
    if (!isTooLong && bytes.every(isBlank)) continue;
    const { lastId } = table;
    const result = isTooLong
      ? (isLast ? {} : { errors: [lineTooLong(maxBytes)] })
      : importLine(bytes, { ...target, isCreated }, isLast);
    const { record, references, updated, errors: found } = result;
    if (record !== undefined) {
      imported++;
      usedId = addId(ids, record, { lastId, usedId, newId: table.lastId });
      if (references) {
        const item = [record, line, references] as const;
        awaited.push(updated === undefined ? item : [...item, updated]);
      }
    }
    if (found) {
      rejected++;
      errors = addErrors(errors, { ...place, line, errors: found });
    }
    hasLate ||= result.isLate ?? false;
    if (rejected >= maxRejectedLines) break;
  }
  pending.splice(0, used);
  return {
    progress: {
      ...progress,
      ...{ byte, line, imported, rejected, errors, hasLate, usedId },
      lines: imported + rejected,
      ...(knowsAll && { created: { ...created, [name]: ids } }),
    },
    awaited,
  };
}

/**
 * Adds the id that a line names, 0 if it names none, to ranges. If no id was given
 * since their last one, up to `lastId`, they include the ids in between: nobody
 * has them, or ever gets them. Once there are very many ranges, the last one
 * includes the ids of lines that name none, and ends at those of others.
 *
 * @returns the last id that the import has used, as far as the ranges go
 */
function addId(
  ids: (readonly [number, number])[],
  id: number,
  { lastId, usedId, newId }: Readonly<
    Record<"lastId" | "usedId" | "newId", number>
  >,
): number {
  const [first = id, last] = ids.at(-1) ?? [];
  const isFull = ids.length === maxRanges;
  if (isFull && usedId !== lastId) return usedId;
  if (id > 0 && (isFull || last === lastId)) ids[ids.length - 1] = [first, id];
  else if (id > 0) ids.push([id, id]);
  return newId;
}

/** Returns whether an id is in one of the ranges. */
export function includesId(ids: Ids, id: number): boolean {
  return ids.some(([first, last]) => first <= id && id <= last);
}

/** Returns the errors of the first rejected lines with those of another one. */
export function addErrors(
  errors: Progress["errors"],
  line: RejectedLine,
): Progress["errors"] {
  const isListed = errors.some((each) =>
    each.line === line.line && each.collection === line.collection
  );
  return isListed || errors.length >= maxErrors
    ? errors
    : [...errors, { ...line, errors: line.errors.slice(0, maxErrorsPerLine) }];
}

/** Returns whether a byte is a space, tab or carriage return. */
function isBlank(byte: number): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0d;
}

/** The outcome of a line. */
interface LineResult {
  /** If it is imported, the id that it names; 0 if it names none. */
  readonly record?: number;
  /** The references that it awaits. */
  readonly references?: AwaitedItem[2] | undefined;
  /** The time of its last change, in milliseconds since 1970, if the line has one. */
  readonly updated?: number | undefined;
  /** The reasons for which it is rejected. */
  readonly errors?: readonly FieldError[];
  readonly isLate?: boolean;
}

/** The destination, and which records the import has created. */
type LineTarget = Target & {
  readonly isCreated: (of: string, id: number) => boolean;
};

/** Adds the mutations of a line to the transaction. */
function importLine(
  bytes: Uint8Array,
  target: LineTarget,
  isLast: boolean,
): LineResult {
  let body: Body;
  try {
    body = parseJsonObject(bytes, "line");
  } catch (error) {
    return isLast ? {} : { errors: errorsOf(error) };
  }
  const isLate = !Object.hasOwn(body, "id") && refersToNew(body, target);
  if (isLast) return isLate ? createRecord(body, target, false) : {};
  return isLate ? { isLate } : createRecord(body, target, true);
}

/** Returns the errors of an invalid line. */
export function errorsOf(error: unknown): readonly FieldError[] {
  if (!(error instanceof ApiError)) throw error;
  const { message, errors } = error;
  const code = error.code === 40002 ? "type" : "format";
  return errors ?? [{ field: "", code, message }];
}

/** Returns whether a line has an optional reference to a record that did not exist before the import. */
function refersToNew(body: Body, { records, lastIds }: Target): boolean {
  return records.collection.parents.some(
    ({ isRequired, property, target: { name } }) => {
      const id = body[property]; // of any type
      return !isRequired && typeof id === "number" &&
        id > (lastIds[name] ?? Infinity);
    },
  );
}

/** Creates the record of a line, without the references to records that are not there yet. */
function createRecord(
  body: Body,
  target: LineTarget,
  isFirst: boolean,
): LineResult {
  const { records, caller, latest, apply, isTrusted, lastIds, isCreated } =
    target;
  const errors = checkId(body, records, isTrusted);
  const missing: Record<string, number> = {};
  const defersCheck = (
    { name, nullable, target: of }: NamedProperty,
    id: number,
  ) => {
    const isNew = isFirst && nullable &&
      id > (lastIds[of?.name ?? ""] ?? Infinity);
    if (isNew) missing[name] = id;
    return isNew;
  };
  const { store } = records;
  const imported = importedValues(
    body,
    caller === localOperator ? undefined : formatTime(latest),
  );
  try {
    const document = records.buildRecord(body, {
      caller,
      valuesFromUrl: target.given,
      // The users of a store that was exported elsewhere come with the records.
      owner: ownerOfImported(
        records,
        body,
        caller,
        (id) =>
          store.table("users").get(id) !== undefined &&
          (caller !== localOperator ||
            id > (lastIds["users"] ?? Infinity) && isCreated("users", id)),
      ),
      imported,
      defersCheck,
    });
    errors.push(...referencesToOthers(document, missing, target));
    if (errors.length > 0) return { errors };
    const { id } = document;
    const names = Object.keys(missing);
    if (names.length === 0) {
      apply(records.putMutation(document));
      return { record: imported.id ?? 0 };
    }
    const time = Date.parse(String(document["updated_at"]));
    apply(records.putMutation({
      ...document,
      ...Object.fromEntries(names.map((name) => [name, null])),
      updated_at: provisionalTime(time),
    }));
    const updated = imported.updated_at === undefined ? undefined : time;
    return { record: id, references: missing, updated };
  } catch (error) {
    return { errors: [...errors, ...errorsOf(error)] };
  }
}

/** Returns the errors of references to records that are new but not of the import. */
function referencesToOthers(
  document: Document,
  missing: object,
  { records: { collection }, lastIds, isCreated }: Pick<
    LineTarget,
    "records" | "lastIds" | "isCreated"
  >,
): FieldError[] {
  return collection.parents.flatMap(({ property, target: { name } }) => {
    const id = Number(document[property]);
    const isNew = id > (lastIds[name] ?? Infinity) && !(property in missing);
    return isNew && !isCreated(name, id)
      ? [anotherRecord(collection, property, id)]
      : [];
  });
}

/** Returns the time of a record as it is stored while it awaits references: with a validator of its own. */
export function provisionalTime(time: number): string {
  return formatTime(time + 1);
}

/** The error of a reference to a record that the import has not created: it got the id of one that never came. Of somebody's own record it does not tell that it exists. */
export function anotherRecord(
  { visibleProperties }: Collection,
  name: string,
  id: number,
): FieldError {
  const { expected, target } = visibleProperties.get(name) ?? {};
  const reason = target?.owner === undefined
    ? `is ${id}, which is another record: give a line that others refer to an "id"`
    : `is ${id}, which does not exist: it must be ${expected}`;
  return fieldError(name, { code: "reference", reason });
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
      `"id" ${reason}: it must be ${idProperty.expected}, above ${lastId}, the highest id used so far${limit}, so lines must be in ascending order of their ids; or omit it.`,
  }];
}
