/**
 * The command `repair`: makes a damaged store usable again with everything that
 * can still be read. All files are moved as they were into a folder of their
 * own within the data folder, so nothing is thrown away.
 */

import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { describeFault, print } from "./output.ts";
import type { Fault } from "../store/error.ts";
import { type FileSystem, realFiles } from "../store/log/files.ts";
import { acquireLock } from "../store/log/lock.ts";
import { freezeTables, saveSnapshot } from "../store/log/snapshot.ts";
import {
  createLog,
  generationOf,
  makeFolder,
  names,
  randomName,
  snapshotsAmong,
  type StoreFolder,
} from "../store/log/folder.ts";
import { defaultLimits } from "../store/options.ts";
import { writeMeta } from "../store/recovery/reopen.ts";
import { type FolderScan, scanFolder } from "../store/recovery/scan.ts";

/** The outcome of a repair. */
export interface Repair {
  /** Every fault that was found. */
  readonly faults: readonly Fault[];
  /** The last sequence number that was saved. */
  readonly seq: number;
  /** The highest sequence number in any readable line or the marker: those after `seq` are lost. */
  readonly highest: number;
  /** Where the old files are now; undefined if there was nothing to repair. */
  readonly backupFolder: string | undefined;
}

/** Repairs the store in a folder. */
export async function repairStore(
  folder: string,
  files: FileSystem = realFiles,
): Promise<Repair> {
  const place = { folder, files, random: randomBytes, now: Date.now };
  const release = await acquireLock(place, defaultLimits.lockTimeoutMs);
  try {
    const options = { files, tables: [], isThorough: true };
    const { faults, refusal, seq } = await scanFolder(folder, options);
    if (refusal === undefined) {
      return { faults, seq, highest: seq, backupFolder: undefined };
    }
    if (refusal.code === "format") throw refusal;
    const best = await salvage(folder, files);
    const backupFolder = await replaceFiles(place, best);
    const after = await scanFolder(folder, { files, tables: [] });
    if (after.refusal !== undefined) throw after.refusal;
    const { log, marker } = best;
    const highest = Math.max(best.seq, log?.highestSeq ?? 0, marker?.seq ?? 0);
    return { faults, seq: best.seq, highest, backupFolder };
  } finally {
    await release();
  }
}

/** Reads as far as possible from each snapshot; prefers the highest sequence number, then the fewest faults. */
async function salvage(folder: string, files: FileSystem): Promise<FolderScan> {
  const read = (base: number) =>
    scanFolder(folder, { files, tables: [], salvageFrom: [base] });
  let best = await read(0);
  for (const base of snapshotsAmong(best.fileNames)) {
    const scan = await read(base);
    const gain = scan.seq - best.seq ||
      best.faults.length - scan.faults.length;
    if (gain > 0) best = scan;
  }
  return best;
}

/** Moves the old files away and writes the saved state; returns where they are now. */
async function replaceFiles(
  place: StoreFolder,
  { generation, fileNames, seq, storeId, tables }: FolderScan,
): Promise<string> {
  const { files, folder } = place;
  const backupFolder = join(folder, `damaged-${place.now()}`);
  await makeFolder(files, backupFolder);
  const moveAll = async (moved: readonly string[]) => {
    for (const name of moved) {
      await files.rename(join(folder, name), join(backupFolder, name));
    }
    await files.syncFolder(backupFolder);
    await files.syncFolder(folder);
  };
  // First: without it the folder is refused, so that after an interruption no
  // start overlooks the damage, and a repair can begin again.
  await moveAll(fileNames.filter((name) => name === names.meta));
  const start = {
    store: storeId || randomName(place),
    generation: generation + 1,
    seq,
  };
  await saveSnapshot(place, { ...start, tables: freezeTables(tables) });
  await createLog(place, start);
  await moveAll(
    fileNames.filter((name) =>
      generationOf(name) !== undefined || name === "mark"
    ),
  );
  await writeMeta(place);
  return backupFolder;
}

/**
 * Makes a damaged folder usable again, and prints the losses.
 *
 * @throws {StoreError} in-use, format, damaged where nothing is readable
 */
export async function repairCommand(folder: string): Promise<void> {
  const { backupFolder, faults, highest, seq } = await repairStore(folder);
  if (backupFolder === undefined) {
    return await print("there was nothing to repair\n");
  }
  for (const fault of faults) await print(`fault: ${describeFault(fault)}\n`);
  const lost = highest - seq;
  await print(
    `repaired: everything up to sequence ${seq} was saved; ` +
      (lost > 0
        ? `${lost} later transactions are lost\n`
        : "no later transaction was readable\n") +
      `the original files are in ${backupFolder}\n`,
  );
}
