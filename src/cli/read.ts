/**
 * The command `check`, and how all commands read a store: a data folder without
 * opening its store, and without the lock, while a server may be writing it.
 */

import { readdir } from "node:fs/promises";
import type { ApiDeclaration } from "../api/declaration/api.ts";
import type { Commands, CommandSettings } from "../api/feature.ts";
import type { Collection } from "../api/declaration/declaration.ts";
import { describeMisfit, findMisfits } from "../api/declaration/misfits.ts";
import { declarationTable } from "../api/declaration/remembered.ts";
import { reservedCollectionNames } from "../api/declaration/reserved-names.ts";
import {
  awaitedTable,
  historyTable,
  retentionTable,
} from "../api/own-tables.ts";
import { collectionsOf, tablesOf } from "../api/routes.ts";
import { badSecret, canSign } from "../auth/jwt.ts";
import { followDeclaration } from "../data-folder.ts";
import { CommandError } from "../usage.ts";
import { errorCode } from "../store/error.ts";
import {
  generationOf,
  names as fileNames,
  type StoreFolder,
} from "../store/log/folder.ts";
import "../store/memory/exchange.ts";
import * as marker from "../store/log/marker.ts";
import { PackedRow } from "../store/memory/packed-row.ts";
import type { EtcdOptions } from "../store/shared.ts";
import { readSmallFile, withFile } from "../store/log/files.ts";
import { refuseFolderOfEtcd } from "../store/log/identity.ts";
import { hasLivingLock, socketFolder } from "../store/log/lock.ts";
import { maxFaults } from "../store/log/format.ts";
import {
  applyMutation,
  getOrCreateTable,
  type Tables,
} from "../store/memory/table.ts";
import {
  FolderScan,
  type FolderScanOptions,
  readFile,
  refusalOf,
  scanFolder,
  wholeFile,
} from "../store/recovery/scan.ts";
import { type Mutation, realFiles, type Table } from "../store/store.ts";
import { scanGrowingLog } from "./recovery/growing-log.ts";
import {
  internalCollections,
  storedCollections,
} from "./recovery/stored-rows.ts";
import {
  describeFault,
  describeFaults,
  print,
  printFailure,
  reportTasks,
  unusedFiles,
} from "./output.ts";

export const commands: Commands = {
  check: [0, check],
};

/** Where a command reads a store. */
export interface Place {
  readonly dataDir: string;
  readonly etcd?: EtcdOptions | undefined;
}

/**
 * Reads the store of a folder or in etcd; reads it again if a running server has
 * removed an old generation meanwhile.
 *
 * @param options with `isThorough`, the default, also the files that the state
 * does not need
 */
export async function readStore(
  place: Place | string,
  { isThorough = true, ...options }:
    & Partial<FolderScanOptions>
    & { readonly isThorough?: boolean } = {},
): Promise<FolderScan> {
  const { dataDir: folder, etcd } = typeof place === "string"
    ? { dataDir: place }
    : place;
  const readNames = new Set<string>();
  const all: FolderScanOptions = {
    files: realFiles,
    tables: [],
    rowClass: PackedRow,
    marker,
    scanLog: (file, name, apply) => {
      readNames.add(name);
      return scanGrowingLog(file, name, apply);
    },
    ...options,
  };
  if (etcd) {
    const { scanEtcd } = await import("../etcd/open.ts");
    const scan = await scanEtcd(etcd, all, isThorough).catch((error) => {
      if (errorCode(error) !== "damaged") throw error;
      return Object.assign(new FolderScan("etcd", all), { refusal: error });
    });
    if (scan.exists || scan.refusal) return scan;
    throw noStore(folder, etcd);
  }
  for (let attempt = 1;; attempt++) {
    try {
      readNames.clear();
      const scan = await scanFolder(folder, all);
      if (!scan.exists && !scan.refusal) throw noStore(folder);
      if (isThorough) await readSpareFiles(scan, readNames);
      return scan;
    } catch (error) {
      if (errorCode(error) !== "ENOENT" || attempt === 5) throw error;
    }
  }
}

/** Checks the files that the state does not need, unless they are of a newer format. */
async function readSpareFiles(
  scan: FolderScan,
  readNames: ReadonlySet<string>,
): Promise<void> {
  const { fileNames, refusal } = scan;
  if (refusal?.code === "format") return;
  for (const name of fileNames) {
    if (generationOf(name) === undefined || readNames.has(name)) continue;
    const error = await refusalOf(
      readFile(scan, name, () => {})
        .then(({ faults }) => void scan.faults.push(...faults)),
    );
    if (error !== undefined) scan.faults.push(wholeFile(name, error.message));
  }
}

/** Reads a data folder, but refuses a damaged one, since partial output would look complete. */
export async function readUndamagedStore(
  place: Place | string,
  options: Partial<FolderScanOptions> = {},
): Promise<FolderScan> {
  const scan = await readStore(place, { ...options, isThorough: false });
  if (scan.refusal !== undefined) throw scan.refusal;
  return scan;
}

/**
 * Reads the whole data folder, and prints the size of each collection and every
 * fault, which records do not fit the declaration, and what is hidden. Changes
 * nothing.
 *
 * @returns the exit code: 0 if all is well, 1 if only the last write is torn
 * (the next start repairs that), otherwise 2
 */
async function check(settings: CommandSettings): Promise<number> {
  const api = await settings.loadApi(await settings.loadFeatures());
  return await checkStore(settings, api).catch((error) => {
    printFailure(error, settings.dataDir);
    return 2;
  });
}

async function checkStore(
  settings: CommandSettings,
  api: ApiDeclaration,
): Promise<number> {
  const scan = await readStore(settings, { tables: tablesOf(api, []) });
  const { faults, generation, refusal, seq, tables, tornWrite } = scan;
  for (const { lastId, name, size } of tables.values()) {
    if (internalTables.includes(name)) continue;
    await print(`${name}: ${size} records, highest id ${lastId}\n`);
  }
  await print(`log: generation ${generation}, sequence ${seq}\n`);
  if (tornWrite) {
    await print(
      `torn: ${describeFault(tornWrite)}; it was never acknowledged, and the ` +
        "next start cuts it off\n",
    );
  }
  await print(describeFaults(faults));
  if (faults.length >= maxFaults) {
    await print(`only the first ${maxFaults} faults of each file are listed\n`);
  }
  const others = await describeOtherFiles(settings);
  await print(others);
  // Only a part was read, if anything.
  if (refusal !== undefined) {
    if (faults.length === 0) await print(`fault: ${refusal.message}\n`);
    return 2;
  }
  if (faults.length > 0) await print(`${unusedFiles}\n`);
  const misfits = await describeMisfits(settings, api, tables);
  await print(misfits);
  for (const each of describeHidden(findHidden(api, tables))) {
    await print(`hidden: ${each}\n`);
  }
  if (faults.length > 0 || others + misfits !== "") return 2;
  if (tornWrite) return 1;
  await print("no fault\n");
  return 0;
}

/** Returns which other files of a data folder a start would refuse, and why. */
async function describeOtherFiles(
  { dataDir, etcd, reader }: CommandSettings,
): Promise<string> {
  if (etcd) return "";
  let faults = "";
  for (const entry of await readdir(dataDir, { withFileTypes: true })) {
    const { name } = entry;
    const isSecret = name === "secret" &&
      !["JWT_SECRET", "JWT_SECRET_FILE"].some(reader.isSet);
    const isRight = name === "spool" ? entry.isDirectory() : entry.isFile();
    const isUsed = isSecret || /^(?:mark|reserve|spool)$|\.tmp$/.test(name);
    if (isUsed && !isRight) {
      faults +=
        `fault: ${name}: it is a link or of the wrong kind; move it away\n`;
    } else if (isSecret) {
      const secret = String(await readSmallFile(realFiles, dataDir, name));
      if (!canSign(secret.trim())) faults += `fault: secret: ${badSecret}\n`;
    }
  }
  return faults;
}

/** The names that no declared collection can have. */
const internalTables = [
  awaitedTable,
  declarationTable,
  historyTable,
  retentionTable,
];
export const ownNames = [...reservedCollectionNames, ...internalTables];

/**
 * Returns the number of records of each undeclared collection, and the number
 * of values of each undeclared property.
 */
export function findHidden(
  declaration: ApiDeclaration,
  tables: ReadonlyMap<string, Table>,
): Map<string, number> {
  const collections = collectionsOf(declaration);
  const found = new Map<string, number>();
  for (const table of tables.values()) {
    const { name, size } = table;
    const collection = collections.get(name);
    if (collection === undefined) {
      if (size > 0 && !ownNames.includes(name)) found.set(name, size);
      continue;
    }
    const { acceptedNames, owner } = collection;
    for (const { document } of table.rows()) {
      for (const property in document) {
        const isOwn = property === owner || property.startsWith("_");
        if (isOwn || acceptedNames.has(property)) continue;
        const key = `${name}.${property}`;
        found.set(key, (found.get(key) ?? 0) + 1);
      }
    }
  }
  return found;
}

/** Describes hidden data as a list. */
export function describeHidden(hidden: ReadonlyMap<string, number>): string[] {
  return Array.from(hidden, ([name, count]) => {
    const noun = name.includes(".") ? "value" : "record";
    return `${name} (${count} ${noun}${count === 1 ? "" : "s"})`;
  });
}

/** Lists the rows that do not fit the declaration, or are malformed, or says why the next start will refuse it. Changes the tables in memory as the start would. */
export async function describeMisfits(
  settings: CommandSettings,
  declaration: ApiDeclaration,
  tables: Tables,
): Promise<string> {
  const store = storeOf(tables);
  const describe = (collections: readonly Collection[]) =>
    findMisfits(collections, store)
      .map((misfit) => `${describeMisfit(misfit)}\n`).join("");
  const malformed = describe(internalCollections);
  if (malformed !== "") return malformed; // the others depend on them
  try {
    await follow(settings, declaration, tables);
    return describe(storedCollections(declaration));
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return `${error.message}\n`;
  }
}

function storeOf(tables: Tables) {
  return { tables, table: (name: string) => getOrCreateTable(tables, name) };
}

/**
 * Adapts tables that were read to the declaration, as a start would, and reports
 * the imports that are not finished.
 *
 * @throws {CommandError} if the start would refuse the declaration
 */
async function follow(
  { loadFeatures }: CommandSettings,
  declaration: ApiDeclaration,
  tables: Tables,
): Promise<void> {
  const features = await loadFeatures();
  const { adaptRecords } = features.find((each) => each.adaptRecords) ?? {};
  const opened = {
    collections: [...collectionsOf(declaration).values()],
    store: storeOf(tables),
    apply: (mutation: Mutation) => void applyMutation(tables, mutation, 0),
    log: () => {},
  };
  followDeclaration(opened, adaptRecords);
  reportTasks(tables);
}

/** Reads a store, and adapts it to the declaration in memory, as a start would. */
export async function readAdapted(
  settings: CommandSettings,
  declaration: ApiDeclaration,
): Promise<Tables> {
  const tables = tablesOf(declaration, []);
  const scan = await readUndamagedStore(settings, { tables });
  await follow(settings, declaration, scan.tables);
  return scan.tables;
}

/** Throws unless there is a store in a folder or in etcd: a mistyped name must not create one. */
export async function requireStore(
  { dataDir, etcd }: Place,
): Promise<void> {
  if (etcd) {
    const { isEmptyEtcd } = await import("../etcd/open.ts");
    if (await isEmptyEtcd(etcd)) throw noStore(dataDir, etcd);
  } else if (!(await realFiles.list(dataDir)).includes(fileNames.meta)) {
    await refuseFolderOfEtcd(realFiles, dataDir);
    throw noStore(dataDir);
  }
}

function noStore(folder: string, etcd?: EtcdOptions): CommandError {
  return new CommandError(
    etcd
      ? `there is no store in etcd under ${etcd.prefix}`
      : `${folder}: there is no store in it`,
  );
}

/** Returns whether another process has locked a folder; changes nothing, as the disk may be read-only. */
export async function isLocked(place: StoreFolder): Promise<boolean> {
  const { files, folder } = place;
  const remove = () => Promise.resolve();
  const unchanged = { ...place, files: { ...files, remove } };
  return await withFile(
    files,
    `${folder}/`,
    ({ fd }) => hasLivingLock(unchanged, socketFolder(folder, fd)),
  );
}
