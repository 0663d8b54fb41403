/**
 * A simulated disk that distinguishes what a process sees (the page cache) from
 * what a power cut leaves. It fails, delays and dies on demand, so that every
 * crash state that POSIX allows can be created:
 *
 * - Each 512-byte sector written since a file's last sync may or may not be
 *   there, in any order; the file may be shorter, or longer with zeros.
 * - Any part of the changes in the folder since its last sync may be there.
 * - After a failed sync the pages count as clean: a later sync succeeds and
 *   does not bring them to the disk, though they can still be read.
 *
 * The sockets of the lock are real and live in a folder of their own.
 */

import { Buffer } from "node:buffer";
import { basename } from "node:path";
import {
  type FileSystem,
  type OpenFile,
  type OpenMode,
  realFiles,
} from "../../src/store/store.ts";
import type { Random } from "./random.ts";

const sector = 512;

/** An operation that is about to happen: `name` is that of the file. */
export interface Step {
  readonly kind:
    | "create"
    | "open"
    | "list"
    | "free"
    | "read"
    | "write"
    | "sync"
    | "truncate"
    | "stat"
    | "rename"
    | "remove"
    | "syncFolder";
  readonly name: string;
  /** Counts the steps of a disk from 1. */
  readonly number: number;
}

/**
 * The outcome of a step: success, an error, an error after half of the work or
 * after all of it (as when a write waits for the disk in vain), or a write of
 * too few bytes.
 */
export type Fate = undefined | {
  readonly error?: string;
  readonly half?: boolean;
  /** Written data can be read, but never reaches the disk. */
  readonly isLost?: boolean;
  readonly short?: number;
};

class Node {
  cache: Buffer = Buffer.alloc(0);
  /** The content that is certainly on the disk. */
  durable: Buffer = Buffer.alloc(0);
  /** The sectors that differ from it and may or may not reach the disk. */
  dirty = new Set<number>();
  /** The sectors that never will, unless written again. */
  lost = new Set<number>();

  write(bytes: Uint8Array, position: number): void {
    const end = position + bytes.length;
    if (end > this.cache.length) this.resize(end);
    this.cache.set(bytes, position);
    const last = Math.ceil(end / sector);
    for (let at = Math.floor(position / sector); at < last; at++) {
      this.dirty.add(at);
      this.lost.delete(at);
    }
  }

  resize(size: number): void {
    const next = Buffer.alloc(size);
    this.cache.copy(next);
    const first = Math.floor(Math.min(size, this.cache.length) / sector);
    this.cache = next;
    if (first * sector < size) this.dirty.add(first);
  }

  sync(): void {
    this.durable = this.#with(this.cache.length, (at) => !this.lost.has(at));
    this.dirty.clear();
  }

  failSync(): void {
    for (const at of this.dirty) this.lost.add(at);
    this.dirty.clear();
  }

  copy(): Node {
    const node = new Node();
    node.cache = Buffer.from(this.cache);
    node.durable = Buffer.from(this.durable);
    node.dirty = new Set(this.dirty);
    node.lost = new Set(this.lost);
    return node;
  }

  /** One of the contents that a power cut may leave. */
  crash(random: Random): Buffer {
    const style = random.below(4);
    if (style === 0) return Buffer.from(this.durable);
    const sizes = [this.durable.length, this.cache.length];
    const least = Math.min(...sizes);
    const most = Math.max(...sizes);
    const size = style === 1
      ? this.cache.length
      : style === 2
      ? least + random.below(most - least + 1)
      : random.pick(sizes);
    const odds = style === 1 ? 1 : random.next();
    return this.#with(
      size,
      (at) => this.dirty.has(at) && random.chance(odds),
    );
  }

  /** The disk's content at a size, with the chosen sectors of the cache. */
  #with(size: number, chosen: (sector: number) => boolean): Buffer {
    const bytes = Buffer.alloc(size);
    this.durable.copy(bytes);
    for (let at = 0; at * sector < size; at++) {
      if (!chosen(at)) continue;
      const begin = at * sector;
      bytes.subarray(begin, begin + sector).fill(0);
      this.cache.subarray(begin, begin + sector).copy(bytes, begin);
    }
    return bytes;
  }
}

type Entries = Map<string, Node>;
type Change = (entries: Entries) => void;

/** How a disk behaves. */
export interface DiskOptions {
  /** A real folder for the sockets of the lock. */
  readonly folder: string;
  /** Decides the outcome of a step. */
  readonly fate?: (step: Step) => Fate | Promise<Fate>;
  /** How many bytes the disk holds. */
  readonly capacity?: number;
}

/** A simulated disk with one folder. */
export class Disk implements FileSystem {
  readonly folder: string;
  fate: (step: Step) => Fate | Promise<Fate>;
  capacity: number;
  steps = 0;
  /** Without the zeros at the end of a write, which only allocate space. */
  bytesWritten = 0;
  failedSyncs = 0;
  /** All steps so far, as text, including those of previous lives. */
  readonly trace: string[] = [];
  #dead = false;
  #entries: Entries = new Map();
  #durable: Entries = new Map();
  #changes: Change[] = [];

  constructor(options: DiskOptions) {
    this.folder = options.folder;
    this.fate = options.fate ?? (() => undefined);
    this.capacity = options.capacity ?? Infinity;
  }

  /** Returns whether the process was killed. */
  get dead(): boolean {
    return this.#dead;
  }

  /** From now on nothing is written: the process was killed. */
  kill(): void {
    this.#dead = true;
  }

  /** The disk as the next process finds it if only the process died. */
  survivor(folder: string): Disk {
    const disk = new Disk({ folder, capacity: this.capacity });
    disk.trace.push(...this.trace, "the process died");
    disk.#entries = this.#entries;
    disk.#durable = this.#durable;
    disk.#changes = this.#changes;
    return disk;
  }

  /** The result of {@linkcode survivor}, as a separate disk. */
  copy(folder: string): Disk {
    const disk = new Disk({ folder, capacity: this.capacity });
    disk.trace.push(...this.trace, "the process died");
    const copies = new Map<Node, Node>();
    const copyOf = (entries: Entries) =>
      new Map([...entries].map(([name, node]) => {
        const copy = copies.get(node) ?? node.copy();
        copies.set(node, copy);
        return [name, copy];
      }));
    disk.#entries = copyOf(this.#entries);
    disk.#durable = copyOf(this.#durable);
    // The changes of the folder itself happen all together or not at all.
    if (this.#changes.length > 0) {
      disk.#changes.push((entries) => {
        entries.clear();
        for (const [name, node] of copyOf(this.#entries)) {
          entries.set(name, node);
        }
      });
    }
    return disk;
  }

  /** The disk as a power cut may leave it. */
  crash(folder: string, random: Random): Disk {
    const entries = new Map(this.#durable);
    const style = random.below(5);
    const cut = random.below(this.#changes.length + 1);
    for (const [index, change] of this.#changes.entries()) {
      const kept = style === 0
        ? false
        : style === 1
        ? true
        : style === 2
        ? index < cut
        : style === 3
        ? index >= cut
        : random.chance(0.5);
      if (kept) change(entries);
    }
    const disk = new Disk({ folder, capacity: this.capacity });
    disk.trace.push(...this.trace, "the power was cut");
    for (const [name, node] of entries) {
      const fresh = new Node();
      fresh.cache = node.crash(random);
      fresh.durable = Buffer.from(fresh.cache);
      disk.#entries.set(name, fresh);
    }
    disk.#durable = new Map(disk.#entries);
    return disk;
  }

  /** The files as a process sees them. */
  contents(): Map<string, Buffer> {
    return new Map(
      [...this.#entries].map(([name, node]) => [name, Buffer.from(node.cache)]),
    );
  }

  /** A disk on which these files are durable. */
  static of(folder: string, files: Map<string, Buffer>): Disk {
    const disk = new Disk({ folder });
    for (const [name, bytes] of files) {
      const node = new Node();
      node.cache = Buffer.from(bytes);
      node.durable = Buffer.from(bytes);
      disk.#entries.set(name, node);
      disk.#durable.set(name, node);
    }
    return disk;
  }

  // As properties, so that they can be spread like those of the real files.
  open = async (
    path: string,
    how: OpenMode,
  ): Promise<OpenFile> => {
    if (path === `${this.folder}/`) return await realFiles.open(path, how);
    const name = basename(path);
    if (how.startsWith("create")) {
      await this.#step("create", name, () => {
        const node = new Node();
        const old = this.#entries.get(name);
        if (old === undefined) this.#change((to) => to.set(name, node));
        else old.resize(0);
      });
    } else {
      await this.#step("open", name, () => {});
    }
    const node = this.#entries.get(name);
    if (node === undefined) throw failure("ENOENT");
    return this.#file(name, node);
  };

  #file(opened: string, node: Node): OpenFile {
    // A file is identified by its current name.
    const nameNow = () => {
      for (const [name, each] of this.#entries) if (each === node) return name;
      return opened;
    };
    return {
      fd: -1,
      read: async (into, position) => {
        let bytesRead = 0;
        await this.#step("read", nameNow(), () => {
          const part = node.cache.subarray(position, position + into.length);
          into.set(part);
          bytesRead = part.length;
        });
        return { bytesRead };
      },
      write: async (bytes, position) => {
        const { length } = bytes;
        // Copied at once: a later change of the caller's buffer would be a
        // defect.
        const whole = Buffer.from(bytes);
        let taken = length;
        await this.#step("write", nameNow(), (fate) => {
          const grown = Math.max(0, position + length - node.cache.length);
          const free = this.#free();
          if (grown > free) taken = Math.max(0, length - (grown - free));
          if (fate?.half) taken = Math.floor(length / 2);
          if (fate?.short !== undefined) taken = Math.min(taken, fate.short);
          node.write(whole.subarray(0, taken), position);
          if (fate?.isLost) node.failSync();
          this.bytesWritten += lengthWithoutZeros(whole.subarray(0, taken));
          if (taken === 0 && length > 0) throw failure("ENOSPC");
        });
        return { bytesWritten: taken };
      },
      datasync: () =>
        this.#step("sync", nameNow(), () => node.sync(), () => {
          this.failedSyncs++;
          node.failSync();
        }),
      truncate: (size) =>
        this.#step("truncate", nameNow(), () => node.resize(size)),
      stat: async () => {
        await this.#step("stat", nameNow(), () => {});
        const nlink = [...this.#entries.values()].includes(node) ? 1 : 0;
        return { size: node.cache.length, nlink };
      },
      close: () => Promise.resolve(),
    };
  }

  rename = async (from: string, to: string): Promise<void> => {
    if (isLock(from)) return await realFiles.rename(from, to);
    const [source, target] = [basename(from), basename(to)];
    await this.#step("rename", source, () => {
      const node = this.#entries.get(source);
      if (node === undefined) throw failure("ENOENT");
      this.#change((entries) => {
        if (entries.get(source) === node) entries.delete(source);
        entries.set(target, node);
      });
    });
  };

  remove = async (path: string): Promise<void> => {
    if (isLock(path)) return await realFiles.remove(path);
    const name = basename(path);
    if (!this.#entries.has(name)) return;
    await this.#step("remove", name, () => {
      this.#change((entries) => entries.delete(name));
    });
  };

  list = async (folder: string): Promise<string[]> => {
    await this.#step("list", "", () => {});
    const locks = (await realFiles.list(folder)).filter(isLock);
    return [...this.#entries.keys(), ...locks];
  };

  makeFolder = (): Promise<boolean> => Promise.resolve(false);

  syncFolder = (): Promise<void> =>
    this.#step("syncFolder", "", () => {
      this.#durable = new Map(this.#entries);
      this.#changes = [];
    });

  free = async (_folder: string): Promise<number> => {
    await this.#step("free", "", () => {});
    return this.#free();
  };

  #free(): number {
    let used = 0;
    for (const node of this.#entries.values()) used += node.cache.length;
    return Math.max(0, this.capacity - used);
  }

  #change(change: Change): void {
    change(this.#entries);
    this.#changes.push(change);
  }

  async #step(
    kind: Step["kind"],
    name: string,
    work: (fate: Fate) => void,
    failed: () => void = () => {},
  ): Promise<void> {
    // Each operation takes a turn of the event loop, as with real files.
    await new Promise((resolve) => setImmediate(resolve));
    if (this.#dead) throw failure("EIO");
    const number = ++this.steps;
    const fate = await this.fate({ kind, name, number });
    const end = this.#dead ? "dead" : fate === undefined ? "" : fate;
    this.trace.push(`${number} ${kind} ${name} ${JSON.stringify(end)}`);
    if (this.#dead) throw failure("EIO");
    if (fate?.error !== undefined && !fate.half && !fate.isLost) {
      failed();
      throw failure(fate.error);
    }
    work(fate);
    if (fate?.error !== undefined) throw failure(fate.error);
  }
}

const zeros = Buffer.alloc(4096);

/** Returns the length of some bytes without the zeros at their end, which can be megabytes. */
function lengthWithoutZeros(bytes: Buffer): number {
  let end = bytes.length;
  for (; end >= zeros.length; end -= zeros.length) {
    if (!zeros.equals(bytes.subarray(end - zeros.length, end))) break;
  }
  while (end > 0 && bytes[end - 1] === 0) end--;
  return end;
}

function isLock(path: string): boolean {
  return basename(path).startsWith("lock-");
}

function failure(code: string): Error {
  return Object.assign(new Error(`${code}: made by the test`), { code });
}
