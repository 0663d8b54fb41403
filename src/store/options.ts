/** What a store is to its callers, and how it is opened. */

import type { Settled } from "./error.ts";
import type { Feed } from "./feed.ts";
import type { FileSystem } from "./files.ts";
import type { Histogram } from "./histogram.ts";
import type { Operation } from "./log.ts";
import type { Json } from "./row.ts";
import type { Spools } from "./spool.ts";
import type { Table, TableDeclaration } from "./table.ts";

/** Sizes in bytes and times in milliseconds; tests make them small. */
export interface StoreLimits {
  /** A log longer than this, and than the snapshot, is ended by a new one. */
  readonly logBytes: number;
  /** What may wait to be written. */
  readonly queueBytes: number;
  /** What one write takes. */
  readonly batchBytes: number;
  /** What is kept back for a full disk. */
  readonly reserveBytes: number;
  /** How long another process may take to answer the lock. */
  readonly lockPatience: number;
  /** The mark is written this long after a write. */
  readonly markDelay: number;
  /** How long to wait before trying again what the disk refused. */
  readonly retry: number;
}

/** For a machine of any size. */
export const defaultLimits: StoreLimits = {
  logBytes: 8 << 20,
  queueBytes: 16 << 20,
  batchBytes: 1 << 20,
  reserveBytes: 16 << 20,
  lockPatience: 5000,
  markDelay: 1000,
  retry: 1000,
};

/** Takes what the store has to tell. */
export type Log = (
  level: "error" | "info" | "debug",
  message: string,
  fields?: Readonly<Record<string, Json>>,
) => void;

/** How to open a store. */
export interface StoreOptions {
  readonly folder: string;
  readonly tables: readonly TableDeclaration[];
  /** Every file operation goes through this; the machine's own by default. */
  readonly files?: FileSystem;
  /** The time in milliseconds. */
  readonly now?: () => number;
  readonly random?: (bytes: number) => Uint8Array;
  readonly log?: Log;
  readonly limits?: Partial<StoreLimits>;
}

/** How to take a transaction. */
export interface CommitOptions {
  /** Taken on a full disk too, from the space kept back: a sign-in, without which nobody could delete. */
  readonly essential?: boolean;
}

/** An open store. */
export interface Store {
  /** The last sequence applied in memory. */
  readonly seq: number;
  /** The last sequence known to be on the disk. */
  readonly durableSeq: number;
  /** False after a disk fault, until a restart. */
  readonly writable: boolean;
  /** Whether the disk is full: only deletes are taken until there is space. */
  readonly full: boolean;
  /** The number of the log that is written. */
  readonly generation: number;
  /** The length of that log. */
  readonly logBytes: number;
  /** How long the disk takes to make what is written durable. */
  readonly syncs: Histogram;
  /** What the start had to mend, as sentences: empty after a clean stop. */
  readonly notices: readonly string[];
  /** Throws on a name that is neither declared nor on the disk. */
  table(name: string): Table;
  /**
   * Applies all operations at once in memory and returns their sequence, for
   * {@linkcode Store.settled} to tell when they are durable; `by` is the id of
   * the user, 0 for the server itself. Throws, with nothing applied, when it
   * cannot be accepted.
   */
  apply(
    operations: readonly Operation[],
    by: number,
    options?: CommitOptions,
  ): number;
  /**
   * The same of operations that are made one after the other, each of which
   * sees what those before it did. What throws takes all of them back.
   */
  transact(
    by: number,
    make: (apply: (operation: Operation) => void) => void,
    options?: CommitOptions,
  ): number;
  /**
   * Applies all operations and resolves when they are durable. Throws at once
   * as `apply` does; rejects with `disk-full` (taken back, nothing was changed)
   * or `outcome-unknown`.
   */
  commit(
    operations: readonly Operation[],
    by: number,
    options?: CommitOptions,
  ): Promise<void>;
  /**
   * Undefined when everything up to `seq` is durable, else a promise that
   * resolves when it is. It rejects when that was taken back: look again
   * (`disk-full`) or give up (`outcome-unknown`). To be called in the same
   * turn in which the record was looked at.
   */
  settled(seq: number): Promise<void> | undefined;
  /**
   * The same by a call, at once where it is durable already: what is called
   * must not throw. For answers, of which each would cost three promises.
   */
  whenSettled(seq: number, settled: Settled): void;
  /**
   * Follows what is written, from behind the transaction `after`, else from
   * now on.
   */
  changes(after?: number): Feed;
  /** Large bodies on their way into the store. */
  readonly spools: Spools;
  /** Writes a snapshot now and begins a new log. */
  checkpoint(): Promise<void>;
  /** Makes all durable, closes the files and gives the folder free. */
  close(): Promise<void>;
}
