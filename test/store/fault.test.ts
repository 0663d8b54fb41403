import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { setTimeout } from "node:timers/promises";
import { type Mutation, openStore, type Store } from "../../src/store/store.ts";
import { defaultLimits } from "../../src/store/options.ts";
import { Disk, type Fate, type Step } from "../torture/disk.ts";
import { folderFor, openFor, tables } from "./support.ts";
import { commit } from "../commit.ts";

async function diskFor(t: TestContext): Promise<Disk> {
  return new Disk({ folder: await folderFor(t) });
}

function open(t: TestContext, disk: Disk): Promise<Store> {
  const limits = { reserveBytes: 30_000, maxBatchBytes: 5000, retryMs: 5 };
  return openFor(t, disk.folder, { files: disk, limits });
}

/** Gives the next operation of a kind on the log this outcome, once. */
function once(disk: Disk, kind: Step["kind"], fate: Fate): void {
  disk.fate = (step) => {
    if (step.kind !== kind || !/^wal-\d+\.jsonl$/.test(step.name)) return;
    disk.fate = () => undefined;
    return fate;
  };
}

const zoo = (id: number, text = "") => [["put", "zoos", { id, text }]] as const;

for (const error of ["ENOSPC", "EDQUOT", "EFBIG", "short"]) {
  test(`a write that ends with ${error} changes nothing and the next succeeds`, async (t) => {
    const disk = await diskFor(t);
    const store = await open(t, disk);
    await commit(store, zoo(1), 0);
    once(
      disk,
      "write",
      error === "short" ? { short: 20 } : { error, half: true },
    );
    const first = commit(store, zoo(2), 0);
    const second = commit(
      store,
      [["put", "zoos", { id: 1, changed: true }]],
      0,
    );
    const shown = store.durable(store.seq);
    await assert.rejects(first, { code: "disk-full" });
    await assert.rejects(second, { code: "disk-full" });
    await assert.rejects(shown ?? Promise.resolve(), { code: "disk-full" });
    assert.equal(store.table("zoos").get(2), undefined);
    assert.deepEqual(store.table("zoos").get(1)?.document, { id: 1, text: "" });
    assert.equal(store.table("zoos").lastId, 1);
    assert.equal(store.table("zoos").lastSeq, 1);
    assert.equal(store.seq, 1);
    assert.equal(store.isWritable, true);
    await until(() => !store.fullDisk?.isFull);
    await commit(store, zoo(2), 0);
    await store.close();
    assert.equal((await open(t, disk)).table("zoos").size, 2);
  });
}

test("very many deletes for which there is no space are all rolled back, in every index", async (t) => {
  const disk = await diskFor(t);
  const store = await open(t, disk);
  const ids = Array.from({ length: 25_000 }, (_, place) => place + 1);
  const put = (id: number): Mutation => ["put", "animals", { id, zoo_id: 7 }];
  await commit(store, ids.map(put), 0);
  const table = store.table("animals");
  once(disk, "write", { error: "ENOSPC" });
  const removed = commit(store, ids.map((id) => ["del", "animals", id]), 0);
  assert.deepEqual([table.rows(), table.find("zoo_id", 7)], [[], []]);
  await assert.rejects(removed, { code: "disk-full" });
  for (const rows of [table.rows(), table.find("zoo_id", 7)]) {
    assert.deepEqual(rows.map(({ document: { id } }) => id), ids);
  }
});

for (
  const [kind, error] of [
    ["write", "EIO"],
    ["write", "EROFS"],
    ["sync", "EIO"],
    ["sync", "ENOSPC"],
    ["stat", "EIO"],
  ] as const
) {
  test(`a ${kind} that ends with ${error} makes the store read-only, and reads stay right`, async (t) => {
    const disk = await diskFor(t);
    const store = await open(t, disk);
    await commit(store, zoo(1), 0);
    once(disk, kind, { error });
    const lost = commit(store, zoo(2), 0);
    const shown = store.durable(2);
    await assert.rejects(lost, { code: "outcome-unknown" });
    await assert.rejects(shown ?? Promise.resolve(), {
      code: "outcome-unknown",
    });
    assert.equal(store.isWritable, false);
    assert.equal(store.table("zoos").size, 1);
    assert.equal(store.durable(1), undefined);
    assert.throws(() => store.apply(zoo(3), 0), { code: "read-only" });
    await store.close();
    const again = await open(t, disk);
    assert.ok(again.table("zoos").size >= 1);
    await commit(again, zoo(3), 0);
  });
}

for (
  const [what, kind] of [
    ["that cannot be cut back", "truncate"],
    ["whose cut cannot be synced", "sync"],
  ] as const
) {
  test(`a full disk with a log ${what} makes the store read-only`, async (t) => {
    const disk = await diskFor(t);
    const store = await open(t, disk);
    await commit(store, zoo(1), 0);
    const done: string[] = [];
    disk.fate = (step) => {
      if (!/^wal-\d+\.jsonl$/.test(step.name)) return undefined;
      done.push(step.kind);
      if (step.kind === "write") return { error: "ENOSPC", half: true };
      return step.kind === kind ? { error: "EIO" } : undefined;
    };
    const lost = commit(store, zoo(2), 0);
    const shown = store.durable(2);
    await assert.rejects(lost, { code: "outcome-unknown" });
    await assert.rejects(shown ?? Promise.resolve(), {
      code: "outcome-unknown",
    });
    // Nothing is retried.
    const tried = ["write", "truncate", "sync"];
    assert.deepEqual(done, tried.slice(0, tried.indexOf(kind) + 1));
    disk.fate = () => undefined;
    assert.equal(store.isWritable, false);
    assert.equal(store.table("zoos").size, 1);
    assert.equal(store.durable(1), undefined);
    assert.throws(() => store.apply(zoo(3), 0), { code: "read-only" });
    await assert.rejects(store.checkpoint(), { code: "outcome-unknown" });
    assert.deepEqual(done, tried.slice(0, tried.indexOf(kind) + 1));
    await store.close();
    const again = await open(t, disk);
    assert.equal(again.table("zoos").size, 1);
    await commit(again, zoo(2), 0);
  });
}

test("a full disk accepts deletes, frees their space and then accepts writes again", async (t) => {
  const disk = await diskFor(t);
  const store = await open(t, disk);
  disk.capacity = 120_000;
  const text = "x".repeat(1000);
  let id = 0;
  while (!store.fullDisk?.isFull) {
    await commit(store, zoo(++id, text), 0).catch(() => id--);
  }
  assert.ok(id > 50, `only ${id}`);
  assert.throws(() => store.apply(zoo(id + 1, text), 0), {
    code: "disk-full",
  });
  for (let each = 1; each < id - 5; each++) {
    await commit(store, [["del", "zoos", each]], 0);
  }
  await until(() => !store.fullDisk?.isFull);
  await commit(store, zoo(id + 1, text), 0);
  await store.close();
  assert.equal((await open(t, disk)).table("zoos").size, 7);
});

test("a full disk without the space for a snapshot is reported once, however often that is tried", async (t) => {
  const disk = await diskFor(t);
  const limits = { reserveBytes: 30_000, maxBatchBytes: 5000, retryMs: 5 };
  const errors: string[] = [];
  const log = (level: string, message: string) => {
    if (level === "error") errors.push(message);
  };
  const store = await openFor(t, disk.folder, { files: disk, limits, log });
  disk.capacity = 120_000;
  for (let id = 1; !store.fullDisk?.isFull; id++) {
    await commit(store, zoo(id, "x".repeat(1000)), 0).catch(() => {});
  }
  disk.capacity = 0;
  let attempts = 0;
  disk.fate = ({ kind }) => {
    if (kind === "free") disk.capacity = ++attempts % 7; // others use the disk, too
    return undefined;
  };
  await until(() => attempts > 30);
  const [refusal, ...reports] = errors;
  assert.match(refusal ?? "", /the disk is full/i);
  assert.equal(new Set(reports).size, reports.length, errors.join("\n"));
  assert.ok(reports.length < 5, errors.join("\n"));
  assert.match(reports.at(-1) ?? "", /^Cannot free disk space: \d+ bytes /);
  // An error of another kind is reported, too, and what fails is tried again.
  disk.fate = ({ kind, name }) =>
    kind === "create" && name === "reserve" ? { error: "EIO" } : undefined;
  disk.capacity = 1_000_000;
  await until(() => errors.some((message) => /EIO/.test(message)));
  disk.fate = () => undefined;
  disk.capacity = Infinity;
  await until(() => !store.fullDisk?.isFull);
});

test("a store can be restarted on a full disk after a crash, and freed by deletes", async (t) => {
  const disk = await diskFor(t);
  const store = await open(t, disk);
  disk.capacity = 60_000;
  const text = "x".repeat(1000);
  let id = 0;
  while (!store.fullDisk?.isFull) {
    await commit(store, zoo(++id, text), 0).catch(() => id--);
  }
  disk.kill();
  const folder = join(disk.folder, "again");
  await mkdir(folder);
  const survivor = disk.survivor(folder);
  const again = await open(t, survivor);
  assert.equal(again.table("zoos").size, id);
  for (let each = 1; each < id; each++) {
    await commit(again, [["del", "zoos", each]], 0);
  }
  await until(() => !again.fullDisk?.isFull);
  await commit(again, zoo(id + 1), 0);
});

test("a start without enough space says how much it needs, and the store has warned of it", async (t) => {
  const disk = await diskFor(t);
  const store = await open(t, disk);
  assert.equal(await store.fullDisk?.missingBytes(), 0);
  const text = "x".repeat(1000);
  for (let id = 1; id <= 60; id++) await commit(store, zoo(id, text), 0);
  const log = store.log.offset;
  // There is space for a batch, but not for a copy of the log.
  disk.capacity = log + 30_000 + 20_000;
  const missing = await store.fullDisk?.missingBytes() ?? -1;
  assert.ok(missing > log - 60_000 && missing < log, `${missing}`);
  disk.kill();
  const folder = join(disk.folder, "again");
  await mkdir(folder);
  const survivor = disk.survivor(folder);
  survivor.capacity = log + 20_000;
  await assert.rejects(openFor(t, folder, { files: survivor }), {
    code: "disk-full",
    message:
      /the disk is full\. At least \d{5} bytes must be free to start, but only \d+ are: delete/,
  });
  survivor.capacity = Infinity;
  const again = await openFor(t, folder, { files: survivor });
  assert.equal(again.table("zoos").size, 60);
});

const hasProc = existsSync("/proc/self");
test("a folder that cannot be created is an error, also below /proc", {
  skip: hasProc ? false : "there is no /proc",
}, async (t) => {
  await assert.rejects(openFor(t, "/proc/nothing/store", {}), {
    code: "unusable",
    message: /ENOENT/,
  });
});

test("space that other programs free is used without a restart", async (t) => {
  const disk = await diskFor(t);
  const store = await open(t, disk);
  disk.capacity = 40_000;
  const text = "x".repeat(4000);
  let id = 0;
  while (!store.fullDisk?.isFull) {
    await commit(store, zoo(++id, text), 0).catch(() => id--);
  }
  disk.capacity = Infinity;
  await until(() => !store.fullDisk?.isFull);
  await commit(store, zoo(id + 1, text), 0);
});

test("without a reserve a full disk refuses every write and loses nothing", async (t) => {
  const disk = await diskFor(t);
  const files = disk;
  const store = await openStore({ folder: disk.folder, files, tables });
  t.after(() => store.close());
  await commit(store, zoo(1), 0);
  disk.capacity = [...disk.contents().values()]
    .reduce((sum, { length }) => sum + length, 0);
  const text = "x".repeat(5000);
  for (let time = 0; time < 3; time++) {
    await assert.rejects(commit(store, zoo(2, text), 0), { code: "disk-full" });
  }
  assert.equal(store.table("zoos").size, 1);
  assert.equal(store.isWritable, true);
  assert.equal(store.fullDisk?.isFull ?? false, false);
  disk.capacity = Infinity;
  await commit(store, zoo(2, text), 0);
  await store.close();
  assert.ok(!disk.contents().has("reserve"));
  const again = await openStore({ folder: disk.folder, files, tables });
  assert.equal(again.table("zoos").size, 2);
  await again.close();
});

test("a failed checkpoint is dropped, the log continues, and it is tried again", async (t) => {
  const disk = await diskFor(t);
  const { folder } = disk;
  const limits = { minLogBytes: 20_000, checkpointRetryMs: 1, reserveBytes: 0 };
  const store = await openFor(t, folder, { files: disk, limits });
  let failed = 0;
  disk.fate = ({ kind, name }) => {
    if (kind !== "write" || !name.startsWith("snapshot-") || failed >= 3) {
      return;
    }
    failed++;
    return { error: "EIO", half: true };
  };
  let id = 0;
  const snapshots = () =>
    [...disk.contents().keys()].filter((name) => name.startsWith("snapshot"));
  while (snapshots().length < 2) {
    await commit(store, zoo(++id % 10 + 1, "x".repeat(100)), 0);
    assert.ok(id < 10_000, "no snapshot was written");
    await setTimeout(1); // the lock is a real file, and asking for it may take long
  }
  assert.equal(failed, 3);
  assert.equal(store.isWritable, true);
});

test("a checkpoint that failed after the rotation is tried again at the next write", async (t) => {
  const disk = await diskFor(t);
  const limits = { checkpointRetryMs: 1, reserveBytes: 0 };
  const store = await openFor(t, disk.folder, { files: disk, limits });
  await commit(store, zoo(1), 0);
  disk.fate = ({ kind, name }) =>
    kind === "write" && name.startsWith("snapshot-")
      ? { error: "EIO" }
      : undefined;
  await assert.rejects(store.checkpoint(), /EIO/);
  disk.fate = () => undefined;
  const snapshot = () =>
    [...disk.contents().keys()].some((name) =>
      /^snapshot-\d+\.jsonl$/.test(name)
    );
  for (let write = 0; !snapshot(); write++) {
    await commit(store, zoo(1), 0);
    assert.ok(write < 10_000, "no snapshot was written");
    await setTimeout(1);
  }
  // Far less than the length that makes one due.
  assert.ok(store.log.offset < defaultLimits.minLogBytes / 4);
});

test("a checkpoint does not begin without the space for it", async (t) => {
  const disk = await diskFor(t);
  const store = await open(t, disk);
  for (let id = 1; id <= 10; id++) {
    await commit(store, zoo(id, "x".repeat(1000)), 0);
  }
  let used = 0;
  for (const { length } of disk.contents().values()) used += length;
  disk.capacity = used + 5000;
  const { steps } = disk;
  await assert.rejects(store.checkpoint(), /5000 bytes are free/);
  assert.equal(disk.steps, steps + 1); // which asked for the space
});

test("a slow fsync delays only its own writers", async (t) => {
  const disk = await diskFor(t);
  const store = await open(t, disk);
  await commit(store, zoo(1), 0);
  let release = () => {};
  let syncing = () => {};
  const begun = new Promise<void>((resolve) => syncing = resolve);
  const held = new Promise<undefined>((resolve) => {
    release = () => resolve(undefined);
  });
  disk.fate = ({ kind, name }) => {
    if (kind !== "sync" || name !== "wal-1.jsonl") return undefined;
    syncing();
    return held;
  };
  const order: string[] = [];
  const writes = [2, 3].map((id) =>
    commit(store, zoo(id), 0).then(() => order.push(`write ${id}`))
  );
  const reads = [2, 3].map((seq) =>
    store.durable(seq)?.then(() => order.push(`read ${seq}`))
  );
  await begun;
  // One that comes while the disk is busy waits for the next fsync.
  const late = commit(store, zoo(4), 0).then(() => order.push("write 4"));
  for (let turn = 0; turn < 1000; turn++) {
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(store.durable(1), undefined);
    assert.deepEqual(order, []);
  }
  assert.equal(store.durableSeq, 1);
  order.push("fsync");
  release();
  await Promise.all([...writes, ...reads, late]);
  assert.equal(order[0], "fsync");
  assert.deepEqual(order.slice(1, 5).toSorted(), [
    "read 2",
    "read 3",
    "write 2",
    "write 3",
  ]);
  assert.equal(order[5], "write 4");
});

test("a log that another process removed or changed makes the store read-only", async (t) => {
  for (const harm of ["remove", "append"]) {
    const disk = new Disk({ folder: await folderFor(t) });
    const store = await open(t, disk);
    await commit(store, zoo(1), 0);
    const path = join(disk.folder, "wal-1.jsonl");
    if (harm === "remove") await disk.remove(path);
    else {
      const file = await disk.open(path, "write");
      const { size } = await file.stat();
      await file.write(new Uint8Array(1000), size);
    }
    await assert.rejects(commit(store, zoo(2), 0), { code: "outcome-unknown" });
    assert.equal(store.isWritable, false);
  }
});

test("in the long run, no more than twice the log is written, without the prediction of snapshots three times", async (t) => {
  const cases = [[true, 2], [false, 2], [true, 3]] as const;
  for (const [growing, most] of cases) {
    const disk = new Disk({ folder: await folderFor(t) });
    const limits = { minLogBytes: 20_000, reserveBytes: 0 };
    const { folder } = disk;
    const options = { files: disk, limits };
    const store = most === 3
      ? await openStore({ folder, tables, ...options })
      : await openFor(t, folder, options);
    let lines = 0;
    for (let id = 1; id <= 1500; id++) {
      const key = growing ? id : id % 100 + 1;
      await commit(store, zoo(key, "x".repeat(100)), 0);
      lines += 220;
    }
    await store.close();
    const amplification = disk.bytesWritten / lines;
    assert.ok(store.log.generation > 2);
    assert.ok(amplification < most, `it is ${amplification}`);
  }
});

/** Waits until a condition holds. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) {
    await setTimeout(1);
  }
}
