/**
 * The store while it runs: transactions, snapshots beside them, and what to do
 * on a full disk.
 */

import { Buffer } from "node:buffer";
import { performance } from "node:perf_hooks";
import { type DurableCallback, errorText, StoreError } from "./error.ts";
import type { OpenFile } from "./log/files.ts";
import type { Histogram } from "./histogram.ts";
import { formatTime, lineOverhead, type Mutation } from "./log/format.ts";
import { MarkerWriter } from "./log/marker.ts";
import type { CommitOptions, Logger, StoreLimits } from "./options.ts";
import {
  type OpenLog,
  prepareLog,
  removeBefore,
  saveSnapshot,
  type StoreFolder,
} from "./recovery/folder.ts";
import type { Reserve } from "./log/reserve.ts";
import { freezeTables } from "./log/snapshot.ts";
import type { FolderScan } from "./recovery/scan.ts";
import {
  rollBack,
  type Table,
  type Undo,
  type WritableTable,
} from "./memory/table.ts";
import { type LogWriter, writeLog } from "./log/writer.ts";

function noticesOf({ torn, log, faults }: FolderScan): string[] {
  const notices = faults.map(({ file, byte, line, message }) =>
    `${file} is damaged (byte ${byte}, line ${line}: ${message}) and was ` +
    "passed over: the generation before it and the logs since are whole"
  );
  if (torn === undefined || log === undefined) return notices;
  return [
    ...notices,
    `${torn.file} ended with a torn write at byte ${torn.byte}, line ` +
    `${torn.line}: ${log.size - log.end} bytes that were never acknowledged ` +
    "were cut off and kept beside it",
  ];
}

/** The end of a transaction in a log. */
export interface LogPosition {
  readonly generation: number;
  /** Where the CRC of the log's lines begins. */
  readonly seed: number;
  readonly offset: number;
  readonly seq: number;
}

/** Reads the log while the store writes it. */
export interface StoreWatcher {
  /** More is durable, or another log is written. */
  readonly onAdvance: () => void;
  /** The store is closing: stop reading. */
  readonly close: () => Promise<void>;
}

/** What an open folder is made of. */
export interface Parts {
  readonly place: StoreFolder;
  readonly limits: StoreLimits;
  readonly log: Logger;
  readonly survey: FolderScan;
  readonly writing: OpenLog;
  readonly mark: OpenFile;
  readonly reserve: Reserve;
  readonly release: () => Promise<void>;
}

/** An open store. */
export class Store {
  /** What the start had to mend, as sentences: empty after a clean stop. */
  readonly notices: readonly string[];
  readonly #parts: Parts;
  readonly #writer: LogWriter;
  readonly #watchers = new Set<StoreWatcher>();
  readonly #mark: MarkerWriter;
  /** The last sequence applied in memory. */
  seq: number;
  /** The generation of the newest snapshot, and its length. */
  #base: number;
  #baseBytes: number;
  /** How long records are, to guess how long a snapshot will be. */
  #recordBytes: number;
  #recordCount: number;
  #checkpointing: Promise<void> | undefined;
  #failures = 0;
  /** When a snapshot that failed is tried again, on the clock that never goes back. */
  #retryAt = 0;
  /** Whether deletes were taken since the disk was full. */
  #thinned = false;
  /** What essential transactions took since then of what is kept back. */
  #essentialBytes = 0;
  #roomTimer: NodeJS.Timeout | undefined;
  #makingRoom: Promise<void> = Promise.resolve();
  #closing: Promise<void> | undefined;

  constructor(parts: Parts) {
    const { survey, limits, place, writing, log } = parts;
    this.#parts = parts;
    this.seq = survey.seq;
    this.#base = survey.baseGeneration;
    this.#baseBytes = survey.baseBytes;
    this.#recordBytes = survey.baseBytes + writing.offset;
    this.#recordCount = this.#size();
    this.notices = noticesOf(survey);
    for (const notice of this.notices) log("error", notice);
    this.#writer = writeLog(writing, survey.seq, {
      batchBytes: limits.maxBatchBytes,
      now: place.now,
      ready: () => this.isDiskFull ? this.#release() : undefined,
      advanced: () => this.#advanced(),
      undone: (error) => this.#undone(error),
    });
    this.#mark = new MarkerWriter(parts.mark, {
      store: survey.store,
      turn: survey.marker?.turn ?? 0,
      delay: limits.markerDelayMs,
      position: () => {
        const { durableSeq, log: { generation, offset } } = this.#writer;
        return { generation, seq: durableSeq, offset };
      },
      failed: (error) => this.#tell("write the mark", error),
    });
    if (this.isDiskFull) this.#fill();
    if (survey.faults.length > 0) this.checkpoint().catch(() => {});
  }

  /** The last sequence known to be on the disk. */
  get durableSeq(): number {
    return this.#writer.durableSeq;
  }

  /** False after a disk fault, until a restart. */
  get isWritable(): boolean {
    return this.#writer.fault === undefined;
  }

  /** Whether the disk is full: only deletes are taken until there is space. */
  get isDiskFull(): boolean {
    return this.#parts.reserve.full;
  }

  /** The number of the log that is written. */
  get generation(): number {
    return this.#writer.log.generation;
  }

  /** The length of that log. */
  get logBytes(): number {
    return this.#writer.log.offset;
  }

  /** How long the disk takes to make what is written durable. */
  get syncs(): Histogram {
    return this.#writer.syncs;
  }

  /** Throws on a name that is neither declared nor on the disk. */
  table(name: string): Table {
    return this.#table(name);
  }

  #table(name: string): WritableTable {
    const table = this.#parts.survey.tables.get(name);
    if (table !== undefined) return table;
    throw new StoreError("unknown-table", `There is no table "${name}"`);
  }

  /**
   * Applies all operations at once in memory and returns their sequence, for
   * {@linkcode Store.durable} to tell when they are durable; `by` is the id of
   * the user, 0 for the server itself. Throws, with nothing applied, when it
   * cannot be accepted.
   */
  apply(
    operations: readonly Mutation[],
    by: number,
    options?: CommitOptions,
  ): number {
    return this.transact(by, (apply) => operations.forEach(apply), options);
  }

  /**
   * The same of operations that are made one after the other, each of which
   * sees what those before it did. What throws takes all of them back.
   */
  transact(
    by: number,
    make: (apply: (operation: Mutation) => void) => void,
    { allowWhenFull = false }: CommitOptions = {},
  ): number {
    const seq = this.seq + 1;
    const operations: Mutation[] = [];
    const undo: Undo[] = [];
    let puts = 0;
    let text = "";
    let bytes = 0;
    try {
      make((operation) => {
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
    this.seq = seq;
    this.#recordBytes += text.length;
    this.#recordCount += puts;
    if (this.isDiskFull && puts === 0) this.#thinned = true;
    const at = formatTime(this.#parts.place.now());
    this.#writer.add({ seq, at, by, text, bytes, undo });
    return seq;
  }

  /**
   * Applies all operations and resolves when they are durable. Throws at once
   * as `apply` does; rejects with `disk-full` (taken back, nothing was changed)
   * or `outcome-unknown`.
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
   * Undefined when everything up to `seq` is durable, else a promise that
   * resolves when it is. It rejects when that was taken back: look again
   * (`disk-full`) or give up (`outcome-unknown`). To be called in the same
   * turn in which the record was looked at.
   */
  durable(seq: number): Promise<void> | undefined {
    if (seq <= this.#writer.durableSeq) return undefined;
    return new Promise((resolve, reject) => {
      this.#writer.wait(seq, (error) => error ? reject(error) : resolve());
    });
  }

  /**
   * The same by a call, at once where it is durable already: what is called
   * must not throw. For answers, of which each would cost three promises.
   */
  onDurable(seq: number, settled: DurableCallback): void {
    if (seq <= this.#writer.durableSeq) settled();
    else this.#writer.wait(seq, settled);
  }

  /** The folder, and what the store reads and writes it with. */
  get folder(): StoreFolder {
    return this.#parts.place;
  }

  /** Where the durable part of the log ends. */
  get position(): LogPosition {
    const { durableSeq, log: { generation, seed, offset } } = this.#writer;
    return { generation, seed, offset, seq: durableSeq };
  }

  /**
   * How much of the disk must be left free by others, in bytes: a log as long
   * as a snapshot, and the next snapshot, must find space.
   */
  get headroom(): number {
    const { reserveBytes } = this.#parts.limits;
    return this.isDiskFull ? Infinity : reserveBytes + 2 * this.#guess();
  }

  /** Calls a watcher until the store is closed. */
  watch(watcher: StoreWatcher): void {
    this.#watchers.add(watcher);
  }

  /** Writes a snapshot now and begins a new log. */
  checkpoint(): Promise<void> {
    if (this.#closing !== undefined) return Promise.reject(closed());
    this.#checkpointing ??= this.#checkpoint().then(() => {
      this.#failures = 0;
    }, (error) => {
      const wait = this.#parts.limits.retryMs * 2 ** ++this.#failures;
      this.#retryAt = performance.now() + Math.min(wait, 300_000);
      if (this.#closing === undefined) this.#tell("write a snapshot", error);
      throw error;
    }).finally(() => {
      this.#checkpointing = undefined;
    });
    return this.#checkpointing;
  }

  /** Makes all durable, closes the files and gives the folder free. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** Throws, with nothing applied, when a transaction cannot be accepted. */
  #admit(bytes: number, puts: number, essential: boolean): void {
    const { fault, queuedBytes } = this.#writer;
    const { maxQueueBytes, reserveBytes } = this.#parts.limits;
    if (this.#closing !== undefined) throw closed();
    if (fault !== undefined) {
      const message = "The store is read-only after a disk fault";
      throw new StoreError("read-only", message, { cause: fault });
    }
    if (this.isDiskFull && puts > 0) {
      // A quarter of what is kept back, so that deletes never lack the rest.
      const spent = this.#essentialBytes + bytes;
      if (!essential || spent > reserveBytes / 4) {
        throw new StoreError("disk-full", "There is no space on the disk");
      }
      this.#essentialBytes = spent;
    }
    // One that is larger than the whole queue goes alone.
    if (queuedBytes > 0 && queuedBytes + bytes > maxQueueBytes) {
      const message = "Too much is waiting to be written; nothing was changed.";
      throw new StoreError("overloaded", message);
    }
  }

  #advanced(): void {
    for (const { onAdvance } of this.#watchers) onAdvance();
    this.#mark.touch();
    const { limits } = this.#parts;
    const guess = this.#guess();
    const least = Math.max(limits.minLogBytes, this.#baseBytes, guess);
    const due = this.#writer.log.offset > least && !this.isDiskFull &&
      performance.now() >= this.#retryAt && this.#closing === undefined;
    // A failure is told there, and tried again later.
    if (due) this.checkpoint().catch(() => {});
  }

  #undone(error: StoreError): void {
    this.seq = this.#writer.durableSeq;
    this.#parts.log("error", error.message);
    if (error.code === "disk-full") this.#fill();
  }

  async #checkpoint(): Promise<void> {
    const { place, survey } = this.#parts;
    const { files, folder } = place;
    const need = Math.ceil(this.#guess() * 1.1) + 4096;
    const free = await files.free(folder);
    if (free < need) {
      const message = `there are ${free} bytes of space, it needs ${need}`;
      throw new StoreError("disk-full", message);
    }
    // From here to the promise of `rotate` nothing else can run.
    const seq = this.seq;
    const tables = freezeTables(survey.tables);
    const generation = this.generation + 1;
    const start = { store: survey.store, generation, seq };
    const next = prepareLog(place, start);
    next.catch(() => {}); // the writer may look at it only later
    await this.#writer.rotate(seq, next).catch(async (error) => {
      await next.then(({ discard }) => discard(), () => {});
      throw error;
    });
    const stopped = () => this.#closing !== undefined;
    const state = { ...start, tables, stopped };
    const bytes = await saveSnapshot(place, state);
    const previous = this.#base;
    this.#base = generation;
    this.#baseBytes = this.#recordBytes = bytes;
    this.#recordCount = tables.reduce((sum, { rows }) => sum + rows.length, 0);
    this.#parts.log("info", "Wrote a snapshot", { generation, seq, bytes });
    await removeBefore(place, this.isDiskFull ? generation : previous);
  }

  /** How long a snapshot would be. */
  #guess(): number {
    const each = this.#recordBytes / Math.max(1, this.#recordCount);
    return Math.round(each * this.#size());
  }

  #size(): number {
    let size = 0;
    for (const table of this.#parts.survey.tables.values()) size += table.size;
    return size;
  }

  /** The disk is full: from now on only deletes, until there is space. */
  #fill(): void {
    this.#parts.reserve.full = true;
    if (this.#roomTimer !== undefined || this.#closing !== undefined) return;
    this.#roomTimer = setTimeout(() => {
      this.#makingRoom = this.#makeRoom().catch((error) => {
        this.#tell("make room", error);
      }).finally(() => {
        this.#roomTimer = undefined;
        if (this.isDiskFull && this.isWritable) this.#fill();
      });
    }, this.#parts.limits.retryMs).unref();
  }

  async #makeRoom(): Promise<void> {
    const { place, limits, reserve, log } = this.#parts;
    await reserve.fill(limits.maxBatchBytes);
    if (!this.isDiskFull) {
      this.#thinned = false;
      this.#essentialBytes = 0;
      log("info", "There is space on the disk again");
      return;
    }
    const worth = this.#thinned ||
      this.#guess() * 2 < this.#writer.log.offset;
    if (worth && performance.now() >= this.#retryAt) {
      // Deletes and replaced records give their space back in a new snapshot;
      // what is kept back and the earlier generation make room for it.
      await removeBefore(place, this.#base);
      await reserve.release();
      await this.checkpoint();
      this.#thinned = false;
    }
  }

  /** On a full disk the write itself tells what is wrong. */
  #release(): Promise<void> {
    return this.#parts.reserve.release().catch(() => {});
  }

  #tell(what: string, error: unknown): void {
    this.#parts.log("error", `Cannot ${what}: ${errorText(error)}`);
  }

  async #close(): Promise<void> {
    clearTimeout(this.#roomTimer);
    try {
      for (const { close } of this.#watchers) await close();
      await this.#makingRoom;
      await this.#checkpointing?.catch(() => {});
      await this.#writer.idle();
      await this.#mark.close(this.isWritable);
      await this.#writer.log.file.close();
    } finally {
      await this.#parts.release();
    }
  }
}

function closed(): StoreError {
  return new StoreError("closed", "The store is closed");
}
