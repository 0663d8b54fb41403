/**
 * A store while it is open: transactions, applied in memory at once and made
 * durable by the log's writer.
 */

import { Buffer } from "node:buffer";
import { Checkpointer } from "./checkpoint.ts";
import { type DurableCallback, errorText, StoreError } from "./error.ts";
import { FullDisk, type Reserve } from "./full-disk.ts";
import type { Histogram } from "./histogram.ts";
import type { OpenFile } from "./log/files.ts";
import { formatTime, lineOverhead, type Mutation } from "./log/format.ts";
import { MarkerWriter } from "./log/marker.ts";
import { LogWriter } from "./log/writer.ts";
import {
  rollBack,
  type Table,
  type Undo,
  type WritableTable,
} from "./memory/table.ts";
import type { CommitOptions, StoreContext } from "./options.ts";
import type { OpenLog, StoreFolder } from "./recovery/folder.ts";

/** The end of a transaction in a log. */
export interface LogPosition {
  readonly generation: number;
  /** The start value of the CRC of the log's lines. */
  readonly seed: number;
  readonly offset: number;
  readonly seq: number;
}

/** Reads the log while the store writes it. */
export interface StoreWatcher {
  /** Called when more is durable, or the next log has begun. */
  readonly onAdvance: () => void;
  /** Called when the store closes: stops reading. */
  readonly close: () => Promise<void>;
}

/** What a start hands to the store. */
export interface StoreParts extends StoreContext {
  readonly notices: readonly string[];
  readonly openLog: OpenLog;
  readonly marker: OpenFile;
  readonly reserve: Reserve;
  /** Releases the lock of the folder. */
  readonly release: () => Promise<void>;
}

/** An open store. */
export class Store {
  /** The repairs that the start made, as sentences; none after a clean stop. */
  readonly notices: readonly string[];
  /** The folder, and how it is accessed. */
  readonly folder: StoreFolder;
  /** How long the disk takes to make a batch durable. */
  readonly syncs: Histogram;
  readonly #parts: StoreParts;
  readonly #writer: LogWriter;
  readonly #marker: MarkerWriter;
  readonly #checkpoints: Checkpointer;
  readonly #disk: FullDisk;
  readonly #watchers = new Set<StoreWatcher>();
  #closing: Promise<void> | undefined;

  constructor(parts: StoreParts) {
    const { folder, limits, log, scan, reserve } = parts;
    const writer = new LogWriter(parts.openLog, scan.seq, {
      maxBatchBytes: limits.maxBatchBytes,
      now: folder.now,
      // A write that finds no space in spite of it reports that itself.
      beforeWrite: () =>
        reserve.isDiskFull ? reserve.release().catch(() => {}) : undefined,
      onAdvance: () => this.#onAdvance(),
      onRollback: (error) => this.#onRollback(error),
    });
    const checkpoints = new Checkpointer(parts, writer);
    this.notices = parts.notices;
    this.folder = folder;
    this.syncs = writer.syncs;
    this.#parts = parts;
    this.#writer = writer;
    this.#checkpoints = checkpoints;
    this.#disk = new FullDisk({ ...parts, writer, checkpoints });
    this.#marker = new MarkerWriter(parts.marker, {
      store: scan.store,
      turn: scan.marker?.turn ?? 0,
      delayMs: limits.markerDelayMs,
      position: () => this.position,
      onError: (error) =>
        log("error", `Cannot write the mark: ${errorText(error)}`),
    });
    if (scan.faults.length > 0) this.checkpoint().catch(() => {});
  }

  /** The last sequence applied in memory. */
  get seq(): number {
    return this.#writer.lastSeq;
  }

  /** The last sequence known to be on the disk. */
  get durableSeq(): number {
    return this.#writer.durableSeq;
  }

  /** False from a disk fault until a restart. */
  get isWritable(): boolean {
    return this.#writer.fault === undefined;
  }

  /** True while the disk is full: only deletes are accepted. */
  get isDiskFull(): boolean {
    return this.#parts.reserve.isDiskFull;
  }

  /** The end of the durable part of the log. */
  get position(): LogPosition {
    const { durableSeq, log: { generation, seed, offset } } = this.#writer;
    return { generation, seed, offset, seq: durableSeq };
  }

  /** The generation of the log being written. */
  get generation(): number {
    return this.#writer.log.generation;
  }

  /** The size of that log. */
  get logBytes(): number {
    return this.#writer.log.offset;
  }

  /**
   * The bytes that other users of the disk must leave free: for a log as long
   * as a snapshot, and the next snapshot.
   */
  get headroom(): number {
    if (this.isDiskFull) return Infinity;
    const { reserveBytes } = this.#parts.limits;
    return reserveBytes + 2 * this.#checkpoints.expectedBytes();
  }

  /** Returns a table; throws if its name is neither declared nor on the disk. */
  table(name: string): Table {
    return this.#table(name);
  }

  /**
   * Applies all operations in memory and returns their sequence, which
   * {@linkcode Store.durable} waits for. `by` is the user's id, 0 for the
   * server itself. Throws, with nothing applied, if they are not accepted.
   */
  apply(
    operations: readonly Mutation[],
    by: number,
    options?: CommitOptions,
  ): number {
    return this.transact(by, (apply) => operations.forEach(apply), options);
  }

  /**
   * Applies operations that are created one by one, each after those before it
   * were applied. If `run` throws, all of them are rolled back.
   */
  transact(
    by: number,
    run: (apply: (operation: Mutation) => void) => void,
    { allowWhenFull = false }: CommitOptions = {},
  ): number {
    const seq = this.seq + 1;
    const operations: Mutation[] = [];
    const undo: Undo[] = [];
    let puts = 0;
    let text = "";
    let bytes = 0;
    try {
      run((operation) => {
        const [kind, name, target] = operation;
        const table = this.#table(name);
        if (kind === "put") puts++;
        operations.push(operation);
        undo.push(
          kind === "put" ? table.put(target, seq) : table.delete(target, seq),
        );
      });
      if (operations.length === 0) return this.seq;
      text = JSON.stringify(operations);
      bytes = Buffer.byteLength(text) + lineOverhead;
      this.#admit(bytes, puts, allowWhenFull);
    } catch (error) {
      rollBack(undo);
      throw error;
    }
    this.#checkpoints.count(text.length, puts);
    const at = formatTime(this.folder.now());
    this.#writer.add({ seq, at, by, text, bytes, undo });
    return seq;
  }

  /**
   * Applies all operations and resolves when they are durable. Throws as
   * `apply` does. Rejects with `disk-full` if they were rolled back, or with
   * `outcome-unknown`.
   */
  commit(
    operations: readonly Mutation[],
    by: number,
    options?: CommitOptions,
  ): Promise<void> {
    const seq = this.apply(operations, by, options);
    return this.durable(seq) ?? Promise.resolve();
  }

  /**
   * Returns undefined if everything up to `seq` is durable, else a promise
   * that resolves when it is. It rejects if that is rolled back: read again
   * after `disk-full`, give up after `outcome-unknown`. To be called in the
   * same turn of the event loop in which the record was read.
   */
  durable(seq: number): Promise<void> | undefined {
    if (seq <= this.durableSeq) return undefined;
    return new Promise((resolve, reject) => {
      this.onDurable(seq, (error) => error ? reject(error) : resolve());
    });
  }

  /**
   * Calls back when everything up to `seq` is durable, at once if it is
   * already. The callback must not throw. Saves a response the three promises
   * that `durable` costs.
   */
  onDurable(seq: number, callback: DurableCallback): void {
    this.#writer.onDurable(seq, callback);
  }

  /** Calls a watcher until the store is closed. */
  watch(watcher: StoreWatcher): void {
    this.#watchers.add(watcher);
  }

  /** Writes a snapshot now and begins a new log. */
  checkpoint(): Promise<void> {
    return this.#checkpoints.run();
  }

  /** Makes everything durable, closes the files and releases the folder. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  #table(name: string): WritableTable {
    const table = this.#parts.scan.tables.get(name);
    if (table !== undefined) return table;
    throw new StoreError("unknown-table", `There is no table "${name}"`);
  }

  /** Throws if a transaction of so many bytes and puts is not accepted. */
  #admit(bytes: number, puts: number, allowWhenFull: boolean): void {
    const { fault, queuedBytes } = this.#writer;
    if (this.#closing !== undefined) {
      throw new StoreError("closed", "The store is closed");
    }
    if (fault !== undefined) {
      const message = "The store is read-only after a disk fault";
      throw new StoreError("read-only", message, { cause: fault });
    }
    if (this.isDiskFull) this.#disk.admit({ bytes, puts, allowWhenFull });
    // A transaction that is larger than the whole queue is accepted alone.
    const { maxQueueBytes } = this.#parts.limits;
    if (queuedBytes > 0 && queuedBytes + bytes > maxQueueBytes) {
      const message = "Too many writes are waiting; nothing was changed";
      throw new StoreError("overloaded", message);
    }
  }

  #onAdvance(): void {
    for (const { onAdvance } of this.#watchers) onAdvance();
    this.#marker.touch();
    if (!this.isDiskFull) this.#checkpoints.runIfDue();
  }

  #onRollback(error: StoreError): void {
    this.#parts.log("error", error.message);
    if (error.code === "disk-full") this.#disk.enterFullMode();
  }

  async #close(): Promise<void> {
    try {
      await Promise.all([
        this.#disk.close(),
        this.#checkpoints.close(),
        ...Array.from(this.#watchers, ({ close }) => close()),
      ]);
      await this.#writer.idle();
      await this.#marker.close(this.isWritable);
      await this.#writer.log.file.close();
    } finally {
      await this.#parts.release();
    }
  }
}
