/**
 * The few file operations that the store uses, as an argument: tests pass one
 * that fails, delays, records or lies. Nothing else in the store touches
 * node:fs.
 */

import { constants } from "node:fs";
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
import { Buffer } from "node:buffer";
import { errorCode } from "./error.ts";

/** An open file. Every position is counted from the file's first byte. */
export interface OpenFile {
  /** The descriptor's number. */
  readonly fd: number;
  /** Reads up to `into.length` bytes; returns how many, 0 at the end. */
  read(into: Uint8Array, position: number): Promise<number>;
  /** Writes; returns how many bytes were written, which may be too few. */
  write(bytes: Uint8Array, position: number): Promise<number>;
  /** Returns once all that was written, and the size, is on the disk. */
  sync(): Promise<void>;
  truncate(size: number): Promise<void>;
  stat(): Promise<{ readonly size: number; readonly links: number }>;
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

class RealFile implements OpenFile {
  readonly #handle: FileHandle;

  constructor(handle: FileHandle) {
    this.#handle = handle;
  }

  get fd(): number {
    return this.#handle.fd;
  }

  async read(into: Uint8Array, position: number): Promise<number> {
    const { bytesRead } = await this.#handle.read(
      into,
      0,
      into.length,
      position,
    );
    return bytesRead;
  }

  async write(bytes: Uint8Array, position: number): Promise<number> {
    const { bytesWritten } = await this.#handle.write(
      bytes,
      0,
      bytes.length,
      position,
    );
    return bytesWritten;
  }

  sync(): Promise<void> {
    return this.#handle.datasync();
  }

  truncate(size: number): Promise<void> {
    return this.#handle.truncate(size);
  }

  async stat(): Promise<{ size: number; links: number }> {
    const { size, nlink } = await this.#handle.stat();
    return { size, links: nlink };
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}

/** The machine's own files. */
export const realFiles: FileSystem = {
  async open(path, how) {
    return new RealFile(await open(path, flags[how], 0o600));
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
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  },
  async free(folder) {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  },
};

/** Fewer bytes were written than given: the disk is full or at its limit. */
export class ShortWriteError extends Error {
  override readonly name = "ShortWriteError";
  readonly code = "ESHORT";
}

/** Whether an error says that there is no more space to write to. */
export function isFull(error: unknown): boolean {
  return ["ENOSPC", "EDQUOT", "EFBIG", "ESHORT"].includes(errorCode(error));
}

/** Writes all bytes at a position, or throws. */
export async function writeAll(
  file: OpenFile,
  bytes: Uint8Array,
  position: number,
): Promise<void> {
  // libuv goes on after a short write and may still return a short count
  // without an error.
  const written = await file.write(bytes, position);
  if (written !== bytes.length) {
    throw new ShortWriteError(
      `Cannot write ${bytes.length} bytes: only ${written} were taken`,
    );
  }
}

/**
 * Writes a file so that its name never stands for anything but the whole:
 * another name first, onto the disk, then the rename and the folder. What was
 * begun is removed when it fails.
 */
export async function writeWhole(
  files: FileSystem,
  path: string,
  write: (file: OpenFile) => Promise<void>,
): Promise<void> {
  const draft = `${path}.tmp`;
  try {
    const file = await files.open(draft, "create");
    try {
      await write(file);
      await file.sync();
    } finally {
      await file.close();
    }
    await files.rename(draft, path);
  } catch (error) {
    await files.remove(draft).catch(() => {});
    throw error;
  }
  await files.syncFolder(dirname(path));
}

/** Copies the bytes of an open file from one position to another file. */
export async function copyBytes(
  from: OpenFile,
  to: OpenFile,
  range: { readonly start: number; readonly end: number },
): Promise<void> {
  const buffer = Buffer.allocUnsafe(1 << 20);
  for (let at = range.start; at < range.end;) {
    const part = buffer.subarray(0, Math.min(buffer.length, range.end - at));
    const count = await from.read(part, at);
    if (count === 0) throw new Error("Cannot copy: the file became shorter");
    await writeAll(to, part.subarray(0, count), at - range.start);
    at += count;
  }
}

/** A part of a file that ends with a line, or with the file. */
export interface Chunk {
  readonly bytes: Buffer;
  /** Where it begins in the file. */
  readonly offset: number;
}

/** Reads a file as parts of whole lines; only the last may lack its end. */
export async function* readChunks(file: OpenFile): AsyncGenerator<Chunk> {
  let rest = Buffer.alloc(0);
  let position = 0;
  while (true) {
    // A line longer than a part: the parts grow, so that joining stays cheap.
    const buffer = Buffer.allocUnsafe(Math.max(1 << 20, rest.length));
    const count = await file.read(buffer, position);
    const offset = position - rest.length;
    if (count === 0) {
      if (rest.length > 0) yield { bytes: rest, offset };
      return;
    }
    position += count;
    const fresh = buffer.subarray(0, count);
    const bytes = rest.length > 0 ? Buffer.concat([rest, fresh]) : fresh;
    const end = bytes.lastIndexOf(0x0a) + 1;
    rest = bytes.subarray(end);
    if (end > 0) yield { bytes: bytes.subarray(0, end), offset };
  }
}

/** The path of a file in a folder, and whether it is there. */
export async function readSmall(
  files: FileSystem,
  folder: string,
  name: string,
): Promise<Buffer | undefined> {
  const file = await files.open(join(folder, name), "read").catch((error) => {
    if (errorCode(error) === "ENOENT") return undefined;
    throw error;
  });
  if (file === undefined) return undefined;
  try {
    const buffer = Buffer.alloc(65_536);
    return buffer.subarray(0, await file.read(buffer, 0));
  } finally {
    await file.close();
  }
}
