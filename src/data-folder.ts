/** The data folder as the commands use it: opens its store. */

import type { EtcdOptions } from "./store/options.ts";
import type { ApiDeclaration } from "./api/declaration/api.ts";
import {
  declarationTable,
  findMisfits,
  followDeclaration,
  type Misfit,
} from "./api/declaration/evolution.ts";
import { reservedCollectionNames } from "./api/declaration/reserved-names.ts";
import { collectionsOf, tablesOf } from "./api/routes.ts";
import { CommandError } from "./usage.ts";
import { removeChangedPassword } from "./first-start.ts";
import { readFolderMode } from "./store/log/files.ts";
import {
  type Mutation,
  openStore,
  type Store,
  type StoreOptions,
} from "./store/store.ts";

/**
 * Opens the store of a data folder, and adapts its records to the declaration.
 *
 * @param options with `isFixed`, a declaration other than the remembered one is
 * refused
 * @throws {StoreError} in-use, damaged, format, unusable; {CommandError} if
 * other users may access the folder, or if records do not fit the declaration
 */
export async function openDataFolder(
  folder: string,
  declaration: ApiDeclaration,
  { isFixed = false, ...options }:
    & Partial<StoreOptions>
    & { readonly isFixed?: boolean; readonly etcd?: EtcdOptions | undefined } =
      {},
): Promise<Store> {
  await refuseSharedFolder(folder);
  const { etcd } = options;
  const all = { folder, tables: tablesOf(declaration, []), ...options };
  const shared = etcd && await import("./etcd/open.ts");
  const store = shared && etcd
    ? await shared.openEtcdStore(all, etcd)
    : await openStore(all);
  try {
    const { log = () => {} } = options;
    const collections = [...collectionsOf(declaration).values()];
    const differences: string[] = [];
    const follow = (apply: (mutation: Mutation) => void) => {
      const isChanged = followDeclaration(collections, {
        store,
        apply,
        onDifference(text) {
          if (!isFixed) log("info", text);
          differences.push(text);
        },
      });
      if (isFixed && differences.length > 0) {
        throw new CommandError(explainOtherDeclaration(differences));
      }
      const misfits = isChanged ? findMisfits(collections, store) : [];
      if (misfits.length > 0) throw new CommandError(explainMisfits(misfits));
    };
    await store.settle(() => ({
      seq: store.transact(0, follow, { allowWhenFull: true }),
    }));
  } catch (error) {
    await store.close();
    throw error;
  }
  shared?.suspendOnOtherDeclaration(store, declarationTable);
  removeChangedPassword(store, folder);
  return store;
}

/** Throws if the permission bits give other users access to a folder. Windows has none. */
async function refuseSharedFolder(folder: string): Promise<void> {
  const mode = await readFolderMode(folder) ?? 0;
  if (process.platform === "win32" || (mode & 0o077) === 0) return;
  throw new CommandError(
    `other users may access the folder ${folder} (mode ${mode.toString(8)}): ` +
      `run "chmod 700 '${folder}'", or choose a folder for the data alone`,
  );
}

/** Describes records that do not fit, in one line. */
export function describeMisfit({ name, ids, message }: Misfit): string {
  const count = ids.size === 1 ? "1 record does" : `${ids.size} records do`;
  const first = [...ids].slice(0, 20).join(", ");
  const more = ids.size > 20 ? ", …" : "";
  return `${name}: ${count} not fit (id ${first}${more}): ${message}`;
}

/** Explains why a store cannot be opened with a declaration, and what to do. */
function explainMisfits(misfits: readonly Misfit[]): string {
  const lines = misfits.map((misfit) => {
    const { code, name } = misfit;
    const isBuiltIn = reservedCollectionNames.includes(
      name.split(".")[0] ?? "",
    );
    const advice = code === "required"
      ? 'make it optional, give it a default, or give its former name with renamed: "…"'
      : "correct them with the previous declaration" +
        (code === "rule" || isBuiltIn
          ? ""
          : ", or remove it from the declaration, start, and delete its values with " +
            `"zoo-api prune ${name}"`);
    return `\n${describeMisfit(misfit)} You can ${advice}`;
  });
  return "cannot open the store, because its records do not fit the declaration; " +
    `nothing was changed:${lines.join("")}`;
}

/** Explains why a command refuses a declaration that no server has used, and what to do. */
function explainOtherDeclaration(
  differences: readonly string[],
): string {
  const names = new Set(differences.map((text) => text.split(/[. ]/, 1)[0]));
  return `the declaration of ${
    [...names].join(", ")
  } is not the one with which the data folder was last served: ` +
    "start the server with it once, or name the other file with --collections";
}
