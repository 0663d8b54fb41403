/**
 * Checkpoints: a snapshot of all records, and a new log after it. One is due
 * when the log has grown longer than the last snapshot and the next one, so
 * that no more than twice the log is written in the long run. It is written
 * while transactions continue; one that fails is dropped, the log continues,
 * and it is tried again after a delay that doubles.
 */

import { performance } from "node:perf_hooks";
import { closedError, errorText, StoreError } from "./error.ts";
import { freezeTables } from "./log/snapshot.ts";
import type { LogWriter } from "./log/writer.ts";
import type { Logger, StoreLimits } from "./options.ts";
import {
  prepareLog,
  removeBefore,
  saveSnapshot,
  type StoreFolder,
} from "./log/folder.ts";
import type { FolderScan } from "./recovery/scan.ts";

const maxRetryMs = 300_000;

/** What all parts of an open store share. */
export interface StoreContext {
  readonly folder: StoreFolder;
  readonly limits: StoreLimits;
  readonly log: Logger;
  /** What the start found; its tables are the live ones. */
  readonly scan: FolderScan;
}

/** Writes checkpoints. */
export class Checkpointer {
  /** The generation of the newest snapshot, and its size. */
  generation: number;
  #snapshotBytes: number;
  readonly #context: StoreContext;
  readonly #writer: LogWriter;
  /** The size and number of the documents written since, for their average size. */
  #writtenBytes: number;
  #writtenCount: number;
  #running: Promise<void> | undefined;
  #failures = 0;
  #retryAt = 0;
  #isClosed = false;

  constructor(context: StoreContext, writer: LogWriter) {
    const { scan } = context;
    this.#context = context;
    this.#writer = writer;
    this.generation = scan.baseGeneration;
    this.#snapshotBytes = scan.baseBytes;
    this.#writtenBytes = scan.baseBytes + writer.log.offset;
    this.#writtenCount = this.#countRecords();
  }

  /** Counts the documents of a transaction. */
  count(bytes: number, documents: number): void {
    this.#writtenBytes += bytes;
    this.#writtenCount += documents;
  }

  /** Returns the expected size of a snapshot. */
  expectedBytes(): number {
    const average = this.#writtenBytes / Math.max(1, this.#writtenCount);
    return Math.round(average * this.#countRecords());
  }

  /** Returns whether a checkpoint is possible at all. */
  canRun(): boolean {
    return !this.#isClosed && this.#writer.fault === undefined;
  }

  /** Returns whether a checkpoint would give back space, and may be tried now. */
  isWorthwhile(hasDeleted: boolean): boolean {
    const isHalf = this.expectedBytes() * 2 < this.#writer.log.offset;
    return (hasDeleted || isHalf) && performance.now() >= this.#retryAt;
  }

  /** Begins a checkpoint if one is due. */
  runIfDue(): void {
    const minBytes = Math.max(
      this.#context.limits.minLogBytes,
      this.#snapshotBytes,
      this.expectedBytes(),
    );
    const isDue = this.#writer.log.offset > minBytes &&
      performance.now() >= this.#retryAt && this.canRun();
    if (isDue) this.run().catch(() => {}); // it is logged, and tried again later
  }

  /** Writes a checkpoint now; joins one that is being written. */
  run(): Promise<void> {
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /** Ends the checkpoint that is being written, as soon as possible. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#running?.catch(() => {});
  }

  async #run(): Promise<void> {
    const { limits, log } = this.#context;
    if (this.#isClosed) throw closedError();
    try {
      await this.#write();
      this.#failures = 0;
    } catch (error) {
      const delay = limits.retryMs * 2 ** ++this.#failures;
      this.#retryAt = performance.now() + Math.min(delay, maxRetryMs);
      const message = `Cannot write a snapshot: ${errorText(error)}`;
      if (!this.#isClosed) log("error", message);
      throw error;
    }
  }

  async #write(): Promise<void> {
    const { folder, scan, log } = this.#context;
    const free = await folder.files.free(folder.folder);
    const needed = Math.ceil(this.expectedBytes() * 1.1) + 4096;
    if (free < needed) {
      const message = `there are ${free} bytes of space, it needs ${needed}`;
      throw new StoreError("disk-full", message);
    }
    // From here to the call of `rotate` nothing else can run.
    const seq = this.#writer.lastSeq;
    const tables = freezeTables(scan.tables);
    const generation = this.#writer.log.generation + 1;
    const start = { store: scan.storeId, generation, seq };
    const next = prepareLog(folder, start);
    next.catch(() => {}); // the writer may await it only later
    await this.#writer.rotate(next).catch(async (error) => {
      await next.then(({ discard }) => discard(), () => {});
      throw error;
    });
    const isStopped = () => this.#isClosed;
    const bytes = await saveSnapshot(folder, { ...start, tables, isStopped });
    const previous = this.generation;
    this.generation = generation;
    this.#snapshotBytes = this.#writtenBytes = bytes;
    this.#writtenCount = tables.reduce((sum, { rows }) => sum + rows.length, 0);
    log("info", "Wrote a snapshot", { generation, seq, bytes });
    await removeBefore(folder, previous);
  }

  #countRecords(): number {
    let count = 0;
    for (const { size } of this.#context.scan.tables.values()) count += size;
    return count;
  }
}
