/**
 * The commands `backup` and `copy`: they write a copy of a store that can be
 * opened in its place. They only read files, without the lock, while a server may
 * be writing them, and write what they have read as a snapshot and, in a folder,
 * an empty log. Spools are left out, because they would make the copy as large as the imports in
 * progress; a task whose spool is missing is reported as failed.
 */

import { open, realpath, rmdir } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, relative } from "node:path";
import process from "node:process";
import { declarationTable } from "../api/declaration/remembered.ts";
import { historyTable } from "../api/own-tables.ts";
import type { Commands, CommandSettings } from "../api/feature.ts";
import { CommandError, UsageError } from "../usage.ts";
import { createReader, findEtcd, type Flags } from "./command-line.ts";
import { print, printError, reportTasks } from "./output.ts";
import { errorCode, errorText, StoreError } from "../store/error.ts";
import {
  isNoSpaceError,
  readSmallFile,
  realFiles,
  undefinedIfMissing,
  writeSmallFile,
} from "../store/log/files.ts";
import {
  createLog,
  makeFolder,
  names,
  type StoreFolder,
  storeFolder,
} from "../store/log/folder.ts";
import type { LogStart } from "../store/log/format.ts";
import { freezeTables, saveSnapshot } from "../store/log/snapshot.ts";
import { countRecords, type Tables } from "../store/memory/table.ts";
import { writeMeta } from "../store/recovery/reopen.ts";
import { isLocked, type Place, readUndamagedStore } from "./read.ts";

export const commands: Commands = {
  backup: [1, backupCommand],
  copy: [0, copyCommand],
};

/**
 * Copies the store of a folder into another, empty one, and reads the copy
 * back. If that fails, the copy is removed.
 *
 * @returns what the copy holds
 * @throws {StoreError} not-empty; damaged if the store is; Error of the file
 * system
 */
export async function backupStore(
  from: Place | string,
  to: string,
): Promise<{ readonly seq: number; readonly records: number }> {
  if ((await realFiles.list(to).catch(undefinedIfMissing))?.length) {
    throw notEmptyError(to);
  }
  const place = typeof from === "string" ? { dataDir: from } : from;
  const removeFolders = await createOutputFolder(to, place);
  const meta = join(to, names.meta);
  // Of several copies to one folder, the one that creates this file writes there, and cleans up.
  const mark = await open(meta, "wx", 0o600).catch(async (error) => {
    await removeFolders();
    throw errorCode(error) === "EEXIST" ? notEmptyError(to) : error;
  });
  try {
    // The remains of an interrupted copy must not be taken for a new folder.
    await mark.writeFile(unfinishedMeta)
      .then(() => mark.sync())
      .finally(() => mark.close());
    await realFiles.syncFolder(to);
    await writeCopy(from, to);
    return await readCopy(to);
  } catch (error) {
    const written = (await realFiles.list(to)).filter((each) =>
      isOfCopy.test(each)
    );
    for (const name of [...written, names.meta]) {
      await realFiles.remove(join(to, name));
    }
    await removeFolders();
    if (!isNoSpaceError(error)) throw error;
    throw new CommandError(`cannot copy to ${to}: ${errorText(error)}`);
  }
}

/** The names of the files that a copy writes, but for `meta.json`. */
const isOfCopy =
  /^(?:(?:secret|(?:wal|snapshot)-\d+\.jsonl)(?:\.tmp)?|meta\.json\.tmp)$/;

function notEmptyError(to: string): StoreError {
  return new StoreError(
    "not-empty",
    `Cannot copy to ${to}: it is not empty: name another folder`,
  );
}

/**
 * Creates a folder that a command writes a store's records to.
 *
 * @returns the function that removes it and the parents created with it, if they
 * are empty
 * @throws {CommandError} if it is within the data folder
 */
export async function createOutputFolder(to: string, { dataDir, etcd }: Place) {
  if (!etcd) await refuseInside(to, dataDir);
  const created: string[] = [];
  const makeOne = async (path: string) => {
    const isNew = await realFiles.makeFolder(path);
    if (isNew) created.unshift(path);
    return isNew;
  };
  await makeFolder({ ...realFiles, makeFolder: makeOne }, to);
  return async () => {
    for (const each of created) await rmdir(each).catch(() => {});
  };
}

async function refuseInside(folder: string, dataDir: string): Promise<void> {
  const way = relative(await realpath(dataDir), await realPathOf(folder));
  if (way.startsWith("..") || isAbsolute(way)) return;
  throw new CommandError(
    `${folder} is within the data folder: name another one`,
  );
}

/** Returns the path without links of a folder that need not exist yet. */
async function realPathOf(path: string): Promise<string> {
  return await realpath(path).catch(async (error) => {
    if (errorCode(error) !== "ENOENT") throw error;
    return join(await realPathOf(dirname(path)), basename(path));
  });
}

/** The content of `meta.json` in a copy until all else is written. */
export const unfinishedMeta = "an unfinished copy\n";

/** Copies a store into a folder. A function of its own, so that nothing of it is in memory when the copy is read back. */
async function writeCopy(from: Place | string, to: string): Promise<void> {
  const { scan, secret } = await readSource(from);
  const { generation, seq, storeId, tables } = scan;
  const place = storeFolder({ folder: to });
  const start = { store: storeId, generation: generation + 1, seq };
  await writeGeneration(place, start, tables);
  if (secret !== undefined) {
    await writeSmallFile(realFiles, join(to, "secret"), secret);
  }
  await writeMeta(place);
}

/** Reads a store to be copied, and the secret that keeps its tokens valid. */
async function readSource(from: Place | string) {
  const scan = await readUndamagedStore(from);
  reportTasks(scan.tables);
  scan.tables.delete(historyTable); // the copy begins a new one
  const etcd = typeof from === "string" ? undefined : from.etcd;
  const secret = etcd
    ? await (await import("../etcd/open.ts")).readSharedSecret(etcd)
    : await readSmallFile(realFiles, scan.folder, "secret");
  return { scan, secret };
}

/** Reads a copy back; returns what it holds. */
async function readCopy(of: Place | string) {
  const { seq, tables } = await readUndamagedStore(of);
  const remembered = tables.get(declarationTable)?.size ?? 0;
  return { seq, records: countRecords(tables) - remembered };
}

/** Copies a store into an empty folder or into etcd, and reports it. */
async function copyStore(from: Place, to: Place): Promise<void> {
  if (to.etcd) {
    const { scan, secret } = await readSource(from);
    const { copyToEtcd } = await import("../etcd/open.ts");
    await copyToEtcd(scan, secret, to.etcd);
  }
  const { records, seq } = to.etcd
    ? await readCopy(to)
    : await backupStore(from, to.dataDir);
  await print(
    `copied ${records} records up to sequence ${seq} to ${to.dataDir}, and read them back\n`,
  );
}

/**
 * Copies the store into another folder, even while a server is running, and
 * reads the copy back.
 *
 * @throws {StoreError} not-empty, damaged; {UsageError} without a folder
 */
async function backupCommand(
  settings: CommandSettings,
  [to]: readonly string[],
): Promise<void> {
  if (!to) {
    throw new UsageError("backup: name a folder to copy to: backup DIR");
  }
  if (urlForm.test(to)) {
    throw new UsageError(
      "backup: name a folder, not a URL: copy writes to etcd",
    );
  }
  await copyStore(settings, { dataDir: to });
}

/**
 * Copies everything between a folder and etcd, with the secret that signs
 * tokens, and reads the copy back.
 *
 * @throws {StoreError} not-empty, damaged; {UsageError}
 */
async function copyCommand({ flags }: CommandSettings): Promise<void> {
  const from = await findPlace("from", flags);
  const to = await findPlace("to", flags);
  const { dataDir, etcd } = from;
  const isServed = etcd
    ? await (await import("../etcd/open.ts")).isServed(etcd)
    : await isLocked(storeFolder({ folder: dataDir })).catch(() => false); // it may be missing
  await copyStore(from, to);
  if (!isServed) return;
  printError(
    `zoo-api: a server uses ${dataDir}${
      etcd ? ", or did in the last minute" : ""
    }: what it still writes there is not in the copy`,
  );
}

/** A text that names no folder: perhaps a URL with a mistake. */
const urlForm = /^(?:[\w+.-]+:\/\/|etcds?:)/;

/** Returns the place that a flag names. */
async function findPlace(flag: string, flags: Flags): Promise<Place> {
  const dataDir = flags.get(flag);
  if (!dataDir) throw new UsageError(`copy: name a store with --${flag}`);
  if (!urlForm.test(dataDir)) return { dataDir };
  const named = new Map([...flags, ["store", dataDir]]);
  const etcd = await findEtcd(createReader(named, process.env))
    .catch((error: Error) => {
      throw new UsageError(
        error.message.replace(/^--store/, `--${flag}`)
          .replace(/("[\w+.-]+:\/*).*@/s, "$1…@"), // perhaps with a password
      );
    });
  return { dataDir, etcd };
}

/** Writes all records into a snapshot, and an empty log after it. */
export async function writeGeneration(
  place: StoreFolder,
  start: LogStart,
  tables: Tables,
): Promise<void> {
  await saveSnapshot(place, { ...start, tables: freezeTables(tables) });
  const { file } = await createLog(place, start);
  await file.close();
}
