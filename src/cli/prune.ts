/** The command `prune`: permanently deletes data that is no longer declared, or the stored idempotency keys. */

import type { Commands, CommandSettings } from "../api/feature.ts";
import { UsageError } from "../usage.ts";
import { openDataFolder } from "../data-folder.ts";
import type { Mutation, Row, Store } from "../store/store.ts";
import { print } from "./output.ts";
import { describeHidden, findHidden } from "./read.ts";

export const commands: Commands = {
  prune: [1, pruneCommand],
};

/** The table of the idempotency keys. */
const keysTable = "answers";

/** The number of records that one transaction changes. */
const batchLength = 1000;

/**
 * Runs `prune COLLECTION`, `prune COLLECTION.PROPERTY` or `prune answers`.
 *
 * @throws {UsageError} if the name is declared, or nothing is stored under it
 */
async function pruneCommand(
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
    if (target === keysTable) hidden.set(target, countKeys(store));
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

/** Returns the number of idempotency keys, of which a row holds several. */
function countKeys({ tables }: Store): number {
  const rows = tables.get(keysTable)?.rows() ?? [];
  return rows.reduce(
    (sum, { document }) =>
      sum + (String(document["keys"]).split(":").length - 1 || 1),
    0,
  );
}

/** Deletes in several transactions, while other servers may write. After an interruption it can be run again. */
async function prune(store: Store, target: string): Promise<void> {
  const [name = "", property = "id"] = target.split(".");
  const table = store.tables.get(name);
  if (table === undefined) return;
  const hasProperty = ({ document }: Row) => Object.hasOwn(document, property);
  const hidden = table.rows().filter(hasProperty);
  while (hidden.length > 0) {
    const batch = hidden.splice(-batchLength);
    await store.settle(() => {
      const mutations = batch
        .flatMap(({ document }) => table.get(document.id) ?? [])
        .filter(hasProperty)
        .map(({ document }): Mutation => {
          const { id, [property]: _, ...others } = document;
          if (property === "id") return ["del", name, id];
          return ["put", name, { id, ...others }];
        });
      return { seq: store.apply(mutations, 0, { allowWhenFull: true }) };
    });
  }
}
