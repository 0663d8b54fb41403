/** Appends to a log durably. */

import type { Buffer } from "node:buffer";
import { performance } from "node:perf_hooks";
import { errorText, StoreError } from "../error.ts";
import { isNoSpaceError, writeAll } from "./files.ts";
import type { OpenLog } from "./folder.ts";

/**
 * Appends to a log durably, and returns how long the disk took; throws
 * `disk-full` if the log was cut back instead.
 *
 * @param padded the same with zeros, as space for the next lines
 */
export async function append(
  log: OpenLog,
  bytes: Buffer,
  padded = bytes,
): Promise<number> {
  const { file, offset } = log;
  const expectedSize = Math.max(log.size, offset + padded.length);
  const start = performance.now();
  await writeAll(file, padded, offset).catch(async (error) => {
    if (!isNoSpaceError(error)) throw error;
    await cutZeros(log);
    throw new StoreError(
      "disk-full",
      `Cannot write the log (${errorText(error)}); nothing was changed`,
      { cause: error },
    );
  });
  const [{ size, nlink }] = await Promise.all([file.stat(), file.datasync()]);
  if (size !== expectedSize || nlink === 0) {
    throw new Error("another process changed or removed the log");
  }
  log.offset = offset + bytes.length;
  log.size = size;
  return performance.now() - start;
}

/** Durably cuts off everything after the last line of a log. */
export async function cutZeros(log: OpenLog): Promise<void> {
  await log.file.truncate(log.offset);
  await log.file.datasync();
  log.size = log.offset;
}
