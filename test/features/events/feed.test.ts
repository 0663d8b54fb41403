/** The change feed: each durable transaction in order, exactly once. */

import assert from "node:assert/strict";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import {
  ChangeFeed,
  type LogPosition,
  positionOf,
  type Subscriber,
  type Transaction,
} from "../../../src/features/events/feed.ts";
import {
  type FileSystem,
  type Mutation,
  realFiles,
  type Store,
} from "../../../src/store/store.ts";
import { Disk } from "../../torture/disk.ts";
import { Random } from "../../torture/random.ts";
import { folderFor, openFor } from "../../store/support.ts";
import { commit } from "../../commit.ts";

type Feed = ReturnType<ChangeFeed["changes"]>;

const put = (id: number, text = ""): Mutation[] => [
  ["put", "zoos", { id, text }],
];

const feeds = new WeakMap<Store, ChangeFeed>();

/** Follows a change feed; `return` ends it even while it waits. */
function subscribe(feed: ChangeFeed, after: number | LogPosition): Feed {
  const subscriber: Subscriber = { isEnded: false, wake: () => {} };
  const items = (async function* (): Feed {
    const isKnown = typeof after !== "number";
    yield* feed.changes(subscriber, isKnown ? after : await feed.find(after));
  })();
  const end = items.return.bind(items);
  return Object.assign(items, {
    return: () => {
      subscriber.isEnded = true;
      subscriber.wake();
      return end(undefined);
    },
  });
}

/** Follows the one change feed of a store. */
function follow(
  store: Store,
  after: number | LogPosition = positionOf(store),
): Feed {
  const feed = feeds.get(store) ?? new ChangeFeed(store, () => {});
  feeds.set(store, feed);
  return subscribe(feed, after);
}

function isTransaction(item: unknown): item is Transaction {
  return typeof item === "object" && item !== null && "mutations" in item;
}

/** Returns the next transaction; fails the test on a reset or the end. */
async function next(feed: Feed): Promise<Transaction> {
  const { value } = await feed.next();
  assert.ok(isTransaction(value), JSON.stringify(value));
  return value;
}

/** Returns the next `count` transactions. */
async function take(feed: Feed, count: number): Promise<Transaction[]> {
  const found: Transaction[] = [];
  while (found.length < count) found.push(await next(feed));
  return found;
}

/** Returns the sequence number of the next reset; fails the test on anything else. */
async function reset(feed: Feed): Promise<number> {
  const { value } = await feed.next();
  assert.ok(value && !isTransaction(value), JSON.stringify(value));
  return value.seq;
}

/** Real files that record each opening of a log for reading. */
function counting(): { files: FileSystem; reads: string[] } {
  const reads: string[] = [];
  const files: FileSystem = {
    ...realFiles,
    open: (path, how) => {
      if (how === "read" && path.includes("wal-")) reads.push(path);
      return realFiles.open(path, how);
    },
  };
  return { files, reads };
}

test("a subscriber that disconnects a hundred times gets each transaction once, over rotations and restarts", async (t) => {
  const folder = await folderFor(t);
  const random = new Random(7);
  let seen = 0;
  let cuts = 0;
  let generation = 0;
  for (const last of [500, 1000, 1500]) {
    const store = await openFor(t, folder);
    const from = store.seq;
    let rotated = Promise.resolve();
    const following = (async () => {
      while (seen < last) {
        const feed = follow(store, seen);
        for (
          let left = 1 + random.below(20);
          left > 0 && seen < last;
          left--
        ) {
          const { seq, mutations } = await next(feed);
          assert.equal(seq, seen + 1);
          assert.ok(seq <= store.durableSeq);
          assert.equal(mutations[0]?.[0], "put");
          assert.deepEqual(mutations[0]?.slice(1), [
            "zoos",
            { id: seq % 20 + 1, text: `${seq} ${"x".repeat(seq % 300)}` },
          ]);
          seen = seq;
        }
        await feed.return(undefined);
        cuts++;
      }
    })();
    await Promise.all(Array.from({ length: 4 }, async (_, writer) => {
      for (let seq = from + 1 + writer; seq <= last; seq += 4) {
        // So that a log is never removed before it was read: no reset.
        while (store.seq !== seq - 1 || seq > seen + 25) await turn();
        const text = `${seq} ${"x".repeat(seq % 300)}`;
        await commit(store, put(seq % 20 + 1, text), seq % 7);
        if (seq % 100 > 0) continue;
        await rotated; // so that each of them is one of its own
        rotated = store.checkpoint();
      }
    }));
    await Promise.all([following, rotated]);
    generation = store.log.generation;
    await store.close();
  }
  assert.ok(cuts >= 100, `${cuts} cuts`);
  assert.ok(generation >= 10, `${generation} generations`);
});

test("a thousand subscribers share one read and one decoded transaction", async (t) => {
  const { files, reads } = counting();
  const store = await openFor(t, await folderFor(t), { files });
  await commit(store, put(1), 0);
  const feeds = Array.from({ length: 1000 }, () => follow(store));
  const before = reads.length;
  for (let id = 2; id <= 11; id++) {
    const waiting = feeds.map((feed) => next(feed));
    await commit(store, put(id), 0);
    const [first, ...others] = await Promise.all(waiting);
    assert.equal(first?.seq, id);
    for (const other of others) assert.equal(other, first);
  }
  assert.equal(reads.length - before, 10);
});

test("a thousand transactions, or a mebibyte, are cached, and an older one is read again", async (t) => {
  const store = await openFor(t, await folderFor(t));
  const start = positionOf(store);
  const live = follow(store);
  const ids = Array.from({ length: 1001 }, (_, index) => index + 1);
  await Promise.all(ids.map((id) => commit(store, put(id), 0)));
  const [first, second] = await take(live, 1001);
  assert.ok(first && second);
  assert.equal(await next(follow(store, first.end)), second);
  const again = await next(follow(store, start));
  assert.notEqual(again, first);
  assert.deepEqual(again, first);

  const middle = positionOf(store);
  for (const id of [1, 2]) await commit(store, put(id, "x".repeat(6e5)), 0);
  const [large] = await take(live, 2);
  const reread = await next(follow(store, middle));
  assert.notEqual(reread, large);
  assert.deepEqual(reread, large);
});

test("a write without subscribers is never read back", async (t) => {
  const { files, reads } = counting();
  const store = await openFor(t, await folderFor(t), { files });
  const before = reads.length;
  for (let id = 1; id <= 50; id++) await commit(store, put(id), 0);
  assert.equal(reads.length, before);
});

test("a thousand idle subscribers throughout the log hold no memory, and all resume", async (t) => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const used = () => {
    collect();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return (heapUsed + arrayBuffers) / (1 << 20);
  };
  const limits = { minLogBytes: 100 << 20, maxQueueBytes: 100 << 20 };
  const store = await openFor(t, await folderFor(t), { limits });
  const text = "x".repeat(1000);
  const count = 4000;
  for (let seq = 1; seq <= count; seq++) commit(store, put(1, text), 0);
  await store.durable(count);
  const before = used();
  const feeds = Array.from(
    { length: 1000 },
    (_, at) => follow(store, at * 4),
  );
  const firsts = await Promise.all(feeds.map((feed) => next(feed)));
  firsts.forEach(({ seq }, at) => assert.equal(seq, at * 4 + 1));
  firsts.length = 0;
  // The memory of buffers is released some time after a collection.
  let grown = used() - before;
  for (let tries = 0; grown >= 8 && tries < 100; tries++) {
    await wait(10);
    grown = used() - before;
  }
  assert.ok(grown < 8, `${grown} MiB`); // a part of the log for each is far more
  for (const [at, feed] of feeds.entries()) {
    if (at % 50 !== 0) continue;
    const rest = await take(feed, 100);
    assert.equal(rest.at(-1)?.seq, at * 4 + 101);
  }
});

test("subscribers that catch up do not block the event loop", async (t) => {
  const store = await openFor(t, await folderFor(t));
  for (let seq = 1; seq <= 200; seq++) commit(store, put(1), 0);
  await store.durable(200);
  let turns = 0;
  let done = false;
  const others = (async () => {
    for (; !done; turns++) await turn();
  })();
  await Promise.all(
    Array.from({ length: 100 }, () => take(follow(store, 0), 200)),
  );
  done = true;
  await others;
  assert.ok(turns >= 100 * 200 / 1000, `only ${turns} turns`);
});

test("a transaction has its mutations in order, live and after a restart", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  const live = follow(store);
  await commit(store, [...put(5), ...put(3)], 1);
  await commit(store, [...put(5, "again"), ...put(6)], 2);
  await commit(store, [["del", "zoos", 5], ["del", "zoos", 6]], 3);
  const found = await take(live, 3);
  assert.deepEqual(found.map(({ mutations }) => mutations), [
    [["put", "zoos", { id: 5, text: "" }], ["put", "zoos", {
      id: 3,
      text: "",
    }]],
    [["put", "zoos", { id: 5, text: "again" }], ["put", "zoos", {
      id: 6,
      text: "",
    }]],
    [["del", "zoos", 5], ["del", "zoos", 6]],
  ]);
  await store.close();
  const again = await openFor(t, folder);
  assert.deepEqual(await take(follow(again, 0), 3), found);
});

test("a write that is not durable is not delivered, and one that is rolled back never is", async (t) => {
  const disk = new Disk({ folder: await folderFor(t) });
  const limits = { reserveBytes: 30_000, retryMs: 1 };
  const store = await openFor(t, disk.folder, { files: disk, limits });
  await commit(store, put(1), 0);
  const feed = follow(store);
  let shown = false;
  const first = next(feed).then((found) => {
    shown = true;
    return found;
  });
  let release = () => {};
  const held = new Promise<undefined>((resolve) => {
    release = () => resolve(undefined);
  });
  disk.fate = ({ kind, name }) =>
    kind === "sync" && name === "wal-1.jsonl" ? held : undefined;
  const done = commit(store, put(2, "first"), 0);
  for (let turns = 0; turns < 50; turns++) await turn();
  assert.equal(shown, false);
  assert.equal(store.seq, 2);
  release();
  await done;
  assert.deepEqual((await first).mutations[0]?.[2], { id: 2, text: "first" });
  // Of the two writes, the first is whole in the file until it is truncated.
  let cutting = () => {};
  let cut = () => {};
  const begun = new Promise<void>((resolve) => cutting = resolve);
  const cutBack = new Promise<undefined>((resolve) => {
    cut = () => resolve(undefined);
  });
  disk.fate = ({ kind, name }) => {
    if (name !== "wal-1.jsonl") return undefined;
    if (kind === "write") return { error: "ENOSPC", half: true };
    if (kind !== "truncate") return undefined;
    cutting();
    return cutBack;
  };
  const refused = [put(3, "refused"), put(4, "x".repeat(500))].map((each) =>
    assert.rejects(commit(store, each, 0), { code: "disk-full" })
  );
  await begun;
  assert.match(disk.contents().get("wal-1.jsonl")?.toString() ?? "", /refused/);
  const behind = follow(store, 0);
  await take(behind, 2);
  cut();
  await Promise.all(refused);
  disk.fate = () => undefined;
  while (store.fullDisk?.isFull) await turn();
  await commit(store, put(3, "taken"), 0);
  for (const each of [feed, behind]) {
    const { seq, mutations } = await next(each);
    assert.equal(seq, 3);
    assert.deepEqual(mutations[0], ["put", "zoos", { id: 3, text: "taken" }]);
  }
});

/** How many power cuts there are; more in the whole check. */
const rounds = process.env["WHOLE"] === "1" ? 100 : 12;

test("a delivered transaction survives a power cut at any step", async (t) => {
  const random = new Random(23);
  let checked = 0;
  for (let round = 0; round < rounds; round++) {
    const disk = new Disk({ folder: await folderFor(t) });
    const limits = { minLogBytes: 6000, maxBatchBytes: 4000, reserveBytes: 0 };
    const store = await openFor(t, disk.folder, { files: disk, limits });
    const death = disk.steps + 1 + random.below(300);
    disk.fate = ({ number }) => {
      if (number >= death) disk.kill();
      return undefined;
    };
    const shown: Transaction[] = [];
    const feed = follow(store, 0);
    const listening = (async () => {
      for await (const item of feed) if (isTransaction(item)) shown.push(item);
    })();
    await Promise.all(Array.from({ length: 4 }, async (_, id) => {
      while (store.isWritable && !disk.dead) {
        await commit(store, put(id + 1, "x".repeat(random.below(400))), id)
          .catch(() => {});
      }
    }));
    await feed.return(undefined);
    await listening;
    await store.close().catch(() => {});
    const crashed = disk.crash(await folderFor(t), random);
    const again = await openFor(t, crashed.folder, { files: crashed, limits });
    assert.ok(again.seq >= (shown.at(-1)?.seq ?? 0));
    const first = shown.findIndex(({ seq }) => seq > again.seq - 30);
    if (first < 0) continue;
    const kept = follow(again, shown[first]?.seq ?? 0);
    for (const each of shown.slice(first + 1)) {
      const { value } = await kept.next();
      if (value && !isTransaction(value)) break;
      assert.deepEqual(value, each);
      checked++;
    }
    await again.close();
  }
  assert.ok(checked > 100, `only ${checked}`);
});

test("a feed continues over any number of rotations without a write between", async (t) => {
  const store = await openFor(t, await folderFor(t));
  await commit(store, put(1), 0);
  const live = follow(store);
  const waiting = next(live);
  const resumed = follow(store, 1);
  for (let round = 0; round < 4; round++) await store.checkpoint();
  await commit(store, put(2), 0);
  assert.equal((await waiting).seq, 2);
  assert.equal((await next(resumed)).seq, 2);
});

test("a sequence number that is too old, or was never used, is a reset, after which nothing is missed", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  for (let id = 1; id <= 10; id++) {
    await commit(store, put(id), 0);
    if (id === 3 || id === 6) await store.checkpoint();
  }
  // 4 to 6 are in the log of the earlier generation, 7 to 10 in the current one.
  assert.equal((await next(follow(store, 3))).seq, 4);
  assert.deepEqual(
    (await take(follow(store, 5), 5)).map(({ seq }) => seq),
    [6, 7, 8, 9, 10],
  );
  for (const after of [0, 2, "next", 1e9] as const) {
    const feed = follow(store, after === "next" ? store.seq + 1 : after);
    assert.equal(await reset(feed), store.durableSeq);
    const { seq } = await commit(store, put(1), 0).then(() => next(feed));
    assert.equal(seq, store.durableSeq);
    await feed.return(undefined);
  }
});

test("a log that is removed while it is read ends in a reset, after correct transactions", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  const text = "x".repeat(1000);
  for (let id = 1; id <= 5000; id++) commit(store, put(id, text), 0);
  await store.durable(5000);
  const feed = follow(store, 0);
  assert.equal((await next(feed)).seq, 1);
  await store.checkpoint();
  await store.checkpoint();
  await rm(join(folder, "wal-1.jsonl"), { force: true });
  for (let seq = 2;; seq++) {
    const { value } = await feed.next();
    if (value && !isTransaction(value)) {
      assert.equal(value.seq, 5000);
      assert.ok(seq > 2 && seq < 5000, `at ${seq}`);
      break;
    }
    assert.equal(value?.seq, seq);
  }
  await commit(store, put(1), 0);
  assert.equal((await next(feed)).seq, 5001);
});

test("a damaged log is a reset, and is reported", async (t) => {
  const folder = await folderFor(t);
  const errors: unknown[] = [];
  const store = await openFor(t, folder);
  for (let id = 1; id <= 10; id++) await commit(store, put(id), 0);
  const path = join(folder, "wal-1.jsonl");
  const bytes = await readFile(path);
  const place = bytes.indexOf('"seq":6,') + 5;
  bytes[bytes.indexOf("text", place)] = 0x54;
  await writeFile(path, bytes);
  const feed = new ChangeFeed(store, (error) => errors.push(error));
  assert.equal(await reset(subscribe(feed, 5)), 10);
  assert.match(errors.join(), /wal-1\.jsonl is damaged at byte \d+/);
});

test("transactions larger than the cache are delivered too, each once", async (t) => {
  const store = await openFor(t, await folderFor(t));
  const live = [follow(store), follow(store)];
  const text = "x".repeat(1 << 20);
  for (const id of [1, 2, 3, 4]) {
    await Promise.all([
      commit(store, put(id, "small"), 0),
      commit(store, put(id, text + text), 0),
    ]);
  }
  for (const feed of [...live, follow(store, 0)]) {
    const found = await take(feed, 8);
    assert.deepEqual(found.map(({ seq }) => seq), [1, 2, 3, 4, 5, 6, 7, 8]);
  }
  assert.equal((await next(follow(store, 5))).seq, 6);
});

test("a feed ends when it is returned, even while it waits, and all end with the feed", async (t) => {
  const store = await openFor(t, await folderFor(t));
  const [one, other, unused] = [1, 2, 3].map(() => follow(store));
  const waiting = one?.next();
  await turn();
  assert.deepEqual(await one?.return(undefined), {
    value: undefined,
    done: true,
  });
  assert.deepEqual(await waiting, { value: undefined, done: true });
  const last = other?.next();
  await turn();
  await feeds.get(store)?.close();
  const ended = { value: undefined, done: true };
  assert.deepEqual(await last, ended);
  assert.deepEqual(await unused?.next(), ended);
  assert.deepEqual(await follow(store, 0).next(), ended);
});

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
