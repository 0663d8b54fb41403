/** How the store keeps its log short: a snapshot of all records, and a new log after it. */

import { performance } from "node:perf_hooks";
import { closedError, errorText, StoreError } from "./error.ts";
import { removeBefore, type StoreFolder } from "./log/folder.ts";
import { freezeTables, saveSnapshot } from "./log/snapshot.ts";
import type { LogWriter } from "./log/writer.ts";
import { countRecords } from "./memory/table.ts";
import type { Logger, StoreLimits } from "./options.ts";
import type { Pending } from "./queue.ts";
import type { FolderScan } from "./recovery/scan.ts";

/** The longest delay after which a failed checkpoint is tried again. */
const maxRetryMs = 300_000;

/** The context that all parts of an open store share. */
export interface StoreContext {
  readonly folder: StoreFolder;
  readonly limits: StoreLimits;
  readonly log: Logger;
  /** The result of the startup scan; its tables are the live ones, and its base is the newest snapshot. */
  readonly scan: FolderScan;
  /** Aborted when the store closes. */
  readonly closing: AbortController;
}

/**
 * Writes checkpoints: each is a snapshot of all records, and a new log after it.
 *
 * One is due when the log has grown longer than both the last snapshot and the
 * expected next one, so in the long run at most twice the size of the log is
 * written. Transactions continue meanwhile. A checkpoint that fails is dropped:
 * the log continues, and the next attempt follows after a delay that doubles
 * each time.
 */
export class Checkpoints {
  readonly #context: StoreContext;
  readonly #writer: LogWriter;
  /**
   * The size and number of the documents in the files at startup and of those
   * written since: their average predicts the size of a snapshot.
   */
  #writtenBytes: number;
  #writtenCount: number;
  #running: Promise<void> | undefined;
  /** The last sequence number in the last snapshot of this process. */
  #lastSeq = -1;
  #failures = 0;
  #retryAt = 0;

  constructor(context: StoreContext, writer: LogWriter) {
    this.#context = context;
    this.#writer = writer;
    const { scan } = context;
    this.#writtenBytes = scan.baseBytes + writer.log.offset;
    this.#writtenCount = countRecords(scan.tables);
  }

  /** Counts the documents of a transaction. */
  count({ text, puts }: Pending): void {
    this.#writtenBytes += text.length;
    this.#writtenCount += puts;
  }

  /** Returns the expected size of a snapshot. */
  expectedBytes(): number {
    const average = this.#writtenBytes / Math.max(1, this.#writtenCount);
    return Math.round(average * countRecords(this.#context.scan.tables));
  }

  /** Returns whether a checkpoint may free space: something was written since the last one. */
  mayFreeSpace(): boolean {
    return this.#writer.queue.lastSeq > this.#lastSeq &&
      performance.now() >= this.#retryAt;
  }

  /** Begins a checkpoint if one is due, or the last one has failed. */
  runIfDue(): void {
    if (performance.now() < this.#retryAt) return;
    const { limits, scan } = this.#context;
    const minBytes = Math.max(
      limits.minLogBytes,
      scan.baseBytes,
      this.expectedBytes(),
    );
    const isDue = this.#failures > 0 || this.#writer.log.offset > minBytes;
    if (isDue) this.run().catch(() => {}); // it is logged, and tried again later
  }

  /** Writes a checkpoint now, or joins the one that is being written. */
  run(): Promise<void> {
    return this.#running ??= this.#write().catch((error) => {
      const { closing, limits, log } = this.#context;
      const delayMs = limits.retryMs * 2 ** ++this.#failures;
      this.#retryAt = performance.now() + Math.min(delayMs, maxRetryMs);
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
    if (signal.aborted) throw closedError();
    const free = await folder.files.free(folder.folder);
    const needed = Math.ceil(this.expectedBytes() * 1.1) + 4096;
    if (free < needed) {
      throw new StoreError(
        "disk-full",
        `${free} bytes are free, ${needed} are needed`,
      );
    }
    // From here to the call of `rotate` nothing else can run.
    const seq = this.#writer.queue.lastSeq;
    const tables = freezeTables(scan.tables);
    const count = countRecords(scan.tables);
    const generation = this.#writer.log.generation + 1;
    const start = { store: scan.storeId, generation, seq };
    await this.#writer.rotate(start);
    const bytes = await saveSnapshot(folder, { ...start, tables, signal });
    const previous = scan.baseGeneration;
    scan.baseGeneration = generation;
    scan.baseBytes = this.#writtenBytes = bytes;
    this.#writtenCount = count;
    this.#lastSeq = seq;
    log("info", "Wrote a snapshot", { generation, seq, bytes });
    await removeBefore(folder, previous);
    this.#failures = 0;
  }

  /** Waits for the checkpoint that is being written, which ends once the store closes. */
  async close(): Promise<void> {
    await this.#running?.catch(() => {});
  }
}
