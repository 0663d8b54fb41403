/** Texts of records that are cached for lists. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { deriveCollections } from "../../src/api/declaration/declaration.ts";
import { Representation } from "../../src/api/representation.ts";
import { collections } from "../collections.ts";
import { WritableTable } from "../../src/store/memory/table.ts";

test("the texts of fifty thousand records are cached; beyond that the oldest is dropped", () => {
  const zoos = deriveCollections(collections).get("zoos");
  assert.ok(zoos);
  const representation = new Representation(zoos, "/v1/");
  const table = new WritableTable({ name: "zoos" });
  for (let id = 1; id <= 50_001; id++) table.put({ id, name: "Artis" }, id);
  const rows = table.rows();
  for (const row of rows.slice(0, 50_000)) representation.asListItem(row);
  assert.ok(rows.slice(0, 50_000).every(({ text }) => text !== undefined));
  const [first, second] = rows;
  const last = rows.at(-1);
  assert.ok(first && last);
  const text = representation.asListItem(last);
  assert.match(text, /^\{"id":50001,"name":"Artis",/);
  assert.equal(last.text, text);
  assert.equal(first.text, undefined);
  assert.ok(second?.text);
  assert.match(representation.asListItem(first), /^\{"id":1,"name":"Artis",/);
  assert.equal(second.text, undefined);
});
