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
import { type DurableCallback, errorText, StoreError } from "../error.ts";
import { isNoSpaceError, writeAll } from "./files.ts";
import { Histogram } from "../histogram.ts";
import { encodeEntries, encodeLine, type Entry } from "./format.ts";
import type { OpenLog, PreparedLog } from "../recovery/folder.ts";
import { rollBack, type Undo } from "../memory/table.ts";

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
  readonly settled: DurableCallback;
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
export interface LogWriter {
  /** The log that is written. */
  log: OpenLog;
  durableSeq: number;
  /** The length of all lines that wait, at most. */
  queuedBytes: number;
  /** Why nothing can be written any more. */
  fault: StoreError | undefined;
  readonly syncs: Histogram;
  add(pending: Pending): void;
  /** Calls when `seq`, which is not durable yet, is; what it calls must not throw. */
  wait(seq: number, settled: DurableCallback): void;
  /** Ends the log behind `cut`, which is applied, and goes on with the next. */
  rotate(cut: number, next: Promise<PreparedLog>): Promise<void>;
  /** Resolves when nothing waits any more. */
  idle(): Promise<void>;
}

export function writeLog(
  log: OpenLog,
  durableSeq: number,
  { batchBytes, now, ready, advanced, undone }: WriterOptions,
): LogWriter {
  const shared = Buffer.allocUnsafe(batchBytes);
  let queue: Pending[] = [];
  let waiters: Waiter[] = [];
  let turn: Turn | undefined;
  let running: Promise<void> | undefined;
  const writer: LogWriter = {
    log,
    durableSeq,
    queuedBytes: 0,
    fault: undefined,
    syncs: new Histogram(syncBounds),
    add(pending) {
      queue.push(pending);
      writer.queuedBytes += pending.bytes;
      start();
    },
    wait(seq, settled) {
      const last = queue.at(-1)?.seq ?? writer.durableSeq;
      if (seq > last) settled(writer.fault ?? takenBack());
      else waiters.push({ seq, settled });
    },
    rotate(cut, next) {
      if (writer.fault !== undefined) return Promise.reject(writer.fault);
      return new Promise((resolve, reject) => {
        turn = { cut, next, resolve, reject };
        start();
      });
    },
    async idle() {
      while (running !== undefined) await running;
    },
  };

  function start(): void {
    if (writer.fault !== undefined) return;
    // Not at once: what the same turn of the event loop adds goes along.
    running ??= new Promise((resolve) => {
      setImmediate(() => resolve(run()));
    });
  }

  async function run(): Promise<void> {
    try {
      while (writer.fault === undefined) {
        if (turn?.cut === writer.durableSeq) await change(turn);
        const batch = take();
        if (batch.length > 0) await write(batch);
        else if (turn === undefined) break;
      }
    } catch (error) {
      // What nothing here expects must not let anyone wait for ever.
      fail(error);
    } finally {
      // In the same turn as the last look at the queue: who adds next starts.
      running = undefined;
    }
  }

  /** What the next write takes: never beyond the end of the log. */
  function take(): Pending[] {
    let bytes = 0;
    let count = 0;
    for (const pending of queue) {
      if (turn !== undefined && pending.seq > turn.cut) break;
      if (count > 0 && bytes + pending.bytes > batchBytes) break;
      bytes += pending.bytes;
      count++;
    }
    return queue.slice(0, count);
  }

  async function write(batch: readonly Pending[]): Promise<void> {
    await ready();
    const total = batch.reduce((sum, { bytes }) => sum + bytes, 0);
    const buffer = total <= shared.length ? shared : Buffer.allocUnsafe(total);
    const { durableSeq: durable, log: { seed } } = writer;
    const length = encodeEntries(buffer, batch, { durable, seed });
    if (!await append(buffer.subarray(0, length))) return;
    writer.durableSeq += batch.length;
    queue.splice(0, batch.length);
    writer.queuedBytes -= total;
    wake();
    advanced();
  }

  /** Whether the bytes are on the disk; if not, the consequences are drawn. */
  async function append(bytes: Buffer): Promise<boolean> {
    const { log, syncs } = writer;
    try {
      await writeAll(log.file, bytes, log.offset);
    } catch (error) {
      if (isNoSpaceError(error)) await cutBack(error);
      else fail(error);
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
      fail(error);
      return false;
    }
    syncs.observe(performance.now() - start);
    log.offset += bytes.length;
    return true;
  }

  async function cutBack(cause: unknown): Promise<void> {
    const { file, offset } = writer.log;
    try {
      await file.truncate(offset);
      await file.datasync();
    } catch (error) {
      fail(error);
      return;
    }
    const message = `Cannot write: there is no space (${errorText(cause)}); ` +
      "nothing was changed";
    takeAllBack(new StoreError("disk-full", message, { cause }));
  }

  function fail(cause: unknown): void {
    const message = `The disk failed (${errorText(cause)}): whether the ` +
      "write is on it is not known until a restart";
    writer.fault = new StoreError("outcome-unknown", message, { cause });
    takeAllBack(writer.fault);
  }

  function takeAllBack(error: StoreError): void {
    rollBack(queue.flatMap(({ undo }) => undo));
    queue = [];
    writer.queuedBytes = 0;
    turn?.reject(error);
    turn = undefined;
    // Before anyone is told, so that all see the same state.
    undone(error);
    const told = waiters;
    waiters = [];
    for (const { settled } of told) settled(error);
  }

  function wake(): void {
    if (waiters.length === 0) return;
    const durable = writer.durableSeq;
    const woken = waiters.filter(({ seq }) => seq <= durable);
    waiters = waiters.filter(({ seq }) => seq > durable);
    for (const { settled } of woken) settled();
  }

  async function change(
    { cut, reject, resolve, ...ending }: Turn,
  ): Promise<void> {
    const old = writer.log;
    let next: PreparedLog;
    try {
      next = await ending.next;
    } catch (error) {
      // Nothing happened yet: the old log goes on.
      turn = undefined;
      reject(error);
      return;
    }
    const seal = `"seal":${cut},"at":"${new Date(now()).toISOString()}"}`;
    if (!await append(encodeLine(seal, old.seed))) return;
    try {
      await next.publish();
    } catch (error) {
      fail(error);
      return;
    }
    writer.log = next;
    turn = undefined;
    await old.file.close().catch(() => {}); // it is whole on the disk
    resolve();
    advanced();
  }

  return writer;
}

function takenBack(): StoreError {
  const message = "What was asked for has been taken back";
  return new StoreError("outcome-unknown", message);
}
