/**
 * The full disk. From a write that finds no space until the reserve file has
 * its space again, one rule holds:
 *
 * - Accepted are transactions that only delete, and those marked
 *   `allowWhenFull` (a sign-in, without which nobody could delete) up to a
 *   quarter of the reserve. All others are refused; nothing is changed.
 * - Their space comes from the reserve file, which is removed before they are
 *   written. A start that finds no space for the log frees it likewise.
 * - Every `retryMs` the store tries to recover: it allocates the reserve again,
 *   if that leaves space for a batch. If it cannot, and records were deleted or
 *   replaced, it frees the reserve and the earlier generation and writes a
 *   snapshot, which gives back the space of those records.
 *
 * The write that found no space is undone by the log's writer.
 */

import { Buffer } from "node:buffer";
import { join } from "node:path";
import type { Checkpointer } from "./checkpoint.ts";
import { errorCode, errorText, StoreError } from "./error.ts";
import { isNoSpaceError, withFile, writeAll } from "./log/files.ts";
import type { LogWriter } from "./log/writer.ts";
import type { StoreContext, StoreLimits } from "./options.ts";
import {
  type OpenLog,
  removeBefore,
  reopenLog,
  type StoreFolder,
} from "./recovery/folder.ts";
import type { FolderScan } from "./recovery/scan.ts";

/** A file that only takes space, and whether the disk is full. */
export class Reserve {
  isDiskFull = true;
  readonly #folder: StoreFolder;
  readonly #path: string;
  #bytes = 0;
  #last: Promise<unknown> = Promise.resolve();

  constructor(folder: StoreFolder) {
    this.#folder = folder;
    this.#path = join(folder.folder, "reserve");
  }

  /** Chooses the size, at most half of what a small disk has left, and allocates it. */
  async open({ reserveBytes, maxBatchBytes }: StoreLimits): Promise<void> {
    const allocated = await this.#size();
    const half = Math.floor((await this.#free() + allocated) / 2);
    this.#bytes = Math.max(allocated, Math.min(reserveBytes, half));
    await this.allocate(maxBatchBytes);
  }

  /** Allocates the file, if that leaves `spare` bytes: the disk is not full then. */
  allocate(spare: number): Promise<void> {
    return this.#exclusively(async () => {
      const missing = Math.max(0, this.#bytes - await this.#size());
      if (await this.#free() < missing + spare) return;
      if (missing === 0 || await this.#write()) this.isDiskFull = false;
    });
  }

  /** On a full disk, leaves the space to the next write. */
  release(): Promise<void> {
    return this.#exclusively(async () => {
      if (this.isDiskFull) await this.#folder.files.remove(this.#path);
    });
  }

  #free(): Promise<number> {
    return this.#folder.files.free(this.#folder.folder);
  }

  async #size(): Promise<number> {
    try {
      const stat = withFile(
        this.#folder.files,
        this.#path,
        (file) => file.stat(),
      );
      return (await stat).size;
    } catch (error) {
      if (errorCode(error) === "ENOENT") return 0;
      throw error;
    }
  }

  /** Returns whether there was space for the file. */
  async #write(): Promise<boolean> {
    const { files } = this.#folder;
    const zeros = Buffer.alloc(Math.min(this.#bytes, 1 << 20));
    const file = await files.open(this.#path, "create");
    try {
      for (let at = 0; at < this.#bytes; at += zeros.length) {
        await writeAll(file, zeros, at);
      }
      return true;
    } catch (error) {
      await files.remove(this.#path);
      if (isNoSpaceError(error)) return false;
      throw error;
    } finally {
      await file.close();
    }
  }

  /** Runs one operation on the file after the other, as each acts on what it finds. */
  #exclusively(work: () => Promise<void>): Promise<void> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => {});
    return done;
  }
}

/** Reopens the log; if there is no space for that, frees some first. */
export async function reopenWithReserve(
  folder: StoreFolder,
  scan: FolderScan,
  reserve: Reserve,
): Promise<OpenLog> {
  try {
    return await reopenLog(folder, scan);
  } catch (error) {
    if (!isNoSpaceError(error)) throw error;
    // The name of a newer snapshot must be on the disk before an older one goes.
    await folder.files.syncFolder(folder.folder);
    await removeBefore(folder, scan.baseGeneration);
    reserve.isDiskFull = true;
    await reserve.release();
    return await reopenLog(folder, scan);
  }
}

/** A transaction that asks to be accepted. */
interface Admission {
  readonly bytes: number;
  readonly puts: number;
  readonly allowWhenFull: boolean;
}

/** The parts of a store that a full disk concerns. */
export interface FullDiskOptions extends StoreContext {
  readonly reserve: Reserve;
  readonly writer: LogWriter;
  readonly checkpoints: Checkpointer;
}

/** Decides what is accepted while the disk is full, and tries to recover. */
export class FullDisk {
  readonly #options: FullDiskOptions;
  #hasDeletedSinceFull = false;
  #exemptBytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #recovery: Promise<void> | undefined;
  #isClosed = false;

  constructor(options: FullDiskOptions) {
    this.#options = options;
    if (options.reserve.isDiskFull) this.enterFullMode();
  }

  /** Throws `disk-full` unless a transaction is accepted on a full disk. */
  admit({ bytes, puts, allowWhenFull }: Admission): void {
    if (puts === 0) {
      this.#hasDeletedSinceFull = true;
      return;
    }
    const exemptBytes = this.#exemptBytes + bytes;
    // The rest of the reserve is left to deletes.
    const maxExemptBytes = this.#options.limits.reserveBytes / 4;
    if (!allowWhenFull || exemptBytes > maxExemptBytes) {
      throw new StoreError("disk-full", "The disk is full");
    }
    this.#exemptBytes = exemptBytes;
  }

  /** Marks the disk as full until a recovery succeeds. */
  enterFullMode(): void {
    const { reserve, limits, writer } = this.#options;
    reserve.isDiskFull = true;
    if (this.#isClosed) return;
    this.#timer ??= setTimeout(async () => {
      this.#recovery = this.#recover();
      await this.#recovery;
      this.#timer = undefined;
      if (reserve.isDiskFull && writer.fault === undefined) {
        this.enterFullMode();
      }
    }, limits.retryMs).unref();
  }

  /** Ends the attempts to recover. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#recovery;
  }

  async #recover(): Promise<void> {
    const { reserve, limits, log } = this.#options;
    try {
      await reserve.allocate(limits.maxBatchBytes);
      if (reserve.isDiskFull) await this.#reclaim();
      else {
        this.#hasDeletedSinceFull = false;
        this.#exemptBytes = 0;
        log("info", "There is space on the disk again");
      }
    } catch (error) {
      log("error", `Cannot free disk space: ${errorText(error)}`);
    }
  }

  /** Writes a snapshot without the records that were deleted or replaced. */
  async #reclaim(): Promise<void> {
    const { folder, reserve, writer, checkpoints } = this.#options;
    const isWorthwhile = this.#hasDeletedSinceFull ||
      checkpoints.expectedBytes() * 2 < writer.log.offset;
    if (!isWorthwhile || checkpoints.isBackingOff()) return;
    await removeBefore(folder, checkpoints.generation);
    await reserve.release();
    await checkpoints.run();
    await removeBefore(folder, checkpoints.generation);
    this.#hasDeletedSinceFull = false;
  }
}
