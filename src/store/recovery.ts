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
import { errorText } from "./error.ts";
import { copyBytes, type FileSystem, writeAll, writeWhole } from "./files.ts";
import { encodeHeader, format, type LogScan, seedOf } from "./log.ts";
import { names, type Survey } from "./survey.ts";
import type { OpenLog, PreparedLog } from "./writer.ts";

/** Where a store lives and what it lives on. */
export interface Place {
  readonly folder: string;
  readonly files: FileSystem;
  readonly now: () => number;
  readonly random: (bytes: number) => Uint8Array;
}

/** What begins a log. */
export interface LogStart {
  readonly store: string;
  readonly generation: number;
  /** The sequence before its first transaction. */
  readonly seq: number;
}

/** Makes a folder, private to the user, so that its name is on the disk. */
export async function makeFolder(
  files: FileSystem,
  folder: string,
): Promise<void> {
  const first = await files.makeFolder(folder);
  if (first === undefined) return;
  const top = dirname(first);
  for (let each = dirname(folder); each.length >= top.length;) {
    await files.syncFolder(each);
    if (each === dirname(each)) break;
    each = dirname(each);
  }
}

/** Makes a new store and returns its id. */
export async function createStore(place: Place): Promise<string> {
  const store = Buffer.from(place.random(8)).toString("hex");
  const log = await prepareLog(place, { store, generation: 1, seq: 0 });
  await log.publish();
  await log.log.file.close();
  const meta = Buffer.from(`${JSON.stringify({ format, store })}\n`);
  // Last: without it the folder holds no store yet.
  await writeWhole(
    place.files,
    join(place.folder, names.meta),
    (file) => writeAll(file, meta, 0),
  );
  return store;
}

/** Makes an empty log under a temporary name. */
export async function prepareLog(
  place: Place,
  start: LogStart,
): Promise<PreparedLog> {
  const { files, folder } = place;
  const path = join(folder, names.log(start.generation));
  const draft = `${path}.tmp`;
  const salt = Buffer.from(place.random(8)).toString("hex");
  const header = encodeHeader({
    format,
    store: start.store,
    generation: start.generation,
    salt,
    seq: start.seq,
    at: new Date(place.now()).toISOString(),
  });
  const file = await files.open(draft, "create");
  const discard = async () => {
    await file.close().catch(() => {});
    await files.remove(draft).catch(() => {});
  };
  try {
    await writeAll(file, header, 0);
    await file.sync();
  } catch (error) {
    await discard();
    throw error;
  }
  return {
    log: {
      file,
      generation: start.generation,
      seed: seedOf(salt),
      offset: header.length,
    },
    async publish() {
      await files.rename(draft, path);
      await files.syncFolder(folder);
    },
    discard,
  };
}

/** Removes what an interrupted write left under a temporary name. */
export async function removeDrafts(place: Place): Promise<void> {
  for (const name of await place.files.list(place.folder)) {
    if (name.endsWith(".tmp")) {
      await place.files.remove(join(place.folder, name));
    }
  }
}

/** Makes the last log of a good folder ready to be written on. */
export async function reopenLog(
  place: Place,
  survey: Survey & { readonly log: LogScan },
): Promise<OpenLog> {
  const { log, generation, store, seq } = survey;
  const path = join(place.folder, names.log(generation));
  if (survey.torn !== undefined) await saveTorn(place, path, log);
  if (!isClean(survey)) await copyLog(place, path, log);
  await place.files.syncFolder(place.folder);
  if (log.sealed) {
    const next = await prepareLog(place, {
      store,
      generation: generation + 1,
      seq,
    });
    await next.publish();
    return next.log;
  }
  return {
    file: await place.files.open(path, "write"),
    generation,
    seed: seedOf(log.header?.salt ?? ""),
    offset: log.end + (log.unended ? 1 : 0),
  };
}

/** Whether the last stop left everything on the disk. */
function isClean({ mark, store, generation, seq, log }: Survey): boolean {
  return mark !== undefined && log !== undefined && mark.clean &&
    mark.store === store && mark.generation === generation &&
    mark.seq === seq && mark.offset === log.end && mark.offset === log.size;
}

async function saveTorn(
  place: Place,
  path: string,
  log: LogScan,
): Promise<void> {
  const from = await place.files.open(path, "read");
  try {
    const range = { start: log.end, end: log.size };
    await writeWhole(
      place.files,
      `${path}.torn-${place.now()}`,
      (to) => copyBytes(from, to, range),
    );
  } finally {
    await from.close();
  }
}

async function copyLog(
  place: Place,
  path: string,
  log: LogScan,
): Promise<void> {
  const from = await place.files.open(path, "read");
  try {
    await writeWhole(place.files, path, async (to) => {
      await copyBytes(from, to, { start: 0, end: log.end });
      if (log.unended) await writeAll(to, Buffer.from("\n"), log.end);
    });
  } finally {
    await from.close();
  }
}

/** An error of the file system with what was being done. */
export function describe(what: string, error: unknown): string {
  return `${what}: ${errorText(error)}`;
}
