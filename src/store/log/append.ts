/**
 * Appends to a log durably, mostly into space that was allocated ahead.
 *
 * A file that grows changes its metadata: on ext4 that costs each commit a
 * second flush and 12 KB of journal (measured; see the README of the tests). So
 * a write that does not fit into the file also appends zeros, in the same call,
 * as space for the next writes. The zeros must really be written: using space
 * that is only reserved, or a hole, changes the metadata too.
 */

import { Buffer } from "node:buffer";
import { performance } from "node:perf_hooks";
import { errorText, StoreError } from "../error.ts";
import { isNoSpaceError, writeAll } from "./files.ts";
import type { OpenLog, StoreFolder } from "./folder.ts";

const blockBytes = 4096;
/** The most zeros that are written ahead. */
const maxAheadBytes = 1 << 20;
/**
 * A longer batch is written without zeros, as one more change of the metadata
 * costs it little.
 */
const maxBatchBytesWithZeros = 1 << 16;

/** Appends to a log durably and returns how long the disk took; throws `disk-full` if the log was cut back instead. */
export async function append(
  log: OpenLog,
  bytes: Buffer,
  place: StoreFolder,
): Promise<number> {
  const { file, offset } = log;
  const end = offset + bytes.length;
  const fits = end <= log.size;
  const padded = fits ? bytes : await pad(bytes, offset, place);
  const expectedSize = fits ? log.size : offset + padded.length;
  const start = performance.now();
  await writeAll(file, padded, offset).catch(async (error) => {
    if (!isNoSpaceError(error)) throw error;
    await cutZeros(log);
    throw new StoreError(
      "disk-full",
      `The disk is full (${errorText(error)}); nothing was changed`,
      { cause: error },
    );
  });
  const [{ size, nlink }] = await Promise.all([file.stat(), file.datasync()]);
  if (size !== expectedSize || nlink === 0) {
    throw new Error("another process changed or removed the log");
  }
  log.offset = end;
  log.size = size;
  return performance.now() - start;
}

/** Durably cuts off everything after the last line of a log. */
export async function cutZeros(log: OpenLog): Promise<void> {
  await log.file.truncate(log.offset);
  await log.file.datasync();
  log.size = log.offset;
}

/**
 * Adds zeros to a write, up to the end of a block: as many as the log is long,
 * so that a small log stays small, and few on a disk that is nearly full.
 */
async function pad(
  bytes: Buffer,
  offset: number,
  { files, folder }: StoreFolder,
): Promise<Buffer> {
  const isLong = bytes.length > maxBatchBytesWithZeros;
  const free = isLong ? 0 : await files.free(folder).catch(() => 0);
  const ahead = Math.min(offset, maxAheadBytes, free / 64);
  const end = offset + bytes.length + ahead;
  const size = Math.ceil(end / blockBytes) * blockBytes;
  const padded = Buffer.alloc(size - offset);
  bytes.copy(padded);
  return padded;
}
