/** Texts of records that are kept for lists. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { deriveCollections } from "../../../src/api/declaration/declaration.ts";
import { Representation } from "../../../src/api/representation.ts";
import { keepTexts } from "../../../src/features/indexes/texts.ts";
import { collections } from "../../collections.ts";
import type { Document, Row } from "../../../src/store/memory/row.ts";
import { WritableTable } from "../../../src/store/memory/table.ts";

setFlagsFromString("--expose-gc");
const collectGarbage: () => void = runInNewContext("gc");

/** A row that counts how often its document is serialized. */
class CountedRow implements Row {
  readonly bytes = 0;
  readonly seq = 1;
  reads = 0;
  readonly #document: Document;

  constructor(document: Document) {
    this.#document = document;
  }

  get document() {
    this.reads++;
    return this.#document;
  }
}

test("forty million characters of records are kept, and then all of them are dropped", () => {
  const zoos = deriveCollections(collections).get("zoos");
  assert.ok(zoos);
  const representation = new Representation(zoos);
  keepTexts(representation);
  const name = "a".repeat(100_000);
  const created_at = "2026-05-05T12:00:00.000Z";
  // With its other properties each takes a little more than 100,000 characters.
  const rows = Array.from(
    { length: 398 },
    (_, at) => new CountedRow({ id: at + 1, name, created_at }),
  );
  const isKept = (row: CountedRow) => {
    const { reads } = row;
    const text = representation.asListItem(row);
    assert.match(text, /^\{"id":\d+,"name":"aaa/);
    return row.reads === reads;
  };
  for (const row of rows) assert.equal(isKept(row), false);
  const last = rows.pop();
  assert.ok(last);
  assert.equal(
    isKept(last),
    true,
    "the last one does not fit beside the others",
  );
  for (const row of rows.slice(0, 390)) assert.equal(isKept(row), false);
  for (const row of rows.slice(0, 390)) assert.equal(isKept(row), true);
});

test("nothing is kept while the memory is tight", () => {
  const zoos = deriveCollections(collections).get("zoos");
  assert.ok(zoos);
  const memory = { limit: 1e9, isTight: false, onTight: new Set<() => void>() };
  const row = new CountedRow({ id: 1, name: "Artis" });
  const representation = new Representation(zoos);
  keepTexts(representation, memory);
  const reads = () => {
    const before = row.reads;
    representation.asListItem(row);
    return row.reads - before;
  };
  assert.ok(reads() > 0);
  assert.equal(reads(), 0);
  memory.isTight = true;
  for (const drop of memory.onTight) drop();
  assert.ok(reads() > 0);
  assert.ok(reads() > 0);
});

test("a kept text does not outlive its record", async () => {
  const zoos = deriveCollections(collections).get("zoos");
  assert.ok(zoos);
  const table = new WritableTable({ name: "zoos" });
  const representation = new Representation(zoos);
  keepTexts(representation);
  const created_at = "2026-05-05T12:00:00.000Z";
  const keep = (name: string) => {
    table.put({ id: 1, name, created_at }, 1);
    const [row] = table.rows();
    assert.ok(row);
    representation.asListItem(row);
    return new WeakRef(row);
  };
  const replaced = keep("Old");
  const current = keep("New");
  await nextTurn(); // a WeakRef holds its object until the end of the turn
  collectGarbage();
  assert.equal(replaced.deref(), undefined);
  const row = current.deref();
  assert.ok(row);
  assert.match(representation.asListItem(row), /New/);
  assert.equal([...table.rows()].length, 1);
});
