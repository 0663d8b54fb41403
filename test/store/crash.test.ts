/** The store on a disk that fails: each test of the oracle at every operation, bit, sector and line. */

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import process from "node:process";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { type Random, randomOf } from "../random.ts";
import {
  generationOf,
  type Header,
  logName,
  snapshotName,
} from "../../src/store/log.ts";
import { readFolder } from "../../src/store/recovery.ts";
import { openFolder } from "../../src/store/folder.ts";
import { type Place, Store } from "../../src/store/store.ts";
import { tablesOf } from "../../src/store/table.ts";
import { Disk, faults as anyFault, Model, script, textOf } from "./oracle.ts";

const declared = { zoos: {}, animals: { by: ["zoo_id"] } };
const logBytes = 2048;
const transactions = 16;
/** For `npm run torture`: another seed, more lives of each store, more states after each power cut. */
const { SEED = "1", LIVES = "2" } = process.env;
const seed = Number(SEED);
const lives = Number(LIVES);

const noLock = () => Promise.resolve(() => Promise.resolve());
const open = (disk: Disk, bytes = logBytes) =>
  openFolder(disk.folder, declared, bytes, noLock);

/** Runs transactions, of which some share a write and some come while another one is written. */
async function run(
  disk: Disk,
  model: Model,
  random: Random,
  what = "",
) {
  const store = await open(disk).catch(() => undefined);
  if (!store) return;
  model.restart(textOf(store.tables), what);
  const running: Promise<void>[] = [];
  for (const mutations of script(random, transactions)) {
    running.push(model.run(store, mutations));
    const turns = random(4) ** 3;
    if (turns > 8) await running.at(-1);
    for (let turn = 0; turn < turns; turn++) await setImmediate();
    if (disk.isKilled) break;
    if (random(3) === 0) await store.whenRoom();
  }
  await Promise.all(running);
  assert.equal(store.seq, store.durableSeq, what);
  await store.close().catch(() => {});
}

/** Opens what a crash has left, checks it, and that it can be written durably again. */
async function judge(
  disk: Disk,
  possible: string[],
  what: string,
) {
  const store = await open(disk).catch((error) =>
    assert.fail(`${what}: ${error.stack}`)
  );
  try {
    const found = textOf(store.tables);
    assert.ok(possible.includes(found), `${what}: ${found}`);
    const names = [...disk.names.keys()].join();
    assert.ok(store.notices.length === 0 || names.includes(".torn"), what);
    const later = new Model();
    await later.run(store, [["put", "zoos", { id: 99, name: what }]]);
    assert.equal(later.acknowledged, 1, what);
    for (const [, each] of disk.afterCrash(() => 0, 0)) {
      const tables = tablesOf(declared);
      await readFolder(each.folder, tables);
      assert.equal(textOf(tables), textOf(store.tables), what);
    }
  } finally {
    await store.close();
  }
}

/** Runs some lives of a store, the first with a fault at an operation, and judges what each may leave at its end and at some moments before. */
async function crash(faults: string[], at: number) {
  const random = randomOf(seed * 1000 + at);
  const model = new Model();
  let disk = new Disk();
  let what = `Seed ${seed}`;
  let count = 0;
  for (let life = 0; life < lives; life++) {
    const next = life > 0 ? random(60) : at;
    const possible = life > 0 ? anyFault : faults;
    const fault = possible[random(possible.length)] ?? "";
    const moments: [Disk, string[]][] = [];
    let struck = "";
    disk.fault = (operation, count) => {
      if (count > next && random(4) === 0 && moments.length < lives) {
        moments.push([disk.restart(), [...model.possible]]);
      }
      if (count !== next) return undefined;
      struck = operation;
      return fault;
    };
    what += `, ${fault} at ${next}`;
    await run(disk, model, random, what);
    if (struck === "write" && /[CT]$|short/.test(fault)) {
      assert.ok(!model.isFailed, what);
    }
    count ||= disk.count;
    for (
      const [left, possible] of [...moments, [disk, model.possible] as const]
    ) {
      for (const [end, found] of left.afterCrash(random, lives - 1)) {
        await judge(found, possible, `${what}, ${end}`);
      }
    }
    disk = random(2) === 0 ? disk.restart() : disk.cut(random);
  }
  return count;
}

/** The error of each proof by its title; undefined if there is none. */
const failures = new Map<string, unknown>();
/** Carries out a proof before the first test: from then on the runner traces each promise, which takes half as long again. */
async function prove(title: string, proof: () => Promise<void>) {
  failures.set(title, await proof().catch((error) => error));
}

await prove(
  "A crash at each file operation loses nothing that was acknowledged",
  async () => {
    for (let at = 1; await crash(["kill"], at) >= at; at++);
  },
);

await prove(
  "An error of each file operation is not taken for success",
  async () => {
    for (let at = 1; await crash(["EIO", "EROFS"], at) >= at; at++);
  },
);

await prove("A full disk at each file operation changes nothing", async () => {
  for (const full of [["ENOSPC", "EDQUOT"], ["short"]]) {
    for (let at = 1; await crash(full, at) >= at; at++);
  }
});

await prove(
  "A full disk lets deletions through, also after a restart",
  async () => {
    // The shorter script ends before the first snapshot.
    for (
      const [count, bytes] of [
        [transactions, logBytes],
        [3, 8 * logBytes],
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
      // With other seeds no zoo may be left to be deleted, or a snapshot be under way.
      for (const mutations of script(randomOf(1), count)) {
        await model.run(store, mutations);
      }
      disk.capacity = disk.used;
      assert.ok(await fill(store) > 0);
      await deleteOne(store);
      const next = disk.restart();
      next.capacity = disk.capacity;
      await store.close();
      const again = await open(next, bytes);
      assert.equal(textOf(again.tables), model.possible[0]);
      assert.deepEqual(again.notices, []);
      await deleteOne(again);
      next.capacity = Infinity;
      assert.equal(await fill(again), 0);
      await again.close();
      assert.ok(next.names.size <= 5); // older files are gone
    }
  },
);

/** Returns the lines of a file without the zeros after them. */
const linesOf = (disk: Disk, name: string) => {
  const { bytes = Buffer.alloc(0) } = disk.names.get(name) ?? {};
  return bytes.subarray(0, bytes.indexOf("\n\0") + 1 || undefined);
};

/** Returns a disk with logs and snapshots, the newest generation, and all states that it has had. */
async function sample() {
  const draft = "snapshot-1.jsonl.tmp"; // of a crash
  const disk = new Disk().with(draft, Buffer.alloc(1));
  const model = new Model();
  const random = randomOf(seed);
  let generation = 1;
  while (linesOf(disk, logName(generation)).length < 1536 || generation < 3) {
    await run(disk, model, random);
    while (disk.names.has(logName(generation + 1))) generation++;
  }
  assert.ok(!disk.names.has(draft));
  return { disk, generation, model };
}

/** Yields what may happen to a file; true if its end may be missing. */
function* damagesOf(
  bytes: Buffer,
): Generator<[what: string, bytes: Buffer, isShorter: boolean]> {
  for (let at = 0; at < bytes.length; at++) {
    yield [`${at} bytes`, bytes.subarray(0, at), true];
    const flipped = Buffer.from(bytes);
    flipped[at] = (flipped[at] ?? 0) ^ 1 << (at + seed) % 8;
    yield [`a bit of ${at}`, flipped, false];
    if (at % 512 > 0) continue;
    const zeroed = Buffer.from(bytes);
    zeroed.subarray(at, at + 512).fill(0);
    yield [`sector of ${at}`, zeroed, true];
  }
  const lines = bytes.toString("latin1").split(/(?<=\n)/);
  for (const [at, line] of lines.entries()) {
    const next = lines[at + 1] ?? "";
    for (
      const [other, count] of [["", 1], [line + line, 1], [
        next + line,
        2,
      ]] as const
    ) {
      const text = lines.toSpliced(at, count, other).join("");
      yield [`line ${at}`, Buffer.from(text, "latin1"), other + next === ""];
    }
  }
}

await prove("Damage of any file is refused, or nothing is lost", async () => {
  const all = await sample();
  const without = await sample();
  const last = logName(all.generation);
  const read = async (disk: Disk, name: string, bytes: Buffer) => {
    const tables = tablesOf(declared);
    await readFolder(disk.with(name, bytes).folder, tables);
    return textOf(tables);
  };
  await assert.rejects(read(all.disk, last, linesOf(without.disk, last)));
  const unended = linesOf(all.disk, last).subarray(0, -1);
  await judge(all.disk.with(last, unended), all.model.possible, last);
  without.disk.names.delete(snapshotName(without.generation));
  for (const name of all.disk.names.keys()) {
    const generation = generationOf(name);
    if (generation === 0) continue;
    const { disk, model: { history } } = generation < all.generation
      ? without
      : all;
    const whole = linesOf(disk, name);
    if (name !== last) {
      const more = Buffer.concat([whole, Buffer.from("{")]);
      await assert.rejects(read(disk, name, more));
    }
    for (const [what, bytes, isShorter] of damagesOf(whole)) {
      try {
        const found = await read(disk, name, bytes);
        // Nothing that an intact line proves may be missing, and nothing at all but from the end of the last log.
        const proofs = bytes.toString().matchAll(/"durable":(\d+),.*\n/g);
        const proven = Math.max(
          0,
          ...Array.from(proofs, ([, seq]) => Number(seq)),
        );
        const allowed = history.slice(
          isShorter && name === last ? proven : -1,
        );
        assert.ok(allowed.includes(found), `${name}, ${what}: ${found}`);
      } catch (error) {
        assert.match(
          String(error),
          /(wal|snapshot)-\d+\.jsonl is damaged/,
        );
      }
    }
  }
});

await prove("A snapshot has only what was written before", async () => {
  const place: Place = {
    salt: "",
    isLong: true,
    append: () => Promise.resolve(),
    rotate: (seq, snapshot) => {
      const text = Array.from(snapshot({} as Header)).join("");
      assert.equal(text.match(/"id"/g)?.length, seq);
      return Promise.resolve();
    },
    close: () => Promise.resolve(),
  };
  const store = new Store(place, tablesOf(declared), { seq: 0, at: "" });
  for (let id = 1; id < 9; id++) {
    store.transact(1, [["put", "zoos", { id, name: "x".repeat(1 << 20) }]]);
  }
  await store.close();
  assert.equal(store.durableSeq, 8); // a stop waits, and nothing has failed
});

await prove(
  "A log that was moved, removed or extended is noticed",
  async () => {
    for (const change of ["remove", "replace", "extend"]) {
      const disk = new Disk();
      const model = new Model();
      const store = await open(disk, 8 * logBytes);
      await model.run(store, [["put", "zoos", { id: 1, name: "one" }]]);
      const { bytes = Buffer.alloc(0) } = disk.names.get("wal-1.jsonl") ?? {};
      if (change === "remove") disk.names.delete("wal-1.jsonl");
      if (change === "replace") {
        disk.names = disk.with("wal-1.jsonl", bytes).names;
      }
      if (change === "extend") {
        Object.assign(disk.names.get("wal-1.jsonl") ?? {}, {
          bytes: Buffer.concat([bytes, bytes]),
        });
      }
      await model.run(store, [["put", "zoos", { id: 2, name: "two" }]]);
      assert.ok(model.isFailed && store.fault);
      await store.close();
    }
  },
);

for (const [title, failure] of failures) {
  test(title, () => assert.ifError(failure));
}
