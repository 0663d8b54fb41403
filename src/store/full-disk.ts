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
import type { Checkpointer, StoreContext } from "./checkpoint.ts";
import { errorText, StoreError } from "./error.ts";
import {
  type FileSystem,
  isNoSpaceError,
  undefinedIfMissing,
  withFile,
  writeAll,
} from "./log/files.ts";
import { type OpenLog, removeBefore } from "./log/folder.ts";
import { reopenLog } from "./recovery/reopen.ts";

/** Decides what is accepted while the disk is full, and tries to recover. */
export class FullDisk {
  /** True from a write that found no space until the reserve is allocated again. */
  isFull = true;
  readonly #context: StoreContext;
  readonly #path: string;
  #reserveBytes = 0;
  #lastOperation: Promise<unknown> = Promise.resolve();
  #checkpoints: Checkpointer | undefined;
  #hasDeletedSinceFull = false;
  /** The size of the transactions accepted as `allowWhenFull`. */
  #exemptBytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #recovery: Promise<void> | undefined;

  constructor(context: StoreContext) {
    this.#context = context;
    this.#path = join(context.folder.folder, "reserve");
  }

  /** Reserves at most half of what a small disk has left, and reopens the log. */
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
      // The name of a newer snapshot must be on the disk before an older one goes.
      await files.syncFolder(path);
      this.isFull = true;
      await this.#freeSpace(scan.baseGeneration);
      return await reopenLog(folder, scan);
    }
  }

  /** Recovers with these checkpoints from now on. */
  start(checkpoints: Checkpointer): void {
    this.#checkpoints = checkpoints;
    if (this.isFull) this.enterFullMode();
  }

  /** Throws `disk-full` unless a full disk accepts a transaction. */
  admit(
    bytes: number,
    { puts, allowWhenFull }: { puts: number; allowWhenFull: boolean },
  ): void {
    if (puts === 0) {
      this.#hasDeletedSinceFull = true;
      return;
    }
    const exemptBytes = this.#exemptBytes + bytes;
    // The rest of the reserve is left to deletes.
    const maxExemptBytes = this.#context.limits.reserveBytes / 4;
    if (!allowWhenFull || exemptBytes > maxExemptBytes) {
      throw new StoreError("disk-full", "The disk is full");
    }
    this.#exemptBytes = exemptBytes;
  }

  /** Frees the reserve for a write, which reports itself if it still finds no space. */
  beforeWrite(): Promise<void> | undefined {
    return this.isFull ? this.#release().catch(() => {}) : undefined;
  }

  /** Marks the disk as full until a recovery succeeds. */
  enterFullMode(): void {
    this.isFull = true;
    const checkpoints = this.#checkpoints;
    if (!checkpoints?.canRun()) return;
    this.#timer ??= setTimeout(async () => {
      this.#recovery = this.#recover(checkpoints);
      await this.#recovery;
      this.#timer = undefined;
      if (this.isFull) this.enterFullMode();
    }, this.#context.limits.retryMs).unref();
  }

  /** Ends the attempts to recover, once the checkpoints are closed. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#recovery;
  }

  async #recover(checkpoints: Checkpointer): Promise<void> {
    const { folder, log } = this.#context;
    try {
      await this.#allocate();
      if (!this.isFull) {
        this.#hasDeletedSinceFull = false;
        this.#exemptBytes = 0;
        log("info", "There is space on the disk again");
      } else if (checkpoints.isWorthwhile(this.#hasDeletedSinceFull)) {
        await this.#freeSpace(checkpoints.generation);
        await checkpoints.run();
        await removeBefore(folder, checkpoints.generation);
        this.#hasDeletedSinceFull = false;
      }
    } catch (error) {
      log("error", `Cannot free disk space: ${errorText(error)}`);
    }
  }

  /** Allocates the reserve, if that leaves space for a batch: the disk is not full then. */
  #allocate(): Promise<void> {
    return this.#exclusively(async () => {
      const { limits, folder: { files, folder } } = this.#context;
      const path = this.#path;
      const bytes = this.#reserveBytes;
      const missing = Math.max(0, bytes - await sizeOf(files, path));
      if (await files.free(folder) < missing + limits.maxBatchBytes) return;
      this.isFull = missing > 0 && !await writeZeros(files, path, bytes);
    });
  }

  /** Frees the generations before `base`, and the reserve. */
  async #freeSpace(base: number): Promise<void> {
    await removeBefore(this.#context.folder, base);
    await this.#release();
  }

  #release(): Promise<void> {
    return this.#exclusively(async () => {
      if (this.isFull) await this.#context.folder.files.remove(this.#path);
    });
  }

  /** Runs one operation on the reserve after the other, as each acts on what it finds. */
  #exclusively(work: () => Promise<void>): Promise<void> {
    const done = this.#lastOperation.then(work);
    this.#lastOperation = done.catch(() => {});
    return done;
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
  const file = await files.open(path, "create");
  try {
    await writeAll(file, Buffer.alloc(bytes), 0);
    return true;
  } catch (error) {
    await files.remove(path);
    if (isNoSpaceError(error)) return false;
    throw error;
  } finally {
    await file.close();
  }
}
