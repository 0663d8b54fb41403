/**
 * The command `repair`: makes a damaged store usable again with everything that
 * can still be read, and first says what is lost. All original files are moved
 * into a folder of their own within the data folder, so nothing is thrown away.
 */

import { join } from "node:path";
import { describeFaults, describeList, print, unusedFiles } from "./output.ts";
import { unfinishedMeta, writeGeneration } from "./backup.ts";
import {
  describeMisfits,
  isLocked,
  readStore,
  readUndamagedStore,
} from "./read.ts";
import {
  type IdProperty,
  type Salvage,
  salvageFolder,
} from "./recovery/salvage.ts";
import type { ApiDeclaration } from "../api/declaration/api.ts";
import { isOwnApi } from "../api/declaration/own-api.ts";
import { declarationTable } from "../api/declaration/remembered.ts";
import { historyTable } from "../api/own-tables.ts";
import type { Commands, CommandSettings } from "../api/feature.ts";
import { collectionsOf, tablesOf } from "../api/routes.ts";
import { UsageError } from "../usage.ts";
import {
  type FileSystem,
  readSmallFile,
  realFiles,
} from "../store/log/files.ts";
import { acquireLock } from "../store/log/lock.ts";
import {
  generationOf,
  makeFolder,
  names,
  randomName,
  type StoreFolder,
  storeFolder,
} from "../store/log/folder.ts";
import { type Fault, StoreError } from "../store/error.ts";
import { writeMeta } from "../store/recovery/reopen.ts";
import type { FolderScan } from "../store/recovery/scan.ts";
import { Tables } from "../store/memory/table.ts";
import type { TableDeclaration } from "../store/store.ts";

export const commands: Commands = {
  repair: [0, repairCommand],
};

/** The findings of a repair, and its changes. */
interface Repaired {
  /** Everything that is still readable, if there is something to repair. */
  readonly salvage?: Salvage;
  /** The folder of the old files, if anything was changed. */
  readonly backupFolder?: string;
  /** Damage that needs no repair. */
  readonly unused?: readonly Fault[];
}

/**
 * Repairs the store in a folder.
 *
 * @param options with `tables`, those that exist even if none of their records is
 * readable; with `isDryRun`, the folder is only read
 * @throws {StoreError} in-use, format
 */
export async function repairStore(
  folder: string,
  { files = realFiles, tables = [], idProperties = [], isDryRun }: {
    readonly files?: FileSystem;
    readonly tables?: readonly TableDeclaration[];
    readonly idProperties?: readonly IdProperty[];
    readonly isDryRun?: boolean;
  } = {},
): Promise<Repaired> {
  const place = storeFolder({ folder, files });
  if (isDryRun) await refuseLocked(place);
  const lock = isDryRun ? undefined : await acquireLock(place);
  try {
    const before = await readStore(folder, { files, tables });
    if (before.refusal === undefined) return { unused: before.faults };
    if (before.refusal.code === "format") throw before.refusal;
    const meta = await readSmallFile(files, folder, names.meta).catch(() => {});
    const isUnfinished = meta && unfinishedMeta.startsWith(meta.toString());
    if (before.generation === 0 && isUnfinished) {
      throw new StoreError(
        "damaged",
        `Cannot repair ${folder}: it is an unfinished copy without records: delete it, and copy again`,
      );
    }
    before.tables = new Tables(); // they are read again, into less memory than both take
    const salvage = await salvageFolder(before, idProperties);
    if (isDryRun) return { salvage };
    const backupFolder = await replaceFiles(place, before, salvage);
    await readUndamagedStore(folder, { files });
    return { salvage, backupFolder };
  } finally {
    await lock?.release();
  }
}

/** Throws `in-use` if another process has locked a folder. */
async function refuseLocked(place: StoreFolder): Promise<void> {
  const { folder } = place;
  if (!await isLocked(place)) return;
  throw new StoreError(
    "in-use",
    `Cannot examine ${folder}: another process, such as a running server, ` +
      'is using it: stop it first, or run "zoo-api check"',
  );
}

/** Moves the old files away and writes the saved state; returns the folder of the old files. */
async function replaceFiles(
  place: StoreFolder,
  { generation, fileNames }: FolderScan,
  { seq, storeId, tables }: Salvage,
): Promise<string> {
  const { files, folder } = place;
  const backupFolder = join(folder, `damaged-${place.now()}`);
  await makeFolder(files, backupFolder);
  const move = async (isMoved: (name: string) => boolean) => {
    for (const name of fileNames.filter(isMoved)) {
      await files.rename(join(folder, name), join(backupFolder, name));
    }
    await files.syncFolder(backupFolder);
    await files.syncFolder(folder);
  };
  // First, because the folder is refused without it: so after an interruption
  // no start overlooks the damage, and the repair can be run again.
  await move((name) => name === names.meta);
  const start = {
    store: storeId || randomName(place),
    generation: generation + 1,
    seq,
  };
  tables.delete(historyTable); // as in a backup: numbers that are lost are assigned again
  await writeGeneration(place, start, tables);
  await move((name) => generationOf(name) !== undefined || name === "mark");
  await writeMeta(place);
  return backupFolder;
}

/**
 * Makes a damaged folder usable again, and prints what is lost.
 *
 * @returns the exit code: 2 if a dry run finds something to repair, otherwise 0
 * @throws {StoreError} in-use, format
 */
async function repairCommand(settings: CommandSettings): Promise<number> {
  const { dataDir, etcd, flags, loadApi } = settings;
  if (etcd) {
    throw new UsageError(
      "repair: only a folder can be repaired, as etcd keeps copies of its own: " +
        "copy the last backup to another prefix with --from and --to",
    );
  }
  // A repair must be possible without the declaration.
  const api = await loadApi().catch(() => undefined);
  const { text, isNeeded, options } = await planRepair(settings, api);
  if (!isNeeded) {
    await print(text);
    return 0;
  }
  if (flags.has("dry-run")) {
    await print(
      `${text}this is what a repair would lose; nothing was changed\n`,
    );
    return 2;
  }
  const { backupFolder } = await repairStore(dataDir, options);
  // Only now, as a reader who leaves early ends the process.
  await print(`${text}repaired; the original files are in ${backupFolder}\n`);
  return 0;
}

/** Returns the properties of all collections that hold ids: those of references, and of owners. */
function idPropertiesOf(api: ApiDeclaration): IdProperty[] {
  return [...collectionsOf(api).values()].flatMap(
    ({ name: of, parents, owner }) => [
      ...parents.map(({ property, target }) => ({
        of,
        property,
        target: target.name,
      })),
      ...(owner ? [{ of, property: owner, target: "users" }] : []),
    ],
  );
}

/** What a repair is going to do. */
interface Plan {
  readonly text: string;
  readonly isNeeded: boolean;
  readonly options: Parameters<typeof repairStore>[1];
}

/** Describes what a repair would lose, or that there is nothing to repair. */
async function planRepair(
  settings: CommandSettings,
  api: ApiDeclaration | undefined,
): Promise<Plan> {
  const options = api
    ? { tables: tablesOf(api, []), idProperties: idPropertiesOf(api) }
    : {};
  const { salvage, unused = [] } = await repairStore(settings.dataDir, {
    ...options,
    isDryRun: true,
  });
  if (salvage === undefined) {
    const reason = unused.length > 0 ? `: ${unusedFiles}` : "";
    const text = describeFaults(unused) +
      `there was nothing to repair${reason}\n`;
    return { text, isNeeded: false, options };
  }
  const { document } = salvage.tables.get(declarationTable)?.get(1) ?? {};
  // The repair has raised the counters of all tables.
  const isStored = (name: string) => Number(salvage.tables.get(name)?.size) > 0;
  if (api && !isOwnApi(document, api.collections, isStored)) {
    return await planRepair(settings, undefined);
  }
  const text = describeLosses(salvage) +
    (api
      ? await describeMisfits(settings, api, salvage.tables)
      : "records were not validated: that needs the declaration of this folder, which --collections names\n");
  return { text, isNeeded: true, options };
}

/** Lists the damage and, as far as possible, what is lost. */
function describeLosses(
  { damagedRecords, faults, lostTransactions, tables }: Salvage,
): string {
  const isThere = (name: string) => {
    const [table = "", id] = name.split("/");
    return tables.get(table)?.get(Number(id)) !== undefined;
  };
  const records = [...damagedRecords];
  const imports = (tables.get("tasks")?.rows() ?? []).filter(({ document }) =>
    document["type"] === "import" &&
    /queued|running/.test(String(document["status"]))
  );
  const title = "records whose last change or deletion is lost";
  return describeFaults(faults) +
    `lost transactions: ${lostTransactions}\n` +
    (lostTransactions > 0
      ? "all sign-ins end, as one may have ended some\n"
      : "") +
    (lostTransactions > 0 && imports.length > 0
      ? "an import is not finished: when it resumes, lines whose ids may have been given before are rejected; its task lists them\n"
      : "") +
    describeList("lost records", records.filter((each) => !isThere(each))) +
    describeList(title, records.filter(isThere));
}
