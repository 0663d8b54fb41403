// deno-lint-ignore-file require-await -- node:fs returns promises, also of what is known at once
/**
 * A disk in memory that fails on demand and forgets what was not synced, and a
 * model of the states that a restart may find.
 */

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import fs from "node:fs";
import files, { type FileHandle } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { basename, dirname, join } from "node:path";
import { setImmediate } from "node:timers/promises";
import type { Random } from "../random.ts";
import { temporaryFolder } from "../server.ts";
import type { Mutation, Store } from "../../src/store/store.ts";
import type { Table } from "../../src/store/table.ts";

const sectorBytes = 512;

interface Inode {
  ino: number;
  /** What processes see. */
  bytes: Buffer;
  /** What it has been since its last sync: the disk may have each sector, and the length, of any of them. */
  versions: Buffer[];
  /** The sectors that a failed sync has not written, and no later one will: the system takes them for written. */
  lost: number[];
}

type Names = ReadonlyMap<string, Inode>;

/** What happens to an operation: the end of the process in its midst, an error, a write that is cut short. */
export const faults = [
  "kill",
  "EIO",
  "EROFS",
  "ENOSPC",
  "EDQUOT",
  "short",
];

const errorOf = (code: string) => Object.assign(new Error(code), { code });

const root = temporaryFolder();
/** The newest disks, by their folders. */
const disks = new Map<string, Disk>();
const maxDisks = 64;
let created = 0;

/** A folder on a disk. */
export class Disk {
  folder = join(root, `${++created}`);
  names = new Map<string, Inode>();
  /** What the names have been since the last sync of the folder: the disk may have each of any of them. */
  #versions: Names[] = [this.names];
  #inodes = 0;
  isKilled = false;
  /** How many operations there were. */
  count = 0;
  /** How many bytes there is space for. */
  capacity = Infinity;
  /** Judges each operation. */
  fault: (operation: string, count: number) => string | undefined = () =>
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
      open: async (path: string, flags?: string | number) =>
        this.#open(path, flags),
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
        this.#change((names) => {
          names.delete(basename(from));
          names.set(basename(to), inode);
        });
      },
      rm: async (path: string, { force = false } = {}) => {
        this.#step("rm");
        if (!this.names.has(basename(path)) && !force) throw errorOf("ENOENT");
        this.#change((names) => names.delete(basename(path)));
      },
    };
  }

  get used(): number {
    let used = 0;
    for (const { bytes } of this.names.values()) used += bytes.length;
    return used;
  }

  /** Counts an operation; throws if it fails. */
  #step(operation: string): string | undefined {
    if (this.isKilled) throw errorOf("killed");
    const fault = this.fault(operation, ++this.count);
    if (fault === "kill") this.isKilled = true;
    if (fault === "kill" && operation === "write") return fault;
    if (fault === undefined || fault === "short") return fault;
    throw errorOf(fault);
  }

  #change(change: (names: Map<string, Inode>) => void): void {
    this.names = new Map(this.names);
    change(this.names);
    this.#versions = [...this.#versions, this.names];
  }

  #open(path: string, flags: string | number = "r"): FileHandle {
    this.#step("open");
    const name = basename(path);
    const bytes = Buffer.alloc(0);
    const isDurable = Number.isInteger(flags); // by O_DSYNC
    const isNew = isDurable || flags === "w+";
    const inode = isNew
      ? this.names.get(name) ?? newInode(++this.#inodes, bytes)
      : this.#find(path);
    if (inode && isNew) {
      change(inode, bytes, 0);
      this.#change((names) => names.set(name, inode));
    }
    return this.#handle(inode, isDurable) as unknown as FileHandle;
  }

  /** Returns a file, and nothing for the folder, whose name has no dot. */
  #find(path: string) {
    const name = basename(path);
    const inode = this.names.get(name);
    if (!inode && /[.]/.test(name)) throw errorOf("ENOENT");
    return inode;
  }

  #handle(inode: Inode | undefined, isDurable: boolean) {
    if (!inode) { // the folder
      const sync = async () => {
        this.#step("sync");
        this.#versions = [this.names];
      };
      return { sync, close: async () => {} };
    }
    const file = {
      createReadStream: (
        { start, end }: { start: number; end: number },
      ) => [inode.bytes.subarray(start, end + 1)],
      write: async (
        buffer: Buffer,
        _offset: number,
        length: number,
        position: number,
      ) => {
        const fault = this.#step("write");
        const growth = position + length - inode.bytes.length;
        const free = Math.max(this.capacity - this.used, 0);
        const missing = Math.max(0, growth - free);
        const bytesWritten = fault ? length >> 1 : length - missing;
        if (bytesWritten < Math.min(length, 1)) throw errorOf("ENOSPC");
        const end = position + bytesWritten;
        const bytes = Buffer.alloc(Math.max(inode.bytes.length, end));
        inode.bytes.copy(bytes);
        buffer.copy(bytes, position, 0, bytesWritten);
        change(inode, bytes, position, end);
        if (fault === "kill") throw errorOf("killed");
        if (isDurable) await file.datasync();
        return { bytesWritten };
      },
      truncate: async (length: number) => {
        this.#step("truncate");
        change(inode, Buffer.from(inode.bytes.subarray(0, length)), length);
      },
      datasync: async () => {
        await setImmediate(); // others run meanwhile
        const { bytes, lost, versions } = inode;
        try {
          this.#step("datasync");
        } catch (error) {
          inode.lost = Array.from(
            { length: Math.ceil(bytes.length / sectorBytes) },
            (_, index) => index * sectorBytes,
          );
          throw error;
        }
        inode.versions = lost.length > 0
          ? versions.map((version) =>
            compose(
              bytes.length,
              (at) => sectorOf(lost.includes(at) ? version : bytes, at),
            )
          )
          : [bytes];
      },
      stat: async () => ({ ino: inode.ino, size: inode.bytes.length }),
      close: async () => {
        if (this.isKilled) throw errorOf("killed");
      },
    };
    return file;
  }

  /** Returns the disk as the next process finds it. */
  restart(): Disk {
    const disk = new Disk();
    const copies = new Map<Inode, Inode>();
    const copy = (names: Names) =>
      new Map(
        Array.from(names, ([name, inode]) => {
          const next = copies.get(inode) ?? { ...inode };
          copies.set(inode, next);
          return [name, next];
        }),
      );
    disk.#inodes = this.#inodes;
    disk.#versions = this.#versions.map(copy);
    disk.names = copy(this.names);
    return disk;
  }

  /** Returns what a power cut leaves, if `pick` says which one of some versions was written. */
  cut(pick: Random): Disk {
    const disk = new Disk();
    disk.#inodes = this.#inodes;
    const one = <Item>(items: Item[]) => {
      const versions = [...new Set(items)];
      return versions[pick(versions.length)] as Item;
    };
    const names = this.#versions.flatMap((names) => [...names.keys()]);
    for (const name of new Set(names)) {
      const inode = one(this.#versions.map((names) => names.get(name)));
      if (!inode) continue;
      const { ino, versions } = inode;
      const length = one(versions.map(({ length }) => length));
      const bytes = compose(
        length,
        (at) => one(versions.map((version) => sectorOf(version, at))),
      );
      disk.names.set(name, newInode(ino, bytes));
    }
    return disk;
  }

  /** Yields what the next process may find: the disk as it is; unless all is synced, also what some power cuts leave, the last one of what was written before alone. */
  *afterCrash(pick: Random, cuts = 1): Generator<[what: string, disk: Disk]> {
    yield ["process ended", this.restart()];
    const isSynced = this.#versions.length === 1 &&
      [...this.names.values()].every(({ bytes, versions, lost }) =>
        lost.length === 0 && versions.every((version) => version === bytes)
      );
    if (isSynced) return;
    for (; cuts > 0; cuts--) yield ["power cut", this.cut(pick)];
    yield ["nothing more written", this.cut(() => 0)];
  }

  /** Returns a copy with other bytes in one file. */
  with(name: string, bytes: Buffer): Disk {
    const disk = this.restart();
    disk.names.set(name, newInode(0, bytes));
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

const newInode = (ino: number, bytes: Buffer): Inode => (
  { ino, bytes, versions: [bytes], lost: [] }
);

/** Puts other bytes into a file, which differ in a range. */
function change(
  inode: Inode,
  bytes: Buffer,
  from: number,
  to = Infinity,
): void {
  inode.bytes = bytes;
  inode.versions = [...inode.versions, bytes];
  inode.lost = inode.lost.filter((at) => at + sectorBytes <= from || at >= to);
}

/** Returns a sector, with zeros after the end. */
function sectorOf(bytes: Buffer, at: number) {
  const sector = bytes.toString("latin1", at, at + sectorBytes);
  return sector.padEnd(sectorBytes, "\0");
}

/** Returns a file of some sectors. */
function compose(length: number, sectorAt: (at: number) => string): Buffer {
  let text = "";
  while (text.length < length) text += sectorAt(text.length);
  return Buffer.from(text, "latin1").subarray(0, length);
}

/** Returns all that a store holds, as text. */
export function textOf(tables: ReadonlyMap<string, Table>) {
  const state = Array.from(tables.values(), ({ name, lastId, rows }) => [
    name,
    lastId,
    ...rows.slice().map(({ stored }) => stored),
  ]);
  return JSON.stringify(state.filter(([, lastId]) => lastId).sort());
}

/** What a restart may find. */
export class Model {
  /** The states by their order: the last one that was acknowledged or seen, then those whose outcome is open. */
  possible = ["[]"];
  /** All that ever were acknowledged, in order. */
  history = ["[]"];
  acknowledged = 0;
  refused = 0;
  isFailed = false;

  /** Runs a transaction, and notes what became of it. */
  async run(store: Store, mutations: Mutation[]) {
    let seq: number;
    try {
      seq = store.transact(1, mutations);
    } catch {
      return void this.refused++;
    }
    const text = textOf(store.tables);
    this.possible.push(text);
    try {
      await store.durable(seq);
    } catch (error) {
      const { code } = Object(error);
      this.refused++;
      this.isFailed ||= code === "disk-failed";
      if (code !== "disk-full") return;
      this.possible = this.possible.filter((each) => each !== text);
      return;
    }
    assert.ok(!this.isFailed, "written after a failure");
    const index = this.possible.lastIndexOf(text);
    this.history.push(...this.possible.slice(1, index + 1));
    this.possible = this.possible.slice(index);
    this.acknowledged++;
  }

  /** Notes what a restart has found: nothing else can come back. */
  restart(text: string, what: string): void {
    assert.ok(this.possible.includes(text), `${what}: ${text}`);
    this.possible = [text];
    this.isFailed = false;
  }
}
/** Yields transactions: creations, changes, batches, cascades. Each leads to a state that was never before. */
export function* script(
  random: Random,
  count: number,
): Generator<Mutation[]> {
  for (; count > 0; count--) {
    const id = 1 + random(9);
    const children = [2 * id, 2 * id + 1];
    const name = `${count} ${"é".repeat(random(60))}`;
    const changes: (Mutation[])[] = [
      [["put", "zoos", { id, name }]],
      children.map((id) => ["put", "animals", { id, zoo_id: id >> 1, name }]),
      [...children.map((id) => ["del", "animals", id] as const), [
        "del",
        "zoos",
        id,
      ]],
    ];
    const step = random(1e9);
    yield [["put", "steps", { id: 1, step }], ...changes[random(3)] ?? []];
  }
}
