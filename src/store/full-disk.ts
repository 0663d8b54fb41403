/**
 * How the store deals with a full disk: a reserve makes deletes possible. The
 * feature reserves has it; without it a write for which there is no space is
 * refused, and nothing else.
 */

import { Buffer } from "node:buffer";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { StoreContext } from "./checkpoints.ts";
import { errorText, StoreError } from "./error.ts";
import {
  type FileSystem,
  isNoSpaceError,
  undefinedIfMissing,
  withFile,
  writeAll,
} from "./log/files.ts";
import { type OpenLog, removeBefore } from "./log/folder.ts";
import type { LogWriter } from "./log/writer.ts";
import { countRecords } from "./memory/table.ts";
import type { Logger } from "./options.ts";
import type { Pending } from "./queue.ts";
import { reopenLog } from "./recovery/reopen.ts";
import type { FolderScan } from "./recovery/scan.ts";

const remedy =
  "delete something else from this disk, or move the folder to a larger one";

/**
 * Keeps space on the disk.
 *
 * The disk is full from a write that finds no space, which the log's writer
 * undoes, until the reserve file has its space again. Meanwhile:
 *
 * - Transactions that only delete are accepted, and so are those marked
 *   `allowWhenFull`, such as a sign-in, without which nobody could delete. All
 *   others are refused; nothing is changed.
 * - Their space comes from the reserve file, which is removed before they are
 *   written. Startup frees it too if it finds no space for the log.
 * - Every `retryMs` the store tries to recover: it allocates the reserve again,
 *   if that leaves space for a batch. If it cannot, and anything was written
 *   since the last snapshot, it frees the reserve and the earlier generation
 *   and writes a snapshot, which frees the space of deleted records.
 */
export class FullDisk {
  /** True from a write that found no space until the reserve is allocated again. */
  isFull = true;
  /** The size of the reserve when it is allocated. */
  #reserveBytes = 0;
  readonly #context: StoreContext;
  readonly #path: string;
  #writer: LogWriter | undefined;
  #checkpoint: () => Promise<void> = () => Promise.resolve();
  readonly #forecast: Forecast;
  /** The last sequence number when a checkpoint was to free space. */
  #checkpointSeq = -1;
  /** When to try one again; 0 unless the last one has failed, although there was space. */
  #retryAt = 0;
  #lastOperation: Promise<unknown> = Promise.resolve();
  #recovery: Promise<void> | undefined;

  constructor(context: StoreContext) {
    this.#context = context;
    this.#forecast = new Forecast(context.scan);
    this.#path = join(context.folder.folder, "reserve");
  }

  /**
   * Allocates the reserve (on a small disk at most half of the free space), and
   * reopens the log.
   */
  async open(): Promise<OpenLog> {
    const { folder, limits, scan } = this.#context;
    const { files, folder: path } = folder;
    const size = await sizeOf(files, this.#path);
    const half = Math.floor((await files.free(path) + size) / 2);
    this.#reserveBytes = Math.max(size, Math.min(limits.reserveBytes, half));
    await this.#allocate();
    try {
      return await reopenLog(folder, scan);
    } catch (error) {
      if (!isNoSpaceError(error)) throw error;
    }
    // The name of a newer snapshot must be on the disk before an older one goes.
    await files.syncFolder(path);
    this.isFull = true;
    await this.#freeSpace();
    return await reopenLog(folder, scan).catch(async (cause) => {
      if (!isNoSpaceError(cause)) throw cause;
      const free = await files.free(path);
      const needed = scan.log.size; // it is copied
      throw new StoreError(
        "disk-full",
        `Cannot open ${path}: the disk is full. At least ${needed} bytes must be free to start, but only ${free} are: ${remedy}`,
        { cause },
      );
    });
  }

  /** Counts the documents of a transaction; throws unless it is accepted now. */
  admit({ text, puts, allowWhenFull }: Pending): void {
    if (this.isFull && puts > 0 && !allowWhenFull) {
      const { folder } = this.#context.folder;
      throw new StoreError(
        "disk-full",
        `Cannot write to ${folder}: the disk is full: ${remedy}`,
      );
    }
    this.#forecast.add(text.length, puts);
  }

  /** The expected size of a snapshot. */
  get expectedBytes(): number {
    return this.#forecast.bytes;
  }

  /** Throws if there is no space for a snapshot. */
  async requireSpace(): Promise<void> {
    const { files, folder } = this.#context.folder;
    const free = await files.free(folder);
    const needed = Math.ceil(this.expectedBytes * 1.1) + 4096;
    this.#forecast.begin();
    if (free >= needed) return;
    throw new StoreError(
      "disk-full",
      `${free} bytes are free, ${needed} are needed`,
    );
  }

  /** Allocates the reserve, if that leaves space for a batch: then the disk no longer counts as full. */
  #allocate(): Promise<void> {
    return this.#exclusively(async () => {
      const { limits, folder: { files, folder } } = this.#context;
      const missing = this.#reserveBytes - await sizeOf(files, this.#path);
      if (await files.free(folder) < missing + limits.maxBatchBytes) return;
      this.isFull = missing > 0 &&
        !await writeZeros(files, this.#path, this.#reserveBytes);
    });
  }

  /** Frees the reserve for a write, if the disk is full; the write itself fails if there is still no space. */
  beforeWrite(): Promise<void> | undefined {
    return this.isFull ? this.#release().catch(() => {}) : undefined;
  }

  #release(): Promise<void> {
    return this.#exclusively(async () => {
      if (this.isFull) await this.#context.folder.files.remove(this.#path);
    });
  }

  /** Frees the generations before the newest snapshot, and the reserve. */
  async #freeSpace(): Promise<void> {
    const { folder, scan } = this.#context;
    await removeBefore(folder, scan.baseGeneration);
    await this.#release();
  }

  /** Runs operations one after another, because each depends on the current state of the file. */
  #exclusively(work: () => Promise<void>): Promise<void> {
    const done = this.#lastOperation.then(work);
    this.#lastOperation = done.catch(() => {});
    return done;
  }

  /** Begins to watch an open store. */
  start(writer: LogWriter, checkpoint: () => Promise<void>): void {
    this.#writer = writer;
    this.#checkpoint = checkpoint;
    if (this.isFull) this.enterFullMode();
  }

  /** Returns how many bytes are missing for the next snapshot, or for a copy of the log. */
  async missingBytes(): Promise<number> {
    const { files, folder } = this.#context.folder;
    const freeBytes = await files.free(folder) +
      await sizeOf(files, this.#path);
    const logBytes = this.#writer?.log.offset ?? 0;
    return Math.max(0, logBytes - freeBytes, this.expectedBytes - freeBytes);
  }

  /** Describes the problems of the disk. */
  async notices(): Promise<string[]> {
    const missing = await this.missingBytes().catch(() => 0); // an unreadable disk
    const notices: string[] = [];
    if (this.isFull) {
      notices.push("The disk is full: only deletes and sign-ins are accepted.");
    }
    if (missing > 0) {
      notices.push(describeMissing(missing));
    }
    return notices;
  }

  /** The free space that other writers must leave. */
  get headroom(): number {
    if (this.isFull) return Infinity;
    return this.#context.limits.reserveBytes + 2 * this.expectedBytes;
  }

  /** Marks the disk as full until a recovery by a checkpoint, or by others, succeeds. */
  enterFullMode(): void {
    this.isFull = true;
    this.#recovery ??= this.#recover();
  }

  async #recover(): Promise<void> {
    const { closing: { signal }, limits, log } = this.#context;
    const report = reporterOf(log, signal);
    while (this.isFull && !signal.aborted) {
      try {
        await delay(limits.retryMs, undefined, { ref: false, signal });
        await this.#allocate();
        if (!this.isFull) log("info", "There is space on the disk again");
        else if (this.#writer?.fault === undefined) {
          await this.#deleteOldRecords();
        }
      } catch (error) {
        report(`Cannot free disk space: ${errorText(error)}`);
      }
    }
    this.#recovery = undefined;
  }

  /** Frees the space of deleted records by a checkpoint, if something was written since the last one. */
  async #deleteOldRecords(): Promise<void> {
    const lastSeq = this.#writer?.queue.lastSeq ?? 0;
    const isTooEarly = performance.now() < this.#retryAt;
    if (lastSeq === this.#checkpointSeq || isTooEarly) return;
    const { folder, limits, scan } = this.#context;
    await this.#freeSpace();
    await this.requireSpace();
    this.#retryAt = performance.now() + limits.checkpointRetryMs;
    await this.#checkpoint();
    this.#retryAt = 0;
    this.#checkpointSeq = lastSeq;
    await removeBefore(folder, scan.baseGeneration);
  }

  /** Waits for the attempt to recover, which ends once the store closes. */
  async close(): Promise<void> {
    await this.#recovery;
  }
}

/**
 * Predicts the size of the next snapshot from the average size of the documents
 * in the files at startup or in the last snapshot, and of those written since.
 */
class Forecast {
  readonly #scan: FolderScan;
  #writtenBytes: number;
  #writtenCount: number;
  /** The generation of the last snapshot, and the number of records in the next. */
  #baseGeneration: number;
  #nextCount = 0;

  constructor(scan: FolderScan) {
    this.#scan = scan;
    this.#baseGeneration = scan.baseGeneration;
    this.#writtenBytes = scan.baseBytes + scan.log.end;
    this.#writtenCount = countRecords(scan.tables);
  }

  add(bytes: number, count: number): void {
    this.#writtenBytes += bytes;
    this.#writtenCount += count;
  }

  /** Notes that a snapshot may be written now. */
  begin(): void {
    this.#nextCount = countRecords(this.#scan.tables);
  }

  get bytes(): number {
    const { baseBytes, baseGeneration, tables } = this.#scan;
    if (baseGeneration !== this.#baseGeneration) {
      this.#baseGeneration = baseGeneration;
      this.#writtenBytes = baseBytes;
      this.#writtenCount = this.#nextCount;
    }
    const average = this.#writtenBytes / Math.max(1, this.#writtenCount);
    return Math.round(average * countRecords(tables));
  }
}

function describeMissing(bytes: number): string {
  return `The disk is nearly full: ${bytes} more bytes must be free for the next snapshot, and for a start after a crash.`;
}

/** Returns a function that logs an error unless it is the same as the last one, but for its numbers, or the store closes. */
function reporterOf(log: Logger, closing: AbortSignal) {
  let last = "";
  return (message: string) => {
    const kind = message.replace(/\d+/g, "");
    if (kind !== last && !closing.aborted) log("error", message);
    last = kind;
  };
}

async function sizeOf(files: FileSystem, path: string): Promise<number> {
  const stat = await withFile(files, path, (file) => file.stat())
    .catch(undefinedIfMissing);
  return stat?.size ?? 0;
}

/** Writes a file of zeros; returns whether there was space for it. */
async function writeZeros(
  files: FileSystem,
  path: string,
  bytes: number,
): Promise<boolean> {
  const zeros = Buffer.alloc(bytes);
  try {
    await withFile(files, path, (file) => writeAll(file, zeros, 0), "create");
    return true;
  } catch (error) {
    await files.remove(path);
    if (isNoSpaceError(error)) return false;
    throw error;
  }
}
