/** The command `prune`: deletes data that are no longer declared, for good. */

import type { CommandSettings } from "../api/feature.ts";
import { collectionsOf } from "../api/routes.ts";
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
 * @throws {UsageError} if it is declared, or nothing is stored of it
 */
export async function pruneCommand(
  { dataDir, loadApi }: CommandSettings,
  target = "",
): Promise<void> {
  const declaration = await loadApi();
  const store = await openDataFolder(dataDir, declaration);
  try {
    const collections = [...collectionsOf(declaration).values()];
    const hidden = findHidden(store.tables, collections);
    const count = hidden.get(target);
    if (count === undefined) {
      const all = describeHidden(hidden).join(", ") || "nothing";
      const name = JSON.stringify(target);
      throw new UsageError(
        `prune: ${name} is not hidden data, which is stored and not declared. Hidden: ${all}`,
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
  const [table = "", property] = target.split(".");
  const rows = store.table(table).rows().toReversed();
  let mutations: Mutation[] = [];
  for (const [index, { document }] of rows.entries()) {
    const { id } = document;
    if (property === undefined) mutations.push(["del", table, id]);
    else if (Object.hasOwn(document, property)) {
      const { [property]: _, ...others } = document;
      mutations.push(["put", table, { ...others, id }]);
    }
    if (mutations.length < batchLength && index < rows.length - 1) continue;
    await store.commit(mutations, 0, { allowWhenFull: true });
    mutations = [];
  }
}
