/**
 * The store: records that survive. One JSON snapshot and a write-ahead log in
 * a folder of their own; all records in memory.
 *
 * What it promises: a write whose promise resolved survives power loss at any
 * moment; who waits for `settled` never sees a record that could still vanish;
 * damage is never passed over in silence. What may be lost: writes that were
 * not answered yet; each of them is there whole or not at all.
 *
 * How that is kept stands in the files beside this one: log.ts and snapshot.ts
 * (the formats), writer.ts (one loop that writes), survey.ts (what is believed
 * at a start), recovery.ts (what a start changes), lock.ts (one process).
 */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { join, resolve } from "node:path";
import process from "node:process";
import { errorCode, errorText, type Fault, StoreError } from "./error.ts";
import { type FileSystem, isFull, type OpenFile, realFiles } from "./files.ts";
import { acquireLock } from "./lock.ts";
import { lineOverhead, type Operation } from "./log.ts";
import { MarkKeeper, openMark } from "./mark.ts";
import {
  createStore,
  makeFolder,
  type OpenLog,
  type Place,
  prepareLog,
  reopenLog,
  saveSnapshot,
} from "./recovery.ts";
import { Reserve } from "./reserve.ts";
import { freeze } from "./snapshot.ts";
import { generationOf, type Survey, surveyFolder } from "./survey.ts";
import type { Json, StoredTable, Table, TableDeclaration } from "./table.ts";
import { LogWriter } from "./writer.ts";

export { backupStore } from "./backup.ts";
export type { Backup } from "./backup.ts";
export { StoreError } from "./error.ts";
export type { Fault, StoreErrorCode, StoreErrorFields } from "./error.ts";
export { realFiles } from "./files.ts";
export type { FileSystem, OpenFile } from "./files.ts";
export type { Operation } from "./log.ts";
export { repairStore } from "./repair.ts";
export type { Repair } from "./repair.ts";
export type {
  Document,
  Json,
  KeyOf,
  Row,
  Table,
  TableDeclaration,
} from "./table.ts";

/** Sizes in bytes and times in milliseconds; tests make them small. */
export interface StoreLimits {
  /** A log longer than this, and than the snapshot, is ended by a new one. */
  readonly logBytes: number;
  /** What may wait to be written. */
  readonly queueBytes: number;
  /** What one write takes. */
  readonly batchBytes: number;
  /** What is kept back for a full disk. */
  readonly reserveBytes: number;
  /** How long another process may take to answer the lock. */
  readonly lockPatience: number;
  /** The mark is written this long after a write. */
  readonly markDelay: number;
  /** How long to wait before trying again what the disk refused. */
  readonly retry: number;
}

const defaultLimits: StoreLimits = {
  logBytes: 8 << 20,
  queueBytes: 16 << 20,
  batchBytes: 1 << 20,
  reserveBytes: 16 << 20,
  lockPatience: 5000,
  markDelay: 1000,
  retry: 1000,
};

/** Takes what the store has to tell. */
export type Log = (
  level: "error" | "info" | "debug",
  message: string,
  fields?: Readonly<Record<string, Json>>,
) => void;

/** How to open a store. */
export interface StoreOptions {
  readonly folder: string;
  readonly tables: readonly TableDeclaration[];
  /** Every file operation goes through this; the machine's own by default. */
  readonly files?: FileSystem;
  /** The time in milliseconds. */
  readonly now?: () => number;
  readonly random?: (bytes: number) => Uint8Array;
  readonly log?: Log;
  readonly limits?: Partial<StoreLimits>;
}

/** How to take a transaction. */
export interface CommitOptions {
  /** Taken on a full disk too, from the space kept back: a sign-in, without which nobody could delete. */
  readonly essential?: boolean;
}

/** An open store. */
export interface Store {
  /** The last sequence applied in memory. */
  readonly seq: number;
  /** The last sequence known to be on the disk. */
  readonly durableSeq: number;
  /** False after a disk fault, until a restart. */
  readonly writable: boolean;
  /** Whether the disk is full: only deletes are taken until there is space. */
  readonly full: boolean;
  /** The number of the log that is written. */
  readonly generation: number;
  /** What the start had to mend, as sentences: empty after a clean stop. */
  readonly notices: readonly string[];
  /** Throws on a name that is neither declared nor on the disk. */
  table(name: string): Table;
  /**
   * Applies all operations at once in memory and resolves when they are
   * durable; `by` is the id of the user, 0 for the server itself. Throws at
   * once, with nothing applied, when it cannot be accepted; rejects with
   * `disk-full` (taken back, nothing was changed) or `outcome-unknown`.
   */
  commit(
    operations: readonly Operation[],
    by: number,
    options?: CommitOptions,
  ): Promise<void>;
  /**
   * Undefined when everything up to `seq` is durable, else a promise that
   * resolves when it is. It rejects when that was taken back: look again
   * (`disk-full`) or give up (`outcome-unknown`). To be called in the same
   * turn in which the record was looked at.
   */
  settled(seq: number): Promise<void> | undefined;
  /** Writes a snapshot now and begins a new log. */
  checkpoint(): Promise<void>;
  /** Makes all durable, closes the files and gives the folder free. */
  close(): Promise<void>;
}

/** Opens the store in a folder, making it when it is missing. */
export async function openStore(options: StoreOptions): Promise<Store> {
  const folder = resolve(options.folder);
  try {
    return await openFolder({ ...options, folder });
  } catch (error) {
    if (error instanceof StoreError) throw error;
    const code = isFull(error) ? "disk-full" : "unusable";
    const message = `Cannot open ${folder}: ${errorText(error)}`;
    throw new StoreError(code, message, { cause: error });
  }
}

async function openFolder(options: StoreOptions): Promise<Store> {
  const { folder, tables, files = realFiles, log = () => {} } = options;
  const { now = Date.now, random = randomBytes } = options;
  const limits = { ...defaultLimits, ...options.limits };
  const place = { folder, files, now, random };
  if (process.env["UV_USE_IO_URING"] === "1") {
    log("error", "UV_USE_IO_URING=1 makes every write many times slower");
  }
  await makeFolder(files, folder);
  const patience = limits.lockPatience;
  const release = await acquireLock(folder, { files, random, patience });
  let mark: OpenFile | undefined;
  try {
    let survey = await surveyFolder(folder, { files, tables });
    if (!survey.exists) {
      await createStore(place);
      survey = await surveyFolder(folder, { files, tables });
    }
    if (survey.refusal !== undefined) throw survey.refusal;
    const reserve = new Reserve(files, folder, limits.reserveBytes);
    await reserve.open(limits.batchBytes);
    mark = await openMark(files, folder);
    const writing = await reopen(place, survey, reserve);
    const parts = { place, limits, log, survey, writing, reserve, release };
    return new FileStore({ ...parts, mark });
  } catch (error) {
    await mark?.close();
    await release();
    throw error;
  }
}

/** Reopens the log; on a full disk with the space that was kept back. */
async function reopen(
  place: Place,
  survey: Survey,
  reserve: Reserve,
): Promise<OpenLog> {
  try {
    return await reopenLog(place, survey);
  } catch (error) {
    if (!isFull(error)) throw error;
    await removeBefore(place, survey.base);
    reserve.full = true;
    await reserve.release();
    return await reopenLog(place, survey);
  }
}

/** What a data folder holds, read without a lock and without a change. */
export interface Reading {
  /** False when there is no store in the folder. */
  readonly exists: boolean;
  readonly tables: readonly Table[];
  readonly generation: number;
  readonly seq: number;
  /** All that is wrong, the earlier generation included. */
  readonly faults: readonly Fault[];
  /**
   * What a power cut left of the last write, or what a running server is just
   * writing: no fault.
   */
  readonly torn: Fault | undefined;
  /** Why the store cannot be opened; undefined when it can. */
  readonly refusal: StoreError | undefined;
}

/** Reads a data folder for a check or an export. */
export async function readStore(
  folder: string,
  options: Partial<Pick<StoreOptions, "tables" | "files">> = {},
): Promise<Reading> {
  const { files = realFiles, tables = [] } = options;
  for (let attempt = 1;; attempt++) {
    try {
      const survey = await surveyFolder(folder, {
        files,
        tables,
        thorough: true,
      });
      return { ...survey, tables: [...survey.tables.values()] };
    } catch (error) {
      // A running server removes old generations: read again what is there.
      if (errorCode(error) !== "ENOENT" || attempt === 5) throw error;
    }
  }
}

/** Removes all generations older than this one. */
async function removeBefore(place: Place, generation: number): Promise<void> {
  const { files, folder } = place;
  for (const name of await files.list(folder)) {
    const older = (generationOf(name) ?? generation) < generation;
    if (older) await files.remove(join(folder, name));
  }
}

function noticesOf({ torn, log, faults }: Survey): string[] {
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

interface Parts {
  readonly place: Place;
  readonly limits: StoreLimits;
  readonly log: Log;
  readonly survey: Survey;
  readonly writing: OpenLog;
  readonly mark: OpenFile;
  readonly reserve: Reserve;
  readonly release: () => Promise<void>;
}

class FileStore implements Store {
  readonly notices: readonly string[];
  readonly #parts: Parts;
  readonly #writer: LogWriter;
  readonly #mark: MarkKeeper;
  seq: number;
  /** The generation of the newest snapshot, and its length. */
  #base: number;
  #baseBytes: number;
  /** How long records are, to guess how long a snapshot will be. */
  #recordBytes: number;
  #recordCount: number;
  #checkpointing: Promise<void> | undefined;
  #failures = 0;
  #retryAt = 0;
  /** Whether deletes were taken since the disk was full. */
  #thinned = false;
  #roomTimer: NodeJS.Timeout | undefined;
  #makingRoom: Promise<void> = Promise.resolve();
  #closing: Promise<void> | undefined;

  constructor(parts: Parts) {
    const { survey, limits, place, writing, log } = parts;
    this.#parts = parts;
    this.seq = survey.seq;
    this.#base = survey.base;
    this.#baseBytes = survey.baseBytes;
    this.#recordBytes = survey.baseBytes + writing.offset;
    this.#recordCount = this.#size();
    this.notices = noticesOf(survey);
    for (const notice of this.notices) log("error", notice);
    this.#writer = new LogWriter(writing, survey.seq, {
      batchBytes: limits.batchBytes,
      now: place.now,
      ready: () => this.full ? this.#release() : undefined,
      advanced: () => this.#advanced(),
      undone: (error) => this.#undone(error),
    });
    this.#mark = new MarkKeeper(parts.mark, {
      store: survey.store,
      turn: survey.mark?.turn ?? 0,
      delay: limits.markDelay,
      position: () => {
        const { durableSeq, log: { generation, offset } } = this.#writer;
        return { generation, seq: durableSeq, offset };
      },
      failed: (error) => this.#tell("write the mark", error),
    });
    if (this.full) this.#fill();
    if (survey.faults.length > 0) this.checkpoint().catch(() => {});
  }

  get durableSeq(): number {
    return this.#writer.durableSeq;
  }

  get writable(): boolean {
    return this.#writer.fault === undefined;
  }

  get full(): boolean {
    return this.#parts.reserve.full;
  }

  get generation(): number {
    return this.#writer.log.generation;
  }

  table(name: string): StoredTable {
    const table = this.#parts.survey.tables.get(name);
    if (table !== undefined) return table;
    throw new StoreError("unknown-table", `There is no table "${name}"`);
  }

  commit(
    operations: readonly Operation[],
    by: number,
    { essential = false }: CommitOptions = {},
  ): Promise<void> {
    const at = new Date(this.#parts.place.now()).toISOString();
    const text = JSON.stringify(operations);
    const bytes = Buffer.byteLength(text) + lineOverhead;
    const puts = operations.filter(([kind]) => kind === "put").length;
    this.#admit(bytes, essential ? 0 : puts);
    for (const [, name] of operations) this.table(name);
    const seq = ++this.seq;
    const undo = operations.map(([kind, name, target]) =>
      kind === "put"
        ? this.table(name).put(target, seq)
        : this.table(name).delete(target, seq)
    );
    this.#recordBytes += text.length;
    this.#recordCount += puts;
    return new Promise((resolve, reject) => {
      this.#writer.add({ seq, at, by, text, bytes, undo, resolve, reject });
    });
  }

  settled(seq: number): Promise<void> | undefined {
    if (seq <= this.#writer.durableSeq) return undefined;
    return this.#writer.settled(seq);
  }

  checkpoint(): Promise<void> {
    if (this.#closing !== undefined) return Promise.reject(closed());
    this.#checkpointing ??= this.#checkpoint().then(() => {
      this.#failures = 0;
    }, (error) => {
      const wait = this.#parts.limits.retry * 2 ** ++this.#failures;
      this.#retryAt = this.#parts.place.now() + Math.min(wait, 300_000);
      this.#tell("write a snapshot", error);
      throw error;
    }).finally(() => {
      this.#checkpointing = undefined;
    });
    return this.#checkpointing;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** Throws, with nothing applied, when a transaction cannot be accepted. */
  #admit(bytes: number, puts: number): void {
    const { fault, queuedBytes } = this.#writer;
    if (this.#closing !== undefined) throw closed();
    if (fault !== undefined) {
      const message = "The store is read-only after a disk fault";
      throw new StoreError("read-only", message, { cause: fault });
    }
    if (this.full && puts > 0) {
      throw new StoreError("disk-full", "There is no space on the disk");
    }
    // One that is larger than the whole queue goes alone.
    const { queueBytes } = this.#parts.limits;
    if (queuedBytes > 0 && queuedBytes + bytes > queueBytes) {
      const message = `${queuedBytes} bytes wait to be written already`;
      throw new StoreError("overloaded", message);
    }
    if (this.full) this.#thinned = true;
  }

  #advanced(): void {
    this.#mark.touch();
    const { limits, place } = this.#parts;
    const guess = this.#guess();
    const least = Math.max(limits.logBytes, this.#baseBytes, guess);
    const due = this.#writer.log.offset > least && !this.full &&
      place.now() >= this.#retryAt && this.#closing === undefined;
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
    const tables = freeze(survey.tables);
    const generation = this.generation + 1;
    const start = { store: survey.store, generation, seq };
    const next = prepareLog(place, start);
    next.catch(() => {}); // the writer may look at it only later
    await this.#writer.rotate(seq, next).catch(async (error) => {
      await next.then(({ discard }) => discard(), () => {});
      throw error;
    });
    const bytes = await saveSnapshot(place, start, tables);
    const previous = this.#base;
    this.#base = generation;
    this.#baseBytes = this.#recordBytes = bytes;
    this.#recordCount = tables.reduce((sum, { rows }) => sum + rows.length, 0);
    this.#parts.log("info", "Wrote a snapshot", { generation, seq, bytes });
    await removeBefore(place, this.full ? generation : previous);
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
        if (this.full && this.writable) this.#fill();
      });
    }, this.#parts.limits.retry).unref();
  }

  async #makeRoom(): Promise<void> {
    const { place, limits, reserve, log } = this.#parts;
    await reserve.fill(limits.batchBytes);
    if (!this.full) {
      this.#thinned = false;
      log("info", "There is space on the disk again");
    } else if (this.#thinned && place.now() >= this.#retryAt) {
      // The deletes give their space back in a new snapshot; what is kept
      // back and the earlier generation make room for it.
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
      await this.#makingRoom;
      await this.#checkpointing?.catch(() => {});
      await this.#writer.idle();
      await this.#mark.close(this.writable);
      await this.#writer.log.file.close();
    } finally {
      await this.#parts.release();
    }
  }
}

function closed(): StoreError {
  return new StoreError("closed", "The store is closed");
}
