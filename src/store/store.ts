/**
 * The store: records that survive. One JSON snapshot and a write-ahead log in
 * a folder of their own; all records in memory.
 *
 * What it promises: a write whose promise resolved survives power loss at any
 * moment; who waits for `settled` never sees a record that could still vanish;
 * damage is never passed over in silence. What may be lost: writes that were
 * not answered yet; each of them is there whole or not at all.
 *
 * How that is kept stands in the files beside this one: log.ts and snapshot.ts
 * (the formats), writer.ts (one loop that writes), survey.ts (what is believed
 * at a start), recovery.ts (what a start changes), lock.ts (one process),
 * file-store.ts (transactions and snapshots while it runs), feed.ts (who
 * follows what is written), spool.ts (large bodies beside it).
 */

import { randomBytes } from "node:crypto";
import { resolve } from "node:path";
import process from "node:process";
import { errorCode, errorText, type Fault, StoreError } from "./error.ts";
import { Store } from "./file-store.ts";
import { isNoSpaceError, type OpenFile, realFiles } from "./log/files.ts";
import { acquireLock } from "./log/lock.ts";
import { openMarker } from "./log/marker.ts";
import { defaultLimits, type StoreOptions } from "./options.ts";
import {
  createStore,
  makeFolder,
  type OpenLog,
  removeBefore,
  reopenLog,
  type StoreFolder,
} from "./recovery/folder.ts";
import { keepReserve, type Reserve } from "./log/reserve.ts";
import { type FolderScan, scanFolder } from "./recovery/scan.ts";
import type { Table } from "./memory/table.ts";

export type { Store } from "./file-store.ts";
export { StoreError } from "./error.ts";
export type { Fault, StoreErrorCode, StoreErrorFields } from "./error.ts";
export { realFiles } from "./log/files.ts";
export type { FileSystem, OpenFile } from "./log/files.ts";
export { Histogram } from "./histogram.ts";
export { formatTime } from "./log/format.ts";
export type { Mutation } from "./log/format.ts";
export type {
  CommitOptions,
  Logger,
  StoreLimits,
  StoreOptions,
} from "./options.ts";
export { caseFold, compareValues } from "./indexes/row-comparator.ts";
export type { SortedIndex } from "./indexes/b-plus-tree.ts";
export type { Column } from "./indexes/row-comparator.ts";
export { IndexCache } from "./indexes/index-cache.ts";
export type { RowSource } from "./indexes/index-cache.ts";
export type { Document, Json, Row } from "./memory/row.ts";
export type { Table, TableDeclaration, ToIndexKey } from "./memory/table.ts";

/** Opens the store in a folder, making it when it is missing. */
export async function openStore(options: StoreOptions): Promise<Store> {
  const folder = resolve(options.folder);
  try {
    return await openFolder({ ...options, folder });
  } catch (error) {
    if (error instanceof StoreError) throw error;
    const code = isNoSpaceError(error) ? "disk-full" : "unusable";
    const message = `Cannot open ${folder}: ${errorText(error)}`;
    throw new StoreError(code, message, { cause: error });
  }
}

async function openFolder(options: StoreOptions): Promise<Store> {
  const { folder, tables, files = realFiles, log = () => {} } = options;
  const { now = Date.now, random = randomBytes } = options;
  const limits = { ...defaultLimits, ...options.limits };
  const place = { folder, files, now, random };
  if (process.env["UV_USE_IO_URING"] === "1") {
    log("error", "UV_USE_IO_URING=1 makes every write many times slower");
  }
  await makeFolder(files, folder);
  const timeoutMs = limits.lockTimeoutMs;
  const release = await acquireLock(folder, { files, random, timeoutMs });
  let mark: OpenFile | undefined;
  try {
    let survey = await scanFolder(folder, { files, tables });
    if (!survey.exists) {
      await createStore(place);
      survey = await scanFolder(folder, { files, tables });
    }
    if (survey.refusal !== undefined) throw survey.refusal;
    const reserve = await keepReserve(files, folder, limits);
    mark = await openMarker(files, folder);
    const writing = await reopen(place, survey, reserve);
    const parts = { place, limits, log, survey, writing, reserve, release };
    return new Store({ ...parts, mark });
  } catch (error) {
    await mark?.close();
    await release();
    throw error;
  }
}

/** Reopens the log; on a full disk with the space that was kept back. */
async function reopen(
  place: StoreFolder,
  survey: FolderScan,
  reserve: Reserve,
): Promise<OpenLog> {
  try {
    return await reopenLog(place, survey);
  } catch (error) {
    if (!isNoSpaceError(error)) throw error;
    // The newer snapshot's name must be on the disk before the older one goes.
    await place.files.syncFolder(place.folder);
    await removeBefore(place, survey.baseGeneration);
    reserve.full = true;
    await reserve.release();
    return await reopenLog(place, survey);
  }
}

/** What a data folder holds, read without a lock and without a change. */
export interface Reading {
  /** False when there is no store in the folder. */
  readonly exists: boolean;
  readonly tables: readonly Table[];
  readonly generation: number;
  readonly seq: number;
  /** All that is wrong, the earlier generation included. */
  readonly faults: readonly Fault[];
  /**
   * What a power cut left of the last write, or what a running server is just
   * writing: no fault.
   */
  readonly torn: Fault | undefined;
  /** Why the store cannot be opened; undefined when it can. */
  readonly refusal: StoreError | undefined;
}

/** Reads a data folder for a check or an export. */
export async function readStore(
  folder: string,
  options: Partial<Pick<StoreOptions, "tables" | "files">> = {},
): Promise<Reading> {
  const { files = realFiles, tables = [] } = options;
  for (let attempt = 1;; attempt++) {
    try {
      const survey = await scanFolder(folder, {
        files,
        tables,
        thorough: true,
      });
      return { ...survey, tables: [...survey.tables.values()] };
    } catch (error) {
      // A running server removes old generations: read again what is there.
      if (errorCode(error) !== "ENOENT" || attempt === 5) throw error;
    }
  }
}
