/** Helpers for the tests of the store. */

import { Buffer } from "node:buffer";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TestContext } from "node:test";
import {
  type Document,
  openStore,
  type Store,
  type StoreOptions,
  type Table,
} from "../../src/store/store.ts";
import { FullDisk } from "../../src/store/full-disk.ts";
import { FastWrites } from "../../src/store/log/fast-writes.ts";
import * as marker from "../../src/store/log/marker.ts";
import { removeFolder, temporaryFolder } from "../harness.ts";
import { commit } from "../commit.ts";

/** The tables that most tests use. */
export const tables = [
  { name: "zoos" },
  {
    name: "animals",
    indexes: {
      zoo_id: ({ zoo_id }: Document) =>
        typeof zoo_id === "number" ? zoo_id : null,
      name: ({ name }: Document) => String(name).toLowerCase(),
    },
  },
];

const opened = new WeakMap<TestContext, Store[]>();

/** Returns a temporary folder, which is removed after the test has closed its stores. */
export async function folderFor(test: TestContext): Promise<string> {
  const folder = await temporaryFolder();
  test.after(async () => {
    for (const store of opened.get(test) ?? []) {
      await store.close().catch(() => {});
    }
    await removeFolder(folder);
  });
  return folder;
}

/** Opens a store that is closed with the test. A small reserve saves time. */
export async function openFor(
  test: TestContext,
  folder: string,
  options: Partial<StoreOptions> = {},
): Promise<Store> {
  const store = await openStore({
    folder,
    tables,
    fullDisk: FullDisk,
    marker,
    fastWrites: new FastWrites(),
    ...options,
    limits: { reserveBytes: 1 << 16, ...options.limits },
  });
  opened.set(test, [...opened.get(test) ?? [], store]);
  return store;
}

/** All documents of a table, by ascending id. */
export function documents(table: Table): unknown[] {
  return Array.from(table.rows(), (row) => row.document);
}

/** Every file of a folder with its bytes. */
export async function contents(folder: string): Promise<Map<string, Buffer>> {
  const found = new Map<string, Buffer>();
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const { name } = entry;
    if (!entry.isFile()) continue; // such as the socket of the lock
    found.set(name, await readFile(join(folder, name)));
  }
  return found;
}

/** Restores a folder's files to {@linkcode contents}. */
export async function restore(
  folder: string,
  files: Map<string, Buffer>,
): Promise<void> {
  for (const [name, bytes] of files) await writeFile(join(folder, name), bytes);
}

/** Fills a new store: `count` zoos, one transaction each, closed cleanly. */
export async function fill(folder: string, count: number): Promise<void> {
  const store = await openStore({ folder, tables, marker });
  for (let id = 1; id <= count; id++) {
    await commit(store, [["put", "zoos", { id, name: `Zoo ${id}` }]], 1);
  }
  await store.close();
}
