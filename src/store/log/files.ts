/**
 * The few file operations that the store uses, as an argument: tests pass one
 * that fails, delays, records or lies. Nothing else in the store touches
 * node:fs.
 */

import { Buffer } from "node:buffer";
import { constants, fstatSync } from "node:fs";
import {
  mkdir,
  open,
  readdir,
  rename,
  stat,
  statfs,
  unlink,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { errorCode, errorText, StoreError } from "../error.ts";

/** A file that a log is read from. */
export interface ReadableFile {
  /** Fills a buffer from a position on, as far as the file goes. */
  read(
    into: Uint8Array,
    position: number,
  ): Promise<{ readonly bytesRead: number }>;
}

/** An open file: what the store uses of Node's FileHandle. */
export interface OpenFile extends ReadableFile {
  readonly fd: number;
  write(
    bytes: Uint8Array,
    position: number,
  ): Promise<{ readonly bytesWritten: number }>;
  /** Resolves once the written bytes and the file's size are on the disk. */
  datasync(): Promise<void>;
  truncate(size: number): Promise<void>;
  stat(): Promise<{ readonly size: number; readonly nlink: number }>;
  close(): Promise<void>;
}

/** How to open a file: `create` empties an existing file, the others need one. */
export type OpenMode = keyof typeof flags;

const { O_RDONLY, O_RDWR, O_CREAT, O_TRUNC } = constants;

/** Nothing in a data folder is a link, and opening a FIFO must not wait for its other end. Windows has neither. */
const { O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants;

const flags = {
  read: O_RDONLY,
  write: O_RDWR,
  create: O_RDWR | O_CREAT | O_TRUNC,
  log: O_RDWR,
};

function notAFile(path: string): StoreError {
  return new StoreError(
    "unusable",
    `Cannot open ${path}: it must be a file, not a link or anything else. Nothing was changed`,
  );
}

/** Opens a file with some flags, or the folder of a path that ends with a slash. */
export async function openFile(path: string, flag: number): Promise<OpenFile> {
  const all = flag | O_NOFOLLOW | O_NONBLOCK;
  const handle = await open(path, all, 0o600).catch((error) => {
    throw errorCode(error) === "ELOOP" ? notAFile(path) : error;
  });
  if (!fstatSync(handle.fd).isFile() && !path.endsWith("/")) {
    await handle.close();
    throw notAFile(path);
  }
  return {
    fd: handle.fd,
    read: (into, position) => handle.read(into, 0, into.length, position),
    write: (bytes, position) => handle.write(bytes, 0, bytes.length, position),
    datasync: () => handle.datasync(),
    truncate: (size) => handle.truncate(size),
    stat: () => handle.stat(),
    close: () => handle.close(),
  };
}

/** The machine's own files. */
export const realFiles = {
  open: (path: string, mode: OpenMode): Promise<OpenFile> =>
    openFile(path, flags[mode]),
  rename: (from: string, to: string): Promise<void> => rename(from, to),
  /** Removes a file, if it exists. */
  remove: (path: string): Promise<void> =>
    unlink(path).catch(undefinedIfMissing),
  list: (folder: string): Promise<string[]> => readdir(folder),
  /** Creates a folder; returns false if it exists already. */
  makeFolder: (path: string): Promise<boolean> =>
    mkdir(path, { mode: 0o700 }).then(() => true, (error) => {
      if (errorCode(error) !== "EEXIST") throw error;
      return false;
    }),
  /** Resolves once the folder's entries are on the disk. */
  async syncFolder(folder: string): Promise<void> {
    const handle = await open(folder, constants.O_RDONLY);
    await handle.sync().finally(() => handle.close());
  },
  /** Returns how many bytes may still be written. */
  async free(folder: string): Promise<number> {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  },
};

/** Where the store keeps its files: on the machine, or in a test. */
export type FileSystem = typeof realFiles;

/** Returns whether an error means that there is no space left to write to. */
export function isNoSpaceError(error: unknown): boolean {
  return ["ENOSPC", "EDQUOT", "EFBIG", "ESHORT"].includes(errorCode(error));
}

/** Ignores the error that a file does not exist. */
export function undefinedIfMissing(error: unknown): undefined {
  if (errorCode(error) !== "ENOENT") throw error;
}

/** Returns what the system knows of a file, a folder or a socket; undefined if there is none. */
export function statOf(path: string) {
  return stat(path).catch(undefinedIfMissing);
}

/** Opens a file while `use` runs. */
export async function withFile<Result>(
  files: FileSystem,
  path: string,
  use: (file: OpenFile) => Promise<Result>,
  mode: OpenMode = "read",
): Promise<Result> {
  const file = await files.open(path, mode);
  return await use(file).finally(() => file.close());
}

/** Writes all bytes at a position, or throws. */
export async function writeAll(
  file: OpenFile,
  bytes: Uint8Array,
  position: number,
): Promise<void> {
  // libuv continues after a short write, and may still return a short count
  // without an error.
  const { bytesWritten } = await file.write(bytes, position);
  if (bytesWritten === bytes.length) return;
  const message =
    `the disk is full: only ${bytesWritten} of ${bytes.length} bytes were written`;
  throw Object.assign(new Error(message), { code: "ESHORT" });
}

/**
 * Writes a file under a temporary name, durably; returns the function that gives
 * it its name (rename, fsync of the folder). If it fails, the temporary file is
 * removed.
 */
export async function prepareFile(
  files: FileSystem,
  path: string,
  write: (file: OpenFile) => Promise<unknown>,
): Promise<() => Promise<void>> {
  const draft = `${path}.tmp`;
  try {
    await withFile(
      files,
      draft,
      (file) => write(file).then(() => file.datasync()),
      "create",
    );
  } catch (error) {
    await files.remove(draft).catch(() => {});
    throw error;
  }
  return async () => {
    await files.rename(draft, path);
    await files.syncFolder(dirname(path));
  };
}

/** Writes a file atomically: {@linkcode prepareFile}, and its name at once. */
export async function writeAtomically(
  files: FileSystem,
  path: string,
  write: (file: OpenFile) => Promise<unknown>,
): Promise<void> {
  const publish = await prepareFile(files, path, write);
  await publish();
}

/** Writes a small file atomically. */
export async function writeSmallFile(
  files: FileSystem,
  path: string,
  content: string | Uint8Array,
): Promise<void> {
  const bytes = Buffer.from(content);
  await writeAtomically(files, path, (file) => writeAll(file, bytes, 0));
}

/** Copies the bytes from `start` to `end` into another file. */
export async function copyBytes(
  from: OpenFile,
  to: OpenFile,
  { start, end }: { readonly start: number; readonly end: number },
): Promise<void> {
  const buffer = Buffer.allocUnsafe(1 << 20);
  for (let at = start; at < end;) {
    const { bytesRead } = await from.read(buffer.subarray(0, end - at), at);
    if (bytesRead === 0) throw new Error("the file became shorter");
    await writeAll(to, buffer.subarray(0, bytesRead), at - start);
    at += bytesRead;
  }
}

/** Reads a small file; returns undefined if it does not exist. */
export async function readSmallFile(
  files: FileSystem,
  folder: string,
  name: string,
): Promise<Buffer | undefined> {
  const bytes = Buffer.alloc(65_536);
  const path = join(folder, name);
  return await withFile(files, path, async (file) => {
    const { bytesRead } = await file.read(bytes, 0);
    return bytes.subarray(0, bytesRead);
  }).catch(undefinedIfMissing);
}

/** A line of a file. */
export interface Line {
  /** Without the newline. */
  readonly bytes: Buffer;
  /** Its offset in the file, and that of the next line. */
  readonly byte: number;
  readonly end: number;
  /** Counted from 1. */
  readonly line: number;
  /** False only for an unfinished last line. */
  readonly hasNewline: boolean;
}

/** How many bytes are read at a time. */
const chunkBytes = 1 << 16;

/** Which lines of a file to read, and how. */
export interface LineRange {
  /** The offset of the first line, and the end of the last one. */
  readonly start?: number;
  readonly end?: number;
  /** How many lines there are before `start`. */
  readonly linesBefore?: number;
  /** A longer line loses its beginning, never its end. */
  readonly maxLineBytes?: number;
}

/**
 * Reads a file in chunks of complete lines, of 64 KB or a little more.
 */
export async function* readLines(
  file: ReadableFile,
  {
    start = 0,
    end = Infinity,
    linesBefore = 0,
    maxLineBytes = Infinity,
  }: LineRange = {},
): AsyncGenerator<Line[]> {
  let position = start;
  let rest = Buffer.alloc(0);
  let line = linesBefore;
  let isEnd = false;
  while (!isEnd) {
    // A line longer than a chunk: the chunks grow, so that joining stays cheap.
    const length = Math.max(chunkBytes, rest.length);
    const chunk = await readChunk(
      file,
      position,
      Math.min(length, end - position),
    );
    isEnd = chunk.length === 0;
    const offset = position - rest.length;
    position += chunk.length;
    const joined = Buffer.concat([rest, chunk]);
    const lines: Line[] = [];
    let begin = 0;
    while (begin < joined.length) {
      const newline = joined.indexOf(0x0a, begin);
      const hasNewline = newline >= 0;
      if (!hasNewline && !isEnd) break;
      const bytes = joined.subarray(begin, hasNewline ? newline : undefined);
      const byte = offset + begin;
      begin += bytes.length + Number(hasNewline);
      lines.push({
        bytes,
        byte,
        end: offset + begin,
        line: ++line,
        hasNewline,
      });
    }
    rest = joined.subarray(begin);
    if (rest.length > maxLineBytes) rest = rest.subarray(-1);
    yield lines;
  }
}

async function readChunk(
  file: ReadableFile,
  position: number,
  length: number,
): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(length);
  try {
    const { bytesRead } = await file.read(buffer, position);
    return buffer.subarray(0, bytesRead);
  } catch (error) {
    // Usually the first sign of a dying disk.
    throw new Error(
      `it cannot be read from byte ${position} on (${errorText(error)})`,
      { cause: error },
    );
  }
}
