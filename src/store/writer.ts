/**
 * The one loop that writes the log. Promises:
 *
 * - A transaction is answered only when its line and all before it are on the
 *   disk: one write and one fdatasync for all that waits (group commit).
 * - A failed fdatasync is never tried again: it may report success and have
 *   lost the data. The store is read-only from then on; what was under way is
 *   taken back, and its outcome is unknown until a restart.
 * - When the disk is full the log is cut back to where it was durable; if that
 *   succeeds, all that waited is taken back, nothing was changed, and writing
 *   may go on.
 */

import { Buffer } from "node:buffer";
import { performance } from "node:perf_hooks";
import { errorText, type Settled, StoreError } from "./error.ts";
import { isFull, writeAll } from "./files.ts";
import { Histogram } from "./histogram.ts";
import { encodeEntries, encodeLine, type Entry } from "./log.ts";
import type { OpenLog, PreparedLog } from "./recovery.ts";
import { takeBack, type Undo } from "./table.ts";

/** A transaction that is applied in memory and waits to be written. */
export interface Pending extends Entry {
  readonly undo: readonly Undo[];
}

/** What the writer tells its store. */
export interface WriterOptions {
  readonly batchBytes: number;
  readonly now: () => number;
  /** Called before each write; what it returns is waited for. */
  readonly ready: () => Promise<void> | undefined;
  /** More is durable, or another log is written. */
  readonly advanced: () => void;
  /** All that was not durable has been taken back. */
  readonly undone: (error: StoreError) => void;
}

interface Waiter {
  readonly seq: number;
  readonly settled: Settled;
}

interface Turn {
  readonly cut: number;
  readonly next: Promise<PreparedLog>;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** From a good SSD to a bad SD card, in seconds. */
const syncBounds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2];

/** Writes transactions to the log, in order, and tells when they are durable. */
export class LogWriter {
  // These five are for others to read.
  log: OpenLog;
  durableSeq: number;
  /** The length of all lines that wait, at most. */
  queuedBytes = 0;
  /** Why nothing can be written any more. */
  fault: StoreError | undefined;
  readonly syncs = new Histogram(syncBounds);
  readonly #options: WriterOptions;
  readonly #buffer: Buffer;
  #queue: Pending[] = [];
  #waiters: Waiter[] = [];
  #turn: Turn | undefined;
  #running: Promise<void> | undefined;

  constructor(log: OpenLog, durableSeq: number, options: WriterOptions) {
    this.log = log;
    this.durableSeq = durableSeq;
    this.#options = options;
    this.#buffer = Buffer.allocUnsafe(options.batchBytes);
  }

  add(pending: Pending): void {
    this.#queue.push(pending);
    this.queuedBytes += pending.bytes;
    this.#start();
  }

  /** Calls when `seq`, which is not durable yet, is; what it calls must not throw. */
  wait(seq: number, settled: Settled): void {
    const last = this.#queue.at(-1)?.seq ?? this.durableSeq;
    if (seq > last) settled(this.fault ?? takenBack());
    else this.#waiters.push({ seq, settled });
  }

  /** Ends the log behind `cut`, which is applied, and goes on with the next. */
  rotate(cut: number, next: Promise<PreparedLog>): Promise<void> {
    if (this.fault !== undefined) return Promise.reject(this.fault);
    return new Promise((resolve, reject) => {
      this.#turn = { cut, next, resolve, reject };
      this.#start();
    });
  }

  /** Resolves when nothing waits any more. */
  async idle(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  #start(): void {
    if (this.fault !== undefined) return;
    // Not at once: what the same turn of the event loop adds goes along.
    this.#running ??= new Promise((resolve) => {
      setImmediate(() => resolve(this.#run()));
    });
  }

  async #run(): Promise<void> {
    try {
      while (this.fault === undefined) {
        const turn = this.#turn;
        if (turn?.cut === this.durableSeq) await this.#change(turn);
        const batch = this.#take();
        if (batch.length > 0) await this.#write(batch);
        else if (this.#turn === undefined) break;
      }
    } catch (error) {
      // What nothing here expects must not let anyone wait for ever.
      this.#fail(error);
    } finally {
      // In the same turn as the last look at the queue: who adds next starts.
      this.#running = undefined;
    }
  }

  /** What the next write takes: never beyond the end of the log. */
  #take(): Pending[] {
    const limit = this.#options.batchBytes;
    let bytes = 0;
    let count = 0;
    for (const pending of this.#queue) {
      if (this.#turn !== undefined && pending.seq > this.#turn.cut) break;
      if (count > 0 && bytes + pending.bytes > limit) break;
      bytes += pending.bytes;
      count++;
    }
    return this.#queue.slice(0, count);
  }

  async #write(batch: readonly Pending[]): Promise<void> {
    await this.#options.ready();
    const total = batch.reduce((sum, { bytes }) => sum + bytes, 0);
    const buffer = total <= this.#buffer.length
      ? this.#buffer
      : Buffer.allocUnsafe(total);
    const { durableSeq: durable, log: { seed } } = this;
    const length = encodeEntries(buffer, batch, { durable, seed });
    if (!await this.#append(buffer.subarray(0, length))) return;
    this.durableSeq += batch.length;
    this.#queue.splice(0, batch.length);
    this.queuedBytes -= total;
    this.#wake();
    this.#options.advanced();
  }

  /** Whether the bytes are on the disk; if not, the consequences are drawn. */
  async #append(bytes: Buffer): Promise<boolean> {
    const log = this.log;
    try {
      await writeAll(log.file, bytes, log.offset);
    } catch (error) {
      if (isFull(error)) await this.#cutBack(error);
      else this.#fail(error);
      return false;
    }
    const start = performance.now();
    try {
      const [{ size, nlink }] = await Promise.all([
        log.file.stat(),
        log.file.datasync(),
      ]);
      if (size !== log.offset + bytes.length || nlink === 0) {
        throw new Error("another process changed or removed the log");
      }
    } catch (error) {
      this.#fail(error);
      return false;
    }
    this.syncs.observe(performance.now() - start);
    log.offset += bytes.length;
    return true;
  }

  async #cutBack(cause: unknown): Promise<void> {
    try {
      await this.log.file.truncate(this.log.offset);
      await this.log.file.datasync();
    } catch (error) {
      this.#fail(error);
      return;
    }
    const message = `Cannot write: there is no space (${errorText(cause)}); ` +
      "nothing was changed";
    this.#takeBack(new StoreError("disk-full", message, { cause }));
  }

  #fail(cause: unknown): void {
    const message = `The disk failed (${errorText(cause)}): whether the ` +
      "write is on it is not known until a restart";
    this.fault = new StoreError("outcome-unknown", message, { cause });
    this.#takeBack(this.fault);
  }

  #takeBack(error: StoreError): void {
    const queue = this.#queue;
    this.#queue = [];
    this.queuedBytes = 0;
    takeBack(queue.flatMap(({ undo }) => undo));
    this.#turn?.reject(error);
    this.#turn = undefined;
    // Before anyone is told, so that all see the same state.
    this.#options.undone(error);
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const { settled } of waiters) settled(error);
  }

  #wake(): void {
    if (this.#waiters.length === 0) return;
    const durable = this.durableSeq;
    const ready = this.#waiters.filter(({ seq }) => seq <= durable);
    this.#waiters = this.#waiters.filter(({ seq }) => seq > durable);
    for (const { settled } of ready) settled();
  }

  async #change(turn: Turn): Promise<void> {
    const old = this.log;
    let next: PreparedLog;
    try {
      next = await turn.next;
    } catch (error) {
      // Nothing happened yet: the old log goes on.
      this.#turn = undefined;
      turn.reject(error);
      return;
    }
    const at = new Date(this.#options.now()).toISOString();
    const seal = `"seal":${turn.cut},"at":"${at}"}`;
    if (!await this.#append(encodeLine(seal, old.seed))) return;
    try {
      await next.publish();
    } catch (error) {
      this.#fail(error);
      return;
    }
    this.log = next;
    this.#turn = undefined;
    await old.file.close().catch(() => {}); // it is whole on the disk
    turn.resolve();
    this.#options.advanced();
  }
}

function takenBack(): StoreError {
  const message = "What was asked for has been taken back";
  return new StoreError("outcome-unknown", message);
}
