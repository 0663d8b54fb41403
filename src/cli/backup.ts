/**
 * A copy of a store that can be opened in its place. It is taken from the files
 * alone, without the lock, while a server may be writing them: the newest
 * snapshot and the logs from there on, up to the last whole line, are a state
 * that a power cut at this moment could have left, and so a good one. Spools
 * are left out: they would make the copy as large as what is being imported, and
 * work that names one that is not there is seen to have failed.
 */

import { UsageError } from "../config.ts";
import { print, withFolderError } from "../data-folder.ts";
import { dirname, join } from "node:path";
import { errorCode, type Fault, StoreError } from "../store/error.ts";
import {
  copyBytes,
  type FileSystem,
  type OpenFile,
  readLines,
  realFiles,
  withFile,
  writeAtomically,
} from "../store/log/files.ts";
import { makeFolder } from "../store/recovery/folder.ts";
import { generationsOf, names, scanFolder } from "../store/recovery/scan.ts";

/** What a backup holds. */
export interface Backup {
  readonly generation: number;
  readonly seq: number;
  readonly records: number;
}

/**
 * Copies the store of a folder into another, empty one, and reads the copy
 * back.
 *
 * @throws {StoreError} not-empty; damaged where the store, and so its copy, is;
 * Error of the file system
 */
export async function backupStore(
  folder: string,
  to: string,
  files: FileSystem = realFiles,
): Promise<Backup> {
  await makeFolder(files, to);
  if ((await files.list(to)).length > 0) {
    throw new StoreError("not-empty", `Cannot back up: ${to} is not empty`);
  }
  for (let attempt = 1;; attempt++) {
    try {
      await copyFiles(folder, to, files);
      break;
    } catch (error) {
      // The server has begun a new log and removed an old one: begin again.
      if (errorCode(error) !== "ENOENT" || attempt === 5) throw error;
      for (const name of await files.list(to)) {
        await files.remove(join(to, name));
      }
    }
  }
  const copy = await scanFolder(to, { files, tables: [] });
  const fault = copy.refusal ?? (copy.exists ? undefined : noStore(folder));
  if (fault !== undefined) throw fault;
  let records = 0;
  for (const table of copy.tables.values()) records += table.size;
  return { generation: copy.generation, seq: copy.seq, records };
}

function noStore(folder: string): StoreError {
  const fault: Fault = {
    file: names.meta,
    byte: 0,
    line: 0,
    message: "it is missing",
  };
  const message = `Cannot back up: there is no store in ${folder}`;
  return new StoreError("damaged", message, { fault });
}

async function copyFiles(
  folder: string,
  to: string,
  files: FileSystem,
): Promise<void> {
  const present = await files.list(folder);
  const base = Math.max(0, ...generationsOf(present, "snapshot"));
  const logs = generationsOf(present, "wal").filter((each) => each >= base);
  const chosen = [
    ...(base > 0 ? [names.snapshot(base)] : []),
    ...logs.map(names.log),
    // The secret, so that tokens stay valid; meta last: now it is a store.
    ...["secret", names.meta].filter((name) => present.includes(name)),
  ];
  for (const name of chosen) {
    await withFile(files, join(folder, name), async (from) => {
      // What is behind the last whole line is just being written.
      const end = name.startsWith("wal-")
        ? await wholeLines(from)
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

/** Where the last whole line ends. */
async function wholeLines(file: OpenFile): Promise<number> {
  let end = 0;
  for await (const lines of readLines(file)) {
    for (const { byte, bytes, hasNewline } of lines) {
      if (hasNewline) end = byte + bytes.length + 1;
    }
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
  const done = await withFolderError(folder, () => backupStore(folder, to));
  await print(
    `copied ${done.records} records up to sequence ${done.seq} to ${to}, and read them back\n`,
  );
}
