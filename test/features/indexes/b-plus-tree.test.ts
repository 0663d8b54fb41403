import { strict as assert } from "node:assert";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { BPlusTree } from "../../../src/features/indexes/b-plus-tree.ts";
import { compareValues } from "../../../src/store/memory/order.ts";
import { type Json, Row } from "../../../src/store/memory/row.ts";

const columns = [
  { name: "zoo_id", default: 1 },
  { name: "name", default: null },
];
const names = [null, "", "a", "A", "ä", "ab", "\u{1F993}", "\uFFFD", "Zoë"];

/** Returns a reproducible generator of random integers below a limit (a linear congruential generator). */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 2 ** 32 * below);
  };
}

function rowOf(id: number, values: Record<string, Json> = {}): Row {
  return new Row({ id, ...values }, 0);
}

function valuesOf({ document }: Row): Json[] {
  return columns.map(({ name, default: other }) => document[name] ?? other);
}

function compareRows(a: Row, b: Row): number {
  const other = valuesOf(b);
  for (const [at, value] of valuesOf(a).entries()) {
    const order = compareValues(value, other[at] ?? null);
    if (order !== 0) return order;
  }
  return a.document.id - b.document.id;
}

for (const seed of [1, 2, 3]) {
  test(`random changes leave the same rows as a sorted list (seed ${seed})`, () => {
    const below = numbers(seed);
    const index = new BPlusTree(columns);
    const rows = new Map<number, Row>();
    for (let step = 0; step < 12_000; step++) {
      // Waves of growing and shrinking: nodes are split and merged.
      const growing = step % 6000 < 4000;
      const id = 1 + below(2500);
      const before = rows.get(id);
      const name = names[below(names.length)] ?? null;
      const after = below(10) < (growing ? 8 : 2)
        ? rowOf(id, { name, ...(below(9) > 0 && { zoo_id: 1 + below(4) }) })
        : undefined;
      index.replace(before, after);
      if (after) rows.set(id, after);
      else rows.delete(id);
      if (step % 500 > 0) continue;
      const sorted = [...rows.values()].sort(compareRows);
      assert.equal(index.size, sorted.length);
      assert.deepEqual(index.slice(0, Infinity), sorted);
      const from = below(sorted.length + 1);
      const to = from + below(100);
      assert.deepEqual(index.slice(from, to), sorted.slice(from, to));
      const zoo = 1 + below(4);
      const rank = (values: Json[], id: number) =>
        sorted.filter((row) => {
          for (const [at, value] of values.entries()) {
            const order = compareValues(valuesOf(row)[at] ?? null, value);
            if (order !== 0) return order < 0;
          }
          return row.document.id < id;
        }).length;
      for (const bound of [-Infinity, Infinity, id]) {
        for (const values of [[], [zoo], [zoo, name], [zoo, null]]) {
          if (bound === id && values.length < 2) continue;
          assert.equal(index.rank(values, bound), rank(values, bound));
        }
      }
    }
    for (const row of rows.values()) index.replace(row, undefined);
    assert.equal(index.size, 0);
    assert.deepEqual(index.slice(0, 1), []);
  });
}

for (const [seed, count] of [0, 1, 64, 65, 700, 5000, 70_000].entries()) {
  test(`${count} rows in a bulk load give the same index as single inserts, and can be changed`, () => {
    const below = numbers(seed);
    const rows = Array.from({ length: count }, (_, place) => {
      const name = names[below(names.length)] ?? null;
      return rowOf(place + 1, { name, ...(below(2) && { zoo_id: below(9) }) });
    });
    const index = new BPlusTree(columns);
    // Some occur twice, all in random order.
    const twice = [...rows, ...rows.filter(() => below(10) === 0)];
    const mixed = twice.map((row) => ({ row, at: below(1e9) }))
      .sort((a, b) => a.at - b.at).map(({ row }) => row);
    for (const _ of index.bulkLoad(mixed));
    const sorted = rows.toSorted(compareRows);
    assert.equal(index.size, sorted.length);
    assert.deepEqual(index.slice(0, Infinity), sorted);
    const [from, to] = [below(count + 1), below(count + 1)];
    assert.deepEqual(index.slice(from, to), sorted.slice(from, to));
    for (const row of rows) index.replace(row, undefined);
    assert.equal(index.size, 0);
    for (const row of rows.slice(0, 1000)) index.replace(undefined, row);
    const some = sorted.filter(({ document: { id } }) => id <= 1000);
    assert.deepEqual(index.slice(0, Infinity), some);
  });
}

for (const seed of [1, 2, 3]) {
  test(`rows that are read later are as they were, whatever changes meanwhile (seed ${seed})`, () => {
    const below = numbers(seed);
    const index = new BPlusTree(columns);
    const rows = new Map<number, Row>();
    const frozen: {
      readonly all: Iterable<Row>;
      readonly part: Iterable<Row>;
      readonly expected: Row[];
    }[] = [];
    for (let step = 0; step < 9000; step++) {
      const id = 1 + below(1500);
      const isGrowing = step % 4500 < 3000;
      const after = below(10) < (isGrowing ? 8 : 2)
        ? rowOf(id, { name: names[below(names.length)] ?? null })
        : undefined;
      index.replace(rows.get(id), after);
      if (after) rows.set(id, after);
      else rows.delete(id);
      if (below(300) > 0) continue;
      const expected = [...rows.values()].sort(compareRows);
      const [all, part] = [index.rows(), index.rows(100, 400)];
      frozen.push({ all, part, expected });
    }
    assert.ok(frozen.length > 10);
    for (const { all, part, expected } of frozen) {
      assert.deepEqual(Array.from(all), expected);
      assert.deepEqual(Array.from(part), expected.slice(100, 400));
    }
    const all = [...rows.values()].sort(compareRows);
    assert.deepEqual(index.slice(0, Infinity), all);
  });
}

test("a row that occurs repeatedly in a bulk load counts once", () => {
  const index = new BPlusTree(columns);
  const row = rowOf(7, { name: "a" });
  for (const _ of index.bulkLoad(Array.from({ length: 5000 }, () => row)));
  assert.deepEqual(index.slice(0, 9), [row]);
});

test("a case-folded column sorts strings by their lower case", () => {
  const texts = ["b", "B", "a", "\u{10400}", "\uFFFD", "\u{10428}", "A", "Ä"];
  const rows = texts.map((name, at) => rowOf(at + 1, { name }));
  const inserted = new BPlusTree([
    { name: "name", default: null, isFolded: true },
  ]);
  for (const row of rows) inserted.replace(undefined, row);
  const filled = new BPlusTree([
    { name: "name", default: null, isFolded: true },
  ]);
  for (const _ of filled.bulkLoad(rows));
  for (const index of [inserted, filled]) {
    const ids = index.slice(0, Infinity).map(({ document: { id } }) => id);
    assert.deepEqual(ids, [3, 7, 1, 2, 8, 5, 4, 6]);
    assert.equal(index.rank(["b"], -Infinity), 2);
    assert.equal(index.rank(["b\udfff"], -Infinity), 4);
  }
});

test("rows inserted in ascending, descending and alternating order are found", () => {
  const ids = Array.from({ length: 5000 }, (_, place) => place + 1);
  const inwards = ids.map((id) => id % 2 ? id : 5002 - id);
  for (const order of [ids, ids.toReversed(), inwards]) {
    const index = new BPlusTree([]);
    for (const id of order) index.replace(undefined, rowOf(id));
    const found = index.slice(0, 5000).map(({ document }) => document.id);
    assert.deepEqual(found, ids);
    for (const id of [1, 64, 65, 2500, 5000]) {
      assert.equal(index.rank([], id), id - 1);
    }
    for (const id of order) index.replace(rowOf(id), undefined);
    assert.equal(index.size, 0);
  }
});

test("a row that is inserted or deleted twice counts once", () => {
  const index = new BPlusTree(columns);
  const first = rowOf(7, { name: "a" });
  const second = rowOf(7, { name: "a", sex: "male" });
  index.replace(undefined, first);
  index.replace(undefined, second);
  assert.deepEqual(index.slice(0, 9), [second]);
  index.replace(rowOf(7, { name: "b" }), undefined);
  assert.equal(index.size, 1);
  index.replace(second, undefined);
  index.replace(second, undefined);
  assert.equal(index.size, 0);
});

test("replaced versions of rows can be garbage-collected", async () => {
  const index = new BPlusTree([]);
  const replaced: WeakRef<Row>[] = [];
  const ids = Array.from({ length: 10_000 }, (_, place) => place + 1);
  (() => {
    const rows = ids.map((id) => rowOf(id));
    for (const row of rows) index.replace(undefined, row);
    for (const row of rows) index.replace(row, rowOf(row.document.id));
    replaced.push(...rows.map((row) => new WeakRef(row)));
  })();
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  // A WeakRef holds its target until the current turn of the event loop ends.
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  const retained = replaced.filter((each) => each.deref() !== undefined).length;
  assert.ok(retained < 20, `${retained} are retained`);
  assert.equal(index.size, 10_000);
});
