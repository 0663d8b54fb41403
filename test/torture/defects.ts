/**
 * Stores that break their promise in one way each. The defect is added from
 * outside: between the store and its files, or around the store. The tests must
 * catch every one of them; those that miss one prove nothing.
 */

import { basename, dirname } from "node:path";
import type { FileSystem, OpenFile, Store } from "../../src/store/store.ts";

/** One way to break the promise. */
export interface Defect {
  /** The failure of a test that catches it: any other failure does not count. */
  readonly caught: RegExp;
  readonly files?: (files: FileSystem) => FileSystem;
  readonly store?: (store: Store) => Store;
  /** True if it is visible only if steps fail. */
  readonly faults?: boolean;
  /** True if it is visible only at starts on a full disk. */
  readonly full?: boolean;
}

/** Wraps an open file; `name` returns its current name. */
type Wrap = (file: OpenFile, name: () => string) => OpenFile;

/** Files whose open handles are changed. */
function withHandles(files: FileSystem, wrap: Wrap): FileSystem {
  const names = new Map<string, { now: string }>();
  return {
    ...forward(files),
    open: async (path, how) => {
      const name = { now: basename(path) };
      names.set(path, name);
      // A log whose writes wait for the disk by themselves would hide a defect.
      const mode = how === "log" ? "write" : how;
      return wrap(await files.open(path, mode), () => name.now);
    },
    rename: async (from, to) => {
      await files.rename(from, to);
      const name = names.get(from);
      if (name === undefined) return;
      name.now = basename(to);
      names.set(to, name);
    },
  };
}

/** The log to which transactions are written, and no temporary one. */
const log = /^wal-\d+\.jsonl$/;

/** All operations of a file system, as properties that can be spread. */
export function forward(files: FileSystem): FileSystem {
  return {
    open: (path, how) => files.open(path, how),
    rename: (from, to) => files.rename(from, to),
    remove: (path) => files.remove(path),
    list: (folder) => files.list(folder),
    makeFolder: (path) => files.makeFolder(path),
    syncFolder: (folder) => files.syncFolder(folder),
    free: (folder) => files.free(folder),
  };
}

function without(pattern: RegExp): (files: FileSystem) => FileSystem {
  return (files) =>
    withHandles(files, (file, name) => ({
      ...handle(file),
      datasync: async () => {
        if (!pattern.test(name())) await file.datasync();
      },
    }));
}

/** All operations of an open file, as properties that can be spread. */
export function handle(file: OpenFile): OpenFile {
  return {
    fd: file.fd,
    read: (...args) => file.read(...args),
    write: (...args) => file.write(...args),
    datasync: () => file.datasync(),
    truncate: (size) => file.truncate(size),
    stat: () => file.stat(),
    close: () => file.close(),
  };
}

/** Files in which the copy of a log goes to the log itself. */
function insteadOfCopy(
  wrap: (old: OpenFile) => OpenFile,
): (files: FileSystem) => FileSystem {
  const pattern = /(wal-\d+\.jsonl)\.tmp$/;
  return (files) => {
    // Not the second attempt to create a store, whose first attempt was
    // interrupted.
    const isCopy = async (path: string) => {
      if (!pattern.test(path)) return false;
      const present = await files.list(dirname(path));
      return present.includes("meta.json") &&
        present.includes(basename(path).replace(pattern, "$1"));
    };
    return {
      ...forward(files),
      open: async (path, how) =>
        how === "create" && await isCopy(path)
          ? wrap(await files.open(path.replace(pattern, "$1"), "write"))
          : await files.open(path, how),
      rename: async (from, to) => {
        if (!await isCopy(from)) await files.rename(from, to);
      },
    };
  };
}

/** Writes to a log incorrectly, and returns how many bytes it claims to have written. */
type WrongWrite = (
  file: OpenFile,
  bytes: Uint8Array,
  position: number,
) => Promise<number>;

/** Files whose log is written incorrectly, possibly never truncated, and claims the size that it should have. */
function withClaimedSize(
  files: FileSystem,
  write: WrongWrite,
  isCut = true,
): FileSystem {
  return withHandles(files, (file, name) => {
    let claimed = 0;
    return {
      ...handle(file),
      write: async (bytes, position) => {
        if (!log.test(name())) return await file.write(bytes, position);
        const bytesWritten = await write(file, bytes, position);
        claimed = Math.max(claimed, position + bytesWritten);
        return { bytesWritten };
      },
      truncate: async (size) => {
        if (isCut || !log.test(name())) await file.truncate(size);
        claimed = size;
      },
      stat: async () => {
        const found = await file.stat();
        return log.test(name()) ? { ...found, size: claimed } : found;
      },
    };
  });
}

/** Writes the lines, but neither the zeros after them nor over what was cut off. */
async function withoutZeros(
  file: OpenFile,
  bytes: Uint8Array,
  position: number,
): Promise<number> {
  const { length } = bytes;
  const lines = bytes.subarray(0, bytes.findLastIndex((each) => each > 0) + 1);
  const { bytesWritten } = await file.write(lines, position);
  return bytesWritten < lines.length ? bytesWritten : length;
}

/** Writes at the end of the file, after the zeros. */
async function behindZeros(file: OpenFile, bytes: Uint8Array): Promise<number> {
  const { size } = await file.stat();
  return (await file.write(bytes, size)).bytesWritten;
}

/** Files without the fsync of a write that makes the log longer. */
function withoutSyncOfSize(files: FileSystem): FileSystem {
  return withHandles(files, (file, name) => {
    let known = 0;
    return {
      ...handle(file),
      datasync: async () => {
        const { size } = await file.stat();
        if (size <= known || !log.test(name())) await file.datasync();
        known = size;
      },
    };
  });
}

/** Files without the first fsync of the folder after a write that found no space. */
function withoutSyncWhenFull(files: FileSystem): FileSystem {
  let full = false;
  const wrapped = withHandles(files, (file) => ({
    ...handle(file),
    write: async (...args) => {
      try {
        return await file.write(...args);
      } catch (error) {
        full = true;
        throw error;
      }
    },
  }));
  return {
    ...wrapped,
    syncFolder: async (folder) => {
      const skipped = full;
      full = false;
      if (!skipped) await files.syncFolder(folder);
    },
  };
}

/** A store with some methods replaced. */
function withMethods(store: Store, methods: Partial<Store>): Store {
  return new Proxy(store, {
    get(target, name) {
      const found = Reflect.get(name in methods ? methods : target, name);
      return typeof found === "function" && !(name in methods)
        ? found.bind(target)
        : found;
    },
  });
}

function either(...patterns: readonly RegExp[]): RegExp {
  return new RegExp(patterns.map(({ source }) => source).join("|"));
}

/** An acknowledged write is lost, according to the oracle or to the store itself. */
const lost = either(
  /a later one was acknowledged/,
  /the marker proves/,
  /wal-\d+\.jsonl is damaged \(byte \d+, line \d+: its checksum/,
  /wal-\d+\.jsonl is damaged \(byte \d+: it does not end with a valid seal/,
);
const headless = /it has no header|its header's checksum/;

/** Returns whether the torture of a store with a defect fails as expected. */
export async function isCaught(
  defect: Defect | undefined,
  torture: Promise<unknown>,
): Promise<boolean> {
  try {
    await torture;
    return false;
  } catch (error) {
    const { message } = error instanceof Error ? error : { message: "" };
    return defect?.caught.test(message) === true;
  }
}

/** The defects by description. */
export const defects: Readonly<Record<string, Defect>> = {
  "skips the fsync of the log": { files: without(log), caught: lost },
  "skips the fsync of a new log or copy": {
    files: without(/^wal-\d+\.jsonl\.tmp$/),
    caught: either(headless, lost),
  },
  "skips the fsync of the snapshot": {
    files: without(/^snapshot-/),
    caught: /snapshot-\d+\.jsonl is damaged/,
  },
  "skips the fsync of the folder": {
    files: (files) => ({
      ...forward(files),
      syncFolder: () => Promise.resolve(),
    }),
    caught: either(/it is missing|no log/, lost),
  },
  "removes the old before the new has its name, on a full disk": {
    full: true,
    files: withoutSyncWhenFull,
    caught: /wal-\d+\.jsonl is damaged \(byte 0: it is missing/,
  },
  "acknowledges before the fsync has ended": {
    files: (files) =>
      withHandles(files, (file, name) => ({
        ...handle(file),
        datasync: () => {
          if (!log.test(name())) return file.datasync();
          setTimeout(() => file.datasync().catch(() => {}), 2);
          return Promise.resolve();
        },
      })),
    caught: lost,
  },
  "continues with the old log after a crash": {
    faults: true,
    files: insteadOfCopy((old) => ({
      ...handle(old),
      write: ({ length }) => Promise.resolve({ bytesWritten: length }),
      datasync: () => Promise.resolve(),
    })),
    caught: lost,
  },
  "rewrites the log in place after a crash": {
    files: insteadOfCopy((old) => {
      const parts: { bytes: Uint8Array; position: number }[] = [];
      return {
        ...handle(old),
        write: (bytes, position) => {
          parts.push({ bytes: bytes.slice(), position });
          return Promise.resolve({ bytesWritten: bytes.length });
        },
        datasync: async () => {
          await old.truncate(0);
          for (const { bytes, position } of parts) {
            await old.write(bytes, position);
          }
          await old.datasync();
        },
      };
    }),
    caught: either(headless, lost),
  },
  "tries a failed fsync again": {
    faults: true,
    files: (files) =>
      withHandles(files, (file, name) => ({
        ...handle(file),
        datasync: () =>
          file.datasync().catch((error) => {
            if (!log.test(name())) throw error;
            return file.datasync();
          }),
      })),
    caught: lost,
  },
  "swallows a write error": {
    faults: true,
    files: (files) =>
      withClaimedSize(files, async (file, bytes, position) => {
        await file.write(bytes, position).catch(() => {});
        return bytes.length;
      }),
    caught: lost,
  },
  "does not look how much was written": {
    faults: true,
    files: (files) =>
      withClaimedSize(files, async (file, bytes, position) => {
        await file.write(bytes, position);
        return bytes.length;
      }),
    caught: lost,
  },
  "leaves stale bytes in the space that it allocates": {
    faults: true,
    files: (files) => withClaimedSize(files, withoutZeros, false),
    caught: either(/is at none of its versions|was shown the refused/, lost),
  },
  "writes after the zeros instead of into them": {
    files: (files) => withClaimedSize(files, behindZeros, false),
    caught: lost,
  },
  "skips the fsync of a log that has become longer": {
    files: withoutSyncOfSize,
    caught: lost,
  },
  "applies half a cascade": {
    store: (store) =>
      withMethods(store, {
        apply(operations, by) {
          const half = Math.ceil(operations.length / 2);
          store.apply(operations.slice(0, half), by);
          return store.apply(operations.slice(half), by);
        },
      }),
    caught: /is at none of its versions/,
  },
  "shows what is not durable": {
    store: (store) => withMethods(store, { durable: () => undefined }),
    caught: /later one was shown|a reader was shown the refused/,
  },
  "acknowledges at once": {
    store: (store) =>
      withMethods(store, {
        settle: async (run) => await run(),
      }),
    caught: /later one was acknowledged/,
  },
};
