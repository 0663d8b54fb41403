/**
 * Disk space kept back. On a full disk it lets deletes through and a restart
 * happen, so that the disk can be freed with the store's own means.
 */

import { Buffer } from "node:buffer";
import { dirname, join } from "node:path";
import { errorCode } from "./error.ts";
import { type FileSystem, isFull, withFile, writeAll } from "./files.ts";

/** A file that only takes space. */
export class Reserve {
  readonly #files: FileSystem;
  readonly #path: string;
  #bytes: number;
  #filling = false;

  constructor(files: FileSystem, folder: string, bytes: number) {
    this.#files = files;
    this.#path = join(folder, "reserve");
    this.#bytes = bytes;
  }

  /** On a small disk not more than half of what is left is kept back. */
  async open(spare: number): Promise<boolean> {
    const free = await this.#files.free(dirname(this.#path));
    const held = await this.#size();
    const half = Math.floor((free + held) / 2);
    this.#bytes = Math.max(held, Math.min(this.#bytes, half));
    return await this.fill(spare);
  }

  /** Takes the space, when that leaves `spare` bytes; else returns false. */
  async fill(spare: number): Promise<boolean> {
    const missing = this.#bytes - await this.#size();
    const free = await this.#files.free(dirname(this.#path));
    if (free < Math.max(0, missing) + spare) return false;
    if (missing <= 0) return true;
    this.#filling = true;
    const zeros = Buffer.alloc(Math.min(this.#bytes, 1 << 20));
    const file = await this.#files.open(this.#path, "create");
    try {
      for (let at = 0; at < this.#bytes; at += zeros.length) {
        await writeAll(file, zeros, at);
      }
      return true;
    } catch (error) {
      await this.#files.remove(this.#path);
      if (isFull(error)) return false;
      throw error;
    } finally {
      this.#filling = false;
      await file.close();
    }
  }

  /** Gives the space to whoever writes next. */
  async release(): Promise<void> {
    if (!this.#filling) await this.#files.remove(this.#path);
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
