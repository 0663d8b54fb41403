import assert from "node:assert/strict";
import { FastWrites } from "../../src/store/log/fast-writes.ts";
import * as marker from "../../src/store/log/marker.ts";
import { FullDisk } from "../../src/store/full-disk.ts";
import { Buffer } from "node:buffer";
import { mkdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { readStore } from "../../src/cli/read.ts";
import { repairStore } from "../../src/cli/repair.ts";
import { openStore, type Store } from "../../src/store/store.ts";
import { Disk } from "../torture/disk.ts";
import { contents, folderFor, openFor, restore, tables } from "./support.ts";
import { commit } from "../commit.ts";

const put = (store: Store, id: number, text = "") =>
  commit(store, [["put", "zoos", { id, text }]], 0);

/** Writes zoos and copies the files as a killed process leaves them, so with zeros at the end of the log. */
async function copyKilled(t: TestContext, count: number): Promise<string> {
  const folder = await folderFor(t);
  const store = await openFor(t, join(folder, "running"));
  for (let id = 1; id <= count; id++) await put(store, id);
  const copy = join(folder, "killed");
  await mkdir(copy);
  await restore(copy, await contents(join(folder, "running")));
  return copy;
}

test("commits go into space that was allocated ahead, and a stop releases the rest", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  const log = join(folder, "wal-1.jsonl");
  const sizes = new Set<number>();
  for (let id = 1; id <= 300; id++) {
    await put(store, id, "x".repeat(200));
    sizes.add((await stat(log)).size);
  }
  // The length doubles each time, beginning with one block of the disk.
  const expected = [4, 8, 16, 32, 64, 128].map((blocks) => blocks * 1024);
  assert.ok(sizes.size <= expected.length + 1, [...sizes].join());
  const running = await readFile(log, "latin1");
  const lines = running.replaceAll("\0", "").trimEnd().split("\n");
  assert.equal(lines.length, 301);
  assert.match(running, /\n\0+$/);
  await store.close();
  const stopped = await readFile(log, "latin1");
  assert.equal(stopped, running.replaceAll("\0", ""));
});

test("the zeros of a killed process are not damage, and are gone after the next start", async (t) => {
  const folder = await copyKilled(t, 5);
  const log = join(folder, "wal-1.jsonl");
  const { faults, tornWrite } = await readStore(folder);
  assert.deepEqual([faults, tornWrite], [[], undefined]);
  const lines = (await readFile(log, "latin1")).replaceAll("\0", "");
  const store = await openFor(t, folder);
  assert.equal(store.seq, 5);
  assert.deepEqual(store.notices, []);
  assert.equal(await readFile(log, "latin1"), lines);
  await put(store, 6);
  await store.close();
  assert.equal((await openFor(t, folder)).seq, 6);
});

test("a log is copied although the marker says that the stop was clean, if zeros follow its end", async (t) => {
  const folder = await folderFor(t);
  const disk = new Disk({ folder });
  const store = await openStore({ folder, files: disk, tables, marker });
  await put(store, 1);
  await store.close();
  // Only zeros of the first write after that stop reached the disk.
  const files = disk.contents();
  const whole = files.get("wal-1.jsonl") ?? Buffer.alloc(0);
  files.set("wal-1.jsonl", Buffer.concat([whole, Buffer.alloc(4096)]));
  const next = Disk.of(folder, files);
  const again = await openStore({ folder, files: next, tables, marker });
  assert.ok(next.trace.some((step) => step.includes("rename wal-1.jsonl.tmp")));
  assert.deepEqual(next.contents().get("wal-1.jsonl"), whole);
  await again.close();
});

test("zeros may follow only the seal of the last log", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  await put(store, 1);
  await store.checkpoint();
  await put(store, 2);
  await store.close();
  const files = await contents(folder);
  const log = files.get("wal-1.jsonl") ?? Buffer.alloc(0);
  const padded = Buffer.concat([log, Buffer.alloc(4096)]);
  // As a power cut leaves it before the zeros are cut off and the next log has its name.
  const alone = join(folder, "alone");
  await mkdir(alone);
  const meta = files.get("meta.json") ?? Buffer.alloc(0);
  await restore(
    alone,
    new Map([["meta.json", meta], ["wal-1.jsonl", padded]]),
  );
  const opened = await openFor(t, alone);
  assert.equal(opened.seq, 1);
  assert.deepEqual(opened.notices, []);
  assert.equal(opened.log.generation, 2);
  await writeFile(join(folder, "wal-1.jsonl"), padded);
  await rm(join(folder, "snapshot-2.jsonl"));
  await assert.rejects(openFor(t, folder), /wal-1\.jsonl is damaged/);
});

test("what is neither a line nor a zero after the last line is a torn write, or damage", async (t) => {
  const folder = await copyKilled(t, 2);
  const log = join(folder, "wal-1.jsonl");
  const bytes = await readFile(log);
  const end = bytes.indexOf(0);
  const second = bytes.subarray(bytes.lastIndexOf('{"crc"', end), end);
  const withBytes = (text: Uint8Array, at: number) => {
    const changed = Buffer.from(bytes);
    changed.set(text, at);
    return writeFile(log, changed);
  };
  // The last line once more, right after itself: no transaction is applied twice.
  await withBytes(second, end);
  await assert.rejects(openFor(t, folder), /it does not follow sequence 2/);
  // Half of it: the beginning of a write that was not acknowledged.
  await withBytes(second.subarray(0, 40), end);
  const store = await openFor(t, folder);
  assert.equal(store.seq, 2);
  const [notice] = store.notices;
  assert.match(notice ?? "", /torn write at byte \d+, line 4: 40 bytes/);
  await store.close();
  const torn = [...await contents(folder)]
    .find(([name]) => name.includes(".torn-"));
  assert.deepEqual(torn?.[1], second.subarray(0, 40));
});

test("a repair ignores the zeros after the last line", async (t) => {
  const folder = await copyKilled(t, 5);
  const log = join(folder, "wal-1.jsonl");
  const bytes = await readFile(log);
  bytes.set(Buffer.from("X"), bytes.indexOf('"id":2'));
  // Only the newline of the last line did not reach the disk.
  bytes[bytes.lastIndexOf("\n")] = 0;
  await writeFile(log, bytes);
  const { salvage } = await repairStore(folder, { tables });
  assert.equal(salvage?.lostTransactions, 1);
  const store = await openFor(t, folder);
  assert.deepEqual(
    Array.from(store.table("zoos").rows(), ({ document: { id } }) => id),
    [1, 3, 4, 5],
  );
});

test("on a nearly full disk no write is refused because of zeros", async (t) => {
  const folder = await folderFor(t);
  const disk = new Disk({ folder });
  const limits = { reserveBytes: 0, maxBatchBytes: 1000 };
  const fullDisk = FullDisk;
  const fastWrites = new FastWrites();
  const options = { files: disk, tables, limits, fullDisk, fastWrites };
  const store = await openStore({ ...options, folder });
  for (let id = 1; id <= 100; id++) await put(store, id, "x".repeat(500));
  const used = () =>
    [...disk.contents().values()]
      .reduce((sum, { length }) => sum + length, 0);
  disk.capacity = used() + 40_000;
  let id = 100;
  while (!store.fullDisk?.isFull) {
    await put(store, ++id, "x".repeat(500)).catch(() => {});
  }
  // Less than a block is left, and it is in use: it holds the last lines.
  const { log } = store;
  assert.ok(disk.capacity - used() < 4096 + 700, `${disk.capacity - used()}`);
  assert.equal(disk.contents().get("wal-1.jsonl")?.length, log.offset);
  assert.equal(store.table("zoos").size, id - 1);
  await store.close();
});
