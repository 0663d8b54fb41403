/**
 * The file `server`: who uses a folder whose store is in etcd. It holds the name
 * of the server, the prefix of the store, and the names of its last processes.
 */

import { StoreError } from "../error.ts";
import { type FileSystem, readSmallFile } from "./files.ts";
import { generationOf, type StoreFolder } from "./folder.ts";

export const identityFile = "server";

/** Returns the words of the file; none if there is no such file. */
export async function readIdentity(
  { files, folder }: Pick<StoreFolder, "files" | "folder">,
): Promise<readonly string[]> {
  const stored = await readSmallFile(files, folder, identityFile);
  return stored?.toString().trim().split(" ") ?? [];
}

/** Returns whether some of the names in a folder are those of a store. */
export function holdsStore(fileNames: readonly string[]): boolean {
  return fileNames.some((name) => generationOf(name) !== undefined);
}

/**
 * Throws if a folder has no store because it is that of a server whose store is
 * in etcd: nobody would serve what is written here.
 *
 * @throws {StoreError} not-empty
 */
export async function refuseFolderOfEtcd(
  files: FileSystem,
  folder: string,
): Promise<void> {
  if (holdsStore(await files.list(folder))) return;
  // Something else of this name, such as a folder, says nothing.
  const [, prefix] = await readIdentity({ files, folder }).catch(() => []);
  if (!prefix) return;
  throw new StoreError(
    "not-empty",
    `${folder} belongs to a server whose store is in etcd under ${prefix}: ` +
      "give --store, or name another folder",
  );
}
