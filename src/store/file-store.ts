/**
 * Opens the store in a folder. While it is open, transactions are applied in
 * memory at once and made durable by the log's writer.
 */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import process from "node:process";
import { Checkpointer, FullDisk, type StoreContext } from "./disk-space.ts";
import {
  closedError,
  type DurableCallback,
  errorText,
  StoreError,
} from "./error.ts";
import { isNoSpaceError, type OpenFile, realFiles } from "./log/files.ts";
import { makeFolder, type OpenLog, type StoreFolder } from "./log/folder.ts";
import { formatTime, lineOverhead, type Mutation } from "./log/format.ts";
import { acquireLock } from "./log/lock.ts";
import { type MarkerWriter, openMarker, writeMarker } from "./log/marker.ts";
import { LogWriter } from "./log/writer.ts";
import {
  applyMutation,
  rollBack,
  type Table,
  type Tables,
  type Undo,
  type WritableTable,
} from "./memory/table.ts";
import {
  type CommitOptions,
  defaultLimits,
  type StoreOptions,
} from "./options.ts";
import { createStore } from "./recovery/reopen.ts";
import { type FolderScan, scanFolder } from "./recovery/scan.ts";

/** Opens the store in a folder; creates both if they do not exist. */
export async function openStore(options: StoreOptions): Promise<Store> {
  const path = resolve(options.folder);
  try {
    return await openLocked(path, options);
  } catch (error) {
    if (error instanceof StoreError) throw error;
    const code = isNoSpaceError(error) ? "disk-full" : "unusable";
    const message = `Cannot open ${path}: ${errorText(error)}`;
    throw new StoreError(code, message, { cause: error });
  }
}

async function openLocked(path: string, options: StoreOptions): Promise<Store> {
  const { files = realFiles, random = randomBytes, log = () => {} } = options;
  const limits = { ...defaultLimits, ...options.limits };
  if (process.env["UV_USE_IO_URING"] === "1") {
    log("error", "UV_USE_IO_URING=1 makes every write many times slower");
  }
  await makeFolder(files, path);
  const { now = Date.now, tables } = options;
  const folder = { folder: path, files, now, random };
  const release = await acquireLock(folder, limits.lockTimeoutMs);
  let marker: OpenFile | undefined;
  try {
    let scan = await scanFolder(path, { files, tables });
    if (!scan.exists) {
      await createStore(folder);
      scan = await scanFolder(path, { files, tables });
    }
    if (scan.refusal !== undefined) throw scan.refusal;
    marker = await openMarker(files, path);
    const context = { folder, limits, log, scan };
    const disk = new FullDisk(context);
    const openLog = await disk.open();
    return new Store({ ...context, openLog, marker, disk, release });
  } catch (error) {
    await marker?.close();
    await release();
    throw error;
  }
}

/** Describes the damage that this start, or a repair before it, has dealt with. */
function noticesOf(
  { tornWrite, log, faults, fileNames }: FolderScan,
): string[] {
  const notices = faults.map(({ file, byte, line, message }) =>
    `${file} is damaged (byte ${byte}, line ${line}: ${message}) and was ` +
    "skipped: the previous generation and the logs since are complete"
  );
  const replaced = fileNames.find((name) => name.startsWith("damaged-"));
  if (replaced !== undefined) {
    notices.push(
      `The folder was repaired: "zoo-api check" lists records that no ` +
        `longer fit; delete ${replaced} once they are corrected`,
    );
  }
  if (tornWrite !== undefined && log !== undefined) {
    notices.push(
      `${tornWrite.file} ended with a torn write at byte ${tornWrite.byte}, ` +
        `line ${tornWrite.line}: ${log.size - log.end} bytes that were never ` +
        "acknowledged were cut off and saved beside it",
    );
  }
  return notices;
}

/** The end of a transaction in a log. */
export interface LogPosition {
  readonly generation: number;
  /** The start value of the CRC of the log's lines. */
  readonly seed: number;
  readonly offset: number;
  readonly seq: number;
}

/** Receives a call when the log advances, and when the store closes. */
export interface StoreWatcher {
  /** Called when more transactions are durable, or the next log has begun; `syncMs` is how long the disk took. */
  readonly onAdvance: (syncMs: number) => void;
  /** Stops reading; called when the store closes. */
  readonly close: () => Promise<void>;
}

/** The results of startup, for a new {@linkcode Store}. */
interface StoreParts extends StoreContext {
  readonly openLog: OpenLog;
  readonly marker: OpenFile;
  readonly disk: FullDisk;
  /** Releases the lock of the folder. */
  readonly release: () => Promise<void>;
}

/** An open store. */
export class Store {
  /** The repairs made at startup, as sentences; none after a clean stop. */
  readonly notices: readonly string[];
  /** The folder, and how it is accessed. */
  readonly folder: StoreFolder;
  readonly #parts: StoreParts;
  readonly #writer: LogWriter;
  readonly #marker: MarkerWriter;
  readonly #checkpoints: Checkpointer;
  readonly #watchers = new Set<StoreWatcher>();
  #closing: Promise<void> | undefined;

  constructor(parts: StoreParts) {
    const { folder, limits, log, scan, disk } = parts;
    this.#parts = parts;
    this.notices = noticesOf(scan);
    for (const notice of this.notices) log("error", notice);
    this.folder = folder;
    this.#writer = new LogWriter(parts.openLog, scan.seq, {
      maxBatchBytes: limits.maxBatchBytes,
      now: folder.now,
      beforeWrite: () => disk.beforeWrite(),
      freeBytes: () => folder.files.free(folder.folder),
      onAdvance: (syncMs) => this.#onAdvance(syncMs),
      onRollback: (error) => this.#onRollback(error),
    });
    this.#marker = writeMarker(parts.marker, {
      store: scan.storeId,
      turn: scan.marker?.turn ?? 0,
      delayMs: limits.markerDelayMs,
      writer: this.#writer,
      log,
    });
    this.#checkpoints = new Checkpointer(parts, this.#writer);
    disk.start(this.#checkpoints);
    if (scan.faults.length > 0) this.checkpoint().catch(() => {});
  }

  /** The last sequence number applied in memory. */
  get seq(): number {
    return this.#writer.lastSeq;
  }

  /** The last sequence number known to be on the disk. */
  get durableSeq(): number {
    return this.#writer.durableSeq;
  }

  /** False from a disk fault until a restart. */
  get isWritable(): boolean {
    return this.#writer.fault === undefined;
  }

  /** True while the disk is full: only deletes and sign-ins are accepted. */
  get isDiskFull(): boolean {
    return this.#parts.disk.isFull;
  }

  /** The end of the durable part of the log. */
  get position(): LogPosition {
    const { durableSeq, log: { generation, seed, offset } } = this.#writer;
    return { generation, seed, offset, seq: durableSeq };
  }

  /** Returns how many bytes must be freed for the next snapshot, or for a start after a crash. */
  async missingBytes(): Promise<number> {
    const snapshotBytes = this.#checkpoints.expectedBytes();
    const neededBytes = Math.max(this.#writer.log.offset, snapshotBytes);
    return Math.max(0, neededBytes - await this.#parts.disk.freeBytes());
  }

  /** The free space that other writers must leave for a log as long as a snapshot, and for the next snapshot. */
  get headroom(): number {
    if (this.isDiskFull) return Infinity;
    const { reserveBytes } = this.#parts.limits;
    return reserveBytes + 2 * this.#checkpoints.expectedBytes();
  }

  /** All tables by name, whether declared or only on the disk. */
  get tables(): ReadonlyMap<string, Table> {
    return this.#parts.scan.tables;
  }

  /** Returns a table; throws if its name is neither declared nor on the disk. */
  table(name: string): Table {
    return findTable(this.#parts.scan.tables, name);
  }

  /**
   * Applies mutations in memory; returns the sequence number. `by` is the user's
   * id, 0 for the server itself. If refused, throws with nothing applied.
   */
  apply(
    mutations: readonly Mutation[],
    by: number,
    options?: CommitOptions,
  ): number {
    return this.transact(by, (apply) => mutations.forEach(apply), options);
  }

  /** Applies mutations one by one, as `run` creates them; if it throws, rolls them back. */
  transact(
    by: number,
    run: (apply: (mutation: Mutation) => void) => void,
    { allowWhenFull = false }: CommitOptions = {},
  ): number {
    const { scan: { tables }, disk, limits } = this.#parts;
    const seq = this.seq + 1;
    const mutations: Mutation[] = [];
    const undo: Undo[] = [];
    let puts = 0;
    try {
      run((mutation) => {
        const [kind, name] = mutation;
        if (kind !== "rename") findTable(tables, name);
        if (kind === "put") puts++;
        mutations.push(mutation);
        const undone = applyMutation(tables, mutation, seq);
        if (undone !== undefined) undo.push(undone);
      });
      if (mutations.length === 0) return this.seq;
      const text = JSON.stringify(mutations);
      const bytes = Buffer.byteLength(text) + lineOverhead;
      if (this.#closing !== undefined) throw closedError();
      throwUnlessWritable(this.#writer, bytes, limits.maxQueueBytes);
      if (disk.isFull) disk.admit(bytes, { puts, allowWhenFull });
      this.#checkpoints.count(text.length, puts);
      const at = formatTime(this.folder.now());
      this.#writer.add({ seq, at, by, text, bytes, undo });
      return seq;
    } catch (error) {
      rollBack(undo);
      throw error;
    }
  }

  /** Applies mutations and resolves when they are durable. Throws as `apply` does; rejects with `disk-full` (rolled back) or `outcome-unknown`. */
  commit(
    mutations: readonly Mutation[],
    by: number,
    options?: CommitOptions,
  ): Promise<void> {
    const seq = this.apply(mutations, by, options);
    return this.durable(seq) ?? Promise.resolve();
  }

  /** Returns undefined if all transactions up to `seq` are durable, otherwise a promise that they will be. Call it in the same turn of the event loop as the read; after `disk-full`, read the record again. */
  durable(seq: number): Promise<void> | undefined {
    if (seq <= this.durableSeq) return undefined;
    return new Promise((resolve, reject) => {
      this.onDurable(seq, (error) => error ? reject(error) : resolve());
    });
  }

  /** Calls back when all transactions up to `seq` are durable: at once if they are. Saves a response three promises. */
  onDurable(seq: number, callback: DurableCallback): void {
    this.#writer.onDurable(seq, callback);
  }

  /** Adds a watcher, which is called until the store closes. */
  watch(watcher: StoreWatcher): void {
    this.#watchers.add(watcher);
  }

  /** Writes a snapshot now and begins a new log. */
  checkpoint(): Promise<void> {
    return this.#checkpoints.run();
  }

  /** Makes everything durable, closes the files and releases the folder. */
  close(): Promise<void> {
    return this.#closing ??= this.#close();
  }

  #onAdvance(syncMs: number): void {
    for (const { onAdvance } of this.#watchers) onAdvance(syncMs);
    this.#marker.touch();
    if (!this.isDiskFull) this.#checkpoints.runIfDue();
  }

  #onRollback(error: StoreError): void {
    this.#parts.log("error", error.message);
    if (error.code === "disk-full") this.#parts.disk.enterFullMode();
  }

  async #close(): Promise<void> {
    try {
      await Promise.all([
        this.#checkpoints.close(),
        this.#parts.disk.close(),
        ...Array.from(this.#watchers, ({ close }) => close()),
      ]);
      await this.#marker.close(await this.#writer.close());
    } finally {
      await this.#parts.release();
    }
  }
}

/** Throws if the store cannot accept a write of this size now. */
function throwUnlessWritable(
  { fault, queuedBytes }: LogWriter,
  bytes: number,
  maxQueueBytes: number,
): void {
  if (fault !== undefined) {
    const message = "The store is read-only after a disk fault";
    throw new StoreError("read-only", message, { cause: fault });
  }
  // A transaction that is larger than the whole queue is accepted alone.
  if (queuedBytes > 0 && queuedBytes + bytes > maxQueueBytes) {
    const message = "Too many writes are waiting; nothing was changed";
    throw new StoreError("overloaded", message);
  }
}

function findTable(tables: Tables, name: string): WritableTable {
  const table = tables.get(name);
  if (table !== undefined) return table;
  throw new StoreError("unknown-table", `There is no table "${name}"`);
}
