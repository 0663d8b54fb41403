/**
 * Spool files: request bodies too large for memory, written to disk as they
 * arrive, one file each in the folder `spool` of the data folder.
 *
 * A file gets its name once it is complete and on disk. Files without a task
 * are removed at the next start. Spool files are not part of the store:
 * `check`, `repair` and recovery ignore them, and a backup leaves them out, so
 * a task may name one that is missing.
 *
 * They never take the space that the log, the next snapshot and deletes on a
 * full disk need: a body that would take it is refused, although the disk still
 * has space.
 */

import { createHash } from "node:crypto";
import { lstat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { errorCode, errorText, StoreError } from "../../store/error.ts";
import {
  isNoSpaceError,
  type Line,
  type LineRange,
  readLines,
  writeAll,
  writeAtomically,
} from "../../store/log/files.ts";
import type { Store } from "../../store/transactions.ts";
import { randomName } from "../../store/log/folder.ts";

// Bounds the bytes in the page cache: with many more, the fdatasync of the log
// would also wait for them (ext4 has one journal for both).
const maxUnsyncedBytes = 8 << 20;

/**
 * Writes a body to a new spool file, without reading faster than the disk
 * writes. Returns the file's name and the SHA-256 of the body once both the
 * bytes and the name survive power loss. Removes the file on any error.
 *
 * @throws {StoreError} disk-full, unusable; errors of the file system and of the body
 */
export async function writeSpool(
  store: Store,
  body: AsyncIterable<Uint8Array>,
) {
  const { files } = store.folder;
  const name = randomName(store.folder);
  const path = pathOf(store, name);
  const folder = dirname(path);
  const hash = createHash("sha256");
  let offset = 0;
  let unsynced = 0;
  try {
    await refuseLink(folder);
    await files.makeFolder(folder);
    await writeAtomically(files, path, async (file) => {
      for await (const bytes of body) {
        hash.update(bytes);
        const free = await files.free(folder);
        const needed = store.fullDisk?.headroom ?? 0;
        if (free < needed + bytes.length) {
          throw noSpace(`only ${free} bytes are left for all else`);
        }
        await writeAll(file, bytes, offset);
        offset += bytes.length;
        unsynced += bytes.length;
        if (unsynced < maxUnsyncedBytes) continue;
        await file.datasync();
        unsynced = 0;
      }
    });
    await files.syncFolder(dirname(folder)); // the folder may be new
    return { name, hash: hash.digest() };
  } catch (error) {
    await files.remove(path).catch(() => {}); // otherwise the next start removes it
    throw isNoSpaceError(error) ? noSpace(errorText(error), error) : error;
  }
}

function noSpace(reason: string, cause?: unknown): StoreError {
  return new StoreError(
    "disk-full",
    `The disk is too full for what is to be imported: ${reason}. Nothing was imported`,
    { cause },
  );
}

/** Throws a StoreError, unusable, if the folder is a link: what that leads to may belong to others. */
async function refuseLink(folder: string): Promise<void> {
  const stats = await lstat(folder).catch(() => undefined);
  if (!stats?.isSymbolicLink()) return;
  throw new StoreError(
    "unusable",
    `Cannot use ${folder}: it must be a folder, not a link. Nothing was changed`,
  );
}

/**
 * Removes all spool files but those named: the others belong to requests that a
 * crash interrupted, or could not be removed earlier.
 *
 * @throws {StoreError} unusable if the folder is a link
 */
export async function removeOtherSpools(
  store: Store,
  names: readonly string[],
): Promise<void> {
  const { files } = store.folder;
  const folder = dirname(pathOf(store, ""));
  await refuseLink(folder);
  const needed = names.map((name) => `${name}.spool`);
  const found = await files.list(folder).catch((error) => {
    if (errorCode(error) === "ENOENT") return [];
    throw error;
  });
  for (const file of found) {
    if (!/\.spool(?:\.tmp)?$/.test(file) || needed.includes(file)) continue;
    await files.remove(join(folder, file));
  }
}

/** How many lines are returned at a time, so that many empty ones do not delay other work. */
const maxLines = 4096;

/**
 * Reads lines of a spool file, one chunk of the file at a time.
 *
 * @throws an ENOENT error if the file is missing
 */
export async function* readSpool(
  store: Store,
  name: string,
  range: LineRange,
): AsyncGenerator<Line[]> {
  const file = await store.folder.files.open(pathOf(store, name), "read");
  try {
    for await (const lines of readLines(file, range)) {
      for (let at = 0; at < lines.length; at += maxLines) {
        yield lines.slice(at, at + maxLines);
      }
    }
  } finally {
    await file.close();
  }
}

/** Returns the path of a spool file. A task from a damaged or foreign store must not name another file. */
export function pathOf({ folder }: Store, name: string): string {
  if (!/^[\w-]*$/.test(name)) throw new Error("This is no spool file");
  return join(folder.folder, "spool", `${name}.spool`);
}
