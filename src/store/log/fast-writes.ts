/**
 * Makes durable writes faster and changes nothing else; the feature
 * fast-writes has it.
 *
 * - Space ahead: a file that grows changes its metadata, which on ext4 costs each
 *   commit a second flush and 12 KB of journal (measured; see the README of the
 *   tests). So a write that does not fit into the file also appends zeros, in
 *   the same call, as space for the next writes. The zeros must really be
 *   written: using space that is only reserved, or a hole, changes the metadata
 *   too.
 * - Siblings: a batch waits for clients that are about to write again. Those
 *   whose transactions have just become durable often send the next one at once,
 *   so a batch is written when as many transactions wait as did a moment ago, or
 *   after as long as the last write took: a batch cannot gain more than that by
 *   waiting (compare PostgreSQL's `commit_siblings` and `commit_delay`). A lone
 *   writer never waits, and once writers stop coming one batch has waited in
 *   vain.
 * - One trip through the thread pool: on Linux each write to a log waits for the
 *   disk itself (`O_DSYNC`).
 */

import { Buffer } from "node:buffer";
import { constants, fstatSync, write } from "node:fs";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { setImmediate as nextTurn } from "node:timers/promises";
import { promisify } from "node:util";
import type { TransactionQueue } from "../queue.ts";
import { type FileSystem, openFile, realFiles } from "./files.ts";
import type { OpenLog, StoreFolder } from "./folder.ts";

const blockBytes = 4096;
/** The most zeros that are written ahead. */
const maxAheadBytes = 1 << 20;
/**
 * A longer batch is written without zeros, as one more change of the metadata
 * costs it little.
 */
const maxBatchBytesWithZeros = 1 << 16;

/** The pace of the writes to a log, and the space for them. */
export class FastWrites {
  /**
   * How many transactions were waiting a moment ago, and how long a batch waits
   * for as many.
   */
  #expectedCount = 0;
  #maxWaitMs = 0;
  /** Ends the wait at the end of the current turn of the event loop. */
  #wakeUp = () => {};

  /** Ends the wait once as many transactions are queued as were expected. */
  wake({ length }: TransactionQueue): void {
    if (length === this.#expectedCount) this.#wakeUp();
  }

  /** Waits, at most as long as the last write took, until as many transactions are queued as waited then. */
  async wait(queue: TransactionQueue): Promise<void> {
    const start = performance.now();
    while (queue.length < this.#expectedCount) {
      const leftMs = this.#maxWaitMs - (performance.now() - start);
      if (leftMs <= 0) return;
      // Timers are too coarse for a fast disk; on a slow disk, turns of the
      // event loop would waste CPU time.
      if (leftMs < 2) await nextTurn();
      else {
        await new Promise<void>((resolve) => {
          this.#wakeUp = () => setImmediate(resolve);
          setTimeout(resolve, leftMs);
        });
      }
    }
  }

  /** Notes a write of some transactions, and how long the disk took. */
  note(count: number, syncMs: number): void {
    this.#expectedCount = count;
    // One slow write must not make the next ones wait as long.
    this.#maxWaitMs = Math.min(syncMs, 2 * this.#maxWaitMs || syncMs);
  }

  /**
   * Adds zeros to a write that does not fit into the log, up to the end of a
   * block: as many as the log is long, so that a small log stays small, and few
   * on a disk that is nearly full.
   */
  async pad(
    bytes: Buffer,
    { offset, size }: OpenLog,
    { files, folder }: StoreFolder,
  ): Promise<Buffer> {
    if (offset + bytes.length <= size) return bytes;
    const isLong = bytes.length > maxBatchBytesWithZeros;
    const free = isLong ? 0 : await files.free(folder).catch(() => 0);
    const ahead = Math.min(offset, maxAheadBytes, free / 64);
    const end = offset + bytes.length + ahead;
    const paddedSize = Math.ceil(end / blockBytes) * blockBytes;
    const padded = Buffer.alloc(paddedSize - offset);
    bytes.copy(padded);
    return padded;
  }
}

// Other systems lack it, or their version is weaker than fdatasync.
const O_DSYNC = process.platform === "linux" ? constants.O_DSYNC : 0;

const writeBytes = promisify(write);

/**
 * The machine's own files. Writes to a log bypass FileHandle, which would take a
 * tenth of the time of a transaction that is alone in its batch; fstat never
 * waits for the disk, so it can be synchronous.
 */
export const fastFiles: FileSystem = {
  ...realFiles,
  async open(path, mode) {
    if (mode !== "log") return await realFiles.open(path, mode);
    const file = await openFile(path, constants.O_RDWR | O_DSYNC);
    const syncsItself = O_DSYNC > 0;
    let isSynced = syncsItself;
    return {
      ...file,
      write: (bytes, position) =>
        writeBytes(file.fd, bytes, 0, bytes.length, position),
      // Not through the file descriptor, which the permission model does not
      // allow.
      async datasync() {
        if (!isSynced) await file.datasync();
        isSynced = syncsItself;
      },
      truncate(size) {
        isSynced = false;
        return file.truncate(size);
      },
      stat: () => Promise.resolve(fstatSync(file.fd)),
    };
  },
};
