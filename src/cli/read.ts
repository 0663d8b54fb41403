/** Reads a data folder without opening its store: for a check or an export. */

import { tablesOf } from "../api/routes.ts";
import { collections } from "../collections.ts";
import { withFolderError } from "../data-folder.ts";
import { errorCode } from "../store/error.ts";
import {
  type FolderScan,
  type FolderScanOptions,
  scanFolder,
} from "../store/recovery/scan.ts";
import { realFiles, type Table } from "../store/store.ts";

/** The state of a data folder, read without a lock and without a change. */
export type Reading =
  & Pick<
    FolderScan,
    "exists" | "generation" | "seq" | "faults" | "tornWrite" | "refusal"
  >
  & { readonly tables: readonly Table[] };

/** Reads a data folder for a check or an export. */
export async function readStore(
  folder: string,
  options: Partial<Omit<FolderScanOptions, "isThorough">> = {},
): Promise<Reading> {
  for (let attempt = 1;; attempt++) {
    try {
      const scan = await scanFolder(folder, {
        files: realFiles,
        tables: [],
        isThorough: true,
        ...options,
      });
      return { ...scan, tables: [...scan.tables.values()] };
    } catch (error) {
      // A running server removes old generations: read those that are left.
      if (errorCode(error) !== "ENOENT" || attempt === 5) throw error;
    }
  }
}

/** Reads a data folder, to which another process may be writing. */
export async function readDataFolder(folder: string) {
  return await withFolderError(
    folder,
    () => readStore(folder, { tables: tablesOf(collections, []) }),
  );
}

/** Reads a data folder, but refuses a damaged one, since partial output would look complete. */
export async function readUndamagedFolder(folder: string) {
  const scan = await readDataFolder(folder);
  if (scan.refusal !== undefined) throw scan.refusal;
  return scan;
}
