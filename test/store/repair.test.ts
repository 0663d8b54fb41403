import assert from "node:assert/strict";
import { repairStore } from "../../src/cli/repair.ts";
import { Buffer } from "node:buffer";
import { cp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { readStore } from "../../src/cli/read.ts";
import {
  type FileSystem,
  openStore,
  realFiles,
} from "../../src/store/store.ts";
import { contents, fill, folderFor, openFor, tables } from "./support.ts";

async function damage(path: string, text: string): Promise<void> {
  const bytes = await readFile(path);
  bytes.set(Buffer.from("#"), bytes.indexOf(text));
  await writeFile(path, bytes);
}

test("a repair cuts at the damage, keeps every old file, and says what is lost", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 6);
  await damage(join(folder, "wal-1.jsonl"), "Zoo 4");
  const before = await contents(folder);
  const repair = await repairStore(folder);
  assert.notEqual(repair.backupFolder, undefined);
  assert.equal(repair.seq, 3);
  assert.equal(repair.highest, 6);
  assert.deepEqual(repair.faults.map(({ line }) => line), [5]);
  const kept = await contents(repair.backupFolder ?? "");
  for (const name of ["wal-1.jsonl", "mark", "meta.json"]) {
    assert.deepEqual(kept.get(name), before.get(name));
  }
  assert.deepEqual((await readStore(folder)).faults, []);
  const store = await openFor(t, folder);
  assert.equal(store.table("zoos").size, 3);
  assert.equal(store.seq, 3);
  await store.commit([["put", "zoos", { id: 4 }]], 0);
});

test("a repair of a damaged snapshot without a way around saves the records of other lines", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 6);
  const store = await openFor(t, folder);
  await store.checkpoint();
  await store.commit([["put", "zoos", { id: 7, name: "Zoo 7" }]], 0);
  await store.close();
  await rm(join(folder, "wal-1.jsonl"));
  await damage(join(folder, "snapshot-2.jsonl"), '{"id":3');
  await assert.rejects(openStore({ folder, tables }), { code: "damaged" });
  const repair = await repairStore(folder);
  assert.equal(repair.seq, 7);
  assert.deepEqual(repair.faults.map(({ file }) => file), [
    "snapshot-2.jsonl",
    "snapshot-2.jsonl", // the line, and that there are fewer than its end says
  ]);
  const again = await openFor(t, folder);
  const ids = Array.from(again.table("zoos").rows(), (row) => row.document.id);
  assert.deepEqual(ids, [7]);
});

test("a missing meta file is repaired and nothing is lost", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 3);
  await rm(join(folder, "meta.json"));
  const repair = await repairStore(folder);
  assert.equal(repair.seq, 3);
  assert.equal(repair.highest, 3);
  assert.equal((await openFor(t, folder)).table("zoos").size, 3);
});

test("a sound store is not touched by a repair, one in use is refused", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 3);
  const before = await contents(folder);
  assert.equal((await repairStore(folder)).backupFolder, undefined);
  assert.deepEqual(await contents(folder), before);
  const store = await openFor(t, folder);
  await assert.rejects(repairStore(folder), { code: "in-use" });
  await store.close();
});

test("of two ways to the same sequence a repair takes the one without damage", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 5);
  const store = await openFor(t, folder);
  await store.checkpoint();
  for (let id = 6; id <= 9; id++) {
    await store.commit([["put", "zoos", { id, name: `Zoo ${id}` }]], 0);
  }
  await store.close();
  await damage(join(folder, "snapshot-2.jsonl"), '{"id":3');
  await damage(join(folder, "wal-2.jsonl"), "Zoo 8");
  const { seq } = await repairStore(folder);
  assert.equal(seq, 7);
  const repaired = await openFor(t, folder);
  const ids = Array.from(
    repaired.table("zoos").rows(),
    (row) => row.document.id,
  );
  assert.deepEqual(ids, [1, 2, 3, 4, 5, 6, 7]);
});

/** The machine's files, up to a number of changes; then a process that is dead. */
function dyingAfter(steps: number): FileSystem {
  let left = steps;
  const live = <T>(work: () => Promise<T>): Promise<T> =>
    left-- > 0 ? work() : Promise.reject(new Error("dead"));
  return {
    ...realFiles,
    open: (path, how) =>
      how === "read"
        ? realFiles.open(path, how)
        : live(() => realFiles.open(path, how)),
    rename: (from, to) => live(() => realFiles.rename(from, to)),
    remove: (path) =>
      path.includes("lock-")
        ? realFiles.remove(path)
        : live(() => realFiles.remove(path)),
    makeFolder: (path) => live(() => realFiles.makeFolder(path)),
  };
}

test("a repair that is interrupted anywhere is refused until it is repeated, and loses no file", async (t) => {
  const original = join(await folderFor(t), "original");
  await fill(original, 6);
  const store = await openFor(t, original);
  await store.checkpoint();
  await store.commit([["put", "zoos", { id: 7, name: "Zoo 7" }]], 0);
  await store.close();
  await damage(join(original, "snapshot-2.jsonl"), '{"id":3');
  await rm(join(original, "wal-1.jsonl"));
  const damaged = await readFile(join(original, "snapshot-2.jsonl"));
  let repaired = false;
  for (let steps = 0; !repaired; steps++) {
    const folder = `${original}-${steps}`;
    await cp(original, folder, { recursive: true });
    repaired = await repairStore(folder, dyingAfter(steps))
      .then(() => true, () => false);
    if (!repaired) {
      await assert.rejects(openStore({ folder, tables }), { code: "damaged" });
      const { seq } = await repairStore(folder);
      assert.equal(seq, 7, `interrupted after ${steps} steps`);
    }
    const kept = (await readdir(folder, { recursive: true }))
      .filter((name) => /damaged-.*snapshot-2/.test(name));
    assert.equal(kept.length, 1, `interrupted after ${steps} steps`);
    const copy = await readFile(join(folder, kept[0] ?? ""));
    assert.deepEqual(copy, damaged);
    const opened = await openFor(t, folder);
    assert.equal(opened.table("zoos").size, 1);
    await opened.close();
    assert.ok(steps < 50);
  }
});

test("what says nothing is refused, not taken for an empty store", async (t) => {
  const ways: readonly ((folder: string) => Promise<void>)[] = [
    (folder) => rm(join(folder, "wal-1.jsonl")),
    async (folder) => {
      await rm(join(folder, "wal-1.jsonl"));
      await rm(join(folder, "mark"));
    },
    async (folder) => {
      await rm(join(folder, "wal-1.jsonl"));
      await rm(join(folder, "meta.json"));
    },
    (folder) => writeFile(join(folder, "meta.json"), "null\n"),
  ];
  for (const way of ways) {
    const folder = await folderFor(t);
    await fill(folder, 5);
    await way(folder);
    const { refusal, faults } = await readStore(folder);
    assert.notEqual(refusal, undefined);
    assert.notEqual(faults.length + (refusal?.code === "format" ? 1 : 0), 0);
    await assert.rejects(openStore({ folder, tables }), { name: "StoreError" });
  }
});

test("a snapshot that cannot be read is passed over, a log that cannot be is refused with its place", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 5);
  const store = await openFor(t, folder);
  await store.checkpoint();
  await store.commit([["put", "zoos", { id: 6, name: "Zoo 6" }]], 0);
  await store.close();
  const failing = (bad: RegExp): FileSystem => ({
    ...realFiles,
    async open(path, how) {
      const file = await realFiles.open(path, how);
      if (how === "read" && bad.test(path)) {
        file.read = () =>
          Promise.reject(
            Object.assign(new Error("EIO: i/o error, read"), { code: "EIO" }),
          );
      }
      return file;
    },
  });
  const log = failing(/wal-2/);
  await assert.rejects(openStore({ folder, tables, files: log }), {
    code: "damaged",
    message:
      /wal-2\.jsonl is damaged \(byte 0: it cannot be read from byte 0 on \(EIO/,
  });
  const files = failing(/snapshot-2|mark/);
  const opened = await openFor(t, folder, { files });
  assert.equal(opened.table("zoos").size, 6);
  assert.match(opened.notices.join(), /snapshot-2\.jsonl is damaged/);
});

test("a flipped bit in a snapshot's format is damage, not a newer format", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 5);
  const store = await openFor(t, folder);
  await store.checkpoint();
  await store.close();
  const path = join(folder, "snapshot-2.jsonl");
  const bytes = await readFile(path);
  bytes.set(Buffer.from("3"), bytes.indexOf('"format":2') + 9);
  await writeFile(path, bytes);
  const opened = await openFor(t, folder);
  assert.equal(opened.table("zoos").size, 5);
  assert.equal(opened.notices.length, 1);
});
