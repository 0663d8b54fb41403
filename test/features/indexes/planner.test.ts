/** When an index is built for a query, and when its rows are scanned. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { deriveCollections } from "../../../src/api/declaration/declaration.ts";
import {
  parseParameters,
  parseQuery,
} from "../../../src/api/query/parameters.ts";
import { tablesOf } from "../../../src/api/routes.ts";
import { IndexCache } from "../../../src/features/indexes/index-cache.ts";
import { selectByIndex } from "../../../src/features/indexes/planner.ts";
import { WritableTable } from "../../../src/store/memory/table.ts";
import { collections, sample } from "../../collections.ts";
import { background } from "../../requester.ts";

/** Creates a table of animals, and a function that queries those of zoo 1. */
function queriesOf(count: number, zooOf: (id: number) => number) {
  const animals = deriveCollections(collections).get("animals");
  assert.ok(animals);
  const [, declared] = tablesOf(sample, []);
  assert.equal(declared?.name, "animals");
  const table = new WritableTable(declared);
  for (let id = 1; id <= count; id++) {
    table.put({
      id,
      zoo_id: zooOf(id),
      name: `Animal ${id * 7919 % 1000}`,
      sex: id * 31 % 7 < 3 ? "female" : "male",
      species: id * 17 % 5 < 3 ? "Equus" : null,
    }, id);
  }
  const indexes = new IndexCache(table);
  const select = (parameters: string, zoo: number | undefined = 1) =>
    selectByIndex(indexes, parseQuery(animals, parseParameters(parameters)), {
      table,
      scope: zoo ? { conditions: { zoo_id: zoo } } : undefined,
      isInScope: ({ document }) => !zoo || document["zoo_id"] === zoo,
      use: ({ rows, total }) => ({
        total,
        ids: Array.from(rows, ({ document: { id } }) => id),
      }),
      requester: background,
    });
  return { table, select };
}

test("a small zoo in a large table waits for no index until it is queried often", async (t) => {
  t.mock.method(performance, "now", () => 0); // however slow the machine is
  const { table, select } = queriesOf(10_000, (id) => id % 100);
  const { listeners } = table;
  const first = select("sortby=name&sex=female");
  assert.ok(!(first instanceof Promise), "it waits");
  assert.ok(first.total > 0 && first.total < 100);
  for (let asked = 1; asked <= 25; asked++) {
    assert.equal(
      listeners.size,
      0,
      "less than a quarter of the table is scanned",
    );
    assert.deepEqual(select("sortby=name&sex=female"), first);
  }
  for (let turn = 0; listeners.size === 0; turn++) {
    assert.ok(turn < 1000, "no index is built");
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.deepEqual(select("sortby=name&sex=female"), first);
});

test("a large zoo is indexed at once, by one index for the same conditions in any order", async () => {
  const { table, select } = queriesOf(20_000, (id) => id % 4 && 1);
  const one = "species=Equus&sex=female&sortby=name";
  const other = "sortby=name&sex=female&species=Equus";
  const first = select(one);
  assert.ok(first instanceof Promise, "its index is built first");
  const found = await first;
  table.listeners.add = () => assert.fail("another index is built");
  assert.deepEqual(select(other), found);
});

test("bounds of the id find a page in an index on nothing but the id", async () => {
  const { table, select } = queriesOf(20_000, () => 1);
  const page = (parameters: string) => select(`${parameters}&limit=2`, 0);
  await page("id:gt=0"); // builds it
  assert.deepEqual(page("id:gt=15000"), { total: 5000, ids: [15_001, 15_002] });
  assert.deepEqual(page("id:gte=64&id:lt=66"), { total: 2, ids: [64, 65] });
  assert.deepEqual(page("id:lte=96&order=desc"), { total: 96, ids: [96, 95] });
  assert.deepEqual(page("id:gt=20000"), { total: 0, ids: [] });
  table.delete(64, 20_001);
  assert.deepEqual(page("id:gte=64"), { total: 19_936, ids: [65, 66] });
});
