/** Renamings: they exchange what is stored under two names. */

import { strict as assert } from "node:assert";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { backupStore } from "../../src/cli/backup.ts";
import { type Store, StoreError } from "../../src/store/store.ts";
import { temporaryFolder } from "../harness.ts";
import { documents, folderFor, openFor } from "./support.ts";
import { commit } from "../commit.ts";

/** Everything that can be read of the two tables. */
function stateOf(store: Store) {
  return ["zoos", "animals"].map((name) => {
    const table = store.table(name);
    const { lastId, size } = table;
    return { lastId, size, documents: documents(table) };
  });
}

async function fillTables(store: Store): Promise<void> {
  await commit(store, [
    ["put", "zoos", { id: 3, name: "Artis" }],
    ["put", "zoos", { id: 9, name: "Burgers" }],
    ["del", "zoos", 9],
    ["put", "animals", { id: 1, zoo_id: 3, title: "Leo", name: "hidden" }],
    ["put", "animals", { id: 2, zoo_id: 3, title: "Ada" }],
    ["put", "animals", { id: 4, zoo_id: 3, name: "only hidden" }],
  ], 1);
}

test("renaming a property exchanges two values in each record, in place, and renaming it again restores them", async (t) => {
  const folder = await folderFor(t);
  let store = await openFor(t, folder);
  await fillTables(store);
  const before = stateOf(store);
  await commit(store, [["rename", "animals", "title", "name"]], 0);
  const table = store.table("animals");
  const renamed = [
    { id: 1, zoo_id: 3, name: "Leo", title: "hidden" },
    { id: 2, zoo_id: 3, name: "Ada" },
    { id: 4, zoo_id: 3, title: "only hidden" },
  ];
  const text = JSON.stringify(renamed);
  assert.equal(JSON.stringify(documents(table)), text, "also the order");
  assert.deepEqual(table.find("name", "leo").map((row) => row.document.id), [
    1,
  ]);
  assert.equal(table.count("name", "hidden"), 0);
  assert.equal(table.lastSeq, store.seq);
  for (const restart of ["log", "snapshot"]) {
    if (restart === "snapshot") await store.checkpoint();
    await store.close();
    store = await openFor(t, folder);
    assert.equal(JSON.stringify(documents(store.table("animals"))), text);
  }
  await commit(store, [["rename", "animals", "name", "title"]], 0);
  assert.deepEqual(stateOf(store), before);
});

test("renaming a table exchanges the records of two, and no id is used again under either name", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  await fillTables(store);
  const before = stateOf(store);
  await commit(store, [["rename", "zoos", "animals"]], 0);
  const exchanged = before.toReversed().map((each) => ({ ...each, lastId: 9 }));
  assert.deepEqual(stateOf(store), exchanged);
  assert.equal(store.table("animals").count("name", "artis"), 1);
  assert.equal(store.table("animals").count("zoo_id", 3), 0);
  await commit(
    store,
    [["put", "zoos", { id: 10, zoo_id: 3, title: "Max" }]],
    1,
  );
  const changed = stateOf(store);
  await store.close();

  const [log = ""] = (await readdir(folder)).filter((name) =>
    name.startsWith("wal-")
  );
  const lines = (await readFile(join(folder, log), "utf8")).split("\n");
  assert.match(lines[2] ?? "", /"tx":\[\["rename","zoos","animals"\]\]}$/);

  const copy = await temporaryFolder();
  await backupStore(folder, copy);
  for (const each of [folder, copy]) {
    const reopened = await openFor(t, each);
    assert.deepEqual(stateOf(reopened), changed);
    await reopened.close();
  }
});

test("a renaming is rolled back with its transaction", async (t) => {
  const store = await openFor(t, await folderFor(t));
  await fillTables(store);
  const before = stateOf(store);
  const { lastSeq } = store.table("animals");
  const rows = store.table("animals").rows();
  assert.throws(
    () =>
      store.apply([
        ["put", "animals", { id: 7, zoo_id: 3, title: "Max" }],
        ["rename", "animals", "title", "name"],
        ["rename", "zoos", "animals"],
        ["put", "animals", { id: 8, name: "Zoe" }],
        ["put", "no such table", { id: 1 }],
      ], 1),
    StoreError,
  );
  assert.deepEqual(stateOf(store), before);
  assert.equal(store.table("animals").lastSeq, lastSeq);
  assert.deepEqual(store.table("animals").rows(), rows);
  assert.equal(store.table("animals").count("name", "hidden"), 1);
});
