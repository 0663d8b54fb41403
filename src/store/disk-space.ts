/**
 * How the store deals with the space on its disk: checkpoints keep the log
 * short, and a reserve makes deletes possible when the disk is full.
 */

import { Buffer } from "node:buffer";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { closedError, errorText, StoreError } from "./error.ts";
import {
  type FileSystem,
  isNoSpaceError,
  undefinedIfMissing,
  withFile,
  writeAll,
} from "./log/files.ts";
import { type OpenLog, removeBefore, type StoreFolder } from "./log/folder.ts";
import { freezeTables, saveSnapshot } from "./log/snapshot.ts";
import type { LogWriter } from "./log/writer.ts";
import { countRecords } from "./memory/table.ts";
import type { Logger, StoreLimits } from "./options.ts";
import type { Pending } from "./queue.ts";
import { reopenLog } from "./recovery/reopen.ts";
import type { FolderScan } from "./recovery/scan.ts";

/** The longest delay after which a failed checkpoint is tried again. */
const maxRetryMs = 300_000;

/** The context that all parts of an open store share. */
export interface StoreContext {
  readonly folder: StoreFolder;
  readonly limits: StoreLimits;
  readonly log: Logger;
  /** The result of the startup scan; its tables are the live ones, and its base is the newest snapshot. */
  readonly scan: FolderScan;
}

/** The file whose space is freed while the disk is full. */
export class Reserve {
  /** True from a write that found no space until the reserve is allocated again. */
  isFull = true;
  /** Its size when it is allocated. */
  #bytes = 0;
  readonly #context: StoreContext;
  readonly #path: string;
  #lastOperation: Promise<unknown> = Promise.resolve();

  constructor(context: StoreContext) {
    this.#context = context;
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
    this.#bytes = Math.max(size, Math.min(limits.reserveBytes, half));
    await this.allocate();
    try {
      return await reopenLog(folder, scan);
    } catch (error) {
      if (!isNoSpaceError(error)) throw error;
    }
    // The name of a newer snapshot must be on the disk before an older one goes.
    await files.syncFolder(path);
    this.isFull = true;
    await this.freeSpace();
    return await reopenLog(folder, scan).catch(async (cause) => {
      if (!isNoSpaceError(cause)) throw cause;
      const free = await files.free(path);
      const needed = scan.log.size; // it is copied
      throw new StoreError(
        "disk-full",
        `Cannot open ${path}: the disk is full. At least ${needed} bytes must be free to start, but only ${free} are: delete something else from this disk, or move the folder to a larger one`,
        { cause },
      );
    });
  }

  /** Returns how many bytes are free, including its own. */
  async freeBytes(): Promise<number> {
    const { files, folder } = this.#context.folder;
    return await files.free(folder) + await sizeOf(files, this.#path);
  }

  /** Allocates it, if that leaves space for a batch: then the disk no longer counts as full. */
  allocate(): Promise<void> {
    return this.#exclusively(async () => {
      const { limits, folder: { files, folder } } = this.#context;
      const missing = this.#bytes - await sizeOf(files, this.#path);
      if (await files.free(folder) < missing + limits.maxBatchBytes) return;
      this.isFull = missing > 0 &&
        !await writeZeros(files, this.#path, this.#bytes);
    });
  }

  /** Frees its space for a write, if the disk is full; the write itself fails if there is still none. */
  release(): Promise<void> {
    return this.#exclusively(async () => {
      if (this.isFull) await this.#context.folder.files.remove(this.#path);
    });
  }

  /** Frees the generations before the newest snapshot, and the reserve. */
  async freeSpace(): Promise<void> {
    const { folder, scan } = this.#context;
    await removeBefore(folder, scan.baseGeneration);
    await this.release();
  }

  /** Runs operations one after another, because each depends on the current state of the file. */
  #exclusively(work: () => Promise<void>): Promise<void> {
    const done = this.#lastOperation.then(work);
    this.#lastOperation = done.catch(() => {});
    return done;
  }
}

/**
 * Keeps space on the disk.
 *
 * A checkpoint writes a snapshot of all records and starts a new log after it.
 * One is due when the log has grown longer than both the last snapshot and the
 * expected next one, so in the long run at most twice the size of the log is
 * written. Transactions continue meanwhile. A checkpoint that fails is dropped:
 * the log continues, and the next attempt follows after a delay that doubles
 * each time.
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
export class DiskSpace {
  readonly #context: StoreContext;
  readonly #reserve: Reserve;
  readonly #writer: LogWriter;
  /**
   * The size and number of the documents in the files at startup and of those
   * written since: their average predicts the size of a snapshot.
   */
  #writtenBytes: number;
  #writtenCount: number;
  #checkpoint: Promise<void> | undefined;
  /** The last sequence number in the last snapshot of this process. */
  #snapshotSeq = -1;
  #failures = 0;
  #retryAt = 0;
  #recovery: Promise<void> | undefined;
  readonly #closing = new AbortController();

  constructor(context: StoreContext, reserve: Reserve, writer: LogWriter) {
    this.#context = context;
    this.#reserve = reserve;
    this.#writer = writer;
    const { scan } = context;
    this.#writtenBytes = scan.baseBytes + writer.log.offset;
    this.#writtenCount = countRecords(scan.tables);
    if (reserve.isFull) this.enterFullMode();
  }

  /** Counts the documents of a transaction. */
  count({ text, puts }: Pending): void {
    this.#writtenBytes += text.length;
    this.#writtenCount += puts;
  }

  /** Returns the expected size of a snapshot. */
  expectedBytes(): number {
    const average = this.#writtenBytes / Math.max(1, this.#writtenCount);
    return Math.round(average * countRecords(this.#context.scan.tables));
  }

  /** Returns how many bytes are missing for the next snapshot, or for a copy of the log. */
  async missingBytes(): Promise<number> {
    const { offset } = this.#writer.log;
    const neededBytes = Math.max(offset, this.expectedBytes());
    return Math.max(0, neededBytes - await this.#reserve.freeBytes());
  }

  /** Begins a checkpoint if one is due, or the last one has failed. */
  checkpointIfDue(): void {
    if (this.#reserve.isFull || performance.now() < this.#retryAt) {
      return;
    }
    const { limits, scan } = this.#context;
    const minBytes = Math.max(
      limits.minLogBytes,
      scan.baseBytes,
      this.expectedBytes(),
    );
    const isDue = this.#failures > 0 || this.#writer.log.offset > minBytes;
    if (isDue) this.checkpoint().catch(() => {}); // it is logged, and tried again later
  }

  /** Writes a checkpoint now, or joins the one that is being written. */
  checkpoint(): Promise<void> {
    return this.#checkpoint ??= this.#writeCheckpoint().catch((error) => {
      const { limits, log } = this.#context;
      const delayMs = limits.retryMs * 2 ** ++this.#failures;
      this.#retryAt = performance.now() + Math.min(delayMs, maxRetryMs);
      if (!this.#closing.signal.aborted) {
        log("error", `Cannot write a snapshot: ${errorText(error)}`);
      }
      throw error;
    }).finally(() => {
      this.#checkpoint = undefined;
    });
  }

  async #writeCheckpoint(): Promise<void> {
    const { signal } = this.#closing;
    if (signal.aborted) throw closedError();
    const { folder, scan, log } = this.#context;
    const free = await folder.files.free(folder.folder);
    const needed = Math.ceil(this.expectedBytes() * 1.1) + 4096;
    if (free < needed) {
      throw new StoreError(
        "disk-full",
        `${free} bytes are free, ${needed} are needed`,
      );
    }
    // From here to the call of `rotate` nothing else can run.
    const seq = this.#writer.queue.lastSeq;
    const tables = freezeTables(scan.tables);
    const count = countRecords(scan.tables);
    const generation = this.#writer.log.generation + 1;
    const start = { store: scan.storeId, generation, seq };
    await this.#writer.rotate(start);
    const bytes = await saveSnapshot(folder, { ...start, tables, signal });
    const previous = scan.baseGeneration;
    scan.baseGeneration = generation;
    scan.baseBytes = this.#writtenBytes = bytes;
    this.#writtenCount = count;
    this.#snapshotSeq = seq;
    log("info", "Wrote a snapshot", { generation, seq, bytes });
    await removeBefore(folder, previous);
    this.#failures = 0;
  }

  /** Marks the disk as full until a recovery succeeds. */
  enterFullMode(): void {
    this.#reserve.isFull = true;
    this.#recovery ??= this.#recover();
  }

  async #recover(): Promise<void> {
    const { folder, limits, log, scan } = this.#context;
    const { signal } = this.#closing;
    while (this.#reserve.isFull && !signal.aborted) {
      try {
        await delay(limits.retryMs, undefined, { ref: false, signal });
        await this.#reserve.allocate();
        if (!this.#reserve.isFull) {
          log("info", "There is space on the disk again");
        } else if (this.#mayFreeSpace()) {
          await this.#reserve.freeSpace();
          await this.checkpoint();
          await removeBefore(folder, scan.baseGeneration);
        }
      } catch (error) {
        if (signal.aborted) break;
        log("error", `Cannot free disk space: ${errorText(error)}`);
      }
    }
    this.#recovery = undefined;
  }

  /** Returns whether a checkpoint may free space: something was written since the last one. */
  #mayFreeSpace(): boolean {
    const { fault, queue } = this.#writer;
    return fault === undefined && queue.lastSeq > this.#snapshotSeq &&
      performance.now() >= this.#retryAt;
  }

  /** Ends the checkpoint that is being written, and the attempts to recover. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#checkpoint?.catch(() => {});
    await this.#recovery;
  }
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
