/**
 * Imports a batch: parses lines, validates each as POST would, and adds the
 * valid ones to a transaction. An invalid line is rejected with its errors,
 * and the others are imported.
 */

import { performance } from "node:perf_hooks";
import type { Actor } from "../../auth/access.ts";
import { ownerOfImported } from "../../api/records/imported.ts";
import { ApiError, type FieldError } from "../../http/errors.ts";
import { parseJsonObject } from "../../http/json.ts";
import type { Document, Mutation } from "../../store/store.ts";
import type { Line } from "../../store/log/files.ts";
import { recordId, type Values } from "../../api/declaration/properties.ts";
import type { Records } from "../../api/records/records.ts";
import type { Body } from "../../api/declaration/validation.ts";

/** A rejected line, as a task lists it. */
type RejectedLine = {
  readonly line: number;
  readonly errors: readonly Pick<FieldError, keyof FieldError>[];
};

/** The progress of an import: a part of its task. */
export interface Progress {
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

/** The highest id that a line may have, so that higher ids remain available. */
const maxImportedId = 2 ** 52;

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
 * @returns the progress after them
 */
export function importBatch(
  pending: Line[],
  { progress, ...target }: Target & { readonly progress: Progress },
): Progress {
  let { byte, line, imported, rejected, errors } = progress;
  let used = 0;
  const deadline = performance.now() + maxBatchMs;
  for (const { bytes, end } of pending) {
    if (used > 0 && performance.now() > deadline) break;
    used++;
    line++;
    const isTooLong = end - byte > maxLineBytes; // the beginning is missing
    byte = end;
    if (!isTooLong && bytes.every(isBlank)) continue;
    const found = isTooLong ? [lineTooLong] : importLine(bytes, target);
    if (found.length === 0) {
      imported++;
      continue;
    }
    rejected++;
    if (errors.length < maxErrors) {
      errors = [...errors, { line, errors: found.slice(0, maxErrorsPerLine) }];
    }
    if (rejected >= maxRejectedLines) break;
  }
  pending.splice(0, used);
  const lines = imported + rejected;
  return { byte, line, lines, imported, rejected, errors };
}

/** Returns whether a byte is a space, tab or carriage return. */
function isBlank(byte: number): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0d;
}

/** Adds the record of a line to the transaction; returns the errors if the line is invalid. */
function importLine(
  bytes: Uint8Array,
  { records, caller, given, now, apply }: Target,
): readonly FieldError[] {
  const errors: FieldError[] = [];
  try {
    const body = parseJsonObject(bytes, "line");
    errors.push(...checkId(body, records.table.lastId));
    const document = records.buildRecord(body, {
      caller,
      valuesFromUrl: given,
      owner: ownerOfImported(records, body, caller),
      imported: importedValues(body, now),
    });
    if (errors.length === 0) apply(records.putMutation(document));
    return errors;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const { message, errors: invalid } = error;
    const code = error.code === 40002 ? "type" : "format";
    return [...errors, ...invalid ?? [{ field: "", code, message }]];
  }
}

/** Checks that an id was never used before: it must be higher than all used ids. */
function checkId(body: Body, lastId: number): FieldError[] {
  const id = Object.hasOwn(body, "id") ? body["id"] : lastId + 1;
  const invalid = idProperty.check(id);
  const code = invalid?.code ??
    (Number(id) <= lastId
      ? "unique"
      : Number(id) > Math.max(maxImportedId, lastId + 1)
      ? "range"
      : undefined);
  if (code === undefined) return [];
  const reason = invalid?.reason ?? `is ${id}`;
  return [{
    field: "id",
    code,
    message:
      `"id" ${reason}: it must be ${idProperty.expected}, above ${lastId}, the highest id used so far, and at most 2^52; or omit it.`,
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
