import assert from "node:assert/strict";
import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { readStore } from "../../src/cli/read.ts";
import {
  type Mutation,
  openStore,
  type StoreError,
} from "../../src/store/store.ts";
import { Disk } from "../torture/disk.ts";
import { Random } from "../torture/random.ts";
import { documents, folderFor, openFor, tables } from "./support.ts";
import { commit } from "../commit.ts";

test("a new store is private to its user and empty", async (t) => {
  const folder = join(await folderFor(t), "a/b/store");
  const store = await openFor(t, folder);
  assert.equal((await stat(folder)).mode & 0o777, 0o700);
  for (const name of await readdir(folder)) {
    if (name.startsWith("lock-")) continue;
    assert.equal((await stat(join(folder, name))).mode & 0o777, 0o600, name);
  }
  assert.equal(store.seq, 0);
  assert.equal(store.table("zoos").size, 0);
  assert.throws(() => store.table("lions"), { code: "unknown-table" });
});

test("committed records exist after a restart, whatever their names", async (t) => {
  const folder = await folderFor(t);
  const first = await openFor(t, folder);
  await commit(first, [
    ["put", "zoos", { id: 1, name: 'Zoo \u2028 ä 🦁 \n "' }],
    ["put", "zoos", { id: 2, name: "gone" }],
    ["put", "animals", { id: 9, zoo_id: 1, name: "Leo", tags: [{ a: null }] }],
  ], 3);
  await commit(first, [["del", "zoos", 2]], 0);
  const expected = documents(first.table("zoos"));
  await first.close();
  const second = await openFor(t, folder);
  assert.deepEqual(documents(second.table("zoos")), expected);
  assert.equal(second.seq, 2);
  assert.equal(second.table("zoos").lastId, 2);
  assert.equal(second.table("zoos").lastSeq, 2);
  assert.equal(second.table("animals").lastId, 9);
  assert.equal(second.table("animals").get(9)?.seq, 1);
  assert.deepEqual(second.notices, []);
});

test("a transaction is applied at once and durable when its promise resolves", async (t) => {
  const store = await openFor(t, await folderFor(t));
  const done = commit(store, [["put", "zoos", { id: 1 }]], 0);
  assert.equal(store.table("zoos").get(1)?.document.id, 1);
  assert.equal(store.seq, 1);
  assert.equal(store.durableSeq, 0);
  const settled = store.durable(1);
  assert.ok(settled instanceof Promise);
  await settled;
  assert.equal(store.durableSeq, 1);
  assert.equal(store.durable(1), undefined);
  await done;
});

test("an index finds rows by folded key, after every kind of change", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  const put = (id: number, zoo_id: number | null, name: string) =>
    commit(store, [["put", "animals", { id, zoo_id, name }]], 0);
  await put(1, 1, "Leo");
  await put(2, 2, "LEO");
  await put(3, 2, "Mia");
  await put(4, null, "Rex");
  await put(1, 2, "leo"); // moves to the second zoo, before 2 and 3
  const check = (from: typeof store) => {
    const animals = from.table("animals");
    const ids = (property: string, key: string | number) =>
      Array.from(animals.find(property, key), (row) => row.document.id).sort();
    assert.deepEqual(ids("zoo_id", 2), [1, 2, 3]);
    assert.deepEqual(ids("zoo_id", 1), []);
    assert.deepEqual(ids("name", "leo"), [1, 2]);
    assert.equal(animals.count("zoo_id", 2), 3);
    assert.equal(animals.count("zoo_id", 1), 0);
    assert.equal(animals.count("name", "rex"), 1);
  };
  check(store);
  await store.close();
  const again = await openFor(t, folder);
  check(again);
  await commit(again, [["del", "animals", 2], ["del", "animals", 4]], 0);
  assert.equal(again.table("animals").count("name", "leo"), 1);
  assert.equal(again.table("animals").count("name", "rex"), 0);
});

test("a transaction is applied completely or not at all: an unknown table changes nothing", async (t) => {
  const store = await openFor(t, await folderFor(t));
  assert.throws(
    () => store.apply([["put", "zoos", { id: 1 }], ["del", "lions", 1]], 0),
    { code: "unknown-table" },
  );
  assert.equal(store.table("zoos").size, 0);
  assert.equal(store.seq, 0);
});

test("checkpoints end the log while writes continue, and jq can read every file", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder, { limits: { minLogBytes: 20_000 } });
  const expected = new Map<number, unknown>();
  let rounds = 0;
  // On a slow disk more is written while a snapshot is.
  for (; rounds < 40 || store.log.generation <= 3; rounds++) {
    await Promise.all(Array.from({ length: 25 }, (_, index) => {
      const document = { id: index + 1, zoo_id: index % 3, name: `n${rounds}` };
      expected.set(document.id, document);
      return commit(store, [["put", "animals", document]], index);
    }));
  }
  await store.close();
  const { generation } = store.log;
  const names = (await readdir(folder)).filter((name) => /\d/.test(name));
  assert.deepEqual(names.sort(), [
    `snapshot-${generation - 1}.jsonl`,
    `snapshot-${generation}.jsonl`,
    `wal-${generation - 1}.jsonl`,
    `wal-${generation}.jsonl`,
  ]);
  for (const name of names) {
    const text = await readFile(join(folder, name), "utf8");
    text.trimEnd().split("\n").forEach((line) => JSON.parse(line));
  }
  const again = await openFor(t, folder);
  assert.equal(again.seq, 25 * rounds);
  assert.deepEqual(documents(again.table("animals")), [...expected.values()]);
});

test("a large batch is one line of the log: applied completely or not at all", async (t) => {
  const random = new Random(5);
  const found = new Set<number>();
  for (let round = 0; round < 30; round++) {
    const disk = new Disk({ folder: await folderFor(t) });
    const options = { files: disk, limits: { reserveBytes: 0 } };
    const store = await openFor(t, disk.folder, options);
    const batch = Array.from({ length: 1000 }, (_, at): Mutation => [
      "put",
      "animals",
      { id: at + 1, name: `Animal ${at}`, zoo_id: at % 7 },
    ]);
    disk.fate = ({ kind, name }) => {
      if (kind === "sync" && name === "wal-1.jsonl") disk.kill();
      return undefined;
    };
    await commit(store, [...batch, ["put", "zoos", { id: 1 }]], 0).catch(() => {
      // The power is cut before its fdatasync.
    });
    const lines = disk.contents().get("wal-1.jsonl")?.toString().split("\n");
    assert.equal(lines?.length, 3);
    const crashed = disk.crash(await folderFor(t), random);
    const again = await openFor(t, crashed.folder, {
      ...options,
      files: crashed,
    });
    const { size } = again.table("animals");
    assert.equal(again.table("zoos").size, size / 1000);
    found.add(size);
  }
  assert.deepEqual([...found].sort(), [0, 1000]);
});

test("records of a table that is no longer declared stay stored", async (t) => {
  const folder = await folderFor(t);
  const one = await openFor(t, folder);
  await commit(one, [["put", "animals", { id: 5, name: "Leo" }]], 0);
  await one.close();
  const two = await openStore({ folder, tables: [{ name: "zoos" }] });
  await two.checkpoint();
  await two.close();
  const three = await openFor(t, folder);
  assert.equal(three.table("animals").get(5)?.document["name"], "Leo");
  assert.equal(three.table("animals").count("name", "leo"), 1);
  assert.equal(three.table("animals").lastSeq, 1);
});

test("a full queue refuses a transaction before it is applied, but accepts one large one", async (t) => {
  const store = await openFor(t, await folderFor(t), {
    limits: { maxQueueBytes: 1000, maxBatchBytes: 500 },
  });
  const large = "x".repeat(5000);
  const done = commit(store, [["put", "zoos", { id: 1, large }]], 0);
  assert.throws(() => store.apply([["put", "zoos", { id: 2 }]], 0), {
    code: "overloaded",
  });
  assert.equal(store.table("zoos").get(2), undefined);
  await done;
  await commit(store, [["put", "zoos", { id: 2 }]], 0);
});

test("one write to the log has as many transactions as fit, and a large one alone", async (t) => {
  const disk = new Disk({ folder: await folderFor(t) });
  const store = await openFor(t, disk.folder, {
    files: disk,
    limits: { reserveBytes: 0, maxBatchBytes: 2000 },
  });
  let syncs = 0;
  disk.fate = ({ kind, name }) => {
    if (kind === "sync" && name === "wal-1.jsonl") syncs++;
    return undefined;
  };
  const commitText = (length: number) => (id: number) =>
    commit(store, [["put", "zoos", { id, text: "x".repeat(length) }]], 0);
  await Promise.all([1, 2, 3, 4].map(commitText(600)));
  assert.equal(syncs, 2);
  await Promise.all([5, 6].map(commitText(5000)));
  assert.equal(syncs, 4);
});

test("a closed store accepts nothing, and its folder can be opened again in the same process", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  const last = commit(store, [["put", "zoos", { id: 1 }]], 0);
  await Promise.all([store.close(), store.close()]);
  await last;
  assert.throws(() => store.apply([["del", "zoos", 1]], 0), {
    code: "closed",
  });
  const names = await readdir(folder);
  assert.equal(names.some((name) => name.startsWith("lock-")), false);
  assert.equal((await openFor(t, folder)).table("zoos").size, 1);
});

test("a reader without the lock reads the store of a running process and changes nothing", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  await commit(store, [["put", "zoos", { id: 1 }]], 0);
  const before = await readdir(folder);
  const reading = await readStore(folder);
  assert.deepEqual(reading.faults, []);
  assert.equal(reading.refusal, undefined);
  assert.equal(reading.seq, 1);
  assert.equal(reading.generation, 1);
  assert.equal(reading.tables.get("zoos")?.size, 1);
  assert.deepEqual(await readdir(folder), before);
});

test("a folder cannot be opened a second time, not even by the same process", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  await assert.rejects(openStore({ folder, tables }), (error: StoreError) => {
    assert.equal(error.code, "in-use");
    assert.ok(error.message.includes(folder));
    return true;
  });
  await store.close();
  await (await openStore({ folder, tables })).close();
});

test("a folder with a very long path can be locked", async (t) => {
  const folder = join(await folderFor(t), "x".repeat(120), "store");
  const store = await openFor(t, folder);
  await assert.rejects(openStore({ folder, tables }), { code: "in-use" });
  await store.close();
  await (await openStore({ folder, tables })).close();
});

test("a check of a store that is being written finds no damage, generation after generation", async (t) => {
  const folder = await folderFor(t);
  const limits = { minLogBytes: 30_000 };
  const store = await openFor(t, folder, { limits });
  let id = 0;
  let done = false;
  const text = "x".repeat(200);
  const writers = Array.from({ length: 8 }, async () => {
    while (!done) {
      const key = ++id % 50 + 1;
      await commit(store, [["put", "zoos", { id: key, text }]], 0);
    }
  });
  for (let round = 0; round < 60 || store.log.generation < 4; round++) {
    const before = store.durableSeq;
    const reading = await readStore(folder, { tables });
    assert.deepEqual(reading.faults, []);
    assert.equal(reading.refusal, undefined);
    assert.ok(reading.seq >= before);
  }
  done = true;
  await Promise.all(writers);
});

test("a folder that cannot be used is refused with its name", async (t) => {
  const folder = join(await folderFor(t), "file/store");
  await writeFile(dirname(folder), "");
  await assert.rejects(openStore({ folder, tables }), (error: StoreError) => {
    assert.equal(error.code, "unusable");
    assert.ok(error.message.includes(folder));
    return true;
  });
});

test("a stop does not wait for a snapshot that is being written", async (t) => {
  const disk = new Disk({ folder: await folderFor(t) });
  const options = { files: disk, limits: { reserveBytes: 0 } };
  const store = await openFor(t, disk.folder, options);
  const text = "x".repeat(1000);
  for (let id = 1; id <= 1000; id++) {
    commit(store, [["put", "zoos", { id, text }]], 0);
  }
  await store.durable(1000);
  const snapshot = store.checkpoint();
  const begun = new Promise<void>((resolve) => {
    disk.fate = ({ kind, name }) => {
      if (kind === "write" && name.startsWith("snapshot-")) resolve();
      return undefined;
    };
  });
  await begun;
  await Promise.all([
    assert.rejects(snapshot, { code: "closed" }),
    store.close(),
  ]);
  const names = [...disk.contents().keys()].filter((name) => /\d/.test(name));
  assert.deepEqual(names.sort(), ["wal-1.jsonl", "wal-2.jsonl"]);
  const again = await openFor(t, disk.folder, options);
  assert.equal(again.table("zoos").size, 1000);
  assert.deepEqual(again.notices, []);
});
