/** Opens the store in a folder, or reads it without opening it. */

import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import process from "node:process";
import { errorCode, errorText, StoreError } from "./error.ts";
import { Store } from "./file-store.ts";
import { FullDisk } from "./full-disk.ts";
import { isNoSpaceError, type OpenFile, realFiles } from "./log/files.ts";
import { acquireLock } from "./log/lock.ts";
import { openMarker } from "./log/marker.ts";
import type { Table } from "./memory/table.ts";
import { defaultLimits, type StoreOptions } from "./options.ts";
import { makeFolder } from "./log/folder.ts";
import { createStore } from "./recovery/reopen.ts";
import { type FolderScan, scanFolder } from "./recovery/scan.ts";

/** Opens the store in a folder; creates both if they do not exist. */
export async function openStore(options: StoreOptions): Promise<Store> {
  const path = resolve(options.folder);
  try {
    return await openLocked(path, options);
  } catch (error) {
    if (error instanceof StoreError) throw error;
    const code = isNoSpaceError(error) ? "disk-full" : "unusable";
    const message = `Cannot open ${path}: ${errorText(error)}`;
    throw new StoreError(code, message, { cause: error });
  }
}

async function openLocked(path: string, options: StoreOptions): Promise<Store> {
  const { files = realFiles, random = randomBytes, log = () => {} } = options;
  const limits = { ...defaultLimits, ...options.limits };
  if (process.env["UV_USE_IO_URING"] === "1") {
    log("error", "UV_USE_IO_URING=1 makes every write many times slower");
  }
  await makeFolder(files, path);
  const timeoutMs = limits.lockTimeoutMs;
  const release = await acquireLock(path, { files, random, timeoutMs });
  const { now = Date.now, tables } = options;
  const folder = { folder: path, files, now, random };
  let marker: OpenFile | undefined;
  try {
    let scan = await scanFolder(path, { files, tables });
    if (!scan.exists) {
      await createStore(folder);
      scan = await scanFolder(path, { files, tables });
    }
    if (scan.refusal !== undefined) throw scan.refusal;
    marker = await openMarker(files, path);
    const context = { folder, limits, log, scan };
    const disk = new FullDisk(context);
    const openLog = await disk.open();
    const notices = noticesOf(scan);
    for (const notice of notices) log("error", notice);
    return new Store({ ...context, notices, openLog, marker, disk, release });
  } catch (error) {
    await marker?.close();
    await release();
    throw error;
  }
}

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
  options: Partial<Pick<StoreOptions, "tables" | "files">> = {},
): Promise<Reading> {
  const { files = realFiles, tables = [] } = options;
  for (let attempt = 1;; attempt++) {
    try {
      const scan = await scanFolder(folder, {
        files,
        tables,
        isThorough: true,
      });
      return { ...scan, tables: [...scan.tables.values()] };
    } catch (error) {
      // A running server removes old generations: read those that are left.
      if (errorCode(error) !== "ENOENT" || attempt === 5) throw error;
    }
  }
}

/** Describes the damage that a start repairs. */
function noticesOf({ tornWrite, log, faults }: FolderScan): string[] {
  const notices = faults.map(({ file, byte, line, message }) =>
    `${file} is damaged (byte ${byte}, line ${line}: ${message}) and was ` +
    "skipped: the previous generation and the logs since are complete"
  );
  if (tornWrite === undefined || log === undefined) return notices;
  return [
    ...notices,
    `${tornWrite.file} ended with a torn write at byte ${tornWrite.byte}, line ` +
    `${tornWrite.line}: ${
      log.size - log.end
    } bytes that were never acknowledged ` +
    "were cut off and saved beside it",
  ];
}
