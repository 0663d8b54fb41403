/** What a store is to its callers, and how it is opened. */

import type { FileSystem } from "./log/files.ts";
import type { Json } from "./memory/row.ts";
import type { TableDeclaration } from "./memory/table.ts";

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
  readonly allowWhenFull?: boolean;
}
