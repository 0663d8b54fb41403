/** What a store is to its callers, and how it is opened. */

import type { FileSystem } from "./log/files.ts";
import type { Json } from "./memory/row.ts";
import type { TableDeclaration } from "./memory/table.ts";

/** Sizes in bytes and times in milliseconds; tests make them small. */
export interface StoreLimits {
  /** A log longer than this, and than the snapshot, is ended by a new one. */
  readonly minLogBytes: number;
  /** What may wait to be written. */
  readonly maxQueueBytes: number;
  /** What one write takes. */
  readonly maxBatchBytes: number;
  /** What is kept back for a full disk. */
  readonly reserveBytes: number;
  /** How long another process may take to answer the lock. */
  readonly lockTimeoutMs: number;
  /** The mark is written this long after a write. */
  readonly markerDelayMs: number;
  /** How long to wait before trying again what the disk refused. */
  readonly retryMs: number;
}

/** For a machine of any size. */
export const defaultLimits: StoreLimits = {
  minLogBytes: 8 << 20,
  maxQueueBytes: 16 << 20,
  maxBatchBytes: 1 << 20,
  reserveBytes: 16 << 20,
  lockTimeoutMs: 5000,
  markerDelayMs: 1000,
  retryMs: 1000,
};

/** Takes what the store has to tell. */
export type Logger = (
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
  readonly log?: Logger;
  readonly limits?: Partial<StoreLimits>;
}

/** How to take a transaction. */
export interface CommitOptions {
  /** Taken on a full disk too, from the space kept back: a sign-in, without which nobody could delete. */
  readonly allowWhenFull?: boolean;
}
