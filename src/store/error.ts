/**
 * The errors of the store: a code, and fields with details. The API decides
 * what a client is sent for each code; the store knows nothing of HTTP.
 */

/**
 * The reason why the store refused or failed.
 *
 * - `in-use`: another process has locked the folder.
 * - `damaged`: the files contradict each other; nothing was changed.
 * - `format`: the files are from a version that this one cannot read; nothing was changed.
 * - `read-only`: after a disk fault, only a restart makes the store writable.
 * - `disk-full`: there was no space; nothing was changed.
 * - `memory-full`: there was no memory for more records; nothing was changed.
 * - `overloaded`: too many writes or searches are waiting; nothing was changed.
 * - `outcome-unknown`: the disk failed during the write.
 * - `overtaken`: another server changed the state first; nothing was changed.
 * - `unreachable`: etcd does not answer; nothing was changed.
 * - `closed`: the store has been closed.
 * - `unknown-table`: no table of this name is declared or on the disk.
 * - `not-empty`: the folder for a backup is not empty.
 * - `unusable`: the operating system denies the use of the folder.
 */
type StoreErrorCode =
  | "in-use"
  | "damaged"
  | "format"
  | "read-only"
  | "disk-full"
  | "memory-full"
  | "overloaded"
  | "outcome-unknown"
  | "overtaken"
  | "unreachable"
  | "closed"
  | "unknown-table"
  | "not-empty"
  | "unusable";

/** Damage in a file. */
export interface Fault {
  /** The name of the file in the folder. */
  readonly file: string;
  /** The offset of the damage, counted from 0. */
  readonly byte: number;
  /** The line, counted from 1; 0 stands for the file as a whole. */
  readonly line: number;
  /** The kind of damage, as a sentence without its full stop. */
  readonly message: string;
}

/** An error of the store. */
export class StoreError extends Error {
  override readonly name = "StoreError";
  readonly code: StoreErrorCode;
  /** The damage that was found, if the code is `damaged`. */
  readonly fault: Fault | undefined;

  constructor(
    code: StoreErrorCode,
    message: string,
    options: ErrorOptions & { readonly fault?: Fault } = {},
  ) {
    super(message, options);
    this.code = code;
    this.fault = options.fault;
  }
}

export function closedError(): StoreError {
  return new StoreError("closed", "The store is closed");
}

/** Returns the operating system's code of an error, such as `ENOSPC`, or "". */
export function errorCode(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/** Returns the message of an error, with the path to which Node's permission model gives no access. */
export function errorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return "resource" in error
    ? `${error.message} (${String(error.resource)})`
    : error.message;
}

/** Called when a write is durable, or with an error when it was rolled back. */
export type DurableCallback = (error?: StoreError) => void;
