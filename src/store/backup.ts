/** A copy of a store that can be opened in its place. */

import { join } from "node:path";
import { StoreError } from "./error.ts";
import { copyBytes, withFile, writeWhole } from "./files.ts";
import { makeFolder, type Place, prepareLog, writeMeta } from "./recovery.ts";
import { scanSnapshot } from "./snapshot.ts";
import { names, surveyFolder } from "./survey.ts";

/** What a backup holds. */
export interface Backup {
  readonly generation: number;
  readonly seq: number;
  readonly records: number;
}

/** Copies a snapshot into an empty folder as a store of its own, and reads it back. */
export async function writeBackup(
  from: Place,
  folder: string,
  generation: number,
): Promise<Backup> {
  const { files } = from;
  await makeFolder(files, folder);
  if ((await files.list(folder)).length > 0) {
    throw new StoreError("not-empty", `Cannot back up: ${folder} is not empty`);
  }
  const name = names.snapshot(generation);
  const { head } = await withFile(
    files,
    join(from.folder, name),
    async (file) => {
      const { size } = await file.stat();
      await writeWhole(
        files,
        join(folder, name),
        (copy) => copyBytes(file, copy, { start: 0, end: size }),
      );
      return await scanSnapshot(file, name, new Map());
    },
  );
  const { store = "", seq = 0 } = head ?? {};
  const place = { ...from, folder };
  const log = await prepareLog(place, { store, generation, seq });
  await log.publish();
  await log.file.close();
  await writeMeta(place, store);
  const copy = await surveyFolder(folder, { files, tables: [] });
  if (copy.refusal !== undefined) throw copy.refusal;
  let records = 0;
  for (const table of copy.tables.values()) records += table.size;
  return { generation, seq: copy.seq, records };
}
