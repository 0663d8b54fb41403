/**
 * The one loop that writes the log. Its promises:
 *
 * - Group commit: a transaction is acknowledged only when its line and all
 *   lines before it are on the disk; all that wait share one write.
 * - A failed write or fdatasync is never retried: the retry may report success
 *   although the data is lost. All that is not durable is rolled back with an
 *   unknown outcome, and nothing is written until a restart.
 * - When a write finds the disk full, the log is cut back to its durable end.
 *   If that succeeds, what was queued is rolled back, nothing was changed, and
 *   writing continues. If it fails, the disk has failed.
 */

import { errorText, StoreError } from "../error.ts";
import { append, cutZeros } from "./append.ts";
import type { FastWrites } from "./fast-writes.ts";
import {
  encodeEntries,
  encodeLine,
  formatTime,
  type LogStart,
} from "./format.ts";
import { type OpenLog, prepareLog, type StoreFolder } from "./folder.ts";
import type { StoreLimits } from "../options.ts";
import type { Pending, TransactionQueue } from "../queue.ts";

/** The options of a writer, and the functions that it calls. */
interface WriterOptions {
  readonly folder: StoreFolder;
  readonly limits: StoreLimits;
  readonly fastWrites: FastWrites | undefined;
  /** Called, and awaited, before each write. */
  readonly beforeWrite: () => Promise<void> | undefined;
  /**
   * Called when more transactions are durable, or the next log has begun;
   * `syncMs` is how long the disk took.
   */
  readonly onAdvance: (syncMs: number) => void;
  /** Called when all that was not durable has been rolled back. */
  readonly onRollback: (error: StoreError) => void;
}

interface Rotation {
  /** The start of the next log. */
  readonly start: LogStart;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** Writes transactions to the log in order, and reports when they are durable. */
export class LogWriter {
  /** The log being written. */
  log: OpenLog;
  readonly queue: TransactionQueue;
  /** The disk fault after which nothing is written. */
  fault: StoreError | undefined;
  readonly #options: WriterOptions;
  #rotation: Rotation | undefined;
  #running: Promise<void> | undefined;

  constructor(log: OpenLog, queue: TransactionQueue, options: WriterOptions) {
    this.log = log;
    this.queue = queue;
    this.#options = options;
  }

  /** Writes what was added to the queue. */
  wake(): void {
    this.#options.fastWrites?.wake(this.queue);
    this.#start();
  }

  /** Ends the log at the start of the next one, and continues with that. */
  rotate(start: LogStart): Promise<void> {
    if (this.fault !== undefined) return Promise.reject(this.fault);
    return new Promise((resolve, reject) => {
      this.#rotation = { start, resolve, reject };
      this.#start();
    });
  }

  /** Closes the log once nothing is being written, and what is to be done before that is done. */
  async close(finish: () => Promise<void> | undefined): Promise<void> {
    while (this.#running !== undefined) await this.#running;
    await finish();
    await this.log.file.close().catch(() => {}); // all of it is on the disk
  }

  #start(): void {
    if (this.fault !== undefined) return;
    // Deferred, so that all transactions added in this turn of the event loop
    // share a batch.
    this.#running ??= new Promise((resolve) => {
      setImmediate(() => resolve(this.#run()));
    });
  }

  async #run(): Promise<void> {
    while (this.fault === undefined) {
      if (this.queue.length === 0 && this.#rotation === undefined) break;
      try {
        if (this.#rotation?.start.seq === this.queue.durableSeq) {
          await this.#rotate(this.#rotation);
        }
        const { fastWrites, limits: { maxBatchBytes } } = this.#options;
        await fastWrites?.wait(this.queue);
        const lastSeq = this.#rotation?.start.seq ?? Infinity;
        const batch = this.queue.next(maxBatchBytes, lastSeq);
        if (batch.length > 0) await this.#write(batch);
      } catch (error) {
        this.#rollBackAll(error);
      }
    }
    // In the same turn as the last check of the queue, so that a later `add` restarts the loop.
    this.#running = undefined;
  }

  async #write(batch: readonly Pending[]): Promise<void> {
    const { beforeWrite, fastWrites, folder } = this.#options;
    await beforeWrite();
    const { log, queue } = this;
    const { durableSeq: durable } = queue;
    const lines = encodeEntries(batch, { durable, seed: log.seed });
    const padded = await fastWrites?.pad(lines, log, folder);
    const syncMs = await append(log, lines, padded);
    queue.advance(durable + batch.length);
    fastWrites?.note(batch.length + queue.length, syncMs);
    queue.callBack();
    this.#options.onAdvance(syncMs);
  }

  async #rotate(
    { start, resolve, reject }: Rotation,
  ): Promise<void> {
    const { folder } = this.#options;
    const { file, seed } = this.log;
    const next = await prepareLog(folder, start).catch(reject);
    if (next !== undefined) {
      const at = formatTime(folder.now());
      const seal = encodeLine(`"seal":${start.seq},"at":"${at}"}`, seed);
      try {
        const syncMs = await append(this.log, seal);
        await cutZeros(this.log);
        await next.publish();
        this.log = next.log;
        this.#options.onAdvance(syncMs);
      } catch (error) {
        await next.log.file.close().catch(() => {});
        throw error;
      }
      await file.close().catch(() => {}); // all of it is on the disk
      resolve();
    }
    // Without the next log nothing has happened yet: the old one continues.
    this.#rotation = undefined;
  }

  /** Rolls back all that is not durable. Every error but a full disk is a fault. */
  #rollBackAll(error: unknown): void {
    const isFault = !(error instanceof StoreError) ||
      error.code !== "disk-full";
    const reason = isFault ? unknownOutcome(error) : error;
    if (isFault) this.fault = reason;
    const waiters = this.queue.rollBack(reason);
    this.#rotation?.reject(reason);
    this.#rotation = undefined;
    // Before any waiter is called back, so that all of them see the same state.
    this.#options.onRollback(reason);
    for (const { callback } of waiters) callback(reason);
  }
}

function unknownOutcome(cause: unknown): StoreError {
  return new StoreError(
    "outcome-unknown",
    `The disk failed (${errorText(cause)}); a restart will ` +
      "show whether the write is on it",
    { cause },
  );
}
