/** Authorizations over time, with a clock that the test sets. */

import { strict as assert } from "node:assert";
import { after, before, describe, test } from "node:test";
import { type Running, startApplication } from "../application.ts";
import type { Mutation } from "../../src/store/store.ts";
import { adminPassword, assertError } from "../harness.ts";
import { featureNames } from "../../src/features.ts";
import { commit } from "../commit.ts";

describe("an authorization", () => {
  let time = Date.parse("2026-05-05T12:00:00.700Z");
  let app: Running;
  before(async () => {
    app = await startApplication({ now: () => time });
  });
  after(() => app.stop());

  function signIn(expires_in: number) {
    return app.request("POST", "/v1/authorizations", {
      json: { username: "admin", password: adminPassword, expires_in },
    });
  }

  test("expires as a token, as a record and in the list", async () => {
    const { body } = await signIn(60);
    const { token, url } = body;
    assert.equal(body.expires_at, "2026-05-05T12:01:00.000Z");
    time += 59_000;
    const before = await app.request("GET", url, { token });
    assert.equal(before.status, 200);
    time += 300; // 12:01:00.000
    const late = await app.request("GET", "/v1/user", { token });
    assertError(late, 40103);
    assert.equal(
      late.headers.get("www-authenticate"),
      'Bearer realm="zoo-api", error="invalid_token"',
    );
    const gone = await app.request("GET", url, { token: app.token });
    assert.equal(gone.status, 410);
    const deleted = await app.request("DELETE", url, { token: app.token });
    assert.equal(deleted.status, 404);
    const list = await app.request("GET", "/v1/authorizations", {
      token: app.token,
    });
    assert.deepEqual(list.body.map(({ id }: { id: number }) => id), [1]);
  });

  test("that has expired is deleted at the next sign-in of the same user", async () => {
    const table = app.store.table("authorizations");
    assert.equal(table.size, 2);
    await signIn(60);
    const ids = Array.from(table.rows(), ({ document }) => document.id);
    assert.deepEqual(ids, [1, 3]);
  });

  test("is created for no user whose role is no longer declared", async () => {
    const users = app.store.table("users");
    const admin = users.get(1)?.document;
    assert.ok(admin);
    const id = users.lastId + 1;
    const ghost = { ...admin, id, username: "ghost", role: "gone" };
    await commit(app.store, [["put", "users", ghost]], 0);
    const json = { username: "ghost", password: adminPassword };
    const sent = await app.request("POST", "/v1/authorizations", { json });
    assertError(sent, 40101);
    await commit(app.store, [["del", "users", id]], 0);
  });

  test("is one of a hundred at most: the oldest is deleted", async () => {
    const table = app.store.table("authorizations");
    const [one] = table.rows();
    const user_id = one?.document["user_id"] ?? 0;
    const expires_at = "2999-01-01T00:00:00.000Z";
    const first = table.lastId + 1;
    const all = Array.from(
      { length: 120 },
      (_, index): Mutation => [
        "put",
        "authorizations",
        { id: first + index, user_id, expires_at, created_at: expires_at },
      ],
    );
    app.store.apply(all, 0);
    await signIn(60);
    const rows = table.find("user_id", Number(user_id));
    assert.equal(rows.length, 100);
    assert.equal(rows[0]?.document.id, first + 21);
  });
});

test("a user whose stored hash is malformed is told the same as one who does not exist, and the log says more", async (t) => {
  const logged: string[] = [];
  const app = await startApplication({
    log: (_level, message) => logged.push(message),
  });
  t.after(() => app.stop());
  const admin = app.store.table("users").get(1)?.document;
  assert.ok(admin);
  const signIn = (username: string) =>
    app.request("POST", "/v1/authorizations", {
      json: { username, password: adminPassword },
    });
  const unknown = await signIn("nobody");
  assertError(unknown, 40101);
  const others = String(admin["password"]).replace(/^scrypt\$\d+/, "scrypt$3");
  for (const [id, password] of [[2, others], [3, "plain"], [4, null]]) {
    const username = `user${id}`;
    const user = {
      ...admin,
      id: Number(id),
      username,
      password: password ?? null,
    };
    await commit(app.store, [["put", "users", user]], 0);
    const sent = await signIn(username);
    assert.deepEqual([sent.status, sent.body], [401, unknown.body]);
    const message = `The password hash of user ${id} is malformed`;
    assert.ok(logged.includes(message), logged.join("\n"));
  }
});

test("a token ends with its authorization, even if a restored backup issues that id again", async (t) => {
  let time = Date.parse("2026-05-05T12:00:00.700Z");
  const app = await startApplication({ now: () => time });
  t.after(() => app.stop());
  const { store, token } = app;
  const row = store.table("authorizations").get(1);
  assert.ok(row);
  const issueAgain = (offsetMs: number) => {
    const created_at = new Date(time + offsetMs).toISOString();
    store.apply(
      [["put", "authorizations", { ...row.document, created_at }]],
      0,
    );
    return app.request("GET", "/v1/user", { token });
  };
  time += 10_000;
  assert.equal((await issueAgain(-9_701)).status, 200); // the same second
  const later = await issueAgain(-9_700);
  assertError(later, 40104);
});

const skip = !featureNames.includes("conditional");
test(
  "users who are changed in the same millisecond have their own ETags at /user",
  { skip },
  async (t) => {
    const time = Date.now();
    const app = await startApplication({ now: () => time });
    t.after(() => app.stop());
    const names = ["ada", "kim"];
    const password = "a long enough one";
    const created = await Promise.all(
      names.map((username) =>
        app.request("POST", "/v1/users", {
          token: app.token,
          json: { username, password },
        })
      ),
    );
    const [one, other] = created.map(({ body }) => body);
    assert.equal(one?.updated_at, other?.updated_at);
    const tokens = await Promise.all(
      names.map((name) => app.signIn(name, password)),
    );
    const answers = await Promise.all(
      tokens.map((token) => app.request("GET", "/v1/user", { token })),
    );
    const [etag = "", otherTag] = answers.map(({ headers }) =>
      headers.get("etag") ?? ""
    );
    assert.notEqual(etag, otherTag);
    const headers = { "if-none-match": etag };
    const statuses = await Promise.all(tokens.map(async (token) => {
      const answer = await app.request("GET", "/v1/user", { token, headers });
      return answer.status;
    }));
    assert.deepEqual(statuses, [304, 200]);
  },
);
