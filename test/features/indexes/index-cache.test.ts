import { strict as assert } from "node:assert";
import { test } from "node:test";
import { type SortedIndex } from "../../../src/features/indexes/b-plus-tree.ts";
import { IndexCache } from "../../../src/features/indexes/index-cache.ts";
import { compareValues } from "../../../src/store/memory/order.ts";
import type { Row } from "../../../src/store/memory/row.ts";
import { rollBack, WritableTable } from "../../../src/store/memory/table.ts";
import { background, visitor } from "../../requester.ts";

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
  assert.equal(namesOf(await building).length, 5000);
  assert.equal(await joined, await building); // built once for both
  assert.equal(indexes.getOrBuild(columns, background), await building); // and cached
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
    const building = indexes.getOrBuild(columns, background);
    let isDone = false;
    const finished = Promise.resolve(building).then(() => isDone = true);
    let seq = 20_000;
    while (!isDone) {
      for (let count = below(200); count > 0; count--) {
        const id = 1 + below(21_000);
        const undo = below(2) ? put(id, ++seq) : table.delete(id, ++seq);
        if (below(2) === 0) undo();
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
    await finished;
    assert.ok(seq > 20_000);
    const index = await indexes.getOrBuild(columns, background);
    const names = (rows: readonly Row[]) =>
      rows.map(({ document }) => document);
    const sorted = table.rows().toSorted((a, b) =>
      compareValues(a.document["name"] ?? null, b.document["name"] ?? null)
    );
    assert.deepEqual(names(index.slice(0, Infinity)), names(sorted));
  });
}

test("very many changes drop a cached index; a running build includes them", async () => {
  const table = tableOf(30_000);
  const indexes = new IndexCache(table);
  const cached = await indexes.getOrBuild(columns, background);
  const other = indexes.getOrBuild(
    [{ name: "id", default: null }, ...columns],
    background,
  );
  await new Promise((resolve) => setImmediate(resolve)); // it has started
  const ids = Array.from({ length: 25_000 }, (_, place) => place + 1);
  const undo = ids.map((id) => table.delete(id, 30_001));
  assert.equal(namesOf(cached).length, 30_000, "it is no longer updated");
  const rest = table.rows().map(({ document: { name } }) => name);
  assert.equal(rest.length, 5000);
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
  assert.equal(namesOf(cached).length, 3000, "it has not been used");
  assert.equal(indexes.cached(columns), cached);
  assert.equal(namesOf(cached).length, 2800);
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
  assert.equal(namesOf(cached).length, 2800 - 9 + 1);
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

test("any number of builds wait, and the latest indexes are cached", async () => {
  const table = tableOf(8000);
  const indexes = new IndexCache(table);
  const building = Array.from({ length: 20 }, (_, at) => {
    const column = { name: `property_${at}`, default: null };
    return indexes.getOrBuild([column], background);
  });
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
  const index = indexes.cached(columns);
  assert.equal(index && namesOf(index).length, 20_000);
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
  assert.equal(namesOf(await shared).length, 20_000);
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
