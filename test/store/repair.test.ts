import assert from "node:assert/strict";
import { backupStore, unfinishedMeta } from "../../src/cli/backup.ts";
import { repairStore } from "../../src/cli/repair.ts";
import { Buffer } from "node:buffer";
import { once } from "node:events";
import { cp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import type { Salvage } from "../../src/cli/recovery/salvage.ts";
import { readStore } from "../../src/cli/read.ts";
import * as marker from "../../src/store/log/marker.ts";
import {
  type FileSystem,
  openStore,
  realFiles,
} from "../../src/store/store.ts";
import { Disk } from "../torture/disk.ts";
import { Random } from "../torture/random.ts";
import {
  contents,
  documents,
  fill,
  folderFor,
  openFor,
  tables,
} from "./support.ts";
import { commit } from "../commit.ts";

/** Changes one byte of a file: the first byte of a text in it. */
async function damage(path: string, text: string, from = 0): Promise<void> {
  const bytes = await readFile(path);
  const at = bytes.indexOf(text, from);
  assert.notEqual(at, -1);
  bytes[at] = 0x23;
  await writeFile(path, bytes);
}

/** The ids of the records that damaged lines mention, and no later line contains. */
function damagedIds(salvage: Salvage | undefined): number[] {
  return Array.from(
    salvage?.damagedRecords ?? [],
    (name) => Number(name.split("/")[1]),
  );
}

/** The ids of all zoos of a store that opens. */
async function openedIds(t: TestContext, folder: string): Promise<number[]> {
  const store = await openFor(t, folder);
  const ids = Array.from(store.table("zoos").rows(), (row) => row.document.id);
  await store.close();
  return ids;
}

/** The machine's own files, some of which cannot be read. */
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

test("a repair keeps each intact line, even after the damage, and every old file", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 6);
  await damage(join(folder, "wal-1.jsonl"), "Zoo 4");
  const before = await contents(folder);
  const { backupFolder, salvage } = await repairStore(folder);
  assert.notEqual(backupFolder, undefined);
  assert.equal(salvage?.seq, 6);
  assert.equal(salvage.lostTransactions, 1);
  assert.deepEqual(damagedIds(salvage), [4]);
  assert.deepEqual(salvage.faults.map(({ line }) => line), [5]);
  const kept = await contents(backupFolder ?? "");
  for (const name of ["wal-1.jsonl", "mark", "meta.json"]) {
    assert.deepEqual(kept.get(name), before.get(name));
  }
  assert.deepEqual((await readStore(folder)).faults, []);
  assert.deepEqual(await openedIds(t, folder), [1, 2, 3, 5, 6]);
  const store = await openFor(t, folder);
  assert.equal(store.seq, 6);
  await commit(store, [["put", "zoos", { id: 4 }]], 0);
  assert.equal(store.seq, 7);
});

test("of a hundred stores with a damaged byte each, a repair loses at most the transaction on its line", async (t) => {
  const folder = await folderFor(t);
  const first = await openFor(t, folder);
  // 40 records, each of which is put five times.
  await Promise.all(Array.from({ length: 200 }, (_, at) => {
    const document = { id: at % 40 + 1, name: `Zoo ${at + 1}` };
    return commit(first, [["put", "zoos", document]], 1);
  }));
  await first.close();
  const files = await contents(folder);
  files.delete("reserve");
  const log = files.get("wal-1.jsonl") ?? Buffer.alloc(0);
  const lines = log.toString("latin1").split("\n");
  const lengthOf = (count: number) => lines.slice(0, count).join("\n").length;
  const random = new Random(7);
  const limits = { reserveBytes: 0 };
  let lost = 0;
  for (let round = 0; round < 100; round++) {
    const at = lengthOf(20) + random.below(lengthOf(185) - lengthOf(20));
    const bytes = Buffer.from(log);
    bytes[at] = (bytes[at] ?? 0) ^ 1 << random.below(8);
    // The transactions whose lines were changed: two for a newline.
    const left = new Set(bytes.toString("latin1").split("\n"));
    const hit = lines.flatMap((line, seq) => left.has(line) ? [] : [seq]);
    assert.equal(hit.length, log[at] === 10 ? 2 : 1);
    const disk = Disk.of(folder, new Map([...files, ["wal-1.jsonl", bytes]]));
    const { salvage } = await repairStore(folder, { files: disk });
    assert.equal(salvage?.lostTransactions, hit.length);
    const expected = Array.from({ length: 40 }, (_, at) => {
      const last = [160, 120, 80, 40, 0].map((base) => base + at + 1)
        .find((seq) => !hit.includes(seq));
      return { id: at + 1, name: `Zoo ${last}` };
    });
    const store = await openStore({
      folder,
      tables,
      files: disk,
      limits,
      marker,
    });
    assert.deepEqual(documents(store.table("zoos")), expected);
    assert.equal(store.seq, 200);
    await store.close();
    // A later line that puts the record compensates for the damaged one.
    if (hit.some((seq) => seq > 160)) lost += salvage.damagedRecords.size;
    // Unless the damage is in the digits of the id.
    else assert.deepEqual(damagedIds(salvage).filter((id) => id <= 40), []);
  }
  assert.ok(lost > 2, `only ${lost} were in the last puts`);
});

test("a repair keeps the lines between two damaged places, and counts the losses of both", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 9);
  await damage(join(folder, "wal-1.jsonl"), "Zoo 3");
  await damage(join(folder, "wal-1.jsonl"), "Zoo 9");
  await rm(join(folder, "mark")); // that tells of the ninth
  const { salvage } = await repairStore(folder);
  assert.equal(salvage?.lostTransactions, 2);
  assert.deepEqual(damagedIds(salvage), [3, 9]);
  const store = await openFor(t, folder);
  const ids = Array.from(store.table("zoos").rows(), (row) => row.document.id);
  assert.deepEqual(ids, [1, 2, 4, 5, 6, 7, 8]);
  // Neither the number of the transaction nor the id is used again, and no
  // client is told that the collection is unchanged.
  const { lastId, lastSeq } = store.table("zoos");
  assert.deepEqual([store.seq, lastSeq], [9, 9]);
  assert.ok(lastId >= 9, `${lastId}`);
});

test("a repair takes nothing from the log of another store", async (t) => {
  const folder = await folderFor(t);
  const [own, other] = [join(folder, "own"), join(folder, "other")];
  await fill(own, 3);
  await fill(other, 8);
  await cp(join(other, "wal-1.jsonl"), join(own, "wal-2.jsonl"));
  const { salvage } = await repairStore(own);
  assert.equal(salvage?.lostTransactions, 0);
  assert.deepEqual(await openedIds(t, own), [1, 2, 3]);
});

test("a repair continues after a log that the disk cannot read", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 2);
  for (const id of [3, 4]) {
    const store = await openFor(t, folder);
    await store.checkpoint();
    await commit(store, [["put", "zoos", { id, name: `Zoo ${id}` }]], 0);
    await store.close();
  }
  await damage(join(folder, "snapshot-3.jsonl"), '"rows"');
  const files = failing(/wal-2/);
  const { salvage } = await repairStore(folder, { files });
  assert.equal(salvage?.lostTransactions, 1);
  assert.deepEqual(await openedIds(t, folder), [1, 2, 4]);
});

test("a damaged header costs no transaction, wherever it is damaged", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 4);
  const files = await contents(folder);
  files.delete("reserve");
  const log = files.get("wal-1.jsonl") ?? Buffer.alloc(0);
  for (let at = 0; at < log.indexOf(10); at += 3) {
    const bytes = Buffer.from(log);
    bytes[at] = 0x23;
    const disk = Disk.of(folder, new Map([...files, ["wal-1.jsonl", bytes]]));
    const { salvage } = await repairStore(folder, { files: disk });
    assert.equal(salvage?.lostTransactions, 0);
    assert.equal(salvage.tables.get("zoos")?.size, 4);
    const store = await readStore(folder, { files: disk });
    assert.equal(store.refusal, undefined);
    assert.equal(store.tables.get("zoos")?.size, 4);
  }
});

test("a lost first sector costs only the lines that began in it", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 9);
  const path = join(folder, "wal-1.jsonl");
  const bytes = await readFile(path);
  const whole = bytes.toString("latin1", bytes.indexOf(10, 512) + 1);
  await writeFile(path, bytes.fill(0, 0, 512));
  const { salvage } = await repairStore(folder);
  const count = whole.split("\n").length - 1;
  assert.equal(salvage?.lostTransactions, 9 - count);
  const ids = Array.from({ length: count }, (_, at) => 10 - count + at);
  assert.deepEqual(await openedIds(t, folder), ids);
});

test("a damaged seal costs no transaction, a missing log costs those that only it had", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 5);
  const store = await openFor(t, folder);
  await store.checkpoint();
  await commit(store, [["put", "zoos", { id: 6, name: "Zoo 6" }]], 0);
  await commit(store, [["del", "zoos", 2]], 0);
  await store.close();
  await rm(join(folder, "snapshot-2.jsonl"));
  const other = join(await folderFor(t), "other");
  await cp(folder, other, { recursive: true });
  await damage(join(folder, "wal-1.jsonl"), '"seal"');
  assert.equal((await repairStore(folder)).salvage?.lostTransactions, 0);
  assert.deepEqual(await openedIds(t, folder), [1, 3, 4, 5, 6]);
  await rm(join(other, "wal-1.jsonl"));
  assert.equal((await repairStore(other)).salvage?.lostTransactions, 5);
  assert.deepEqual(await openedIds(t, other), [6]);
});

test("a record that a damaged line deleted is back, and reported", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 3);
  const store = await openFor(t, folder);
  for (const id of [1, 2]) await commit(store, [["del", "zoos", id]], 0);
  await commit(store, [["put", "zoos", { id: 9, name: "Zoo 9" }]], 0);
  await commit(store, [["del", "zoos", 9]], 0);
  await store.close();
  await damage(join(folder, "wal-1.jsonl"), '["del","zoos",2]]}');
  const path = join(folder, "wal-1.jsonl");
  const bytes = await readFile(path);
  // The CRC of two other lines: their content stays readable.
  bytes[bytes.indexOf('["del","zoos",1]') - 80] = 0x23;
  bytes[bytes.indexOf('["put","zoos",{"id":9') - 80] = 0x23;
  await writeFile(path, bytes);
  const { salvage } = await repairStore(folder);
  assert.equal(salvage?.lostTransactions, 3);
  // Nothing can be known of 2. 9 was deleted by an intact line: nothing is
  // lost.
  assert.deepEqual([...salvage.damagedRecords], ["zoos/1"]);
  assert.deepEqual(await openedIds(t, folder), [1, 2, 3]);
});

test("a dry run finds what the repair does, and changes nothing", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 6);
  await damage(join(folder, "wal-1.jsonl"), "Zoo 4");
  const stale = createServer();
  await once(stale.listen(join(folder, "new")), "listening");
  await rename(join(folder, "new"), join(folder, "lock-0.sock"));
  stale.close();
  const before = await contents(folder);
  const refuse = () => Promise.reject(new Error("a read-only disk"));
  const files = { ...realFiles, rename: refuse, remove: refuse };
  const dry = await repairStore(folder, { files, isDryRun: true });
  assert.equal(dry.backupFolder, undefined);
  assert.deepEqual(await contents(folder), before);
  const names = [...before.keys(), "lock-0.sock"].sort();
  assert.deepEqual((await readdir(folder)).sort(), names);
  assert.deepEqual(dry.salvage, (await repairStore(folder)).salvage);
});

test("the records on the other lines of a damaged snapshot are saved, and the logs since are applied", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  const long = "x".repeat(4000); // eight or nine on a line
  for (let id = 1; id <= 60; id++) {
    await commit(store, [["put", "zoos", { id, name: long }]], 0);
  }
  await store.checkpoint();
  await commit(store, [["put", "zoos", { id: 22, name: "again" }]], 0);
  await commit(store, [["put", "zoos", { id: 61, name: "new" }]], 0);
  await store.close();
  const path = join(folder, "snapshot-2.jsonl");
  const lines = (await readFile(path, "utf8")).split("\n");
  const hit = lines.find((line) => line.includes('{"id":22,')) ?? "";
  const lost = Array.from(hit.matchAll(/"id":(\d+)/g), ([, id]) => Number(id))
    .filter((id) => id !== 22); // which the next log has
  assert.ok(lost.length > 5 && lost.length < 12);
  await damage(path, "xxx", (await readFile(path)).indexOf('{"id":22,'));
  const other = join(await folderFor(t), "other");
  await cp(folder, other, { recursive: true });
  // With the log before it, only the damage of the log since then counts.
  await damage(join(folder, "wal-2.jsonl"), '"seq":61');
  const { salvage: all } = await repairStore(folder);
  assert.equal(all?.lostTransactions, 1);
  assert.ok(!damagedIds(all).includes(61));
  assert.equal((await openedIds(t, folder)).length, 61);
  await rm(join(other, "wal-1.jsonl"));
  const { salvage } = await repairStore(other);
  assert.equal(salvage?.lostTransactions, 0);
  assert.deepEqual(damagedIds(salvage), lost);
  const left = await openedIds(t, other);
  assert.deepEqual(left, left.filter((id) => !lost.includes(id)));
  assert.equal(left.length, 61 - lost.length);
});

test("what is left of a copy that was killed is not repaired to an empty store", async (t) => {
  const folder = await folderFor(t);
  await writeFile(join(folder, "snapshot-2.jsonl.tmp"), "{");
  for (const meta of ["", unfinishedMeta]) {
    await writeFile(join(folder, "meta.json"), meta);
    await assert.rejects(openStore({ folder, tables }), { code: "damaged" });
    await assert.rejects(repairStore(folder), /it is an unfinished copy/);
  }
});

test("a repair of a damaged snapshot that nothing can replace saves the records on its other lines", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 6);
  const store = await openFor(t, folder);
  await store.checkpoint();
  await commit(store, [["put", "zoos", { id: 7, name: "Zoo 7" }]], 0);
  await store.close();
  await rm(join(folder, "wal-1.jsonl"));
  await damage(join(folder, "snapshot-2.jsonl"), '{"id":3');
  await assert.rejects(openStore({ folder, tables }), { code: "damaged" });
  const { salvage } = await repairStore(folder);
  assert.equal(salvage?.seq, 7);
  assert.equal(salvage.lostTransactions, 0);
  assert.deepEqual(damagedIds(salvage), [1, 2, 4, 5, 6]);
  assert.deepEqual(salvage.faults.map(({ file }) => file), [
    "snapshot-2.jsonl",
    "snapshot-2.jsonl", // the line, and that there are fewer than the seal says
  ]);
  const again = await openFor(t, folder);
  const ids = Array.from(again.table("zoos").rows(), (row) => row.document.id);
  assert.deepEqual(ids, [7]);
});

test("a missing meta file is repaired and nothing is lost", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 3);
  await rm(join(folder, "meta.json"));
  const { salvage } = await repairStore(folder);
  assert.equal(salvage?.seq, 3);
  assert.equal(salvage.lostTransactions, 0);
  assert.equal((await openFor(t, folder)).table("zoos").size, 3);
});

test("a repair does not touch an undamaged store, and refuses one in use", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 3);
  const before = await contents(folder);
  assert.equal((await repairStore(folder)).backupFolder, undefined);
  assert.deepEqual(await contents(folder), before);
  const store = await openFor(t, folder);
  for (const isDryRun of [true, false]) {
    await assert.rejects(repairStore(folder, { isDryRun }), { code: "in-use" });
  }
  await store.close();
});

test("a repair replaces a damaged snapshot by the log before it", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 5);
  const store = await openFor(t, folder);
  await store.checkpoint();
  for (let id = 6; id <= 9; id++) {
    await commit(store, [["put", "zoos", { id, name: `Zoo ${id}` }]], 0);
  }
  await store.close();
  await damage(join(folder, "snapshot-2.jsonl"), '{"id":3');
  await damage(join(folder, "wal-2.jsonl"), "Zoo 8");
  const { salvage } = await repairStore(folder);
  assert.deepEqual(damagedIds(salvage), [8]);
  assert.deepEqual(await openedIds(t, folder), [1, 2, 3, 4, 5, 6, 7, 9]);
});

/** The machine's own files, up to a number of changes; then the process counts as dead. */
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
  await commit(store, [["put", "zoos", { id: 7, name: "Zoo 7" }]], 0);
  await store.close();
  await damage(join(original, "snapshot-2.jsonl"), '{"id":3');
  await rm(join(original, "wal-1.jsonl"));
  const damaged = await readFile(join(original, "snapshot-2.jsonl"));
  let repaired = false;
  for (let steps = 0; !repaired; steps++) {
    const folder = `${original}-${steps}`;
    await cp(original, folder, { recursive: true });
    repaired = await repairStore(folder, { files: dyingAfter(steps) })
      .then(() => true, () => false);
    if (!repaired) {
      await assert.rejects(openStore({ folder, tables }), { code: "damaged" });
      const { salvage } = await repairStore(folder);
      assert.equal(salvage?.seq, 7, `interrupted after ${steps} steps`);
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

test("a folder without readable contents is refused, not mistaken for an empty store", async (t) => {
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
    const options = { folder, tables, marker };
    await assert.rejects(openStore(options), { name: "StoreError" });
  }
});

test("a snapshot that cannot be read is skipped; a log that cannot be read is refused with its place", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 5);
  const store = await openFor(t, folder);
  await store.checkpoint();
  await commit(store, [["put", "zoos", { id: 6, name: "Zoo 6" }]], 0);
  await store.close();
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
  bytes.set(Buffer.from("7"), bytes.indexOf('"format":3') + 9);
  await writeFile(path, bytes);
  const opened = await openFor(t, folder);
  assert.equal(opened.table("zoos").size, 5);
  assert.equal(opened.notices.length, 1);
});

test("a repair assigns no id again that a record or a line still names, or an unreadable line may have assigned", async (t) => {
  const folder = await folderFor(t);
  const tables = [
    { name: "users" },
    { name: "notes" },
    { name: "authorizations" },
  ];
  const store = await openStore({ folder, tables });
  await commit(store, [["put", "users", { id: 1 }]], 0);
  await commit(store, [["put", "users", { id: 2, username: "ann" }]], 0);
  await commit(store, [["put", "notes", { id: 1, owner_id: 2 }]], 0);
  await commit(store, [["put", "authorizations", { id: 1, user_id: 3 }]], 4);
  await store.close();
  const path = join(folder, "wal-1.jsonl");
  const lines = (await readFile(path, "latin1")).split("\n");
  const lost = lines.findIndex((line) => line.includes("ann"));
  lines[lost] = "x".repeat(lines[lost]?.length ?? 0);
  await writeFile(path, lines.join("\n"), "latin1");
  const idProperties = [
    { of: "notes", property: "owner_id", target: "users" },
    { of: "authorizations", property: "user_id", target: "users" },
  ];
  const { salvage } = await repairStore(folder, { tables, idProperties });
  assert.deepEqual([...salvage?.damagedRecords ?? []].sort(), [
    "users/2",
    "users/3",
    "users/4",
  ]);
  const repaired = await openStore({ folder, tables });
  assert.ok(repaired.table("users").lastId > 4);
  // Nothing refers to a note, but the lost line may have created some.
  assert.ok(repaired.table("notes").lastId > 1);
  await repaired.close();
});

test("a repair gives no id twice if the header of the only snapshot is damaged, and ends sign-ins that may have ended", async (t) => {
  const folder = await folderFor(t);
  const tables = [{ name: "zoos" }, { name: "authorizations" }];
  const store = await openStore({ folder, tables });
  const put = (name: string, id: number) =>
    commit(store, [["put", name, { id }]], 0);
  for (let id = 1; id <= 9; id++) await put("zoos", id);
  await put("authorizations", 1);
  await commit(store, [["del", "zoos", 9]], 0);
  await store.close();
  const copy = await folderFor(t);
  await backupStore(folder, copy);
  await damage(join(copy, "snapshot-2.jsonl"), "crc");
  const { salvage } = await repairStore(copy, { tables });
  assert.ok(Number(salvage?.lostTransactions) > 0);
  const repaired = await openStore({ folder: copy, tables });
  assert.ok(repaired.table("zoos").lastId >= 9);
  assert.equal(repaired.table("zoos").size, 8);
  assert.equal(repaired.table("authorizations").size, 0);
  await repaired.close();
});
