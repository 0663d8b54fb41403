/** Tasks belong to those who created them; a cache must not mix them up. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { startApplication } from "../../application.ts";
import { adminPassword } from "../../harness.ts";

test("two users have different validators of their tasks", async (t) => {
  const app = await startApplication();
  t.after(() => app.stop());
  const tokens = [];
  for (const username of ["one", "two"]) {
    const json = { username, role: "keeper", password: adminPassword };
    await app.request("POST", "/v1/users", { token: app.token, json });
    tokens.push(await app.signIn(username));
  }
  const [one, two] = tokens;
  const get = (token: string | undefined, headers = {}) =>
    app.request("GET", "/v1/tasks", { token, headers });
  const etag = (await get(one)).headers.get("etag") ?? "";
  assert.match(etag, /^W\/"/);
  assert.equal((await get(one, { "if-none-match": etag })).status, 304);
  assert.equal((await get(two, { "if-none-match": etag })).status, 200);
  assert.equal((await get(app.token, { "if-none-match": etag })).status, 200);
});
