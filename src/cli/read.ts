/** Reads a data folder without opening its store, and without the lock, while a server may be writing it. */

import { errorCode } from "../store/error.ts";
import {
  type FolderScan,
  type FolderScanOptions,
  scanFolder,
} from "../store/recovery/scan.ts";
import { realFiles } from "../store/store.ts";

/** Reads a data folder for a check or an export. */
export function readStore(
  folder: string,
  options: Partial<Omit<FolderScanOptions, "isThorough">> = {},
): Promise<FolderScan> {
  const defaults = { files: realFiles, tables: [], isThorough: true };
  return retryIfRemoved(() => scanFolder(folder, { ...defaults, ...options }));
}

/** Returns the tables of a data folder, but refuses a damaged one, since partial output would look complete. */
export async function readUndamagedTables(
  folder: string,
): Promise<FolderScan["tables"]> {
  const { refusal, tables } = await readStore(folder);
  if (refusal !== undefined) throw refusal;
  return tables;
}

/** Reads again if a running server has removed an old generation meanwhile. */
export async function retryIfRemoved<Result>(
  read: () => Promise<Result>,
): Promise<Result> {
  for (let attempt = 1;; attempt++) {
    try {
      return await read();
    } catch (error) {
      if (errorCode(error) !== "ENOENT" || attempt === 5) throw error;
    }
  }
}
