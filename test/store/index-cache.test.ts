import { strict as assert } from "node:assert";
import { test } from "node:test";
import type { SortedIndex } from "../../src/store/indexes/b-plus-tree.ts";
import { IndexCache } from "../../src/store/indexes/index-cache.ts";
import type { Row } from "../../src/store/memory/row.ts";
import { compareValues } from "../../src/store/indexes/row-comparator.ts";
import { WritableTable } from "../../src/store/memory/table.ts";

const columns = [{ name: "name", default: null }];

function tableOf(count: number): WritableTable {
  const table = new WritableTable({ name: "zoos" });
  for (let id = 1; id <= count; id++) table.put({ id, name: `Zoo ${id}` }, id);
  return table;
}

function namesOf(order: SortedIndex): unknown[] {
  return order.slice(0, Infinity).map(({ document }) => document["name"]);
}

test("a small table's order is there at once, a large one's after a while", async () => {
  const small = new IndexCache(tableOf(3)).getOrBuild(columns);
  assert.ok(!(small instanceof Promise));
  assert.deepEqual(namesOf(small), ["Zoo 1", "Zoo 2", "Zoo 3"]);
  const orders = new IndexCache(tableOf(5000));
  const building = orders.getOrBuild(columns);
  assert.ok(building instanceof Promise);
  assert.equal(orders.getOrBuild(columns), building); // built once for all
  assert.equal((await building).size, 5000);
  assert.equal(orders.getOrBuild(columns), await building); // and kept
});

test("an order follows puts, deletes and what takes them back", () => {
  const table = tableOf(3);
  const orders = new IndexCache(table);
  const order = orders.getOrBuild(columns);
  assert.ok(!(order instanceof Promise));
  const put = table.put({ id: 2, name: "A" }, 4);
  const removed = table.delete(1, 5);
  const added = table.put({ id: 4, name: "B" }, 6);
  assert.equal(orders.cached(columns), order);
  assert.deepEqual(namesOf(order), ["A", "B", "Zoo 3"]);
  table.restore(added);
  table.restore(removed);
  table.restore(put);
  assert.equal(orders.cached(columns), order);
  assert.deepEqual(namesOf(order), ["Zoo 1", "Zoo 2", "Zoo 3"]);
});

test("rows that are outdated when their turn comes are taken as they are by then", async () => {
  const table = tableOf(3000);
  const rows = table.rows();
  const gathering = new IndexCache(table).scan({
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
  });
  const names = new Set(await gathering);
  assert.equal(names.size, 1002);
  for (const name of ["Zoo 1999", "Zoo x", "Zoo y"]) assert.ok(names.has(name));
  for (const name of ["Zoo 1998", "Zoo 2000", "Zoo 2001"]) {
    assert.ok(!names.has(name));
  }
});

for (const seed of [1, 2, 3]) {
  test(`an order that is built while records change has them all (seed ${seed})`, async () => {
    let state = seed;
    const below = (end: number) => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return Math.floor(state / 2 ** 32 * end);
    };
    const table = new WritableTable({ name: "zoos" });
    const put = (id: number, seq: number) =>
      table.put({ id, name: below(9) ? `${below(50)}` : null }, seq);
    for (let id = 1; id <= 20_000; id++) put(id, id);
    const orders = new IndexCache(table);
    const gathering = orders.scan(orders.all(), {
      columns,
      where: ({ name }) => name !== "7",
      use: (found) => found.slice(0, Infinity),
    });
    const building = orders.getOrBuild(columns);
    let done = false;
    const finished = Promise.all([gathering, building]).then(() => done = true);
    let seq = 20_000;
    let wanted: unknown;
    const expected = () =>
      table.rows().filter(({ document: { name } }) => name !== "7")
        .toSorted((a, b) =>
          compareValues(a.document["name"] ?? null, b.document["name"] ?? null)
        );
    const settled = Promise.resolve(gathering).then(() => wanted = expected());
    while (!done) {
      for (let count = below(200); count > 0; count--) {
        const id = 1 + below(21_000);
        const undo = below(2) ? put(id, ++seq) : table.delete(id, ++seq);
        if (below(2) === 0) table.restore(undo);
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all([finished, settled]);
    assert.ok(seq > 20_000);
    assert.deepEqual(await gathering, wanted);
    await building;
    const order = await orders.getOrBuild(columns);
    assert.equal(order.size, table.size);
    const names = (rows: readonly Row[]) =>
      rows.map(({ document }) => document);
    const sorted = table.rows().toSorted((a, b) =>
      compareValues(a.document["name"] ?? null, b.document["name"] ?? null)
    );
    assert.deepEqual(names(order.slice(0, Infinity)), names(sorted));
  });
}

test("very many changes at once let go of orders; what is under way has them all", async () => {
  const table = tableOf(30_000);
  const orders = new IndexCache(table);
  const kept = await orders.getOrBuild(columns);
  const other = orders.getOrBuild([{ name: "id", default: null }, ...columns]);
  const gathering = orders.scan(orders.all(), {
    columns,
    where: ({ id }) => id > 20_000,
    use: namesOf,
  });
  await new Promise((resolve) => setImmediate(resolve)); // both have begun
  const ids = Array.from({ length: 25_000 }, (_, place) => place + 1);
  const undo = ids.map((id) => table.delete(id, 30_001));
  assert.equal(kept.size, 30_000, "it follows no more");
  const rest = table.rows().map(({ document: { name } }) => name);
  assert.equal(rest.length, 5000);
  assert.deepEqual(await gathering, rest);
  assert.deepEqual(namesOf(await other), rest);
  assert.deepEqual(namesOf(await orders.getOrBuild(columns)), rest);
  for (const each of undo.reverse()) each.table.restore(each);
  const again = namesOf(await orders.getOrBuild(columns));
  assert.deepEqual(again, namesOf(kept));
});

test("an order makes up for a few changes at once, for more in slices, while others come", async () => {
  const table = tableOf(3000);
  const orders = new IndexCache(table);
  const kept = await orders.getOrBuild(columns);
  for (let id = 1; id <= 200; id++) table.delete(id, 3001);
  assert.equal(kept.size, 3000, "nobody has asked for it");
  assert.equal(orders.cached(columns), kept);
  assert.equal(kept.size, 2800);
  for (let round = 0; round < 5; round++) {
    for (let id = 201; id <= 1100; id++) {
      table.put({ id, name: `A ${round}` }, 3002 + round);
    }
  }
  assert.equal(orders.cached(columns), undefined);
  const catchingUp = orders.getOrBuild(columns);
  assert.ok(catchingUp instanceof Promise);
  // Some that have been made up for by then, and some that have not.
  await new Promise((resolve) => setImmediate(resolve));
  for (let id = 201; id <= 1100; id += 100) table.delete(id, 3010);
  table.put({ id: 3001, name: "A new one" }, 3011);
  await catchingUp;
  assert.equal(orders.cached(columns), kept, "the same is used");
  const expected = table.rows().map(({ document: { name } }) => String(name));
  assert.deepEqual(namesOf(kept), expected.sort());
  assert.equal(kept.size, 2800 - 9 + 1);
});

test("an order is there though each turn changes more than a slice makes up for", async () => {
  const table = tableOf(20_000);
  const orders = new IndexCache(table);
  let seq = 20_000;
  for (const what of ["built", "made up for"]) {
    let done = false;
    const waiting = Promise.resolve(orders.getOrBuild(columns))
      .then(() => done = true);
    for (let turn = 0; !done; turn++) {
      assert.ok(turn < 2000, `it is not ${what}`);
      for (let count = 0; count < 1500; count++) {
        table.put({ id: 1 + seq++ * 7919 % 20_000, name: `A ${seq}` }, seq);
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
    await waiting;
  }
  await orders.getOrBuild(columns);
  const order = await orders.getOrBuild(columns);
  const expected = table.rows().map(({ document: { name } }) => String(name));
  assert.deepEqual(namesOf(order), expected.sort());
});

test("work that waits is refused beyond a bound, and ends where it is told to", async () => {
  const table = tableOf(2000);
  const orders = new IndexCache(table);
  let followers = 0;
  const { addListener, removeListener } = table;
  table.addListener = (follower) => {
    followers++;
    addListener.call(table, follower);
  };
  table.removeListener = (follower) => {
    followers--;
    removeListener.call(table, follower);
  };
  const gather = (check?: () => void) =>
    orders.scan(orders.all(), {
      columns,
      where: () => true,
      use: ({ size }) => size,
      ...(check && { throwIfAborted: check }),
    });
  const gone = () => {
    throw new Error("nobody waits");
  };
  const started = gather(gone);
  const waiting = Array.from({ length: 31 }, () => gather());
  const overloaded = { code: "overloaded", message: /searches/ };
  assert.throws(() => gather(), overloaded);
  const building = Array.from(
    { length: 32 },
    (_, at) => orders.getOrBuild([{ name: `property_${at}`, default: null }]),
  );
  assert.throws(() => orders.getOrBuild(columns), overloaded);
  assert.equal(orders.getBuildOrScan(columns, 400, gone), undefined);
  await Promise.all(building);
  await assert.rejects(async () => await started, /nobody waits/);
  assert.deepEqual(await Promise.all(waiting), waiting.map(() => 2000));
  assert.equal(followers, 8); // the orders that are kept
  assert.equal((await orders.getOrBuild(columns)).size, 2000);
});

test("an order that nobody waits for any more is not built", async () => {
  const orders = new IndexCache(tableOf(20_000));
  let gone = false;
  const check = () => {
    if (gone) throw new Error("nobody waits");
  };
  const other = [...columns, { name: "id", default: null }];
  const left = [
    orders.getOrBuild(columns, check),
    orders.getOrBuild(columns, check),
  ];
  const shared = orders.getOrBuild(other, check);
  assert.equal(orders.getOrBuild(other), shared); // another waits for it too
  await new Promise((resolve) => setImmediate(resolve)); // the first has begun
  gone = true;
  for (const each of left) {
    await assert.rejects(async () => await each, /nobody waits/);
  }
  assert.equal(orders.cached(columns), undefined);
  assert.equal((await shared).size, 20_000);
  assert.equal((await orders.getOrBuild(columns)).size, 20_000);
});

test("rows are looked through until an order pays: it is built beside that, then waited for", async () => {
  const table = tableOf(20_000);
  const orders = new IndexCache(table);
  const look = (rows: number) => orders.getBuildOrScan(columns, rows, () => {});
  assert.equal(look(1500), undefined);
  assert.equal(orders.cached(columns), undefined);
  assert.equal(look(1500), undefined); // an eighth of the table, together
  const building = orders.getOrBuild(columns);
  assert.ok(building instanceof Promise, "it is being built");
  assert.equal(look(1500), undefined);
  assert.equal(look(1500), building); // a quarter
  const built = await building;
  assert.equal(orders.cached(columns), built);
  const many = new IndexCache(table).getBuildOrScan(columns, 10_001, () => {});
  assert.ok(many instanceof Promise, "too many to be looked through");
  await many;
});

test("what has been gathered, or was not asked for in a long time, is let go", () => {
  const table = tableOf(10);
  let followers = 0;
  const { addListener, removeListener } = table;
  table.addListener = (index) => {
    followers++;
    addListener.call(table, index);
  };
  table.removeListener = (index) => {
    followers--;
    removeListener.call(table, index);
  };
  const orders = new IndexCache(table);
  for (let at = 0; at < 20; at++) {
    orders.getOrBuild(columns); // the one that stays, as it is asked for often
    orders.getOrBuild([{ name: `property_${at}`, default: null }]);
  }
  const kept = orders.getOrBuild(columns);
  assert.ok(!(kept instanceof Promise));
  assert.equal(followers, 8);
  const use = (): never => {
    throw new Error("it fails");
  };
  const where = () => true;
  assert.throws(
    () => orders.scan(orders.all(), { columns, where, use }),
    /it fails/,
  );
  assert.equal(followers, 8);
});
