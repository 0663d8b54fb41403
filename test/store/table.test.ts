import { strict as assert } from "node:assert";
import { test } from "node:test";
import { StoredTable } from "../../src/store/table.ts";

const keyOf = Number;

test("a row that moves in among very many is found at once", () => {
  const table = new StoredTable({
    name: "animals",
    indexes: { zoo_id: keyOf },
  });
  const count = 100_000;
  for (let id = 1; id <= count; id++) {
    table.put({ id, zoo_id: id > 5 ? 1 : 2 }, id);
  }
  const times: number[] = [];
  for (let id = 1; id <= 5; id++) {
    table.put({ id, zoo_id: 1 }, count + id);
    const start = performance.now();
    const [first] = table.find("zoo_id", 1);
    times.push(performance.now() - start);
    assert.equal(first?.document["zoo_id"], 1);
  }
  assert.equal(table.count("zoo_id", 1), count);
  assert.equal(table.count("zoo_id", 2), 0);
  // Sorting them takes twenty times as long.
  assert.ok(Math.min(...times) < 1, `${times}`);
});
