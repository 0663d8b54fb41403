/** A disk that is really full: a small tmpfs. */

import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { openStore, type Store, StoreError } from "../../src/store/store.ts";
import { FastWrites } from "../../src/store/log/fast-writes.ts";
import * as marker from "../../src/store/log/marker.ts";
import { FullDisk } from "../../src/store/full-disk.ts";
import { tables } from "./scene.ts";
import { commit } from "../commit.ts";

const limits = {
  minLogBytes: 200_000,
  reserveBytes: 400_000,
  maxBatchBytes: 50_000,
  checkpointRetryMs: 20,
  retryMs: 20,
};
const text = "x".repeat(2000);

/** Fills a small disk, and frees it in three ways; returns what it did, or why it was skipped. */
export async function fullDisk(base: string): Promise<string> {
  const mount = join(base, "small");
  mkdirSync(mount);
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", mount], {
      stdio: "ignore",
    });
  } catch {
    return "no full disk: a tmpfs cannot be mounted here";
  }
  try {
    const folder = join(mount, "store");
    const open = () =>
      openStore({
        ...{ folder, tables, limits, marker, fullDisk: FullDisk },
        fastWrites: new FastWrites(),
      });
    let store = await open();
    let last = await fill(store, 0);
    const first = last;
    // Freed by deletes, without a restart.
    last = await thin(store, last);
    last = await fill(store, last);
    // Freed by deletes, after a restart.
    await store.close();
    store = await open();
    if (store.table("zoos").lastId < last) throw new Error("writes are lost");
    last = await thin(store, last);
    // Freed by other programs, without a restart.
    const ballast = join(mount, "ballast");
    writeFileSync(ballast, Buffer.alloc(500_000));
    last = await fill(store, last);
    rmSync(ballast);
    await until(() => !store.fullDisk?.isFull);
    await commit(store, [["put", "zoos", { id: last + 1, text }]], 0);
    await store.close();
    store = await open();
    if (store.table("zoos").lastId !== last + 1) throw new Error("it is lost");
    await store.close();
    return `filled with ${first} records, freed three times, ${last} in all`;
  } finally {
    execFileSync("umount", ["-l", mount]);
  }
}

/** Writes until the disk is full; returns the last id that was stored. */
async function fill(store: Store, from: number): Promise<number> {
  let last = from;
  while (!store.fullDisk?.isFull) {
    try {
      await commit(store, [["put", "zoos", { id: last + 1, text }]], 0);
      last++;
    } catch (error) {
      const full = error instanceof StoreError && error.code === "disk-full";
      if (!full) throw error;
      if (store.table("zoos").lastId !== last) throw new Error("not undone");
    }
  }
  return last;
}

/** Deletes nearly all, waits for the space, and writes again. */
async function thin(store: Store, last: number): Promise<number> {
  const rows = Array.from(store.table("zoos").rows(), (row) => row.document.id);
  for (const id of rows.slice(5)) {
    const remove = () => commit(store, [["del", "zoos", id]], 0);
    // The write that finds the disk full is refused, the next one is not.
    await remove().catch(remove);
  }
  await until(() => !store.fullDisk?.isFull);
  await commit(store, [["put", "zoos", { id: last + 1, text }]], 0);
  return last + 1;
}

async function until(holds: () => boolean): Promise<void> {
  for (let waited = 0; !holds(); waited += 5) {
    if (waited > 20_000) throw new Error("the disk stays full");
    await delay(5);
  }
}
