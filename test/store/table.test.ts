import { strict as assert } from "node:assert";
import { test } from "node:test";
import type { Document } from "../../src/store/memory/row.ts";
import { restore } from "../../src/store/memory/exchange.ts";
import { WritableTable } from "../../src/store/memory/table.ts";

const keyOf = (document: Document) => Number(document["zoo_id"]);

test("rows are found by id and by key after any puts and deletes", () => {
  const table = new WritableTable({
    name: "animals",
    indexes: { zoo_id: keyOf },
  });
  const expected = new Map<number, number>();
  let seq = 0;
  const put = (id: number, zoo: number) => {
    table.put({ id, zoo_id: zoo }, ++seq);
    expected.set(id, zoo);
  };
  const check = () => {
    assert.equal(table.size, expected.size);
    for (const zoo of [1, 2, 3]) {
      const ids = [...table.find("zoo_id", zoo)]
        .map(({ document: { id } }) => id).sort((a, b) => a - b);
      const expectedIds = [...expected].filter(([, each]) => each === zoo)
        .map(([id]) => id).sort((a, b) => a - b);
      assert.deepEqual(ids, expectedIds);
      assert.equal(table.count("zoo_id", zoo), expectedIds.length);
    }
    for (const [id, zoo] of expected) {
      assert.equal(table.get(id)?.document["zoo_id"], zoo);
    }
  };
  // Many animals in one zoo, and ids that are far apart.
  for (let id = 1; id <= 5000; id++) put(id, 1);
  for (const id of [2 ** 31, 2 ** 40 + 1, 2 ** 52]) put(id, 2);
  check();
  let state = 1;
  const random = (below: number) => {
    state = Math.imul(state, 1103515245) + 12345 & 0x7fffffff;
    return state % below;
  };
  for (let round = 0; round < 4; round++) {
    for (let step = 0; step < 2000; step++) {
      const id = 1 + random(6000);
      if (random(3) > 0) put(id, 1 + random(3));
      else {
        table.delete(id, ++seq);
        expected.delete(id);
      }
    }
    check();
  }
  for (const id of [...expected.keys()]) {
    table.delete(id, ++seq);
    expected.delete(id);
  }
  check();
  assert.equal(table.get(2 ** 31), undefined);
  assert.equal(table.get(0), undefined);
});

test("changes during an iteration do not affect it", () => {
  const table = new WritableTable({
    name: "animals",
    indexes: { zoo_id: keyOf },
  });
  for (let id = 1; id <= 10; id++) table.put({ id, zoo_id: 1 }, id);
  const found: number[] = [];
  for (const { document: { id } } of table.find("zoo_id", 1)) {
    found.push(id);
    table.delete(id, 10 + id);
  }
  assert.deepEqual(found, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
});

test("a row that joins very many others is found at once", () => {
  const table = new WritableTable({
    name: "animals",
    indexes: { zoo_id: keyOf },
  });
  const count = 100_000;
  for (let id = 1; id <= count; id++) {
    table.put({ id, zoo_id: id > 5 ? 1 : 2 }, id);
  }
  for (let id = 1; id <= 5; id++) {
    table.put({ id, zoo_id: 1 }, count + id);
    const [first] = table.find("zoo_id", 1);
    assert.equal(first?.document["zoo_id"], 1);
  }
  assert.equal(table.count("zoo_id", 1), count);
  assert.equal(table.count("zoo_id", 2), 0);
});

test("the newest of very many rows with one key come, change and go without moving others", (t) => {
  const table = new WritableTable({
    name: "animals",
    indexes: { zoo_id: keyOf },
  });
  let moved = 0;
  const { splice } = Array.prototype;
  const replaceSplice = (value: unknown) =>
    Object.defineProperty(Array.prototype, "splice", {
      value,
      configurable: true,
      writable: true,
    });
  t.after(() => replaceSplice(splice));
  replaceSplice(
    function (this: unknown[], ...args: [start: number, count: number]) {
      moved += this.length - args[0];
      return splice.apply(this, args);
    },
  );
  for (let id = 1; id <= 20_000; id++) table.put({ id, zoo_id: 7 }, id);
  const undos = [];
  for (let id = 20_000; id > 19_900; id--) {
    undos.push(table.put({ id, zoo_id: 7, name: "A" }, 30_000));
    undos.push(table.delete(id, 30_000));
  }
  assert.equal(table.count("zoo_id", 7), 19_900);
  for (const undo of undos.toReversed()) undo();
  // In all indexes of the table; a node of a tree has up to 64 rows.
  assert.ok(moved < 2000, `${moved} were moved`);
  const ids = table.find("zoo_id", 7).map(({ document: { id } }) => id);
  assert.deepEqual(ids, Array.from(ids.keys(), (index) => index + 1));
  assert.equal(ids.length, 20_000);
  assert.equal(table.find("zoo_id", 7, 1)[0]?.document.id, 1);
});

test("rows that are read late are without those deleted meanwhile", () => {
  const table = new WritableTable({
    name: "animals",
    indexes: { zoo_id: keyOf },
  });
  for (let id = 1; id <= 3; id++) table.put({ id, zoo_id: 1 }, id);
  const ids = [];
  for (const { document: { id } } of table.rowsWith("zoo_id", 1)) {
    ids.push(id);
    table.delete(id + 1, 3 + id);
  }
  assert.deepEqual(ids, [1, 3]);
});

test("a listener reads the number of the change that it receives, also if a store is loaded anew", () => {
  const table = new WritableTable({ name: "animals" });
  const seen: number[] = [];
  table.listeners.add(() => seen.push(table.lastSeq));
  table.put({ id: 1 }, 4);
  table.delete(1, 5);
  table.put({ id: 2 }, 7);
  restore(table, { rows: table.rows(), lastId: 3, lastSeq: 9 });
  assert.deepEqual(seen, [4, 5, 7, 9, 9]);
});
