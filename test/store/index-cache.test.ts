import { strict as assert } from "node:assert";
import { test } from "node:test";
import { type SortedIndex } from "../../src/store/indexes/b-plus-tree.ts";
import { IndexCache } from "../../src/store/indexes/index-cache.ts";
import type { Row } from "../../src/store/memory/row.ts";
import { compareValues } from "../../src/store/indexes/row-comparator.ts";
import { rollBack, WritableTable } from "../../src/store/memory/table.ts";
import { background, visitor } from "../requester.ts";

const columns = [{ name: "name", default: null }];

function tableOf(count: number): WritableTable {
  const table = new WritableTable({ name: "zoos" });
  for (let id = 1; id <= count; id++) table.put({ id, name: `Zoo ${id}` }, id);
  return table;
}

function namesOf(index: SortedIndex): unknown[] {
  return index.slice(0, Infinity).map(({ document }) => document["name"]);
}

test("an index is built in the background, once for all who want it", async () => {
  const indexes = new IndexCache(tableOf(5000));
  const building = indexes.getOrBuild(columns, background);
  assert.ok(building instanceof Promise);
  const joined = indexes.getOrBuild(columns, background);
  assert.equal((await building).size, 5000);
  assert.equal(await joined, await building); // built once for both
  assert.equal(indexes.getOrBuild(columns, background), await building); // and cached
});

test("a scan of a few large records is interrupted too", async (t) => {
  let time = 0;
  let turns = 0;
  let timeOfTurn = 0;
  let longestTurn = 0;
  t.mock.method(performance, "now", () => time);
  const count = () => {
    turns++;
    longestTurn = Math.max(longestTurn, time - timeOfTurn);
    timeOfTurn = time;
    counting = setImmediate(count);
  };
  let counting = setImmediate(count);
  const table = tableOf(500);
  const indexes = new IndexCache(table);
  const result = indexes.scan(indexes.all(), {
    columns,
    where: () => {
      time += 0.3; // so long takes the search in a text of 100,000 characters
      return true;
    },
    use: ({ size }) => size,
    requester: background,
  });
  assert.ok(result instanceof Promise, "it waits");
  assert.equal(await result, 500);
  clearImmediate(counting);
  assert.ok(longestTurn < 20, `${longestTurn} ms in one of ${turns} turns`);
  assert.equal(table.listeners.size, 0);
});

test("an index follows puts, deletes and rollbacks", async () => {
  const table = tableOf(3);
  const indexes = new IndexCache(table);
  const index = await indexes.getOrBuild(columns, background);
  const put = table.put({ id: 2, name: "A" }, 4);
  const removed = table.delete(1, 5);
  const added = table.put({ id: 4, name: "B" }, 6);
  assert.equal(indexes.cached(columns), index);
  assert.deepEqual(namesOf(index), ["A", "B", "Zoo 3"]);
  rollBack([put, removed, added]);
  assert.equal(indexes.cached(columns), index);
  assert.deepEqual(namesOf(index), ["Zoo 1", "Zoo 2", "Zoo 3"]);
});

test("rows that change during a scan are returned in their latest version", async () => {
  const table = tableOf(3000);
  const rows = table.rows();
  const scanned = new IndexCache(table).scan({
    count: rows.length,
    rows: function* () {
      table.put({ id: 2000, name: "Zoo x" }, 3001);
      table.delete(2001, 3002);
      table.put({ id: 3001, name: "Zoo y" }, 3003);
      yield* rows;
    },
  }, {
    columns,
    where: ({ id }) => id >= 1999,
    use: (found) => namesOf(found),
    requester: background,
  });
  const names = new Set(await scanned);
  assert.equal(names.size, 1002);
  for (const name of ["Zoo 1999", "Zoo x", "Zoo y"]) assert.ok(names.has(name));
  for (const name of ["Zoo 1998", "Zoo 2000", "Zoo 2001"]) {
    assert.ok(!names.has(name));
  }
});

for (const seed of [1, 2, 3]) {
  test(`an index that is built while records change contains them all (seed ${seed})`, async () => {
    let state = seed;
    const below = (end: number) => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return Math.floor(state / 2 ** 32 * end);
    };
    const table = new WritableTable({ name: "zoos" });
    const put = (id: number, seq: number) =>
      table.put({ id, name: below(9) ? `${below(50)}` : null }, seq);
    for (let id = 1; id <= 20_000; id++) put(id, id);
    const indexes = new IndexCache(table);
    const scanned = indexes.scan(indexes.all(), {
      requester: background,
      columns,
      where: ({ name }) => name !== "7",
      use: (found) => found.slice(0, Infinity),
    });
    const building = indexes.getOrBuild(columns, background);
    let isDone = false;
    const finished = Promise.all([scanned, building]).then(() => isDone = true);
    let seq = 20_000;
    let wanted: unknown;
    const expected = () =>
      table.rows().filter(({ document: { name } }) => name !== "7")
        .toSorted((a, b) =>
          compareValues(a.document["name"] ?? null, b.document["name"] ?? null)
        );
    const settled = Promise.resolve(scanned).then(() => wanted = expected());
    while (!isDone) {
      for (let count = below(200); count > 0; count--) {
        const id = 1 + below(21_000);
        const undo = below(2) ? put(id, ++seq) : table.delete(id, ++seq);
        if (below(2) === 0) undo();
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all([finished, settled]);
    assert.ok(seq > 20_000);
    assert.deepEqual(await scanned, wanted);
    await building;
    const index = await indexes.getOrBuild(columns, background);
    assert.equal(index.size, table.size);
    const names = (rows: readonly Row[]) =>
      rows.map(({ document }) => document);
    const sorted = table.rows().toSorted((a, b) =>
      compareValues(a.document["name"] ?? null, b.document["name"] ?? null)
    );
    assert.deepEqual(names(index.slice(0, Infinity)), names(sorted));
  });
}

test("very many changes drop a cached index; running builds and scans include them", async () => {
  const table = tableOf(30_000);
  const indexes = new IndexCache(table);
  const cached = await indexes.getOrBuild(columns, background);
  const other = indexes.getOrBuild(
    [{ name: "id", default: null }, ...columns],
    background,
  );
  const scanned = indexes.scan(indexes.all(), {
    requester: background,
    columns,
    where: ({ id }) => id > 20_000,
    use: namesOf,
  });
  await new Promise((resolve) => setImmediate(resolve)); // both have started
  const ids = Array.from({ length: 25_000 }, (_, place) => place + 1);
  const undo = ids.map((id) => table.delete(id, 30_001));
  assert.equal(cached.size, 30_000, "it is no longer updated");
  const rest = table.rows().map(({ document: { name } }) => name);
  assert.equal(rest.length, 5000);
  assert.deepEqual(await scanned, rest);
  assert.deepEqual(namesOf(await other), rest);
  assert.deepEqual(
    namesOf(await indexes.getOrBuild(columns, background)),
    rest,
  );
  rollBack(undo);
  const again = namesOf(await indexes.getOrBuild(columns, background));
  assert.deepEqual(again, namesOf(cached));
});

test("an index applies a few changes at once, more in slices, while others are made", async () => {
  const table = tableOf(3000);
  const indexes = new IndexCache(table);
  const cached = await indexes.getOrBuild(columns, background);
  for (let id = 1; id <= 200; id++) table.delete(id, 3001);
  assert.equal(cached.size, 3000, "it has not been used");
  assert.equal(indexes.cached(columns), cached);
  assert.equal(cached.size, 2800);
  for (let round = 0; round < 5; round++) {
    for (let id = 201; id <= 1100; id++) {
      table.put({ id, name: `A ${round}` }, 3002 + round);
    }
  }
  assert.equal(indexes.cached(columns), undefined);
  const catchingUp = indexes.getOrBuild(columns, background);
  assert.ok(catchingUp instanceof Promise);
  // Some rows whose changes were applied by then, and some whose were not.
  await new Promise((resolve) => setImmediate(resolve));
  for (let id = 201; id <= 1100; id += 100) table.delete(id, 3010);
  table.put({ id: 3001, name: "A new one" }, 3011);
  await catchingUp;
  assert.equal(indexes.cached(columns), cached, "the same index is used");
  const expected = table.rows().map(({ document: { name } }) => String(name));
  assert.deepEqual(namesOf(cached), expected.sort());
  assert.equal(cached.size, 2800 - 9 + 1);
});

test("an index is finished even if each turn makes more changes than a slice applies", async () => {
  const table = tableOf(20_000);
  const indexes = new IndexCache(table);
  let seq = 20_000;
  for (const what of ["built", "caught up"]) {
    let isDone = false;
    const waiting = Promise.resolve(indexes.getOrBuild(columns, background))
      .then(() => isDone = true);
    for (let turn = 0; !isDone; turn++) {
      assert.ok(turn < 2000, `it is not ${what}`);
      for (let count = 0; count < 1500; count++) {
        table.put({ id: 1 + seq++ * 7919 % 20_000, name: `A ${seq}` }, seq);
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
    await waiting;
  }
  await indexes.getOrBuild(columns, background);
  const index = await indexes.getOrBuild(columns, background);
  const expected = table.rows().map(({ document: { name } }) => String(name));
  assert.deepEqual(namesOf(index), expected.sort());
});

test("any number of jobs wait, and an aborted search ends", async () => {
  const table = tableOf(8000);
  const indexes = new IndexCache(table);
  const scan = async (requester = background) =>
    await indexes.scan(indexes.all(), {
      columns,
      where: () => true,
      use: ({ size }) => size,
      requester,
    });
  const leaver = visitor();
  const left = [scan(leaver), scan(leaver)].map((each) =>
    assert.rejects(each, /has left/)
  );
  const waiting = Array.from({ length: 64 }, () => scan());
  await new Promise((resolve) => setImmediate(resolve)); // the first has begun
  leaver.leave();
  await Promise.all(left);
  assert.deepEqual(await Promise.all(waiting), waiting.map(() => 8000));
  const building = Array.from(
    { length: 20 },
    (_, at) =>
      indexes.getOrBuild(
        [{ name: `property_${at}`, default: null }],
        background,
      ),
  );
  await Promise.all(building);
  assert.equal(table.listeners.size, 8); // the cached indexes
});

test("a build that has begun is finished, although its requester leaves", async () => {
  const indexes = new IndexCache(tableOf(20_000));
  const leaver = visitor();
  const left = indexes.getOrBuild(columns, leaver);
  await new Promise((resolve) => setImmediate(resolve));
  await new Promise((resolve) => setImmediate(resolve)); // it has begun
  leaver.leave();
  await left;
  assert.equal(indexes.cached(columns)?.size, 20_000);
});

test("a build that waits is dropped with its requester, unless others want it", async () => {
  const indexes = new IndexCache(tableOf(20_000));
  const leaver = visitor();
  const first = indexes.getOrBuild(columns, background);
  const other = [...columns, { name: "id", default: null }];
  const left = [1, 2].map(async () => await indexes.getOrBuild(other, leaver));
  const unwanted = [{ name: "id", default: null }, ...columns];
  left.push((async () => await indexes.getOrBuild(unwanted, leaver))());
  const shared = indexes.getOrBuild(other, background); // with one that stays
  leaver.leave();
  for (const each of left) await assert.rejects(each, /has left/);
  await first;
  assert.equal((await shared).size, 20_000);
  assert.equal(indexes.cached(unwanted), undefined);
});

test("a client waits in its own turn for an index that another one waits for", async () => {
  const indexes = new IndexCache(tableOf(20_000));
  const order: string[] = [];
  const ask = async (name: string, client: string) => {
    await indexes.getOrBuild([{ name, default: null }], visitor(client));
    order.push(`${client} ${name}`);
  };
  const names = ["p1", "p2", "p3", "p4", "p5", "p6"];
  const all = names.map((name) => ask(name, "a"));
  all.push(ask("p6", "b"));
  await Promise.all(all);
  assert.ok(order.indexOf("b p6") < 3, order.join());
});

test("an index that is used is not evicted by others that are asked for once", async () => {
  const indexes = new IndexCache(tableOf(300));
  await indexes.getOrBuild(columns, background);
  for (let at = 0; at < 30; at++) {
    const other = [{ name: `property_${at}`, default: null }];
    await indexes.getOrBuild(other, background);
    assert.ok(indexes.cached(columns), `after ${at + 1}`);
  }
});

test("rows are scanned until an index pays off", async () => {
  const table = tableOf(20_000);
  const indexes = new IndexCache(table);
  const request = (rows: number) =>
    indexes.getBuildOrScan(columns, rows, background);
  for (let count = 0; count < 3; count++) {
    assert.equal(request(1500), undefined);
    assert.equal(indexes.cached(columns), undefined);
  }
  assert.equal(request(1500), undefined, "a quarter of the table in total");
  while (!indexes.cached(columns)) {
    assert.equal(request(1500), undefined, "scanned meanwhile");
    await new Promise((resolve) => setImmediate(resolve));
  }
  const many = new IndexCache(table).getBuildOrScan(
    columns,
    10_001,
    background,
  );
  assert.ok(many instanceof Promise, "too many to be scanned");
  await many;
});

test("a scan that fails no longer listens for changes", () => {
  const table = tableOf(10);
  const indexes = new IndexCache(table);
  const use = (): never => {
    throw new Error("it fails");
  };
  const where = () => true;
  assert.throws(
    () =>
      indexes.scan(indexes.all(), {
        requester: background,
        columns,
        where,
        use,
      }),
    /it fails/,
  );
  assert.equal(table.listeners.size, 0);
});
