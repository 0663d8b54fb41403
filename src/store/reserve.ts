/**
 * Disk space kept back. On a full disk it lets deletes through and a restart
 * happen, so that the disk can be freed with the store's own means.
 */

import { Buffer } from "node:buffer";
import { dirname, join } from "node:path";
import { errorCode } from "./error.ts";
import { type FileSystem, isFull, withFile, writeAll } from "./files.ts";

/** A file that only takes space, and whether the disk is full. */
export class Reserve {
  /** True from when the disk was found full until there is space again. */
  full = false;
  readonly #files: FileSystem;
  readonly #path: string;
  #bytes: number;
  #last: Promise<unknown> = Promise.resolve();

  constructor(files: FileSystem, folder: string, bytes: number) {
    this.#files = files;
    this.#path = join(folder, "reserve");
    this.#bytes = bytes;
  }

  /** Keeps back not more than half of what a small disk has left. */
  async open(spare: number): Promise<void> {
    const held = await this.#size();
    const free = await this.#files.free(dirname(this.#path));
    const half = Math.floor((free + held) / 2);
    this.#bytes = Math.max(held, Math.min(this.#bytes, half));
    this.full = true;
    await this.fill(spare);
  }

  /** Takes the space, when that leaves `spare` bytes: the disk is not full then. */
  fill(spare: number): Promise<void> {
    return this.#alone(async () => {
      const missing = Math.max(0, this.#bytes - await this.#size());
      const free = await this.#files.free(dirname(this.#path));
      if (free < missing + spare) return;
      if (missing === 0 || await this.#write()) this.full = false;
    });
  }

  /** On a full disk, gives the space to whoever writes next. */
  release(): Promise<void> {
    return this.#alone(async () => {
      if (this.full) await this.#files.remove(this.#path);
    });
  }

  /** One after the other: what one finds, the other must not change. */
  #alone(work: () => Promise<void>): Promise<void> {
    const next = this.#last.then(work);
    this.#last = next.catch(() => {});
    return next;
  }

  async #write(): Promise<boolean> {
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
      await file.close();
    }
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
