/**
 * Imports: from lines to the transaction that makes records of them. A line is
 * judged by the rules of POST; one that breaks them is rejected, and the others
 * go in.
 */

import { performance } from "node:perf_hooks";
import { ApiError, type FieldError } from "../../http/errors.ts";
import { parseJsonObject } from "../../http/json.ts";
import type { Mutation } from "../../store/store.ts";
import type { SpoolLine } from "./spool.ts";
import { type Json, recordId } from "../../api/declaration/properties.ts";
import type { Records } from "../../api/records/records.ts";
import type { Body } from "../../api/declaration/validation.ts";

/** How far an import has come: a part of its task. */
export interface Progress {
  /** Where the next line begins in the spool. */
  readonly byte: number;
  /** The number of the last line, blank ones included. */
  readonly line: number;
  readonly lines: number;
  readonly imported: number;
  readonly rejected: number;
  /** Of the first lines that were rejected. */
  readonly errors: readonly Json[];
}

/** Where the lines go. */
interface Into {
  readonly records: Records;
  /** The values that the address gives. */
  readonly given: Readonly<Record<string, Json>>;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** Makes a record part of the transaction. */
  readonly apply: (operation: Mutation) => void;
}

/** How long judging a batch may take, in ms; writing it takes about as long again. */
const sliceTime = 3;

/** The longest line, in bytes: one takes no more than some 20 ms, whatever is in it. */
export const longestLine = 1 << 17;

/** The highest id that a line may bring: others are to be given after it. */
const highestId = 2 ** 52;

// Each batch writes these anew, and 250 tasks are kept.
const mostErrors = 100;
const mostErrorsOfLine = 20;
const longestErrors = 1 << 17; // characters

const id = recordId();

/**
 * Makes records of the next lines, as far as it gets in a slice of time.
 *
 * @returns how far it has come, and how many of the lines it came to
 */
export function importBatch(
  lines: readonly SpoolLine[],
  { progress, ...into }: Into & { readonly progress: Progress },
): { readonly progress: Progress; readonly used: number } {
  let { byte, line, lines: count, imported, rejected, errors } = progress;
  let used = 0;
  const until = performance.now() + sliceTime;
  for (const { bytes, next } of lines) {
    if (used > 0 && performance.now() > until) break;
    used++;
    line++;
    byte = next;
    if (bytes?.every(isBlank)) continue;
    count++;
    const wrong = importLine(bytes, into);
    if (wrong.length === 0) {
      imported++;
      continue;
    }
    rejected++;
    if (errors.length >= mostErrors) continue;
    const told = wrong.slice(0, mostErrorsOfLine).map((each) => ({ ...each }));
    const more = [...errors, { line, errors: told }];
    if (JSON.stringify(more).length <= longestErrors) errors = more;
  }
  return {
    progress: { byte, line, lines: count, imported, rejected, errors },
    used,
  };
}

/** Space, tab and carriage return. */
function isBlank(byte: number): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0d;
}

/** Makes the record of a line, or tells what is wrong with it. */
function importLine(
  bytes: Uint8Array | undefined,
  { records, given, now, apply }: Into,
): readonly FieldError[] {
  if (bytes === undefined) {
    return [wrong("length", `The line is longer than ${longestLine} bytes.`)];
  }
  let body: Body;
  try {
    body = parseJsonObject(bytes, "line");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return [wrong(error.code === 40002 ? "type" : "format", error.message)];
  }
  const last = records.table.lastId;
  const own = judgeId(body, last);
  try {
    const draft = records.buildRecord(body, { given, id: last + 1 });
    if (own.length > 0) return own;
    apply(records.putMutation({ ...draft, ...keptOf(body, now) }));
    return [];
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return [...own, ...error.errors ?? []];
  }
}

/** An id was never given before if it is above all that were. */
function judgeId(body: Body, last: number): FieldError[] {
  const sent = Object.hasOwn(body, "id") ? body["id"] : last + 1;
  const failure = id.check(sent);
  const code = failure?.code ??
    (Number(sent) <= last
      ? "unique"
      : Number(sent) > Math.max(highestId, last + 1)
      ? "range"
      : undefined);
  if (code === undefined) return [];
  const reason = failure?.reason ?? `is ${sent}`;
  const message =
    `"id" ${reason}: it must be ${id.expected}, above ${last}, the highest ever given, and at most 2^52; or leave it out.`;
  return [{ field: "id", code, message }];
}

/**
 * What a line keeps that was exported: with its id also its times, unless
 * they cannot be true. Without an id it is a new record.
 */
function keptOf(
  { id, created_at, updated_at }: Body,
  now: number,
): Readonly<Record<string, Json>> | undefined {
  if (typeof id !== "number") return undefined;
  const created = timeOf(created_at);
  const updated = timeOf(updated_at);
  return created <= updated && updated <= now
    ? { id, created_at: String(created_at), updated_at: String(updated_at) }
    : { id };
}

/** A time as records show it, in ms since 1970; NaN where it is none. */
function timeOf(value: unknown): number {
  const time = typeof value === "string" ? Date.parse(value) : NaN;
  return time >= 0 && new Date(time).toISOString() === value ? time : NaN;
}

/** What is wrong with a line as a whole. */
function wrong(code: FieldError["code"], message: string): FieldError {
  return { field: "", code, message };
}
