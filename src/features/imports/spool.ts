/**
 * Spools: bodies too large for memory, taken to disk as they arrive, in the
 * folder `spool` of the data folder, a file each.
 *
 * One that was finished survives power loss. Any other is waste, as is one
 * that no record names: whoever opens the store removes those. Spools are no
 * part of the records: `check`, `repair` and recovery do not look at them, and
 * a backup leaves them out. So a record may name one that is not there
 * (`unknown-spool`); what was to be done with it has then failed.
 *
 * They never take the space that the log, its next snapshot and deletes on a
 * full disk need: beyond that they are refused, though the disk has more.
 */

import type { Buffer } from "node:buffer";
import { dirname, join } from "node:path";
import { errorCode, errorText, StoreError } from "../../store/error.ts";
import {
  type FileSystem,
  isNoSpaceError,
  type OpenFile,
  readLines,
  writeAll,
} from "../../store/log/files.ts";
import type { Store } from "../../store/file-store.ts";
import { randomName, type StoreFolder } from "../../store/recovery/folder.ts";

/** A line of a spool. */
export interface SpoolLine {
  /** Without the newline; undefined when it is too long, and was skipped. */
  readonly bytes: Buffer | undefined;
  /** Where it begins. */
  readonly byte: number;
  /** Where the next one begins: to go on from there. */
  readonly next: number;
}

const ending = ".spool";
// So much may wait in the page cache. Behind much more, the fdatasync of the
// log would wait for the spool's bytes too (ext4 writes both in one journal).
const unsyncedBytes = 8 << 20;

/** The spools of a store. */
export class Spools {
  readonly #place: StoreFolder;
  readonly #folder: string;
  readonly #margin: () => number;

  constructor(store: Store) {
    this.#place = store.folder;
    this.#folder = join(store.folder.folder, "spool");
    this.#margin = () => store.headroom;
  }

  /**
   * Begins one under a name of its own.
   *
   * @throws {StoreError} disk-full; Error of the file system
   */
  async create(): Promise<Spool> {
    const { files } = this.#place;
    const name = randomName(this.#place);
    const path = this.#path(name);
    const file = await orFull(async () => {
      await files.makeFolder(this.#folder);
      return await files.open(path, "create");
    });
    return new Spool(name, { files, path, file, margin: this.#margin });
  }

  /** The names of all that are there, finished or not. */
  async list(): Promise<string[]> {
    const found = await orMissing(this.#place.files.list(this.#folder)) ?? [];
    return found.filter((name) => name.endsWith(ending))
      .map((name) => name.slice(0, -ending.length));
  }

  /** One that is not there is no error. */
  async remove(name: string): Promise<void> {
    await this.#place.files.remove(this.#path(name));
  }

  /**
   * Reads a finished one line by line, from where one begins. Memory holds a
   * part of it, and lines of up to `longest` bytes.
   *
   * @throws {StoreError} unknown-spool
   */
  async *lines(
    name: string,
    { from = 0, longest = 1 << 20 } = {},
  ): AsyncGenerator<SpoolLine, undefined> {
    const file = await orMissing(
      this.#place.files.open(this.#path(name), "read"),
    );
    if (file === undefined) {
      throw new StoreError("unknown-spool", `There is no spool "${name}"`);
    }
    try {
      let byte = from;
      // Small parts: one may be nothing but newlines, each an object for a while.
      const range = { start: from, maxLineBytes: longest, chunkBytes: 1 << 16 };
      for await (const lines of readLines(file, range)) {
        for (const { bytes, byte: begin, hasNewline } of lines) {
          const end = begin + bytes.length;
          const next = hasNewline ? end + 1 : end;
          const whole = end - byte <= longest;
          yield { bytes: whole ? bytes : undefined, byte, next };
          byte = next;
        }
      }
    } finally {
      await file.close();
    }
  }

  #path(name: string): string {
    return join(this.#folder, `${name}${ending}`);
  }
}

interface SpoolFile {
  readonly files: FileSystem;
  readonly path: string;
  readonly file: OpenFile;
  readonly margin: () => number;
}

/** A spool while it is written; whatever fails here also removes it. */
export class Spool {
  readonly name: string;
  /** How much was taken. */
  bytes = 0;
  readonly #on: SpoolFile;
  #unsynced = 0;

  constructor(name: string, on: SpoolFile) {
    this.name = name;
    this.#on = on;
  }

  /**
   * Takes the next bytes; the one after must wait for it.
   *
   * @throws {StoreError} disk-full; Error of the file system
   */
  async write(bytes: Uint8Array): Promise<void> {
    const { files, path, file, margin } = this.#on;
    await this.#orDiscard(async () => {
      const left = await files.free(dirname(path)) - bytes.length;
      if (left < margin()) {
        const message =
          `Cannot take a body to disk: ${left} bytes would be left`;
        throw new StoreError("disk-full", message);
      }
      await writeAll(file, bytes, this.bytes);
      this.bytes += bytes.length;
      this.#unsynced += bytes.length;
      if (this.#unsynced < unsyncedBytes) return;
      await file.datasync();
      this.#unsynced = 0;
    });
  }

  /**
   * Makes all of it, and its name, survive power loss.
   *
   * @throws {StoreError} disk-full; Error of the file system
   */
  async finish(): Promise<void> {
    const { files, path, file } = this.#on;
    await this.#orDiscard(async () => {
      await file.datasync();
      await file.close();
      await files.syncFolder(dirname(path));
      await files.syncFolder(dirname(dirname(path))); // the folder may be new
    });
  }

  /** Drops it. */
  async discard(): Promise<void> {
    await this.#on.file.close().catch(() => {});
    await this.#on.files.remove(this.#on.path);
  }

  /** A failed fdatasync is never tried again: nothing is left to try it on. */
  async #orDiscard(work: () => Promise<void>): Promise<void> {
    try {
      await orFull(work);
    } catch (error) {
      await this.discard().catch(() => {}); // removed at the next start
      throw error;
    }
  }
}

async function orFull<Result>(work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    if (!isNoSpaceError(error)) throw error;
    const message = `Cannot take a body to disk: ${errorText(error)}`;
    throw new StoreError("disk-full", message, { cause: error });
  }
}

async function orMissing<Result>(
  work: Promise<Result>,
): Promise<Result | undefined> {
  try {
    return await work;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return undefined;
    throw error;
  }
}
