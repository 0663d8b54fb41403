/** The limits and the log of a store, and how a transaction is accepted. */

/** For a machine of any size; tests make them small. */
export const defaultLimits = {
  /** A checkpoint ends a log that is longer than this and longer than a snapshot. */
  minLogBytes: 8 << 20,
  /** The most bytes that may wait to be written. */
  maxQueueBytes: 16 << 20,
  /** The most bytes that are written at once. */
  maxBatchBytes: 1 << 20,
  /** The space that is reserved for a full disk. */
  reserveBytes: 16 << 20,
  /** How long after a write the marker is updated. */
  markerDelayMs: 2000,
  /** How long after a failed checkpoint the next one is tried. */
  checkpointRetryMs: 300_000,
  /** The pause between two attempts to leave the mode for a full disk. */
  retryMs: 1000,
};

export type StoreLimits = Readonly<typeof defaultLimits>;

export type LogFields = Readonly<Record<string, unknown>>;

/** Writes what the store reports to the log of the server. A function is called only if the level is logged. */
export type Logger = (
  level: "error" | "info" | "debug",
  message: string,
  fields?: LogFields | (() => LogFields),
) => void;

/** How a transaction is accepted. */
export interface CommitOptions {
  /** Accepted on a full disk and in a full memory too, such as a sign-in or the first user, without which nobody could delete. */
  readonly allowWhenFull?: boolean;
}
