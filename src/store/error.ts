/** What the store refuses to do, and why, as a code with fields. */

/**
 * Why the store refused.
 *
 * - `in-use`: another process holds the folder.
 * - `damaged`: what is on the disk contradicts itself; nothing was changed.
 * - `format`: written by a newer version; nothing was changed.
 * - `read-only`: a disk fault happened; only a restart makes it writable.
 * - `disk-full`: there was no space; nothing was changed.
 * - `overloaded`: too much waits, to be written or searched; nothing was changed.
 * - `outcome-unknown`: the disk failed while this was on its way to it.
 * - `closed`: the store was closed.
 * - `unknown-table`: no table of this name is declared or on the disk.
 * - `unknown-spool`: no spool of this name is there.
 * - `not-empty`: the folder for a backup already holds something.
 * - `unusable`: the system does not let the folder be used at all.
 */
export type StoreErrorCode =
  | "in-use"
  | "damaged"
  | "format"
  | "read-only"
  | "disk-full"
  | "overloaded"
  | "outcome-unknown"
  | "closed"
  | "unknown-table"
  | "unknown-spool"
  | "not-empty"
  | "unusable";

/** A place in a file where something is wrong. */
export interface Fault {
  /** The file's name within the folder. */
  readonly file: string;
  /** Where the bad part begins, counted from 0. */
  readonly byte: number;
  /** The line, counted from 1; 0 where the whole file is meant. */
  readonly line: number;
  /** What is wrong there, as a sentence without its full stop. */
  readonly message: string;
}

/** What a {@linkcode StoreError} may tell besides its code. */
export interface StoreErrorFields {
  readonly fault?: Fault | undefined;
  /** The last good log sequence before the fault. */
  readonly seq?: number;
  readonly cause?: unknown;
}

/** The store refused; `code` says why. */
export class StoreError extends Error {
  override readonly name = "StoreError";
  readonly code: StoreErrorCode;
  readonly fault: Fault | undefined;
  readonly seq: number | undefined;

  constructor(
    code: StoreErrorCode,
    message: string,
    fields: StoreErrorFields = {},
  ) {
    super(message, { cause: fields.cause });
    this.code = code;
    this.fault = fields.fault;
    this.seq = fields.seq;
  }
}

export function closedError(): StoreError {
  return new StoreError("closed", "The store is closed");
}

/** The operating system's code of an error, such as `ENOSPC`; else "". */
export function errorCode(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/** An error as text for the log. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Called when what was waited for is durable; with an error where it was taken back. */
export type DurableCallback = (error?: StoreError) => void;
