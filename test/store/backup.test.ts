import { strict as assert } from "node:assert";
import { cpSync, readdirSync } from "node:fs";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setImmediate as nextTick } from "node:timers/promises";
import { backupStore } from "../../src/cli/backup.ts";
import { readStore } from "../../src/cli/read.ts";
import { openStore, realFiles } from "../../src/store/store.ts";
import { documents, fill, folderFor, openFor, tables } from "./support.ts";
import { commit } from "../commit.ts";

test("a backup taken under load is an undamaged store with everything that was acknowledged before", async (t) => {
  const folder = await folderFor(t);
  const limits = { minLogBytes: 20_000 };
  const store = await openFor(t, join(folder, "store"), { limits });
  let acknowledged = 0;
  let stop = false;
  const writing = (async () => {
    for (let id = 1; !stop; id++) {
      await commit(store, [["put", "zoos", { id, name: "x".repeat(200) }]], 1);
      acknowledged = id;
    }
  })();
  try {
    // Continues until a new log has begun meanwhile.
    for (let round = 0; round < 10 || store.log.generation < 2; round++) {
      const before = acknowledged;
      const to = join(folder, `copy-${round}`);
      const { records, seq } = await backupStore(join(folder, "store"), to);
      assert.ok(records >= before, `${records} of ${before} are there`);
      assert.equal(seq, records, "each transaction made one record");
      const copy = await openStore({ folder: to, tables });
      const ids = Array.from(
        copy.table("zoos").rows(),
        (row) => row.document.id,
      );
      assert.deepEqual(ids, Array.from({ length: records }, (_, at) => at + 1));
      await copy.close();
    }
  } finally {
    stop = true;
    await writing;
  }
});

test("a backup that was killed at any moment is a whole store, or refused", async (t) => {
  const folder = await folderFor(t);
  const from = join(folder, "store");
  await fill(from, 300);
  const to = join(folder, "copy");
  await mkdir(to);
  let isDone = false;
  const done = backupStore(from, to).finally(() => isDone = true);
  const killed = new Map<string, string>();
  while (!isDone) {
    await nextTick();
    const names = readdirSync(to).join();
    if (!/snapshot|wal/.test(names) || killed.has(names)) continue;
    killed.set(names, join(folder, `killed-${killed.size}`));
    cpSync(to, killed.get(names) ?? "", { recursive: true });
  }
  await done;
  const outcomes = await Promise.all(
    [...killed.values()].map((copy) =>
      openFor(t, copy).then(
        (store) => store.table("zoos").size,
        (error) => error.code,
      )
    ),
  );
  assert.ok(outcomes.includes("damaged"), outcomes.join());
  assert.ok(!outcomes.includes(0), outcomes.join());
});

test("a backup copied back is the same store, and can be written to", async (t) => {
  const folder = await folderFor(t);
  const from = join(folder, "store");
  await fill(from, 5);
  await writeFile(join(from, "secret"), "a secret without a newline");
  const to = join(folder, "copy");
  await backupStore(from, to);
  const secret = await readFile(join(to, "secret"), "utf8");
  assert.equal(secret, "a secret without a newline");
  const copied = await readStore(to, { tables });
  assert.deepEqual(copied.faults, []);
  const store = await openFor(t, to);
  assert.equal(documents(store.table("zoos")).length, 5);
  await commit(store, [["put", "zoos", { id: 6, name: "new" }]], 1);
  assert.equal(store.seq, 6);
});

test("a backup is refused if it would overwrite something, or if the store is damaged or missing", async (t) => {
  const folder = await folderFor(t);
  const from = join(folder, "store");
  await fill(from, 5);
  await assert.rejects(backupStore(from, from), { code: "not-empty" });
  await assert.rejects(
    backupStore(join(folder, "nothing"), join(folder, "one")),
    { code: "ENOENT" },
  );
  const empty = join(folder, "two");
  await mkdir(empty);
  await assert.rejects(backupStore(empty, join(folder, "three")), {
    message: /no store/,
  });
  const log = join(from, "wal-1.jsonl");
  const bytes = await readFile(log);
  bytes[400] = (bytes[400] ?? 0) ^ 1;
  await writeFile(log, bytes);
  const message = new RegExp(`^Cannot open ${from}: wal-1\\.jsonl is damaged`);
  await assert.rejects(backupStore(from, join(folder, "four")), { message });
  // Nothing is left of the copy, nor of a folder that was created for it.
  const own = join(folder, "own");
  await mkdir(own);
  await assert.rejects(backupStore(from, own), { message });
  assert.deepEqual(await readdir(own), []);
  assert.deepEqual((await readdir(folder)).sort(), ["own", "store", "two"]);
});

test("a backup into a folder that holds something is refused", async (t) => {
  const folder = await folderFor(t);
  const from = join(folder, "store");
  await fill(from, 1);
  const target = join(folder, "backup");
  await mkdir(target);
  await writeFile(join(target, "mine.txt"), "mine");
  await assert.rejects(backupStore(from, target), { code: "not-empty" });
  assert.deepEqual(await readdir(target), ["mine.txt"]);
});

test("of two backups to one folder one is whole, and the other changes nothing", async (t) => {
  const folder = await folderFor(t);
  const from = join(folder, "store");
  await fill(from, 5);
  const to = join(folder, "copy");
  const { list } = realFiles;
  let hasSeenIt = false;
  t.mock.method(realFiles, "list", async (path: string) => {
    const found = await list(path);
    if (path !== to || hasSeenIt) return found;
    hasSeenIt = true;
    await backupStore(from, to); // while the first one believes it empty
    return found;
  });
  await mkdir(to);
  const before = await list(to);
  await assert.rejects(backupStore(from, to), { code: "not-empty" });
  assert.deepEqual([hasSeenIt, before], [true, []]);
  const store = await openFor(t, to);
  assert.equal(documents(store.table("zoos")).length, 5);
});

test("a backup that fails removes only what it has written", async (t) => {
  const folder = await folderFor(t);
  const from = join(folder, "store");
  const to = join(folder, "copy");
  await fill(from, 5);
  t.mock.method(realFiles, "rename", async () => {
    await writeFile(join(to, "zoos.ndjson.part"), "of an export");
    throw new Error("it fails");
  });
  await assert.rejects(backupStore(from, to), /it fails/);
  assert.deepEqual(await readdir(to), ["zoos.ndjson.part"]);
});
