/** How the store keeps its log short: a snapshot of all records, and a new log after it. */

import { performance } from "node:perf_hooks";
import { errorText } from "./error.ts";
import { removeBefore, type StoreFolder } from "./log/folder.ts";
import { freezeTables, saveSnapshot } from "./log/snapshot.ts";
import type { LogWriter } from "./log/writer.ts";
import type { Logger, StoreLimits } from "./options.ts";
import type { FolderScan } from "./recovery/scan.ts";

/** The context that all parts of an open store share. */
export interface StoreContext {
  readonly folder: StoreFolder;
  readonly limits: StoreLimits;
  readonly log: Logger;
  /** The result of the startup scan; its tables are the live ones, and its base is the newest snapshot. */
  readonly scan: FolderScan;
  /** Aborted when the store closes, with the error `closed`. */
  readonly closing: AbortController;
}

/** Predicts the size of a snapshot. */
interface SpaceCheck {
  readonly expectedBytes: number;
  /** Rejects if there is no space for a snapshot. */
  requireSpace(): Promise<void>;
}

/**
 * Writes checkpoints: each is a snapshot of all records, and a new log after it.
 *
 * One is due when the log has grown longer than the last snapshot and, if that
 * is predicted, than the next one. Transactions continue meanwhile. A
 * checkpoint that fails is dropped: the log continues, and the next attempt
 * follows five minutes later.
 */
export class Checkpoints {
  readonly #context: StoreContext;
  readonly #writer: LogWriter;
  readonly #space: SpaceCheck | undefined;
  #running: Promise<void> | undefined;
  /** When to try again; 0 unless the last one has failed. */
  #retryAt = 0;

  constructor(
    context: StoreContext,
    writer: LogWriter,
    space: SpaceCheck | undefined,
  ) {
    this.#context = context;
    this.#writer = writer;
    this.#space = space;
  }

  /** Begins a checkpoint if one is due, or the last one has failed. */
  runIfDue(): void {
    const { limits: { minLogBytes }, scan: { baseBytes } } = this.#context;
    const expectedBytes = this.#space?.expectedBytes ?? 0;
    const isDue = this.#retryAt
      ? performance.now() >= this.#retryAt
      : this.#writer.log.offset >
        Math.max(minLogBytes, baseBytes, expectedBytes);
    if (isDue) this.run().catch(() => {}); // it is logged, and tried again later
  }

  /** Writes a checkpoint now, or joins the one that is being written. */
  run(): Promise<void> {
    return this.#running ??= this.#write().catch((error) => {
      const { closing, limits, log } = this.#context;
      this.#retryAt = performance.now() + limits.checkpointRetryMs;
      if (!closing.signal.aborted) {
        log("error", `Cannot write a snapshot: ${errorText(error)}`);
      }
      throw error;
    }).finally(() => {
      this.#running = undefined;
    });
  }

  async #write(): Promise<void> {
    const { closing: { signal }, folder, scan, log } = this.#context;
    signal.throwIfAborted();
    await this.#space?.requireSpace();
    // From here to the call of `rotate` nothing else can run.
    const seq = this.#writer.queue.lastSeq;
    const tables = freezeTables(scan.tables);
    const generation = this.#writer.log.generation + 1;
    const start = { store: scan.storeId, generation, seq };
    await this.#writer.rotate(start);
    const bytes = await saveSnapshot(folder, { ...start, tables, signal });
    const previous = scan.baseGeneration;
    scan.baseGeneration = generation;
    scan.baseBytes = bytes;
    log("info", "Wrote a snapshot", { generation, seq, bytes });
    await removeBefore(folder, previous);
    this.#retryAt = 0;
  }

  /** Waits for the checkpoint that is being written, which ends once the store closes. */
  async close(): Promise<void> {
    await this.#running?.catch(() => {});
  }
}
