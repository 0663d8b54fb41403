/** Data folders of many animals, which the programs that measure start with. */

import { mkdir } from "node:fs/promises";
import { openDataFolder } from "../../src/data-folder.ts";
import type { Document } from "../../src/store/store.ts";
import { sample } from "../collections.ts";
import { storedAdmin } from "../harness.ts";
import { animal, zoos } from "./data.ts";
import { commit } from "../commit.ts";

/** Creates a data folder with an admin, this many animals and up to a thousand zoos. */
export async function fill(folder: string, records: number): Promise<void> {
  await mkdir(folder, { mode: 0o700 });
  const store = await openDataFolder(folder, sample);
  const put = async (name: string, documents: readonly Document[]) => {
    await commit(
      store,
      documents.map((document) => ["put", name, document]),
      0,
    );
  };
  await put("users", [storedAdmin]);
  await put("zoos", zoos(records));
  for (let id = 1; id <= records; id += 10_000) {
    const length = Math.min(10_000, records + 1 - id);
    await put("animals", Array.from({ length }, (_, at) => animal(id + at)));
  }
  await store.checkpoint();
  await store.close();
}
