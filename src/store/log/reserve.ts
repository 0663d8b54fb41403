/**
 * Disk space kept back. On a full disk it lets deletes through and a restart
 * happen, so that the disk can be freed with the store's own means.
 */

import { Buffer } from "node:buffer";
import { join } from "node:path";
import { errorCode } from "../error.ts";
import {
  type FileSystem,
  isNoSpaceError,
  withFile,
  writeAll,
} from "./files.ts";

/** A file that only takes space, and whether the disk is full. */
export interface Reserve {
  /** True from when the disk was found full until there is space again. */
  full: boolean;
  /** Takes the space, when that leaves `spare` bytes: the disk is not full then. */
  fill(spare: number): Promise<void>;
  /** On a full disk, gives the space to whoever writes next. */
  release(): Promise<void>;
}

/** Keeps back so many bytes, but not more than half of what a small disk has left. */
export async function keepReserve(
  files: FileSystem,
  folder: string,
  limits: { readonly reserveBytes: number; readonly maxBatchBytes: number },
): Promise<Reserve> {
  const path = join(folder, "reserve");
  const size = () =>
    withFile(files, path, async (file) => (await file.stat()).size)
      .catch((error) => {
        if (errorCode(error) === "ENOENT") return 0;
        throw error;
      });
  const held = await size();
  const half = Math.floor((await files.free(folder) + held) / 2);
  const bytes = Math.max(held, Math.min(limits.reserveBytes, half));

  const write = async () => {
    const zeros = Buffer.alloc(Math.min(bytes, 1 << 20));
    const file = await files.open(path, "create");
    try {
      for (let at = 0; at < bytes; at += zeros.length) {
        await writeAll(file, zeros, at);
      }
      return true;
    } catch (error) {
      await files.remove(path);
      if (isNoSpaceError(error)) return false;
      throw error;
    } finally {
      await file.close();
    }
  };

  /** One after the other: what one finds, the other must not change. */
  let last: Promise<unknown> = Promise.resolve();
  const alone = (work: () => Promise<void>): Promise<void> => {
    const next = last.then(work);
    last = next.catch(() => {});
    return next;
  };

  const reserve: Reserve = {
    full: true,
    fill: (spare) =>
      alone(async () => {
        const missing = Math.max(0, bytes - await size());
        if (await files.free(folder) < missing + spare) return;
        if (missing === 0 || await write()) reserve.full = false;
      }),
    release: () =>
      alone(async () => {
        if (reserve.full) await files.remove(path);
      }),
  };
  await reserve.fill(limits.maxBatchBytes);
  return reserve;
}
