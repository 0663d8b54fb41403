// deno-lint-ignore-file require-await -- node:fs returns promises, also of what is known at once
/**
 * A disk in memory that fails on demand and forgets what was not synced, and a
 * model of the states that a restart may find.
 */

import { Buffer } from "node:buffer";
import fs from "node:fs";
import files, { type FileHandle } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { basename, dirname, join } from "node:path";
import { temporaryFolder } from "../server.ts";
import type { Mutation, Store } from "../../src/store/store.ts";
import type { Table } from "../../src/store/table.ts";

const sectorBytes = 512;

interface Inode {
  readonly ino: number;
  /** What processes see. */
  bytes: Buffer;
  /** What is on the disk. */
  durable: Buffer;
  /** What was dirty when a sync failed: the system takes it for written. */
  lost?: Buffer | undefined;
}

export type Operation =
  | "open"
  | "write"
  | "datasync"
  | "sync"
  | "truncate"
  | "rename"
  | "rm";

/** What happens to an operation: an error, a write that is cut short, the end of the process in its midst. */
export type Fault = "EIO" | "ENOSPC" | "short" | "kill";

const errorOf = (code: string) => Object.assign(new Error(code), { code });

const root = temporaryFolder();
/** The newest disks, by their folders. */
const disks = new Map<string, Disk>();
const maxDisks = 64;
let created = 0;

/** A folder on a disk. */
export class Disk {
  readonly folder = join(root, `${++created}`);
  names = new Map<string, Inode>();
  #durableNames = new Map<string, Inode>();
  #inodes = 0;
  #killed = false;
  /** How many operations there were. */
  count = 0;
  /** How many bytes there is space for. */
  capacity = Infinity;
  /** Judges each operation. */
  fault: (operation: Operation, count: number) => Fault | undefined = () =>
    undefined;

  constructor() {
    disks.set(this.folder, this);
    disks.delete(join(root, `${created - maxDisks}`));
  }

  /** What a store uses of node:fs/promises. */
  get files() {
    return {
      readdir: async () => [...this.names.keys()],
      statSync: (path: string) => {
        const inode = this.#find(path);
        return {
          ino: inode?.ino,
          size: inode?.bytes.length,
          mode: 0o700,
          isDirectory: () => !inode,
        };
      },
      stat: async (path: string) => this.files.statSync(path),
      open: async (path: string, flags?: string) => this.#open(path, flags),
      writeFile: async (file: FileHandle, parts: Iterable<Buffer | string>) => {
        let size = 0;
        for await (const part of parts) {
          const bytes = Buffer.from(part);
          const { bytesWritten } = await file.write(
            bytes,
            0,
            bytes.length,
            size,
          );
          if (bytesWritten < bytes.length) throw errorOf("ENOSPC");
          size += bytes.length;
        }
      },
      rename: async (from: string, to: string) => {
        this.#step("rename");
        const inode = this.#find(from) as Inode;
        this.names.delete(basename(from));
        this.names.set(basename(to), inode);
      },
      rm: async (path: string, { force = false } = {}) => {
        this.#step("rm");
        if (!this.names.delete(basename(path)) && !force) {
          throw errorOf("ENOENT");
        }
      },
    };
  }

  get used(): number {
    let used = 0;
    for (const { bytes } of this.names.values()) used += bytes.length;
    return used;
  }

  /** Counts an operation; throws if it fails. */
  #step(operation: Operation): Fault | undefined {
    if (this.#killed) throw errorOf("killed");
    const fault = this.fault(operation, ++this.count);
    if (fault === "kill") this.#killed = true;
    if (fault === "kill" && operation === "write") return fault;
    if (fault === undefined || fault === "short") return fault;
    throw errorOf(fault);
  }

  #open(path: string, flags = "r"): FileHandle {
    this.#step("open");
    const name = basename(path);
    if (flags === "w+" && !this.names.has(name)) {
      const none = Buffer.alloc(0);
      this.names.set(name, {
        ino: ++this.#inodes,
        bytes: none,
        durable: none,
      });
    }
    return this.#handle(this.#find(path)) as unknown as FileHandle;
  }

  /** Returns a file, and nothing for the folder, whose name has no dot. */
  #find(path: string) {
    const name = basename(path);
    const inode = this.names.get(name);
    if (!inode && /[.]/.test(name)) throw errorOf("ENOENT");
    return inode;
  }

  #handle(inode: Inode | undefined) {
    if (!inode) { // the folder
      const sync = async () => {
        this.#step("sync");
        this.#durableNames = new Map(this.names);
      };
      return { sync, close: async () => {} };
    }
    return {
      createReadStream: (
        { start, end }: { readonly start: number; readonly end: number },
      ) => [inode.bytes.subarray(start, end + 1)],
      write: async (
        buffer: Buffer,
        _offset: number,
        length: number,
        position: number,
      ) => {
        const fault = this.#step("write");
        const growth = position + length - inode.bytes.length;
        const missing = Math.max(
          0,
          growth - Math.max(this.capacity - this.used, 0),
        );
        const bytesWritten = fault ? length >> 1 : length - missing;
        if (bytesWritten < Math.min(length, 1)) throw errorOf("ENOSPC");
        const end = position + bytesWritten;
        const bytes = Buffer.alloc(Math.max(inode.bytes.length, end));
        inode.bytes.copy(bytes);
        buffer.copy(bytes, position, 0, bytesWritten);
        inode.bytes = bytes;
        if (fault === "kill") throw errorOf("killed");
        return { bytesWritten };
      },
      truncate: async (length: number) => {
        this.#step("truncate");
        inode.bytes = Buffer.from(inode.bytes.subarray(0, length));
      },
      datasync: async () => {
        try {
          this.#step("datasync");
          inode.durable = merge(
            inode,
            (at) => !isSame(at, inode.bytes, inode.lost),
          );
        } catch (error) {
          inode.lost = inode.bytes;
          throw error;
        }
      },
      stat: async () => ({ ino: inode.ino, size: inode.bytes.length }),
      close: async () => {
        if (this.#killed) throw errorOf("killed");
      },
    };
  }

  /** Returns the disk as the next process finds it: what `isKept` says of what was not synced, all of it if only the process has ended. */
  restart(isKept?: () => boolean): Disk {
    const disk = new Disk();
    disk.#inodes = this.#inodes;
    const keep = isKept ?? (() => true);
    for (
      const name of new Set([
        ...this.names.keys(),
        ...this.#durableNames.keys(),
      ])
    ) {
      const inode = (keep() ? this.names : this.#durableNames).get(name);
      if (!inode) continue;
      const { ino, durable } = inode;
      const bytes = isKept ? merge(inode, keep) : inode.bytes;
      const lost = isKept ? undefined : inode.lost;
      disk.names.set(name, {
        ino,
        bytes,
        durable: isKept ? bytes : durable,
        lost,
      });
    }
    // A process that has ended leaves the names to the system.
    disk.#durableNames = isKept ? new Map(disk.names) : new Map(
      [...this.#durableNames.keys()].flatMap((name) => {
        const inode = disk.names.get(name);
        return inode ? [[name, inode]] : [];
      }),
    );
    return disk;
  }

  /** Returns a copy with other bytes in one file. */
  with(name: string, bytes: Buffer): Disk {
    const disk = new Disk();
    for (const [each, inode] of this.names) {
      disk.names.set(each, { ...inode });
    }
    disk.names.set(name, {
      ino: 0,
      bytes,
      durable: bytes,
    });
    return disk;
  }
}

type Method = (...options: unknown[]) => unknown;
const real: Record<string, Method> = {
  ...files,
  statSync: fs.statSync,
} as never;

const anyDisk = new Disk();

/** Has files below `root` be on the disks, with all that a store does to them. */
for (const name of Object.keys(anyDisk.files)) {
  const method: Method = (...options) => {
    const [file] = options;
    const disk = typeof file === "object"
      ? anyDisk
      : disks.get(String(file)) ?? disks.get(dirname(String(file)));
    const methods: typeof real = disk ? disk.files as never : real;
    return methods[name]?.(...options);
  };
  Object.assign(name === "statSync" ? fs : files, { [name]: method });
}
syncBuiltinESMExports();

function isSame(at: number, one: Buffer, other: Buffer | undefined): boolean {
  const end = at + sectorBytes;
  return other !== undefined &&
    one.subarray(at, end).equals(other.subarray(at, end));
}

/** Returns what is on the disk after some sectors of a file have been written. */
function merge(
  { bytes, durable }: Inode,
  isWritten: (at: number) => boolean,
): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += sectorBytes) {
    const end = Math.min(at + sectorBytes, bytes.length);
    const kept = Buffer.alloc(end - at);
    durable.subarray(at, end).copy(kept);
    parts.push(
      isSame(at, bytes, durable) || isWritten(at)
        ? bytes.subarray(at, end)
        : kept,
    );
  }
  return Buffer.concat(parts);
}

/** Returns all that a store holds, as text. */
export function textOf(tables: ReadonlyMap<string, Table>): string {
  const state = Array.from(tables.values(), ({ name, lastId, rows }) => [
    name,
    lastId,
    ...rows.slice().map(({ stored }) => stored),
  ]);
  return JSON.stringify(state.filter(([, lastId]) => lastId).sort());
}

/** What a restart may find. */
export class Model {
  /** The states by their order: the last one that was acknowledged, then those whose outcome is open. */
  possible = ["[]"];
  /** All that ever were acknowledged, in order. */
  readonly history = ["[]"];
  acknowledged = 0;
  refused = 0;
  isFailed = false;

  /** Runs a transaction, and notes what became of it. */
  async run(store: Store, mutations: readonly Mutation[]): Promise<void> {
    let seq: number;
    try {
      seq = store.transact(1, mutations);
    } catch {
      return void this.refused++;
    }
    const text = textOf(store.tables);
    this.possible.push(text);
    await store.durable(seq)?.then(() => {
      const index = this.possible.lastIndexOf(text);
      this.history.push(...this.possible.slice(1, index + 1));
      this.possible = this.possible.slice(index);
      this.acknowledged++;
      if (this.isFailed) throw new Error("written after a failure");
    }, (error) => {
      this.refused++;
      this.isFailed ||= error.code === "disk-failed";
      if (error.code === "disk-full") {
        this.possible = this.possible.filter((each) => each !== text);
      }
    });
  }
}

/** The script's transactions: creations, changes, cascades. */
export function* script(count: number): Generator<readonly Mutation[]> {
  for (let id = 1; id <= count; id++) {
    const name = `${id} ${"é".repeat(id * 7 % 60)}`;
    yield [["put", "zoos", { id, name }]];
    yield [
      ["put", "animals", { id: 2 * id - 1, zoo_id: id, name }],
      ["put", "animals", { id: 2 * id, zoo_id: id, name: null }],
    ];
    if (id % 3 === 0) yield [["put", "zoos", { id, name: `again ${name}` }]];
    if (id % 4 !== 0) continue;
    yield [
      ["del", "animals", 2 * id - 3],
      ["del", "animals", 2 * id - 2],
      ["del", "zoos", id - 1],
    ];
  }
}
