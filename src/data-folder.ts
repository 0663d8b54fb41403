/** The data folder as the commands use it: opens its store. */

import type { EtcdOptions } from "./store/shared.ts";
import type { ApiDeclaration } from "./api/declaration/api.ts";
import {
  declarationTable,
  type OpenedDeclaration,
  rulesOf,
} from "./api/declaration/remembered.ts";
import type { Feature } from "./api/feature.ts";
import { collectionsOf, tablesOf } from "./api/routes.ts";
import { CommandError } from "./usage.ts";
import { statOf } from "./store/log/files.ts";
import { openStore, type Store, type StoreOptions } from "./store/store.ts";

/** How a data folder is opened. */
type OpenOptions =
  & Partial<StoreOptions>
  & Pick<Feature, "adaptRecords">
  & { readonly etcd?: EtcdOptions | undefined };

/**
 * Opens the store of a data folder, whose records fit the declaration.
 *
 * @param options with `adaptRecords`, what a feature does if the declaration has
 * changed; by default a changed one is refused
 * @throws {StoreError} in-use, damaged, format, unusable; {CommandError} if
 * other users may access the folder, or if it refuses the declaration
 */
export async function openDataFolder(
  folder: string,
  declaration: ApiDeclaration,
  { adaptRecords, ...options }: OpenOptions = {},
): Promise<Store> {
  await refuseSharedFolder(folder);
  const { etcd, log = () => {} } = options;
  const all = { folder, tables: tablesOf(declaration, []), ...options };
  const shared = etcd && await import("./etcd/open.ts");
  const store = shared && etcd
    ? await shared.openEtcdStore(all, etcd)
    : await openStore(all);
  try {
    const collections = [...collectionsOf(declaration).values()];
    let mustCheckpoint = false;
    const follow = (apply: OpenedDeclaration["apply"]) => {
      const opened = { collections, store, apply, log };
      mustCheckpoint = followDeclaration(opened, adaptRecords);
    };
    await store.settle(() => ({
      seq: store.transact(0, follow, { allowWhenFull: true }),
    }));
    // Before anything else is awaited, or another one could come in between.
    shared?.suspendOnOtherDeclaration(store, declarationTable);
    if (mustCheckpoint) await store.checkpoint().catch(() => {}); // it is logged
    if (store.tables.has("_history")) { // historyTable
      await (await import("./api/own-tables.ts")).beginHistory(store, log);
    }
  } catch (error) {
    await store.close();
    throw error;
  }
  return store;
}

/**
 * Makes sure that the stored records fit a declaration: they were validated
 * against the remembered one, there are none, or a feature adapts them.
 *
 * @returns true if a snapshot must follow
 * @throws {CommandError} if the declaration differs from the remembered one, and
 * no feature adapts the records
 */
export function followDeclaration(
  opened: OpenedDeclaration,
  adaptRecords?: Feature["adaptRecords"],
): boolean {
  if (adaptRecords) return adaptRecords(opened);
  const { collections, store, apply } = opened;
  const names = Object.fromEntries(rulesOf(collections));
  const remembered = store.table(declarationTable).get(1)?.document;
  const isEmpty = collections.every(({ name }) => store.table(name).size === 0);
  if (remembered === undefined && isEmpty) {
    apply(["put", declarationTable, { id: 1, names, ...neverRenamed }]);
    return false;
  }
  const former = Object(remembered?.["names"]);
  const changed = Object.keys({ ...names, ...former })
    .filter((name) => names[name] !== former[name]);
  if (changed.length === 0) return false;
  throw new CommandError(
    `the declaration of ${
      changed.join(", ")
    } is not the one with which the data folder was last served; nothing was changed: ` +
      "start the server with it once, with the feature evolution, " +
      "or name the other file with --collections",
  );
}

/** The memory of the feature that renames collections and properties, as long as it has renamed none. */
const neverRenamed = { newNames: {}, renamings: 0 };

/** Throws if the permission bits give other users access to a folder. Windows has none. */
async function refuseSharedFolder(folder: string): Promise<void> {
  const stats = await statOf(folder);
  const mode = stats?.isDirectory() ? stats.mode & 0o777 : 0;
  if (process.platform === "win32" || (mode & 0o077) === 0) return;
  throw new CommandError(
    `other users may access the folder ${folder} (mode ${mode.toString(8)}): ` +
      `run "chmod 700 '${folder}'", or choose a folder for the data alone`,
  );
}
