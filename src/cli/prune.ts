/** The command `prune`: permanently deletes data that is no longer declared. */

import type { CommandSettings } from "../api/feature.ts";
import { UsageError } from "../config.ts";
import { openDataFolder } from "../data-folder.ts";
import type { Mutation, Store } from "../store/store.ts";
import { print } from "./output.ts";
import { describeHidden, findHidden } from "./read.ts";

/** The number of records that one transaction changes. */
const batchLength = 1000;

/**
 * Runs `prune COLLECTION` or `prune COLLECTION.PROPERTY`.
 *
 * @throws {UsageError} if the name is declared, or nothing is stored under it
 */
export async function pruneCommand(
  { dataDir, etcd, loadApi }: CommandSettings,
  [target = ""]: readonly string[],
): Promise<void> {
  const declaration = await loadApi();
  const store = await openDataFolder(dataDir, declaration, {
    isFixed: true,
    etcd,
  });
  try {
    const hidden = findHidden(declaration, store.tables);
    const count = hidden.get(target);
    if (count === undefined) {
      const all = describeHidden(hidden).join(", ") || "nothing";
      const name = JSON.stringify(target);
      throw new UsageError(
        `prune: ${name} is not hidden data, that is, stored but not declared. Hidden: ${all}`,
      );
    }
    await prune(store, target);
    await print(
      `deleted ${describeHidden(new Map([[target, count]]))} for good\n`,
    );
  } finally {
    await store.close();
  }
}

/** Deletes in several transactions. After an interruption it can be run again. */
async function prune(store: Store, target: string): Promise<void> {
  const [table = "", property = "id"] = target.split(".");
  const rows = store.table(table).rows()
    .filter(({ document }) => Object.hasOwn(document, property));
  while (rows.length > 0) {
    const batch = rows.splice(-batchLength);
    const mutations = batch.map(({ document }): Mutation => {
      const { id, [property]: _, ...others } = document;
      if (property === "id") return ["del", table, id];
      return ["put", table, { id, ...others }];
    });
    await store.commit(mutations, 0, { allowWhenFull: true });
  }
}
