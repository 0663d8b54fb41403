/** How many imports the server remembers. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import type { Mutation } from "../../../src/store/store.ts";
import { startApplication } from "../../application.ts";
import { sendLines, toLines } from "../../lines.ts";

test("of 250 tasks the oldest finished one is deleted for another, which waits for one to finish", async (t) => {
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
  const waiting = sendLines(app, "/v1/zoos", { token, raw });
  for (let round = 0; round < 5; round++) await app.request("GET", "/health");
  assert.equal(table.size, 250);

  store.apply(ids.map((id) => setStatus(id, id < 8 ? "running" : "failed")), 0);
  assert.equal((await waiting).status, 202);
  assert.equal(table.size, 250);
  assert.equal(table.get(8), undefined);
  assert.ok(table.get(7) && table.get(9) && table.get(251));
});
