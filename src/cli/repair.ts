/**
 * Making a damaged store usable again, with what can still be read. All files
 * as they were go into a folder of their own within the data folder: nothing
 * is thrown away.
 */

import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { print, withFolderError } from "../data-folder.ts";
import type { Fault } from "../store/error.ts";
import { type FileSystem, realFiles } from "../store/log/files.ts";
import { acquireLock } from "../store/log/lock.ts";
import {
  makeFolder,
  randomName,
  saveState,
  writeMeta,
} from "../store/recovery/folder.ts";
import { freezeTables } from "../store/log/snapshot.ts";
import {
  type FolderScan,
  generationOf,
  generationsOf,
  names,
  scanFolder,
} from "../store/recovery/scan.ts";

/** What a repair did. */
export interface Repair {
  /** False when there was nothing to repair, and nothing was changed. */
  readonly repaired: boolean;
  /** Every fault that was found. */
  readonly faults: readonly Fault[];
  /** The last sequence that was kept. */
  readonly seq: number;
  /** The highest sequence that any readable line or the mark has: what is between is lost. */
  readonly highest: number;
  /** Where the old files are now. */
  readonly backupFolder: string | undefined;
}

/** Repairs the store in a folder. */
export async function repairStore(
  folder: string,
  files: FileSystem = realFiles,
): Promise<Repair> {
  const random = randomBytes;
  const place = { folder, files, random, now: Date.now };
  const release = await acquireLock(folder, { files, random, timeoutMs: 5000 });
  try {
    const found = await scanFolder(folder, {
      files,
      tables: [],
      thorough: true,
    });
    const { faults, refusal } = found;
    if (refusal === undefined) {
      const { seq } = found;
      return {
        repaired: false,
        faults,
        seq,
        highest: seq,
        backupFolder: undefined,
      };
    }
    if (refusal.code === "format") throw refusal;
    const best = await salvage(folder, files);
    const generation = found.generation + 1;
    const store = best.store === "" ? randomName(place) : best.store;
    const tables = freezeTables(best.tables);
    const state = { store, generation, seq: best.seq, tables };
    const old = (await files.list(folder)).filter((name) =>
      generationOf(name) !== undefined || name === "mark" ||
      name === names.meta
    );
    const kept = join(folder, `damaged-${Date.now()}`);
    await makeFolder(files, kept);
    const keep = (name: string) =>
      files.rename(join(folder, name), join(kept, name));
    // First: without it the folder is refused, so whatever interrupts this, no
    // start passes the damage over, and a repair can begin again.
    if (old.includes(names.meta)) await keep(names.meta);
    await files.syncFolder(kept);
    await files.syncFolder(folder);
    await saveState(place, state);
    for (const name of old) {
      if (name !== names.meta) await keep(name);
    }
    await files.syncFolder(kept);
    await files.syncFolder(folder);
    await writeMeta(place, store);
    const after = await scanFolder(folder, { files, tables: [] });
    if (after.refusal !== undefined) throw after.refusal;
    const highest = Math.max(
      best.seq,
      best.log?.highestSeq ?? 0,
      best.marker?.seq ?? 0,
    );
    return {
      repaired: true,
      faults,
      seq: best.seq,
      highest,
      backupFolder: kept,
    };
  } finally {
    await release();
  }
}

/** What leads furthest of all snapshots, each with the logs behind it; of two that lead as far, the sounder one. */
async function salvage(folder: string, files: FileSystem): Promise<FolderScan> {
  const bases = generationsOf(await files.list(folder), "snapshot");
  const read = (base: number) =>
    scanFolder(folder, { files, tables: [], salvageFrom: base });
  let best = await read(0);
  for (const base of bases) {
    const found = await read(base);
    const further = found.seq - best.seq ||
      best.faults.length - found.faults.length;
    if (further > 0) best = found;
  }
  return best;
}

/**
 * Makes a damaged folder usable again, and prints what was lost. All files as
 * they were are kept.
 *
 * @throws {StoreError} in-use, format, damaged where nothing is readable
 */
export async function repairCommand(folder: string): Promise<void> {
  const done = await withFolderError(folder, () => repairStore(folder));
  if (!done.repaired) return await print("there was nothing to repair\n");
  for (const fault of done.faults) await print(`fault: ${describe(fault)}\n`);
  const lost = done.highest - done.seq;
  await print(
    `repaired: all up to sequence ${done.seq} is kept; ` +
      (lost > 0
        ? `${lost} later transactions are lost\n`
        : "no later transaction was readable\n") +
      `the files as they were are in ${done.backupFolder}\n`,
  );
}

function describe({ file, byte, line, message }: Fault): string {
  return `${file}, byte ${byte}, line ${line}: ${message}`;
}
