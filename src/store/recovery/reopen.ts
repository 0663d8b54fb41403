/**
 * Prepares a data folder for writing: creates a new store, or reopens one that
 * a scan found good.
 *
 * After an unclean stop, a restart may read pages from memory that never
 * reached the disk, and appending to such a file has been seen to lose
 * acknowledged data. So unless the marker says that the stop was clean, the
 * good part of the log is copied to a new file (copy, fsync, rename, fsync of
 * the folder) before anything is served.
 *
 * An upgrade from format 2 writes a new `meta.json` before anything else, so
 * that earlier versions refuse the folder.
 */

import { Buffer } from "node:buffer";
import { join } from "node:path";
import {
  copyBytes,
  withFile,
  writeAll,
  writeAtomically,
  writeSmallFile,
} from "../log/files.ts";
import {
  createLog,
  names,
  type OpenLog,
  randomName,
  type StoreFolder,
} from "../log/folder.ts";
import { format } from "../log/format.ts";
import type { FolderScan } from "./scan.ts";

/**
 * Writes the file that marks a store as complete, after everything else. Its
 * format makes earlier versions refuse the folder: otherwise they would take a
 * store with only a first log for an unfinished one and create it again.
 */
export async function writeMeta(
  { files, folder }: StoreFolder,
): Promise<void> {
  const meta = `${JSON.stringify({ format })}\n`;
  await writeSmallFile(files, join(folder, names.meta), meta);
}

/** Creates a new store. */
export async function createStore(place: StoreFolder): Promise<void> {
  const start = { store: randomName(place), generation: 1, seq: 0 };
  const { file } = await createLog(place, start);
  await file.close();
  await writeMeta(place);
}

/** Prepares the last log of a good folder for writing. */
export async function reopenLog(
  place: StoreFolder,
  scan: FolderScan,
): Promise<OpenLog> {
  const { files, folder } = place;
  const { generation, log } = scan;
  for (const name of await files.list(folder)) {
    if (name.endsWith(".tmp")) await files.remove(join(folder, name));
  }
  // An earlier version wrote it, or the creation of this store was interrupted.
  if (scan.isOutdated) await writeMeta(place);
  // Skipped if an earlier call copied it but had no space for the rest.
  if (!scan.isCopied) await copyLog(place, scan);
  await files.syncFolder(folder);
  scan.isCopied = true;
  if (!log.isSealed) {
    const path = join(folder, names.log(generation));
    const file = await files.open(path, "log");
    const offset = log.end + (log.lacksNewline ? 1 : 0);
    return { file, generation, seed: log.seed, offset, size: offset };
  }
  // A rotation was interrupted after it had sealed the log.
  const { storeId, seq } = scan;
  const start = { store: storeId, generation: generation + 1, seq };
  return await createLog(place, start);
}

/** Saves the torn end of a log under another name, and copies the good part. */
async function copyLog(
  { files, folder, now }: StoreFolder,
  scan: FolderScan,
): Promise<void> {
  const { log } = scan;
  const path = join(folder, names.log(scan.generation));
  const good = { start: 0, end: log.end };
  const rest = { start: log.end, end: log.size };
  await withFile(files, path, async (from) => {
    if (scan.tornWrite !== undefined) {
      const saved = `${path}.torn-${now()}`;
      await writeAtomically(files, saved, (to) => copyBytes(from, to, rest));
    }
    if (scan.options.marker?.isClean(scan)) return;
    await writeAtomically(files, path, async (to) => {
      await copyBytes(from, to, good);
      const newline = log.lacksNewline ? "\n" : "";
      await writeAll(to, Buffer.from(newline), log.end);
    });
  });
}
