/**
 * Tasks belong to the users who created them: a cache must not mix them up, and
 * nobody waits for all tasks of another user.
 */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { declareApi } from "../../../src/api/declaration/api.ts";
import { createRoles, type Roles } from "../../../src/auth/access.ts";
import { vocabulary } from "../../../src/cli/declaration/checked-vocabulary.ts";
import { startApplication } from "../../application.ts";
import type { Mutation } from "../../../src/store/store.ts";
import { signInNew } from "../../harness.ts";
import { startNotes } from "../../library.ts";
import { ended, lines, sendLines, taskWhen } from "../../lines.ts";

test("two users have different validators of their tasks", async (t) => {
  const app = await startApplication();
  t.after(() => app.stop());
  const tokens = [];
  for (const username of ["one", "two"]) {
    const user = { token: app.token, username, role: "keeper" };
    tokens.push(await signInNew(app, user));
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

test("the users with waiting imports take turns", async (t) => {
  const app = await startApplication();
  t.after(() => app.stop());
  const { store, token } = app;
  const task = (id: number, user_id: number): Mutation => [
    "put",
    "tasks",
    {
      id,
      user_id,
      type: "import",
      collection: "zoos",
      status: "queued",
      given: {},
      spool: `gone-${id}`, // so that the task ends when its turn comes
      lines: 0,
      imported: 0,
      rejected: 0,
      errors: [],
      failure: null,
      byte: 0,
      line: 0,
      created_at: "2026-01-01T00:00:00.000Z",
      updated_at: "2026-01-01T00:00:00.000Z",
    },
  ];
  store.apply([1, 2, 3].map((id) => task(id, 7)), 0);
  store.apply([4, 5].map((id) => task(id, 8)), 0);
  const headers = { "content-type": lines };
  const { status } = await app.request("POST", "/v1/zoos", {
    token,
    raw: "",
    headers,
  });
  assert.equal(status, 202);
  const table = store.table("tasks");
  const rows = () => table.rows().toSorted((one, other) => one.seq - other.seq);
  while (
    rows().some(({ document: { status } }) =>
      status === "queued" || status === "running"
    )
  ) await wait(1);
  const users = rows().map(({ document }) => document["user_id"]);
  assert.deepEqual(users.slice(0, 5), [7, 8, 7, 8, 7]);
});

test("forty imports at once wait for their turns, eight of a client at a time", async (t) => {
  const app = await startApplication({ trustProxy: "127.0.0.1" });
  t.after(() => app.stop());
  const { port, token } = app;
  const sockets = Array.from({ length: 8 }, () => {
    const socket = connect(port, "127.0.0.1");
    socket.write(
      `POST /v1/zoos HTTP/1.1\r\nHost: a\r\nContent-Type: ${lines}\r\n` +
        `Authorization: Bearer ${token}\r\nContent-Length: 2\r\n` +
        "Expect: 100-continue\r\n\r\n",
    );
    return socket;
  });
  const nextData = () =>
    Promise.all(sockets.map(async (socket) => {
      const [received] = await once(socket, "data");
      return String(received);
    }));
  for (const received of await nextData()) {
    assert.match(received, /^HTTP\/1\.1 100 /);
  }
  const post = (more = {}) =>
    app.request("POST", "/v1/zoos", {
      token,
      raw: "",
      headers: { "content-type": lines, ...more },
    });
  let isDone = false;
  const others = Promise.all(Array.from({ length: 32 }, () => post()))
    .finally(() => isDone = true);
  const other = await post({ "x-forwarded-for": "192.0.2.1" });
  assert.equal(other.status, 202, "another client does not wait");
  assert.equal(isDone, false);
  const responses = nextData();
  for (const socket of sockets) socket.write("{}");
  for (const received of await responses) {
    assert.match(received, /^HTTP\/1\.1 202 /);
  }
  for (const { status } of await others) assert.equal(status, 202);
  for (const socket of sockets) socket.destroy();
});

test("a client that is not signed in imports with the rights of anyone, as long as anyone has them", async (t) => {
  const { collection, reference } = vocabulary;
  const access = { read: "anyone", write: "anyone", delete: "admin" };
  const quotes = collection({
    name: "quotes",
    singular: "quote",
    access,
    properties: {
      book_id: reference("books"),
      note_id: vocabulary.optional(reference("notes")),
    },
  });
  const app = await startNotes(t, (notes) =>
    declareApi({
      roles: notes.roles.names,
      collections: notes.collections.map((each) =>
        each.name === "quotes" ? quotes : each
      ),
    }));
  const { store, token } = app;
  const run = async () => {
    const raw = '{"book_id":1}\n{"book_id":1,"note_id":1}\n';
    const { status, body } = await sendLines(app, "/v1/quotes", { raw });
    assert.equal(status, 202);
    return await taskWhen(app, { url: body.url, token, until: ended });
  };
  const { imported, rejected, errors } = await run();
  assert.deepEqual([imported, rejected, errors[0]?.line], [1, 1, 2]);
  assert.match(
    errors[0]?.errors[0]?.message ?? "",
    /is 1, which does not exist/,
  );
  store.table("tasks").listeners.add(() => access.write = "member");
  const { failure } = await run();
  assert.equal(
    failure,
    "The user no longer has the rights that the request had.",
  );
  assert.equal(store.table("quotes").size, 1);
});

test("who gets more rights meanwhile imports no more than they asked for", async (t) => {
  const app = await startNotes(t);
  const { store, token, bob } = app;
  const row = store.table("users").get(3);
  assert.ok(row);
  const count = 5000; // of several batches
  const line = JSON.stringify({ book_id: 1, text: "of Bob", owner_id: 2 });
  const raw = `${line}\n`.repeat(count);
  const { status, body } = await sendLines(app, "/v1/notes", {
    token: bob,
    raw,
  });
  assert.equal(status, 202);
  store.apply([["put", "users", { ...row.document, role: "admin" }]], 0);
  const task = await taskWhen(app, { url: body.url, token, until: ended });
  assert.equal(task.imported, count);
  const owners = store.table("notes").rows()
    .map(({ document }) => document["owner_id"]);
  assert.equal(owners.filter((id) => id === row.document.id).length, count + 1);
});

test("who had the highest role imports nothing once another one is the highest", async (t) => {
  let declaration: { roles: Roles } | undefined;
  const app = await startNotes(t, (notes) => declaration = { ...notes });
  const { store, token } = app;
  const line = JSON.stringify({ book_id: 1, text: "of Ada", owner_id: 2 });
  const raw = `${line}\n`.repeat(5000); // of several batches
  const { status, body } = await sendLines(app, "/v1/notes", { token, raw });
  assert.equal(status, 202);
  assert.ok(declaration);
  // As a start with the former roles before a new one does.
  declaration.roles = createRoles([...declaration.roles.names, "boss"]);
  const task = await taskWhen(app, { url: body.url, token, until: ended });
  assert.equal(task.status, "failed");
  assert.match(String(task.failure), /no longer has the rights/);
  assert.deepEqual(
    store.table("notes").rows().filter(({ document }) =>
      document["owner_id"] === 1
    ),
    [],
  );
});

test("who loses a right meanwhile imports nothing as somebody else", async (t) => {
  const app = await startNotes(t);
  const { store, token, bob } = app;
  const row = store.table("users").get(3);
  assert.ok(row);
  const setRole = (role: string) =>
    store.apply([["put", "users", { ...row.document, role }]], 0);
  setRole("admin");
  const line = JSON.stringify({ book_id: 1, text: "of another", owner_id: 2 });
  const raw = `${line}\n`.repeat(5000); // of several batches
  const before = store.table("notes").lastId;
  const { status, body } = await sendLines(app, "/v1/notes", {
    token: bob,
    raw,
  });
  assert.equal(status, 202);
  setRole(String(row.document["role"]));
  const task = await taskWhen(app, { url: body.url, token, until: ended });
  assert.deepEqual([task.status, task.rejected], ["failed", 0]);
  assert.match(String(task.failure), /no longer has the rights/);
  const others = store.table("notes").rows(before)
    .filter(({ document }) => document["owner_id"] !== 2);
  assert.deepEqual(others, []);
});
