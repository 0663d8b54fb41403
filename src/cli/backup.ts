/**
 * The command `backup`: copies a store so that the copy can be opened in its
 * place. It reads only the files, without the lock, while a server may be
 * writing them: the newest snapshot and the logs since, up to the last complete
 * line, are a state that a power cut at this moment could have left, and so a
 * good one. Spools are left out, because they would make the copy as large as
 * the imports in progress; a task whose spool is missing is reported as failed.
 */

import { dirname, join } from "node:path";
import { UsageError } from "../config.ts";
import { print } from "./output.ts";
import { StoreError } from "../store/error.ts";
import {
  copyBytes,
  type FileSystem,
  type OpenFile,
  readLines,
  realFiles,
  withFile,
  writeAtomically,
} from "../store/log/files.ts";
import {
  generationOf,
  makeFolder,
  names,
  snapshotsAmong,
} from "../store/log/folder.ts";
import { countRecords } from "../store/memory/table.ts";
import { scanFolder } from "../store/recovery/scan.ts";
import { readStore, retryIfRemoved } from "./read.ts";

/**
 * Copies the store of a folder into another, empty one, and reads the copy
 * back. If it fails, nothing is left of the copy.
 *
 * @returns what the copy holds
 * @throws {StoreError} not-empty; damaged if the store, and so its copy, is;
 * Error of the file system
 */
export async function backupStore(
  folder: string,
  to: string,
  files: FileSystem = realFiles,
): Promise<{ readonly seq: number; readonly records: number }> {
  const isNew = await makeFolder(files, to);
  if ((await files.list(to)).length > 0) {
    throw new StoreError("not-empty", `Cannot back up: ${to} is not empty`);
  }
  try {
    await retryIfRemoved(() => copyFiles(folder, to, files));
    const options = { files, tables: [] };
    const { exists, refusal, seq, tables } = await scanFolder(to, options);
    if (refusal !== undefined) {
      const original = await readStore(folder, options);
      throw original.refusal ?? refusal;
    }
    if (!exists) {
      const message = `Cannot back up: there is no store in ${folder}`;
      throw new StoreError("damaged", message);
    }
    return { seq, records: countRecords(tables) };
  } catch (error) {
    await removeFiles(to, files).catch(() => {});
    if (isNew) await files.removeFolder(to).catch(() => {});
    throw error;
  }
}

async function removeFiles(folder: string, files: FileSystem): Promise<void> {
  for (const name of await files.list(folder)) {
    await files.remove(join(folder, name));
  }
}

async function copyFiles(
  folder: string,
  to: string,
  files: FileSystem,
): Promise<void> {
  await removeFiles(to, files); // of an interrupted attempt
  const present = await files.list(folder);
  const [base = 0] = snapshotsAmong(present);
  const chosen = [
    ...present.filter((name) => (generationOf(name) ?? -1) >= base),
    // The secret, so that tokens stay valid; meta.json last: now it is a store.
    ...["secret", names.meta].filter((name) => present.includes(name)),
  ];
  for (const name of chosen) {
    await withFile(files, join(folder, name), async (from) => {
      // Bytes after the last complete line of a log may be a write in progress.
      const end = name.startsWith("wal-")
        ? await completeBytes(from)
        : (await from.stat()).size;
      await writeAtomically(
        files,
        join(to, name),
        (copy) => copyBytes(from, copy, { start: 0, end }),
      );
    });
  }
  await files.syncFolder(dirname(to));
}

/** Returns where the last complete line ends. */
async function completeBytes(file: OpenFile): Promise<number> {
  let end = 0;
  for await (const lines of readLines(file)) {
    for (const line of lines) if (line.hasNewline) end = line.end;
  }
  return end;
}

/**
 * Copies the store into another folder, also while a server runs, and reads
 * the copy back.
 *
 * @throws {StoreError} not-empty, damaged; {UsageError} without a folder
 */
export async function backupCommand(
  folder: string,
  to: string | undefined,
): Promise<void> {
  if (to === undefined) {
    throw new UsageError("backup: name a folder to copy to: backup DIR");
  }
  const { records, seq } = await backupStore(folder, to);
  await print(
    `copied ${records} records up to sequence ${seq} to ${to}, and read them back\n`,
  );
}
