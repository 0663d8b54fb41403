/**
 * Stores that break their promise in one way each, made from outside: by what
 * lies between the store and its files, or before the store. The tests must
 * catch every one of them; those that let one pass prove nothing.
 */

import { basename, dirname } from "node:path";
import type { FileSystem, OpenFile, Store } from "../../src/store/store.ts";

/** One way to break the promise. */
export interface Defect {
  readonly files?: (files: FileSystem) => FileSystem;
  readonly store?: (store: Store) => Store;
  /** Whether it shows only when steps fail. */
  readonly faults?: boolean;
}

type Wrap = (file: OpenFile, name: string, path: string) => OpenFile;

/** Files whose open handles are changed. */
function withHandles(files: FileSystem, wrap: Wrap): FileSystem {
  return {
    ...forward(files),
    open: async (path, how) =>
      wrap(await files.open(path, how), basename(path), path),
  };
}

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
    withHandles(
      files,
      (file, name) =>
        pattern.test(name)
          ? { ...handle(file), datasync: () => Promise.resolve() }
          : file,
    );
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
    const isCopy = async (path: string) =>
      pattern.test(path) &&
      (await files.list(dirname(path))).includes(
        basename(path).replace(pattern, "$1"),
      );
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

/** A store some of whose methods are others. */
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

/** The defects, by what they are. */
export const defects: Readonly<Record<string, Defect>> = {
  "skips the fsync of the log": { files: without(/^wal-/) },
  "skips the fsync of a new log or copy": {
    files: without(/^wal-\d+\.jsonl\.tmp$/),
  },
  "skips the fsync of the snapshot": { files: without(/^snapshot-/) },
  "skips the fsync of the folder": {
    files: (files) => ({
      ...forward(files),
      syncFolder: () => Promise.resolve(),
    }),
  },
  "acknowledges before the fsync has ended": {
    files: (files) =>
      withHandles(files, (file, name) => ({
        ...handle(file),
        datasync: () => {
          if (!/^wal-\d+\.jsonl$/.test(name)) return file.datasync();
          setTimeout(() => file.datasync().catch(() => {}), 2);
          return Promise.resolve();
        },
      })),
  },
  "goes on with the old log after a crash": {
    faults: true,
    files: insteadOfCopy((old) => ({
      ...handle(old),
      write: (_bytes, _offset, bytesWritten) =>
        Promise.resolve({ bytesWritten }),
      datasync: () => Promise.resolve(),
    })),
  },
  "rewrites the log in place after a crash": {
    files: insteadOfCopy((old) => {
      const parts: { bytes: Uint8Array; position: number }[] = [];
      return {
        ...handle(old),
        write: (bytes, offset, length, position) => {
          const part = bytes.slice(offset, offset + length);
          parts.push({ bytes: part, position });
          return Promise.resolve({ bytesWritten: length });
        },
        datasync: async () => {
          await old.truncate(0);
          for (const { bytes, position } of parts) {
            await old.write(bytes, 0, bytes.length, position);
          }
          await old.datasync();
        },
      };
    }),
  },
  "tries a failed fsync again": {
    faults: true,
    files: (files) =>
      withHandles(files, (file) => ({
        ...handle(file),
        datasync: () => file.datasync().catch(() => file.datasync()),
      })),
  },
  "swallows a write error": {
    faults: true,
    files: (files) =>
      withHandles(files, (file) => ({
        ...handle(file),
        write: (bytes, offset, length, position) =>
          file.write(bytes, offset, length, position).catch(() => ({
            bytesWritten: length,
          })),
      })),
  },
  "does not look how much was written": {
    faults: true,
    files: (files) =>
      withHandles(files, (file) => {
        let end = 0;
        return {
          ...handle(file),
          write: async (bytes, offset, length, position) => {
            await file.write(bytes, offset, length, position);
            end = position + length;
            return { bytesWritten: length };
          },
          // The length of the file would tell.
          stat: async () => ({ ...await file.stat(), size: end }),
        };
      }),
  },
  "applies half a cascade": {
    store: (store) =>
      withMethods(store, {
        commit: async (operations, by) => {
          const half = Math.ceil(operations.length / 2);
          await store.commit(operations.slice(0, half), by);
          await store.commit(operations.slice(half), by);
        },
      }),
  },
  "shows what is not durable": {
    store: (store) => withMethods(store, { settled: () => undefined }),
  },
  "acknowledges at once": {
    store: (store) =>
      withMethods(store, {
        commit: (operations, by) => {
          store.commit(operations, by).catch(() => {});
          return Promise.resolve();
        },
      }),
  },
};
