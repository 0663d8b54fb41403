/** Texts of records that are cached for lists. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { deriveCollections } from "../../src/api/declaration/declaration.ts";
import { Representation } from "../../src/api/representation.ts";
import { collections } from "../collections.ts";
import type { Row } from "../../src/store/memory/row.ts";
import { WritableTable } from "../../src/store/memory/table.ts";

setFlagsFromString("--expose-gc");
const collectGarbage: () => void = runInNewContext("gc");

test("forty million characters of records are cached, and then the older half is dropped", () => {
  const zoos = deriveCollections(collections).get("zoos");
  assert.ok(zoos);
  const table = new WritableTable({ name: "zoos" });
  const representation = new Representation(zoos, "/v1/", table);
  const name = "a".repeat(100_000);
  const created_at = "2026-05-05T12:00:00.000Z";
  // With its other properties each takes a little more than 100,000 characters.
  for (let id = 1; id <= 398; id++) table.put({ id, name, created_at }, id);
  const [first, ...others] = table.rows();
  const last = others.pop();
  assert.ok(first && last);
  const read = (row: Row) => {
    representation.validators(row);
    return representation.asListItem(row);
  };
  assert.match(read(first), /^\{"id":1,"name":"aaa/);
  assert.equal(first.validators, undefined, "nothing would drop them");
  read(first);
  assert.equal(first.validators, representation.validators(last));
  for (const row of others) read(row);
  assert.ok([first, ...others].every(({ text }) => text !== undefined));
  assert.equal(read(last), last.text);
  assert.deepEqual([first.text, first.validators], [undefined, undefined]);
  const cached = others.filter(({ text }) => text !== undefined);
  assert.equal(cached.length, 198);
  assert.equal(cached[0]?.document.id, 200);
});

test("a cached text does not outlive its record", async () => {
  const zoos = deriveCollections(collections).get("zoos");
  assert.ok(zoos);
  const table = new WritableTable({ name: "zoos" });
  const representation = new Representation(zoos, "/v1/", table);
  const created_at = "2026-05-05T12:00:00.000Z";
  const cache = (name: string) => {
    table.put({ id: 1, name, created_at }, 1);
    const [row] = table.rows();
    assert.ok(row);
    representation.asListItem(row);
    return new WeakRef(row);
  };
  const replaced = cache("Old");
  const current = cache("New");
  await nextTurn(); // a WeakRef holds its object until the end of the turn
  collectGarbage();
  assert.equal(replaced.deref(), undefined);
  assert.match(current.deref()?.text ?? "", /New/);
  assert.equal([...table.rows()].length, 1);
});
