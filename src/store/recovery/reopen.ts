/**
 * Prepares a data folder for writing: creates a new store, or reopens one that
 * a scan found good, and upgrades it to the current format.
 *
 * After an unclean stop, a restart may read pages from memory that never
 * reached the disk, and appending to such a file has been seen to lose
 * acknowledged data. So unless the marker says that the stop was clean, the
 * good part of the log is copied to a new file (copy, fsync, rename, fsync of
 * the folder) before anything is served.
 *
 * An upgrade is an ordinary rotation: seal the last log, begin the next, write
 * a snapshot. After a crash at any step the scan reads the folder, old files
 * and new, and the upgrade starts again; `meta.json` comes last and ends it.
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
  prepareLog,
  randomName,
  type StoreFolder,
} from "../log/folder.ts";
import { encodeLine, format, formatTime } from "../log/format.ts";
import { freezeTables, saveSnapshot } from "../log/snapshot.ts";
import type { FolderScan } from "./scan.ts";

/**
 * Writes the file that marks a store as complete, after everything else. Its
 * format makes earlier versions refuse the folder: otherwise they would take a
 * store with only a first log for an unfinished one and create it again.
 */
export async function writeMeta(
  { files, folder }: StoreFolder,
  version = format,
): Promise<void> {
  const meta = `${JSON.stringify({ format: version })}\n`;
  await writeSmallFile(files, join(folder, names.meta), meta);
}

/** Creates a new store. */
export async function createStore(place: StoreFolder): Promise<void> {
  await createLog(place, { store: randomName(place), generation: 1, seq: 0 });
  await writeMeta(place);
}

/**
 * Prepares the last log of a good folder for writing, and upgrades the folder
 * if necessary.
 */
export async function reopenLog(
  place: StoreFolder,
  scan: FolderScan,
): Promise<OpenLog> {
  const { files, folder } = place;
  const { generation, isOutdated, log } = scan;
  for (const name of await files.list(folder)) {
    if (name.endsWith(".tmp")) await files.remove(join(folder, name));
  }
  if (!scan.fileNames.includes(names.meta)) {
    // The creation of this store was interrupted: finish it first.
    await writeMeta(place, log.header?.format);
  }
  // Skipped if an earlier call copied it but had no space for the rest.
  if (!scan.isCopied) await copyLog(place, scan);
  await files.syncFolder(folder);
  scan.isCopied = true;
  if (!log.isSealed && !isOutdated) {
    const path = join(folder, names.log(generation));
    const file = await files.open(path, "log");
    const offset = log.end + (log.lacksNewline ? 1 : 0);
    return { file, generation, seed: log.seed, offset, size: offset };
  }
  const { storeId, seq, tables } = scan;
  const start = { store: storeId, generation: generation + 1, seq };
  const next = await prepareLog(place, start);
  await next.publish();
  if (isOutdated) {
    const state = { ...start, tables: freezeTables(tables) };
    scan.baseBytes = await saveSnapshot(place, state);
    await writeMeta(place);
    scan.baseGeneration = next.generation;
  }
  return next;
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
  const needsSeal = scan.isOutdated && !log.isSealed;
  const seal = `"seal":${scan.seq},"at":"${formatTime(now())}"}`;
  await withFile(files, path, async (from) => {
    if (scan.tornWrite !== undefined) {
      const saved = `${path}.torn-${now()}`;
      await writeAtomically(files, saved, (to) => copyBytes(from, to, rest));
    }
    if (isClean(scan) && !needsSeal) return;
    await writeAtomically(files, path, async (to) => {
      await copyBytes(from, to, good);
      const newline = log.lacksNewline ? "\n" : "";
      const end = newline + (needsSeal ? encodeLine(seal, log.seed) : "");
      await writeAll(to, Buffer.from(end), log.end);
    });
  });
}

/** Returns whether the last stop left the whole log on the disk. */
function isClean(scan: FolderScan): boolean {
  const { log, marker, storeId, generation, seq } = scan;
  return marker?.clean === true && marker.store === storeId &&
    marker.generation === generation && marker.seq === seq &&
    marker.offset === log.end && marker.offset === log.size && !log.isPadded;
}
