/** Access does not depend on how records are found. */

import { strict as assert } from "node:assert";
import { test, type TestContext } from "node:test";
import { recordsOf } from "../../src/api/records/local.ts";
import { showNdjson } from "../../src/api/formats/ndjson.ts";
import { collectionMethods } from "../../src/api/operations.ts";
import { listRecords } from "../../src/api/records/reading.ts";
import type { RequestContext, Select } from "../../src/api/request-context.ts";
import { openStore } from "../../src/store/store.ts";
import { tablesOf } from "../../src/api/routes.ts";
import { sample } from "../collections.ts";
import { folderFor } from "../store/support.ts";
import { operatorContext } from "../operator.ts";

/** Opens a store with an animal in each of two zoos. */
async function openRecords(t: TestContext) {
  const folder = await folderFor(t);
  const store = await openStore({ folder, tables: tablesOf(sample, []) });
  t.after(() => store.close());
  const animal = (id: number) =>
    ["put", "animals", { id, zoo_id: id, name: `A${id}` }] as const;
  await store.commit([animal(1), animal(2)], 0);
  return recordsOf(store, sample, "animals");
}

/** A planner that ignores every condition. */
const select: Select = (_query, { table, use }) =>
  use({ rows: table.rows(), total: table.size });

function contextOf(zoo: number): RequestContext {
  return operatorContext({
    method: "GET",
    ids: [zoo],
    scope: () => ({ conditions: { zoo_id: zoo } }),
  }, { select });
}

test("a planner that ignores the scope of a URL shows no record outside of it", async (t) => {
  const records = await openRecords(t);
  const { GET } = collectionMethods({ records });
  const query = GET.parse?.(new Map()) as Parameters<typeof listRecords>[2];
  await assert.rejects(
    async () => await listRecords(records, contextOf(1), query),
    /outside the scope/,
  );
  const show = showNdjson(records.representation);
  const all = await listRecords(records, contextOf(1), query, show);
  const { stream } = all;
  let text = "";
  await assert.rejects(async () => {
    for await (const part of stream?.() ?? []) text += part;
  }, /outside the scope/);
  assert.doesNotMatch(text, /"A2"/);
});
