/**
 * Making a damaged store usable again, with what can still be read. All files
 * as they were go into a folder of their own within the data folder: nothing
 * is thrown away.
 */

import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { type Fault, StoreError } from "./error.ts";
import { type FileSystem, realFiles } from "./files.ts";
import { acquireLock } from "./lock.ts";
import { makeFolder, randomName, saveState, writeMeta } from "./recovery.ts";
import { freeze } from "./snapshot.ts";
import { generationOf, names, type Survey, surveyFolder } from "./survey.ts";

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
  readonly kept: string | undefined;
}

/** Repairs the store in a folder. */
export async function repairStore(
  folder: string,
  files: FileSystem = realFiles,
): Promise<Repair> {
  const random = randomBytes;
  const place = { folder, files, random, now: Date.now };
  const release = await acquireLock(folder, { files, random, patience: 5000 });
  try {
    const found = await surveyFolder(folder, {
      files,
      tables: [],
      thorough: true,
    });
    const { faults, refusal } = found;
    if (refusal === undefined) {
      const { seq } = found;
      return { repaired: false, faults, seq, highest: seq, kept: undefined };
    }
    if (refusal.code === "format") throw refusal;
    const best = await salvage(folder, files);
    const generation = found.generation + 1;
    const store = best.store === "" ? randomName(place) : best.store;
    const tables = freeze(best.tables);
    const state = { store, generation, seq: best.seq, tables };
    const old = (await files.list(folder)).filter((name) =>
      generationOf(name) !== undefined || name === "mark" ||
      name === names.meta
    );
    await saveState(place, state);
    const kept = join(folder, `damaged-${Date.now()}`);
    await makeFolder(files, kept);
    for (const name of old) {
      await files.rename(join(folder, name), join(kept, name));
    }
    await files.syncFolder(kept);
    await writeMeta(place, store);
    const after = await surveyFolder(folder, { files, tables: [] });
    if (after.refusal !== undefined) throw after.refusal;
    const highest = Math.max(
      best.seq,
      best.log?.highest ?? 0,
      best.mark?.seq ?? 0,
    );
    return { repaired: true, faults, seq: best.seq, highest, kept };
  } finally {
    await release();
  }
}

/** What leads furthest of all snapshots, each with the logs behind it. */
async function salvage(folder: string, files: FileSystem): Promise<Survey> {
  const generations = (await files.list(folder)).filter((name) =>
    name.startsWith("snapshot-")
  ).flatMap((name) => generationOf(name) ?? []);
  let best: Survey | undefined;
  for (const base of [0, ...generations.sort((one, other) => one - other)]) {
    const found = await surveyFolder(folder, {
      files,
      tables: [],
      salvage: base,
    });
    if (best === undefined || found.seq >= best.seq) best = found;
  }
  if (best !== undefined) return best;
  throw new StoreError(
    "damaged",
    `Cannot repair ${folder}: nothing is readable`,
  );
}
