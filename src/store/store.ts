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
import { join } from "node:path";
import process from "node:process";
import { type Fault, StoreError } from "./error.ts";
import {
  type FileSystem,
  type OpenFile,
  realFiles,
  writeWhole,
} from "./files.ts";
import { acquireLock, type Lock } from "./lock.ts";
import { lineOverhead, type LogScan, type Operation } from "./log.ts";
import { openMark, writeMark } from "./mark.ts";
import {
  createStore,
  describe,
  makeFolder,
  type Place,
  prepareLog,
  removeDrafts,
  reopenLog,
} from "./recovery.ts";
import { freeze, type FrozenTable, writeSnapshot } from "./snapshot.ts";
import { isGone, names, refuse, type Survey, surveyFolder } from "./survey.ts";
import type {
  Json,
  StoredTable,
  Table,
  TableDeclaration,
  Tables,
  Undo,
} from "./table.ts";
import { LogWriter } from "./writer.ts";

export { StoreError } from "./error.ts";
export type { Fault, StoreErrorCode, StoreErrorFields } from "./error.ts";
export { realFiles } from "./files.ts";
export type { FileSystem, OpenFile } from "./files.ts";
export type { Operation } from "./log.ts";
export type {
  Document,
  Json,
  KeyOf,
  Row,
  Table,
  TableDeclaration,
} from "./table.ts";

/** Sizes and times; tests make them small. */
export interface StoreLimits {
  /** A log longer than this, and than the snapshot, is ended by a new one. */
  readonly logBytes: number;
  /** What may wait to be written. */
  readonly queueBytes: number;
  /** What one write takes. */
  readonly batchBytes: number;
  /** How long another process may take to answer the lock, in ms. */
  readonly lockPatience: number;
  /** The mark is written this long after the last write, in ms … */
  readonly markIdle: number;
  /** … and this often under load. */
  readonly markBusy: number;
}

const defaultLimits: StoreLimits = {
  logBytes: 8 << 20,
  queueBytes: 16 << 20,
  batchBytes: 1 << 20,
  lockPatience: 5000,
  markIdle: 1000,
  markBusy: 5000,
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

/** An open store. */
export interface Store {
  /** The last sequence applied in memory. */
  readonly seq: number;
  /** The last sequence known to be on the disk. */
  readonly durableSeq: number;
  /** False after a disk fault, until a restart. */
  readonly writable: boolean;
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
  commit(operations: readonly Operation[], by: number): Promise<void>;
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
  const context = contextOf(options);
  const { files, folder } = context.place;
  await makeFolder(files, folder);
  const lock = await acquireLock(folder, {
    files,
    random: context.place.random,
    patience: context.limits.lockPatience,
  });
  try {
    return await open(context, options.tables, lock);
  } catch (error) {
    await lock.release();
    throw error;
  }
}

/** What a data folder holds, read without a lock and without a change. */
export interface Reading {
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
  options: {
    readonly tables?: readonly TableDeclaration[];
    readonly files?: FileSystem;
  } = {},
): Promise<Reading> {
  for (let attempt = 1;; attempt++) {
    try {
      const survey = await surveyFolder(folder, {
        files: options.files ?? realFiles,
        tables: options.tables ?? [],
        thorough: true,
      });
      const { tables, generation, seq, faults, torn } = survey;
      const refusal = refuse(folder, survey);
      return { tables: [...tables], generation, seq, faults, torn, refusal };
    } catch (error) {
      // A running server removes old generations: read again what is there.
      if (!isGone(error) || attempt === 5) throw error;
    }
  }
}

interface Context {
  readonly place: Place;
  readonly limits: StoreLimits;
  readonly log: Log;
}

function contextOf(options: StoreOptions): Context {
  return {
    place: {
      folder: options.folder,
      files: options.files ?? realFiles,
      now: options.now ?? Date.now,
      random: options.random ?? randomBytes,
    },
    limits: { ...defaultLimits, ...options.limits },
    log: options.log ?? (() => {}),
  };
}

async function open(
  context: Context,
  tables: readonly TableDeclaration[],
  lock: Lock,
): Promise<Store> {
  const { place, log } = context;
  const { files, folder } = place;
  if (process.env["UV_USE_IO_URING"] === "1") {
    log("error", "UV_USE_IO_URING=1 makes every write many times slower");
  }
  const look = () => surveyFolder(folder, { files, tables, thorough: false });
  let survey = await look();
  if (!survey.exists) {
    await removeDrafts(place);
    await createStore(place);
    survey = await look();
  }
  const error = refuse(folder, survey);
  if (error !== undefined) throw error;
  const { log: last } = survey;
  if (last === undefined) throw new Error(`Cannot open ${folder}: no log`);
  await removeDrafts(place);
  const writing = await reopenLog(place, { ...survey, log: last });
  const mark = await openMark(files, folder);
  const notices = noticesOf(survey, last);
  for (const notice of notices) log("error", notice);
  const store = new FileStore({
    ...context,
    lock,
    survey,
    mark,
    notices,
    writing,
  });
  return store;
}

function noticesOf(survey: Survey, last: LogScan): string[] {
  const notices: string[] = [];
  const { torn } = survey;
  if (torn !== undefined) {
    notices.push(
      `${torn.file} ended with a torn write at byte ${torn.byte}, line ` +
        `${torn.line}: ${last.size - last.end} bytes that were never ` +
        "acknowledged were cut off and kept beside it",
    );
  }
  for (const { file, byte, line, message } of survey.faults) {
    notices.push(
      `${file} is damaged (byte ${byte}, line ${line}: ${message}) and was ` +
        "passed over: the generation before it and the logs since are whole",
    );
  }
  return notices;
}

interface Parts extends Context {
  readonly lock: Lock;
  readonly survey: Survey;
  readonly mark: OpenFile;
  readonly notices: readonly string[];
  readonly writing: LogWriter["log"];
}

class FileStore implements Store {
  readonly notices: readonly string[];
  readonly #place: Place;
  readonly #limits: StoreLimits;
  readonly #log: Log;
  readonly #lock: Lock;
  readonly #store: string;
  readonly #tables: Tables;
  readonly #writer: LogWriter;
  readonly #mark: OpenFile;
  #turn: number;
  #markTimer: NodeJS.Timeout | undefined;
  #marking: Promise<void> | undefined;
  #marked: { readonly seq: number; readonly at: number };
  #advancedAt = 0;
  #seq: number;
  #closing: Promise<void> | undefined;
  #base: number;
  #baseSize: number;
  #checkpointing: Promise<void> | undefined;
  #retryAt = 0;
  #failures = 0;

  constructor(parts: Parts) {
    const { survey, writing } = parts;
    this.notices = parts.notices;
    this.#place = parts.place;
    this.#limits = parts.limits;
    this.#log = parts.log;
    this.#lock = parts.lock;
    this.#store = survey.store;
    this.#tables = survey.tables;
    this.#mark = parts.mark;
    this.#turn = survey.mark?.turn ?? 0;
    this.#marked = { seq: survey.mark?.seq ?? 0, at: 0 };
    this.#seq = survey.seq;
    this.#base = survey.base;
    this.#baseSize = survey.baseSize;
    this.#writer = new LogWriter(writing, survey.seq, {
      batchBytes: parts.limits.batchBytes,
      now: parts.place.now,
      advanced: () => this.#advanced(),
      undone: (error) => this.#undone(error),
    });
    if (survey.faults.length > 0) this.checkpoint().catch(() => {});
  }

  get seq(): number {
    return this.#seq;
  }

  get durableSeq(): number {
    return this.#writer.durableSeq;
  }

  get writable(): boolean {
    return this.#writer.fault === undefined;
  }

  get generation(): number {
    return this.#writer.log.generation;
  }

  table(name: string): StoredTable {
    const table = this.#tables.get(name);
    if (table !== undefined) return table;
    throw new StoreError("unknown-table", `There is no table "${name}"`);
  }

  commit(operations: readonly Operation[], by: number): Promise<void> {
    const text = JSON.stringify(operations);
    const bytes = Buffer.byteLength(text) + lineOverhead;
    this.#admit(bytes);
    const tables = operations.map((operation) => this.table(operation[1]));
    const seq = ++this.#seq;
    const undo: Undo[] = operations.map((operation, index) => {
      const table = tables[index] ?? this.table(operation[1]);
      return operation[0] === "put"
        ? table.put(operation[2], seq)
        : table.delete(operation[2], seq);
    });
    const at = new Date(this.#place.now()).toISOString();
    return new Promise((resolve, reject) => {
      this.#writer.add({ seq, at, by, text, bytes, undo, resolve, reject });
    });
  }

  settled(seq: number): Promise<void> | undefined {
    if (seq <= this.#writer.durableSeq) return undefined;
    return this.#writer.settled(seq);
  }

  checkpoint(): Promise<void> {
    this.#checkpointing ??= this.#checkpoint().finally(() => {
      this.#checkpointing = undefined;
    });
    return this.#checkpointing;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  /** Throws, with nothing applied, when a transaction cannot be accepted. */
  #admit(bytes: number): void {
    if (this.#closing !== undefined) {
      throw new StoreError("closed", "The store is closed");
    }
    const { fault, queuedBytes } = this.#writer;
    if (fault !== undefined) {
      throw new StoreError(
        "read-only",
        "The store is read-only after a disk fault, until a restart",
        { cause: fault },
      );
    }
    // One that is larger than the whole queue goes alone.
    if (queuedBytes > 0 && queuedBytes + bytes > this.#limits.queueBytes) {
      throw new StoreError(
        "overloaded",
        `${queuedBytes} bytes wait to be written already`,
      );
    }
  }

  #advanced(): void {
    this.#advancedAt = this.#place.now();
    this.#scheduleMark();
    const { log } = this.#writer;
    const due = log.offset > Math.max(this.#limits.logBytes, this.#baseSize);
    if (!due || this.#checkpointing !== undefined) return;
    if (this.#closing !== undefined || this.#advancedAt < this.#retryAt) return;
    this.checkpoint().catch(() => {}); // logged there, and tried again later
  }

  #undone(error: StoreError): void {
    this.#seq = this.#writer.durableSeq;
    this.#log("error", error.message);
  }

  async #checkpoint(): Promise<void> {
    try {
      const cut = this.#seq;
      const tables = freeze(this.#tables);
      const generation = this.generation + 1;
      const start = { store: this.#store, generation, seq: cut };
      const next = prepareLog(this.#place, start);
      await this.#writer.rotate(cut, next).catch(async (error) => {
        await next.then(({ discard }) => discard(), () => {});
        throw error;
      });
      await this.#writeSnapshot(tables, generation, cut);
      this.#failures = 0;
    } catch (error) {
      this.#failures++;
      const wait = Math.min(1000 * 2 ** this.#failures, 300_000);
      this.#retryAt = this.#place.now() + wait;
      this.#log("error", describe("Cannot write a snapshot", error));
      throw error;
    }
  }

  async #writeSnapshot(
    tables: readonly FrozenTable[],
    generation: number,
    seq: number,
  ): Promise<void> {
    const { files, folder, now } = this.#place;
    const at = new Date(now()).toISOString();
    const head = { store: this.#store, generation, seq, at };
    let size = 0;
    await writeWhole(
      files,
      join(folder, names.snapshot(generation)),
      async (file) => {
        size = await writeSnapshot(file, head, tables);
      },
    );
    const previous = this.#base;
    this.#base = generation;
    this.#baseSize = size;
    this.#log("info", "Wrote a snapshot", { generation, seq, bytes: size });
    await this.#removeBefore(previous);
  }

  /** Removes all generations older than this one. */
  async #removeBefore(generation: number): Promise<void> {
    const { files, folder } = this.#place;
    for (const name of await files.list(folder)) {
      const found = /^(?:wal|snapshot)-(\d+)\.json/.exec(name)?.[1];
      if (found === undefined || name.includes(".torn-")) continue;
      if (Number(found) < generation) await files.remove(join(folder, name));
    }
  }

  #scheduleMark(): void {
    if (this.#markTimer !== undefined || this.#closing !== undefined) return;
    this.#markTimer = setTimeout(() => {
      this.#markTimer = undefined;
      const now = this.#place.now();
      const idle = now - this.#advancedAt >= this.#limits.markIdle;
      const busy = now - this.#marked.at >= this.#limits.markBusy;
      if (idle || busy) this.#writeMark(false).catch(() => {});
      else this.#scheduleMark();
    }, this.#limits.markIdle);
    this.#markTimer.unref();
  }

  async #writeMark(clean: boolean): Promise<void> {
    while (this.#marking !== undefined) await this.#marking.catch(() => {});
    const { log, durableSeq } = this.#writer;
    this.#turn++;
    this.#marking = writeMark(this.#mark, {
      store: this.#store,
      turn: this.#turn,
      generation: log.generation,
      seq: durableSeq,
      offset: log.offset,
      clean,
    }).finally(() => {
      this.#marking = undefined;
    });
    this.#marked = { seq: durableSeq, at: this.#place.now() };
    await this.#marking.catch((error) => {
      this.#log("error", describe("Cannot write the mark", error));
    });
  }

  async #close(): Promise<void> {
    await this.#checkpointing?.catch(() => {});
    await this.#writer.idle();
    clearTimeout(this.#markTimer);
    await this.#writeMark(this.writable);
    await this.#mark.close();
    await this.#writer.log.file.close();
    await this.#lock.release();
  }
}
