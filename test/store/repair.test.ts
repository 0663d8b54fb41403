import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { openStore, readStore, repairStore } from "../../src/store/store.ts";
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
  assert.equal(repair.repaired, true);
  assert.equal(repair.seq, 3);
  assert.equal(repair.highest, 6);
  assert.deepEqual(repair.faults.map(({ line }) => line), [5]);
  const kept = await contents(repair.kept ?? "");
  for (const name of ["wal-1.jsonl", "mark", "meta.json"]) {
    assert.deepEqual(kept.get(name), before.get(name));
  }
  assert.deepEqual((await readStore(folder)).faults, []);
  const store = await openFor(t, folder);
  assert.equal(store.table("zoos").size, 3);
  assert.equal(store.seq, 3);
  await store.commit([["put", "zoos", { id: 4 }]], 0);
});

test("a repair of a damaged snapshot without a way around saves the other records", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 6);
  const store = await openFor(t, folder);
  await store.checkpoint();
  await store.commit([["put", "zoos", { id: 7, name: "Zoo 7" }]], 0);
  await store.close();
  await rm(join(folder, "wal-1.jsonl"));
  await damage(join(folder, "snapshot-2.json"), '{"id":3');
  await assert.rejects(openStore({ folder, tables }), { code: "damaged" });
  const repair = await repairStore(folder);
  assert.equal(repair.seq, 7);
  assert.deepEqual(repair.faults.map(({ file }) => file), [
    "snapshot-2.json",
    "snapshot-2.json",
  ]);
  const again = await openFor(t, folder);
  const ids = Array.from(again.table("zoos").rows(), (row) => row.document.id);
  assert.deepEqual(ids, [1, 2, 4, 5, 6, 7]);
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
  assert.equal((await repairStore(folder)).repaired, false);
  assert.deepEqual(await contents(folder), before);
  const store = await openFor(t, folder);
  await assert.rejects(repairStore(folder), { code: "in-use" });
  await store.close();
});
