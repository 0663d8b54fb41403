/** How many imports the server remembers. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import type { Mutation } from "../../../src/store/store.ts";
import { startApplication } from "../../application.ts";
import { assertError } from "../../harness.ts";
import { sendLines, toLines } from "../../lines.ts";

test("of 250 tasks the oldest finished one is deleted for another, and an unfinished one never", async (t) => {
  const app = await startApplication();
  t.after(() => app.stop());
  const { token, store } = app;
  const table = store.table("tasks");
  const setStatus = (id: number, status: string): Mutation => [
    "put",
    "tasks",
    { id, user_id: 1, type: "import", collection: "zoos", status, errors: [] },
  ];
  const ids = Array.from({ length: 250 }, (_, index) => index + 1);
  store.apply(ids.map((id) => setStatus(id, "running")), 0);
  const raw = toLines([{ name: "Artis", city: "Amsterdam", country: "NL" }]);
  const refused = await sendLines(app, "/v1/zoos", { token, raw });
  assertError(refused, 50302);
  assert.equal(table.size, 250);

  store.apply(ids.map((id) => setStatus(id, id < 8 ? "running" : "failed")), 0);
  const { status } = await sendLines(app, "/v1/zoos", { token, raw });
  assert.equal(status, 202);
  assert.equal(table.size, 250);
  assert.equal(table.get(8), undefined);
  assert.ok(table.get(7) && table.get(9) && table.get(251));
});
