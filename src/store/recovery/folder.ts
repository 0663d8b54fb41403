/**
 * Making a data folder ready to be written: a new one from nothing, or the one
 * that a survey found good.
 *
 * After an unclean stop the pages that a restart reads may not be on the disk,
 * and appending to such a file has lost acknowledged data. So, unless the mark
 * tells that the stop was clean, the good part of the log goes to a new file
 * (copy, fsync, rename, fsync of the folder) before anything is served.
 */

import { Buffer } from "node:buffer";
import { dirname, join } from "node:path";
import {
  copyBytes,
  type FileSystem,
  type OpenFile,
  withFile,
  writeAll,
  writeAtomically,
} from "../log/files.ts";
import {
  encodeHeader,
  format,
  formatTime,
  type LogStart,
} from "../log/format.ts";
import { type StoreState, writeSnapshot } from "../log/snapshot.ts";
import { type FolderScan, generationOf, names } from "./scan.ts";

/** Where a store lives and what it lives on. */
export interface StoreFolder {
  readonly folder: string;
  readonly files: FileSystem;
  readonly now: () => number;
  readonly random: (bytes: number) => Uint8Array;
}

/** The log that is being written. */
export interface OpenLog {
  readonly file: OpenFile;
  readonly generation: number;
  /** Where the CRC of its lines begins. */
  readonly seed: number;
  /** Where the next line goes; all before is on the disk. */
  offset: number;
}

/** A log that is on the disk under another name. */
export interface PreparedLog extends OpenLog {
  /** Gives it its name, on the disk. */
  publish(): Promise<void>;
  discard(): Promise<void>;
}

/** A random name in hexadecimal. */
export function randomName(place: Pick<StoreFolder, "random">): string {
  return Buffer.from(place.random(8)).toString("hex");
}

/** Makes a folder, private to the user, so that its name is on the disk. */
export async function makeFolder(
  files: FileSystem,
  folder: string,
): Promise<void> {
  const first = await files.makeFolder(folder);
  if (first === undefined) return;
  for (let each = folder; each.length >= first.length; each = dirname(each)) {
    await files.syncFolder(dirname(each));
  }
}

/** Writes the file that makes a folder a store: the last of all. */
export async function writeMeta(
  place: StoreFolder,
  store: string,
): Promise<void> {
  const meta = Buffer.from(`${JSON.stringify({ format, store })}\n`);
  const path = join(place.folder, names.meta);
  await writeAtomically(place.files, path, (file) => writeAll(file, meta, 0));
}

/** Makes a new store. */
export async function createStore(place: StoreFolder): Promise<void> {
  const store = randomName(place);
  await createLog(place, { store, generation: 1, seq: 0 });
  await writeMeta(place, store);
}

/** Makes an empty log under a temporary name. */
export async function prepareLog(
  place: StoreFolder,
  start: LogStart,
): Promise<PreparedLog> {
  const { files, folder } = place;
  const path = join(folder, names.log(start.generation));
  const draft = `${path}.tmp`;
  const { store, generation, seq } = start;
  const salt = randomName(place);
  const at = formatTime(place.now());
  const header = encodeHeader({ store, generation, salt, seq, at });
  const file = await files.open(draft, "create");
  const discard = async () => {
    await file.close().catch(() => {});
    await files.remove(draft).catch(() => {});
  };
  try {
    await writeAll(file, header.line, 0);
    await file.datasync();
  } catch (error) {
    await discard();
    throw error;
  }
  const publish = async () => {
    try {
      await files.rename(draft, path);
      await files.syncFolder(folder);
    } catch (error) {
      await file.close().catch(() => {}); // nobody will write to it
      throw error;
    }
  };
  const { seed, line: { length: offset } } = header;
  return { file, generation, seed, offset, publish, discard };
}

/** Writes a snapshot whole; returns its length. */
export async function saveSnapshot(
  place: StoreFolder,
  state: StoreState,
): Promise<number> {
  const { files, folder, now } = place;
  const path = join(folder, names.snapshot(state.generation));
  const more = { at: formatTime(now()), salt: randomName(place) };
  let length = 0;
  await writeAtomically(files, path, async (file) => {
    length = await writeSnapshot(file, { ...state, ...more });
  });
  return length;
}

/** Writes a state as a snapshot with an empty log behind it. */
export async function saveState(
  place: StoreFolder,
  state: StoreState,
): Promise<void> {
  await saveSnapshot(place, state);
  await createLog(place, state);
}

async function createLog(place: StoreFolder, start: LogStart): Promise<void> {
  const log = await prepareLog(place, start);
  await log.publish();
  await log.file.close();
}

/** Removes all generations older than this one. */
export async function removeBefore(
  place: StoreFolder,
  generation: number,
): Promise<void> {
  const { files, folder } = place;
  for (const name of await files.list(folder)) {
    const older = (generationOf(name) ?? generation) < generation;
    if (older) await files.remove(join(folder, name));
  }
}

/** Makes the last log of a good folder ready to be written on. */
export async function reopenLog(
  place: StoreFolder,
  survey: FolderScan,
): Promise<OpenLog> {
  const { files, folder, now } = place;
  const { log, generation, store, seq } = survey;
  if (log === undefined) throw new Error(`Cannot open ${folder}: no log`);
  const path = join(folder, names.log(generation));
  for (const name of await files.list(folder)) {
    if (name.endsWith(".tmp")) await files.remove(join(folder, name));
  }
  await withFile(files, path, async (from) => {
    const good = { start: 0, end: log.end };
    const rest = { start: log.end, end: log.size };
    if (survey.torn !== undefined) {
      const kept = `${path}.torn-${now()}`;
      await writeAtomically(files, kept, (to) => copyBytes(from, to, rest));
    }
    if (isClean(survey)) return;
    await writeAtomically(files, path, async (to) => {
      await copyBytes(from, to, good);
      if (log.lacksNewline) await writeAll(to, Buffer.from("\n"), log.end);
    });
  });
  await files.syncFolder(folder);
  if (log.isSealed) {
    const start = { store, generation: generation + 1, seq };
    const next = await prepareLog(place, start);
    await next.publish();
    return next;
  }
  const file = await files.open(path, "write");
  const offset = log.end + (log.lacksNewline ? 1 : 0);
  return { file, generation, seed: log.seed, offset };
}

/** Whether the last stop left everything on the disk. */
function isClean({ marker, store, generation, seq, log }: FolderScan): boolean {
  return marker !== undefined && marker.clean && marker.store === store &&
    marker.generation === generation && marker.seq === seq &&
    marker.offset === log?.end && marker.offset === log.size;
}
