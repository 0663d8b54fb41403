/**
 * The few file operations that the store uses, as an argument: tests pass one
 * that fails, delays, records or lies. Nothing else in the store touches
 * node:fs.
 */

import { Buffer } from "node:buffer";
import { constants, fstatSync, type Stats, write } from "node:fs";
import {
  type FileHandle,
  mkdir,
  open,
  readdir,
  rename,
  statfs,
  unlink,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { errorCode, errorText } from "../error.ts";

/** An open file: what the store uses of Node's FileHandle. */
export interface OpenFile {
  readonly fd: number;
  read(
    into: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesRead: number }>;
  write(
    bytes: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesWritten: number }>;
  /** Returns once what was written, and the size, is on the disk. */
  datasync(): Promise<void>;
  truncate(size: number): Promise<void>;
  stat(): Promise<{ readonly size: number; readonly nlink: number }>;
  close(): Promise<void>;
}

/** Where the store keeps its files. */
export interface FileSystem {
  /** `create` empties a file that is there; the other two need one. */
  open(path: string, how: "read" | "write" | "create"): Promise<OpenFile>;
  rename(from: string, to: string): Promise<void>;
  /** A file that is not there is no error. */
  remove(path: string): Promise<void>;
  list(folder: string): Promise<string[]>;
  /** Makes a folder and those above it; returns the first one made. */
  makeFolder(path: string): Promise<string | undefined>;
  /** Returns once the folder's entries are on the disk. */
  syncFolder(folder: string): Promise<void>;
  /** How many bytes may still be written. */
  free(folder: string): Promise<number>;
}

const flags = {
  read: constants.O_RDONLY,
  write: constants.O_RDWR,
  create: constants.O_RDWR | constants.O_CREAT | constants.O_TRUNC,
};

const writeBytes = promisify(write);

/**
 * A file of the machine. Writes go past FileHandle, whose own way costs a tenth
 * of a transaction that is alone in its batch; fstat has to wait for no disk.
 */
class MachineFile implements OpenFile {
  readonly fd: number;
  readonly #handle: FileHandle;

  constructor(handle: FileHandle) {
    this.fd = handle.fd;
    this.#handle = handle;
  }

  read(into: Uint8Array, offset: number, length: number, position: number) {
    return this.#handle.read(into, offset, length, position);
  }

  write(bytes: Uint8Array, offset: number, length: number, position: number) {
    return writeBytes(this.#handle.fd, bytes, offset, length, position);
  }

  datasync() {
    return this.#handle.datasync(); // the permission model allows no other
  }

  truncate(size: number) {
    return this.#handle.truncate(size);
  }

  stat() {
    const { fd } = this.#handle; // -1 once it is closed
    return new Promise<Stats>((resolve) => resolve(fstatSync(fd)));
  }

  close() {
    return this.#handle.close();
  }
}

/** The machine's own files. */
export const realFiles: FileSystem = {
  async open(path, how) {
    return new MachineFile(await open(path, flags[how], 0o600));
  },
  rename,
  async remove(path) {
    await unlink(path).catch((error) => {
      if (errorCode(error) !== "ENOENT") throw error;
    });
  },
  list: (folder) => readdir(folder),
  makeFolder: (path) => mkdir(path, { recursive: true, mode: 0o700 }),
  async syncFolder(folder) {
    const handle = await open(folder, constants.O_RDONLY);
    await handle.sync().finally(() => handle.close());
  },
  async free(folder) {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  },
};

/** Whether an error says that there is no more space to write to. */
export function isNoSpaceError(error: unknown): boolean {
  return ["ENOSPC", "EDQUOT", "EFBIG", "ESHORT"].includes(errorCode(error));
}

/** Opens a file for as long as `use` takes. */
export async function withFile<Result>(
  files: FileSystem,
  path: string,
  use: (file: OpenFile) => Promise<Result>,
): Promise<Result> {
  const file = await files.open(path, "read");
  return await use(file).finally(() => file.close());
}

/** Writes all bytes at a position, or throws. */
export async function writeAll(
  file: OpenFile,
  bytes: Uint8Array,
  position: number,
): Promise<void> {
  const { length } = bytes;
  // libuv goes on after a short write and may still return a short count
  // without an error.
  const { bytesWritten } = await file.write(bytes, 0, length, position);
  if (bytesWritten === length) return;
  const error = new Error(`only ${bytesWritten} of ${length} bytes were taken`);
  throw Object.assign(error, { code: "ESHORT" });
}

/**
 * Writes a file so that its name never stands for anything but the whole:
 * another name first, onto the disk, then the rename and the folder. What was
 * begun is removed when it fails.
 */
export async function writeAtomically(
  files: FileSystem,
  path: string,
  write: (file: OpenFile) => Promise<unknown>,
): Promise<void> {
  const draft = `${path}.tmp`;
  try {
    const file = await files.open(draft, "create");
    await write(file).then(() => file.datasync()).finally(() => file.close());
    await files.rename(draft, path);
  } catch (error) {
    await files.remove(draft).catch(() => {});
    throw error;
  }
  await files.syncFolder(dirname(path));
}

/** Copies the bytes of one file from `start` to `end` into another. */
export async function copyBytes(
  from: OpenFile,
  to: OpenFile,
  range: { readonly start: number; readonly end: number },
): Promise<void> {
  const buffer = Buffer.allocUnsafe(1 << 20);
  for (let at = range.start; at < range.end;) {
    const length = Math.min(buffer.length, range.end - at);
    const { bytesRead } = await from.read(buffer, 0, length, at);
    if (bytesRead === 0) throw new Error("the file became shorter");
    await writeAll(to, buffer.subarray(0, bytesRead), at - range.start);
    at += bytesRead;
  }
}

/** A small file whole; undefined when it is missing. */
export async function readSmallFile(
  files: FileSystem,
  folder: string,
  name: string,
): Promise<Buffer | undefined> {
  const buffer = Buffer.alloc(65_536);
  try {
    const { bytesRead } = await withFile(
      files,
      join(folder, name),
      (file) => file.read(buffer, 0, buffer.length, 0),
    );
    return buffer.subarray(0, bytesRead);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}

/** A part of a file cannot be read: the usual first sign of a dying disk. */
export class ReadError extends Error {
  override readonly name = "ReadError";
  readonly byte: number;

  constructor(byte: number, cause: unknown) {
    super(`it cannot be read (${errorText(cause)})`, { cause });
    this.byte = byte;
  }
}

/** A line of a file. */
export interface Line {
  /** Without the newline. */
  readonly bytes: Buffer;
  /** Where it begins in the file. */
  readonly byte: number;
  /** Counted from 1. */
  readonly line: number;
  /** Only the last line of a file may lack its newline. */
  readonly hasNewline: boolean;
}

/** Which lines of a file to read, and how. */
export interface LineRange {
  /** Where the first line begins, and where the last one ends. */
  readonly start?: number;
  readonly end?: number;
  /** How many bytes to read at a time. */
  readonly chunkBytes?: number;
  /** Of a line longer than this, the beginning is dropped, never its end. */
  readonly maxLineBytes?: number;
}

/** Reads a file by parts of whole lines, of 64 KB or a little more; while one is looked at, the next is read. */
export async function* readLines(
  file: OpenFile,
  range: LineRange = {},
): AsyncGenerator<Line[]> {
  const { start = 0, chunkBytes: least = 1 << 16 } = range;
  const { end: limit = Infinity, maxLineBytes = Infinity } = range;
  const read = async (position: number, length: number) => {
    const size = Math.min(length, limit - position);
    const buffer = Buffer.allocUnsafe(size);
    try {
      const { bytesRead } = await file.read(buffer, 0, size, position);
      return buffer.subarray(0, bytesRead);
    } catch (error) {
      throw new ReadError(position, error);
    }
  };
  let rest = Buffer.alloc(0);
  let position = start;
  let line = 0;
  let next = read(position, least);
  while (true) {
    const bytes = await next;
    const { length: bytesRead } = bytes;
    const offset = position - rest.length;
    const part = Buffer.concat([rest, bytes]);
    const lines: Line[] = [];
    let begin = 0;
    for (let end; (end = part.indexOf(0x0a, begin)) >= 0; begin = end + 1) {
      const bytes = part.subarray(begin, end);
      lines.push({
        bytes,
        byte: offset + begin,
        line: ++line,
        hasNewline: true,
      });
    }
    rest = part.subarray(begin);
    if (rest.length > maxLineBytes) rest = rest.subarray(-1);
    position += bytesRead;
    if (bytesRead === 0) {
      if (rest.length > 0) {
        lines.push({
          bytes: rest,
          byte: offset,
          line: ++line,
          hasNewline: false,
        });
      }
      yield lines;
      return;
    }
    // A line longer than a part: the parts grow, so that joining stays cheap.
    next = read(position, Math.max(least, rest.length));
    next.catch(() => {}); // who looks no further is not told
    yield lines;
  }
}
