/** A copy of a store that can be opened in its place. */

import { StoreError } from "./error.ts";
import type { LogStart } from "./log.ts";
import { makeFolder, type Place, saveState, writeMeta } from "./recovery.ts";
import type { FrozenTable } from "./snapshot.ts";
import { surveyFolder } from "./survey.ts";

/** What a backup holds. */
export interface Backup {
  readonly seq: number;
  readonly records: number;
}

/** Writes a state into an empty folder as a store, and reads it back. */
export async function writeBackup(
  place: Place,
  start: LogStart,
  tables: readonly FrozenTable[],
): Promise<Backup> {
  const { files, folder } = place;
  await makeFolder(files, folder);
  if ((await files.list(folder)).length > 0) {
    throw new StoreError("not-empty", `Cannot back up: ${folder} is not empty`);
  }
  await saveState(place, start, tables);
  await writeMeta(place, start.store);
  const copy = await surveyFolder(folder, { files, tables: [] });
  if (copy.refusal !== undefined) throw copy.refusal;
  let records = 0;
  for (const table of copy.tables.values()) records += table.size;
  return { seq: copy.seq, records };
}
