/**
 * Disk space kept back. On a full disk it lets deletes through and a restart
 * happen, so that the disk can be freed with the store's own means.
 */

import { Buffer } from "node:buffer";
import { join } from "node:path";
import { errorCode } from "./error.ts";
import { type FileSystem, isFull, withFile, writeAll } from "./files.ts";

/** A file that only takes space. */
export class Reserve {
  readonly #files: FileSystem;
  readonly #path: string;
  readonly #bytes: number;

  constructor(files: FileSystem, folder: string, bytes: number) {
    this.#files = files;
    this.#path = join(folder, "reserve");
    this.#bytes = bytes;
  }

  /** Takes the space; false when there is not enough. */
  async fill(): Promise<boolean> {
    if (await this.#size() >= this.#bytes) return true;
    const zeros = Buffer.alloc(Math.min(this.#bytes, 1 << 20));
    const file = await this.#files.open(this.#path, "create");
    try {
      for (let at = 0; at < this.#bytes; at += zeros.length) {
        await writeAll(file, zeros, at);
      }
      return true;
    } catch (error) {
      if (!isFull(error)) throw error;
      await this.release();
      return false;
    } finally {
      await file.close();
    }
  }

  /** Gives the space to whoever writes next. */
  async release(): Promise<void> {
    await this.#files.remove(this.#path);
  }

  async #size(): Promise<number> {
    try {
      return await withFile(
        this.#files,
        this.#path,
        async (file) => (await file.stat()).size,
      );
    } catch (error) {
      if (errorCode(error) === "ENOENT") return 0;
      throw error;
    }
  }
}
