/**
 * The files of a data folder, and how a new log is created in it: under a
 * temporary name first, so a file with a final name is complete.
 */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { dirname, join } from "node:path";
import { errorCode } from "../error.ts";
import {
  type FileSystem,
  type OpenFile,
  prepareFile,
  realFiles,
  writeAll,
} from "./files.ts";
import { encodeHeader, formatTime, type LogStart } from "./format.ts";

/** The names of the files of a data folder. */
export const names = {
  meta: "meta.json",
  log: (generation: number): string => `wal-${generation}.jsonl`,
  snapshot: (generation: number): string => `snapshot-${generation}.jsonl`,
};

/** Returns the generation of a log or snapshot, by its file's name. */
export function generationOf(name: string): number | undefined {
  const match = /^(?:wal|snapshot)-([1-9]\d{0,14})\.jsonl$/.exec(name);
  return match === null ? undefined : Number(match[1]);
}

/** Returns the generations of all snapshots among some names, the newest first. */
export function snapshotsAmong(names: readonly string[]): number[] {
  return names.filter((name) => name.startsWith("snapshot-"))
    .flatMap((name) => generationOf(name) ?? [])
    .sort((one, other) => other - one);
}

/** The folder of a store, and the system functions that it uses. */
export interface StoreFolder {
  readonly folder: string;
  /** Carries out every file operation. */
  readonly files: FileSystem;
  /** The time in milliseconds. */
  readonly now: () => number;
  readonly random: (bytes: number) => Uint8Array;
}

/** Returns a folder that uses the system's own functions, except for those given. */
export function storeFolder({
  folder,
  files = realFiles,
  now = Date.now,
  random = randomBytes,
}: Partial<StoreFolder> & { readonly folder: string }): StoreFolder {
  return { folder, files, now, random };
}

/** A log that is open for writing. */
export interface OpenLog {
  readonly file: OpenFile;
  readonly generation: number;
  /** The seed of the CRC of its lines. */
  readonly seed: number;
  /** Where the next line goes; everything before it is on the disk. */
  offset: number;
  /** The length of the file: it has zeros from the offset up to here. */
  size: number;
}

/** Returns a random name in hexadecimal. */
export function randomName(place: StoreFolder): string {
  return Buffer.from(place.random(8)).toString("hex");
}

/**
 * Creates a folder and its parents, private to the user, durably; returns
 * whether it is new. One by one, as Node's `recursive` never ends below a
 * folder such as /proc.
 */
export async function makeFolder(
  files: FileSystem,
  folder: string,
): Promise<boolean> {
  const parent = dirname(folder);
  const isNew = await files.makeFolder(folder).catch(async (error) => {
    if (errorCode(error) !== "ENOENT" || parent === folder) throw error;
    await makeFolder(files, parent);
    return files.makeFolder(folder);
  });
  if (isNew) await files.syncFolder(parent);
  return isNew;
}

/**
 * Creates an empty log under a temporary name, durably; returns it with the
 * function that gives it its name. It is open before, so that nothing can fail
 * after that.
 */
export async function prepareLog(
  place: StoreFolder,
  { store, generation, seq }: LogStart,
): Promise<{ readonly log: OpenLog; readonly publish: () => Promise<void> }> {
  const { files, folder } = place;
  const path = join(folder, names.log(generation));
  const salt = randomName(place);
  const at = formatTime(place.now());
  const { line, seed } = encodeHeader({ store, generation, salt, seq, at });
  const publish = await prepareFile(
    files,
    path,
    (file) => writeAll(file, line, 0),
  );
  const file = await files.open(`${path}.tmp`, "log");
  const { length: offset } = line;
  const log = { file, generation, seed, offset, size: offset };
  return { log, publish };
}

/** Creates an empty log durably, and opens it. */
export async function createLog(
  place: StoreFolder,
  start: LogStart,
): Promise<OpenLog> {
  const { log, publish } = await prepareLog(place, start);
  await publish().catch(async (error) => {
    await log.file.close();
    throw error;
  });
  return log;
}

/** Removes all generations older than this one. */
export async function removeBefore(
  place: StoreFolder,
  generation: number,
): Promise<void> {
  const { files, folder } = place;
  for (const name of await files.list(folder)) {
    const isOlder = (generationOf(name) ?? generation) < generation;
    if (isOlder) await files.remove(join(folder, name));
  }
}
