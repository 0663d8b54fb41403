/** The store on a disk that fails: each test of the oracle at every operation, bit, sector and line. */

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { test } from "node:test";
import { readFolder } from "../../src/store/recovery.ts";
import { openFolder } from "../../src/store/folder.ts";
import { type Store, StoreError } from "../../src/store/store.ts";
import { tablesOf } from "../../src/store/table.ts";
import { Disk, type Fault, Model, script, textOf } from "./oracle.ts";

const declared = { zoos: {}, animals: { by: ["zoo_id"] } };
const logBytes = 2048;
const transactions = 8;

const noLock = () => Promise.resolve(() => Promise.resolve());
const open = (disk: Disk, bytes = logBytes) =>
  openFolder(disk.folder, declared, bytes, noLock);

/** Runs the script, in groups that share a write. */
async function run(
  disk: Disk,
  model: Model,
  endsWhenRefused = false,
): Promise<void> {
  const store = await open(disk).catch(() => undefined);
  if (!store) return;
  const running: Promise<void>[] = [];
  for (const mutations of script(transactions)) {
    running.push(model.run(store, mutations));
    if (running.length % 3 !== 0) await running.at(-1);
    if (endsWhenRefused && model.refused > 0) return;
  }
  await Promise.all(running);
  await store.close().catch(() => {});
}

/** Opens what a crash has left, checks it, and that it can be written durably again. */
async function judge(disk: Disk, model: Model, what: string): Promise<void> {
  const store = await open(disk).catch((error) =>
    assert.fail(`${what}: ${error.stack}`)
  );
  try {
    const found = textOf(store.tables);
    assert.ok(model.possible.includes(found), `${what}: ${found}`);
    const later = new Model();
    await later.run(store, [["put", "zoos", { id: 99, name: what }]]);
    assert.equal(later.acknowledged, 1, what);
    for (const each of [disk.restart(), disk.restart(() => false)]) {
      const tables = tablesOf(declared);
      await readFolder(each.folder, tables);
      assert.equal(textOf(tables), textOf(store.tables), what);
    }
  } finally {
    await store.close();
  }
}

/** Returns a source of numbers below 1 that are the same at each run. */
function randomOf(seed: number): () => number {
  return () => (seed = (seed * 48271 + 11) % 2147483647) / 2147483647;
}

/** Judges all crashes after the script with a fault. */
async function crash(fault: Fault, at: number): Promise<number> {
  const disk = new Disk();
  disk.fault = (_, count) => count === at ? fault : undefined;
  const model = new Model();
  await run(disk, model, fault === "short");
  const what = `${fault} at operation ${at}`;
  const random = randomOf(at);
  await judge(disk.restart(), model, `${what}, process ended`);
  await judge(disk.restart(() => false), model, `${what}, power cut`);
  await judge(
    disk.restart(() => random() < 0.5),
    model,
    `${what}, power cut in between`,
  );
  if (fault !== "EIO") return disk.count;
  // The process has ended, and what a failed sync has lost is in memory only.
  const again = disk.restart();
  const store = await open(again);
  Object.assign(model, { possible: [textOf(store.tables)], isFailed: false });
  await model.run(store, [["put", "zoos", { id: 98, name: "last" }]]);
  await store.close();
  await judge(again.restart(() => false), model, `${what}, both`);
  return disk.count;
}

test("A crash at each file operation loses nothing that was acknowledged", async () => {
  for (let at = 1; await crash("kill", at) >= at; at++);
});

test("An error of each file operation is not taken for success", async () => {
  for (let at = 1; await crash("EIO", at) >= at; at++);
});

test("A full disk at each file operation changes nothing", async () => {
  for (const fault of ["ENOSPC", "short"] as const) {
    for (let at = 1; await crash(fault, at) >= at; at++);
  }
});

test("A full disk lets deletions through, also after a restart", async () => {
  // The shorter script ends before the first snapshot.
  for (
    const [isKilled, count, bytes] of [
      [false, transactions, logBytes],
      [true, transactions, logBytes],
      [false, 3, 8 * logBytes],
      [true, 3, 8 * logBytes],
    ] as const
  ) {
    const disk = new Disk();
    const model = new Model();
    const store = await open(disk, bytes);
    const fill = async (store: Store) => {
      const { refused } = model;
      for (let id = 100; id < 200; id++) {
        await store.whenRoom();
        await model.run(store, [["put", "zoos", { id, name: "more" }]]);
      }
      return model.refused - refused;
    };
    const deleteOne = async (store: Store) => {
      const { acknowledged } = model;
      const [{ id = 0 } = {}] = store.table("zoos").rows.slice();
      await model.run(store, [["del", "zoos", id]]);
      assert.equal(model.acknowledged, acknowledged + 1);
    };
    for (const mutations of script(count)) {
      await model.run(store, mutations);
    }
    disk.capacity = disk.used;
    assert.ok(await fill(store) > 0);
    await deleteOne(store);
    if (!isKilled) await store.close();
    const next = disk.restart();
    next.capacity = disk.capacity;
    if (isKilled) await store.close();
    const again = await open(next, bytes);
    assert.equal(textOf(again.tables), model.possible[0]);
    assert.deepEqual(again.notices, []);
    await deleteOne(again);
    next.capacity = Infinity;
    assert.equal(await fill(again), 0);
    await again.close();
  }
});

/** Returns a disk with three logs and a snapshot, all states that it has had, and its last. */
async function sample() {
  const disk = new Disk();
  const model = new Model();
  await run(disk, model);
  assert.equal(model.refused, 0);
  return { disk: disk.restart(), states: model.history };
}

/** Reads a disk with other bytes in a file: nothing that an intact line proves may be missing, and nothing at all but from the end of the last log; or it is refused with the place. */
async function checkDamage(
  { disk, states }: Awaited<ReturnType<typeof sample>>,
  name: string,
  bytes: Buffer,
  { what, mayBeShorter = false }: {
    readonly what: string;
    readonly mayBeShorter?: boolean;
  },
): Promise<void> {
  const tables = tablesOf(declared);
  const damaged = disk.with(name, bytes);
  try {
    await readFolder(damaged.folder, tables);
  } catch (error) {
    assert.ok(error instanceof StoreError, `${name}, ${what}: ${error}`);
    assert.match(error.message, /(wal|snapshot)-\d+\.jsonl is damaged/);
    return;
  }
  const proofs = bytes.toString().matchAll(/"seq":\d+,"durable":(\d+),.*\n/g);
  const proven = Math.max(0, ...Array.from(proofs, ([, seq]) => Number(seq)));
  const allowed = states.slice(mayBeShorter ? proven : -1);
  const found = textOf(tables);
  assert.ok(allowed.includes(found), `${name}, ${what}: ${found}`);
}

test("Damage of any file is refused, or nothing is lost", async (t) => {
  const all = await sample();
  const without = await sample();
  without.disk.names.delete("snapshot-2.jsonl");
  for (
    const [from, name] of [
      [without, "wal-1.jsonl"],
      [all, "snapshot-2.jsonl"],
      [all, "wal-2.jsonl"],
    ] as const
  ) {
    const file = from.disk.names.get(name)?.bytes ?? Buffer.alloc(0);
    const bytes = file.subarray(0, file.indexOf("\n\0") + 1 || undefined);
    assert.ok(bytes.length > 1024, name);
    const isLast = name === "wal-2.jsonl";
    await t.test(`Truncations, bits, sectors and lines of ${name} are judged`, async () => {
      for (let at = 0; at < bytes.length; at++) {
        await checkDamage(from, name, bytes.subarray(0, at), {
          what: `${at} bytes`,
          mayBeShorter: isLast,
        });
        const flipped = Buffer.from(bytes);
        flipped[at] = (flipped[at] ?? 0) ^ 1 << at % 8;
        await checkDamage(from, name, flipped, { what: `a bit of ${at}` });
      }
      for (let at = 0; at < bytes.length; at += 512) {
        const end = Math.min(at + 512, bytes.length);
        await checkDamage(from, name, Buffer.from(bytes).fill(0, at, end), {
          what: `sector of ${at}`,
          mayBeShorter: isLast,
        });
      }
      if (!isLast) {
        const more = Buffer.concat([bytes, Buffer.from("{")]);
        const disk = from.disk.with(name, more);
        await assert.rejects(readFolder(disk.folder, tablesOf(declared)));
      }
      const lines = bytes.toString("latin1").split(/(?<=\n)/);
      for (const [at, line] of lines.entries()) {
        const next = lines[at + 1] ?? "";
        for (const other of ["", line + line, next + line]) {
          const changed = lines.with(at, other);
          if (other === next + line) changed[at + 1] = "";
          await checkDamage(
            from,
            name,
            Buffer.from(changed.join(""), "latin1"),
            {
              what: `line ${at + 1}`,
              mayBeShorter: isLast && other === "" && next === "",
            },
          );
        }
      }
    });
  }
});

test("A log that was moved or removed is noticed", async () => {
  for (const isRemoved of [false, true]) {
    const disk = new Disk();
    const model = new Model();
    const store = await open(disk, 8 * logBytes);
    await model.run(store, [["put", "zoos", { id: 1, name: "one" }]]);
    const { bytes = Buffer.alloc(0) } = disk.names.get("wal-1.jsonl") ?? {};
    if (isRemoved) disk.names.delete("wal-1.jsonl");
    else disk.names = disk.with("wal-1.jsonl", bytes).names;
    await model.run(store, [["put", "zoos", { id: 2, name: "two" }]]);
    assert.ok(model.isFailed && store.fault);
    await store.close();
  }
});
