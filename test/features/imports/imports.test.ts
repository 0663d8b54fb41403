/** Imports: NDJSON becomes a task, and the task creates the records. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { readdir, readFile } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { Readable } from "node:stream";
import { after, before, describe, test, type TestContext } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { eventually, heldFiles, startApplication } from "../../application.ts";
import {
  assertError,
  root,
  type Server,
  signInNew,
  start,
  storedAdmin,
} from "../../harness.ts";
import { startHere } from "../../in-process.ts";
import {
  ended,
  fetchLines,
  fromLines,
  importLines,
  lines,
  sendLines,
  taskWhen,
  toLines,
} from "../../lines.ts";
import { startLibrary } from "../../library.ts";
import { signalBeforeWrite } from "./interrupted.ts";
import { commit } from "../../commit.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
const seed = { zoos: [zoo, { ...zoo, name: "Burgers" }] };
const animal = { zoo_id: 1, animal_type_id: 3, name: "Momo" };

/** A smaller test runs by default; `LINES=100000 KILLS=10 MIB=1024` is the full one. */
const { LINES = "4000", KILLS = "2", MIB = "64" } = process.env;

async function spools({ folder }: { folder: string }): Promise<string[]> {
  return await readdir(join(folder, "spool")).catch(() => []);
}

/** Waits until no body is left: one is removed after its task is seen to have ended. */
async function spoolsGone(server: { folder: string }): Promise<void> {
  while ((await spools(server)).length > 0) await wait(5);
}

describe("an import", () => {
  let server: Server;
  let token: string;
  let keeper: string;
  let other: string;
  before(async () => {
    server = await start({ seed });
    token = await server.signIn();
    const role = "keeper";
    keeper = await signInNew(server, { token, username: "kim", role });
    other = await signInNew(server, { token, username: "lou", role });
  });
  after(() => server.stop());

  test("responds with its task, which creates a record of each line", async () => {
    const before = Date.now();
    const { status, headers, body } = await sendLines(server, "/v1/zoos", {
      token: keeper,
      raw: toLines([{ ...zoo, name: "One" }, { ...zoo, name: "Two" }]),
    });
    assert.equal(status, 202);
    assert.equal(headers.get("location"), body.url);
    const { id, created_at, updated_at, link, ...task } = body;
    assert.ok(Date.parse(created_at) >= before - 1);
    assert.equal(updated_at, created_at);
    assert.equal(link.href, "/v1/tasks");
    assert.deepEqual(task, {
      type: "import",
      collection: "zoos",
      status: "queued",
      lines: 0,
      imported: 0,
      rejected: 0,
      errors: [],
      failure: null,
      url: `/v1/tasks/${id}`,
    });
    const until = ended;
    const done = await taskWhen(server, {
      url: body.url,
      token: keeper,
      until,
    });
    assert.equal(done.status, "succeeded");
    assert.ok(done.updated_at > created_at);
    const { lines, imported, rejected } = done;
    assert.deepEqual({ lines, imported, rejected }, {
      lines: 2,
      imported: 2,
      rejected: 0,
    });
    const found = await server.request("GET", "/v1/zoos?name:in=One,Two");
    assert.equal(found.body.length, 2);
    assert.ok((found.body[0]?.created_at ?? "") >= created_at);
    await spoolsGone(server);
  });

  test("rejects a line with the errors of a POST of it, and imports the others", async () => {
    const bad = [
      { ...animal, name: "", sex: "both", colour: "red" },
      { ...animal, zoo_id: 999 },
      { name: "Zo" },
    ];
    const task = await importLines(server, "/v1/animals", {
      token: keeper,
      raw: toLines([animal, ...bad, { ...animal, url: "/elsewhere" }]),
    });
    assert.equal(task.status, "succeeded");
    assert.deepEqual([task.lines, task.imported, task.rejected], [5, 2, 3]);
    for (const [at, json] of bad.entries()) {
      const post = await server.request("POST", "/v1/animals", {
        token: keeper,
        json,
      });
      assert.equal(post.status, 422);
      const { line, errors } = task.errors[at] ?? {};
      assert.equal(line, at + 2);
      assert.deepEqual(errors, post.body.errors);
    }
  });

  test("rejects lines that are not records, and counts blank ones in line numbers only", async () => {
    const good = Buffer.from(JSON.stringify(animal));
    const long = JSON.stringify({ ...animal, name: "x".repeat(1 << 20) });
    const parts = [
      good,
      " \t\r",
      "",
      `${good}\r`,
      "{",
      "[]",
      '"a"',
      Buffer.from([0x7b, 0xff, 0x7d]),
      long,
      '{"name":"a","name":"b"}',
      "\u{feff}{}",
      good,
    ];
    const newline = Buffer.from("\n");
    const body = parts.flatMap((part) => [Buffer.from(part), newline]);
    const task = await importLines(server, "/v1/animals", {
      token: keeper,
      raw: Buffer.concat(body.slice(0, -1)), // the last lacks its newline
    });
    assert.deepEqual([task.lines, task.imported, task.rejected], [10, 3, 7]);
    const told = task.errors.map((
      { line, errors: [error] },
    ) => [line, error?.field, error?.code, error?.message.replace(/:.*/, "")]);
    assert.deepEqual(told, [
      [5, "", "format", "The line is not valid JSON (RFC 8259)"],
      [6, "", "type", "The line must be a JSON object, not an array."],
      [7, "", "type", 'The line must be a JSON object, not "a".'],
      [8, "", "format", "The line is not valid UTF-8."],
      [9, "", "length", "The line is longer than 131072 bytes."],
      [10, "", "format", 'The line names "name" twice'],
      [11, "", "format", "The line begins with a byte-order mark"],
    ]);
  });

  test("preserves an id above all others, and its times if they are plausible", async () => {
    const times = {
      created_at: "2020-01-01T00:00:00.000Z",
      updated_at: "2021-01-01T00:00:00.000Z",
    };
    const late = "2999-01-01T00:00:00.000Z";
    const task = await importLines(server, "/v1/zoos", {
      token: keeper,
      raw: toLines([
        { ...zoo, id: 100, ...times },
        { ...zoo, id: 100 },
        { ...zoo, id: 7 },
        { ...zoo, ...times },
        { ...zoo, id: 110, ...times, updated_at: late },
        { ...zoo, id: 111, created_at: late, updated_at: late },
        { ...zoo, id: "120", name: 3 },
        { ...zoo, id: 0 },
        { ...zoo, id: 1_000_112 },
        { ...zoo, id: 112, created_at: times.created_at }, // never changed
      ]),
    });
    assert.deepEqual([task.imported, task.rejected], [5, 5]);
    const codes = task.errors.map((
      { line, errors },
    ) => [line, ...errors.map(({ field, code }) => `${field} ${code}`)]);
    assert.deepEqual(codes, [
      [2, "id unique"],
      [3, "id unique"],
      [7, "id type", "name type"],
      [8, "id range"],
      [9, "id range"], // more than a million above the highest
    ]);
    const found = await server.request("GET", "/v1/zoos?id:gte=100");
    const [kept, made, future] = found.body;
    assert.deepEqual([kept?.id, made?.id, future?.id], [100, 101, 110]);
    const { created_at, updated_at } = kept ?? {};
    assert.deepEqual({ created_at, updated_at }, times);
    const today = task.created_at.slice(0, 10);
    assert.ok(made && made.created_at > today && made.updated_at < late);
    // By a clock that is ahead of the server's: at most now.
    assert.equal(future?.created_at, times.created_at);
    assert.ok(future.updated_at > today && future.updated_at < late);
    const [rest, unchanged] = found.body.slice(3);
    assert.equal(unchanged?.created_at, times.created_at);
    assert.equal(unchanged?.updated_at, times.created_at);
    assert.ok(rest && rest.created_at > today && rest.updated_at < late);
  });

  test("rejects a second record with a unique value", async () => {
    const employee = { zoo_id: 1, name: "Ada", job_title: "Vet" };
    const record = (email: string) => ({ ...employee, email });
    const first = await importLines(server, "/v1/employees", {
      token: keeper,
      raw: toLines([record("a@b.nl"), record("A@b.nl"), record("c@b.nl")]),
    });
    assert.deepEqual([first.imported, first.rejected], [2, 1]);
    assert.equal(first.errors[0]?.line, 2);
    const second = await importLines(server, "/v1/employees", {
      token: keeper,
      raw: toLines([record("c@B.nl"), record("d@b.nl")]),
    });
    assert.deepEqual([second.imported, second.rejected], [1, 1]);
    assert.deepEqual(
      second.errors[0]?.errors.map((
        { field, code }: { field: string; code: string },
      ) => [field, code]),
      [["email", "unique"]],
    );
  });

  test("through a zoo creates records of that zoo", async () => {
    const { zoo_id: _, ...rest } = animal;
    const task = await importLines(server, "/v1/zoos/2/animals", {
      token: keeper,
      raw: toLines([rest, { ...rest, zoo_id: 2 }, animal]),
    });
    assert.deepEqual([task.imported, task.rejected], [2, 1]);
    assert.equal(task.errors[0]?.errors[0]?.code, "reference");
    const found = await server.request("GET", "/v1/zoos/2/animals");
    assert.equal(found.body.length, 2);
    const none = await sendLines(server, "/v1/zoos/99/animals", {
      token: keeper,
      raw: toLines([rest]),
    });
    assert.equal(none.status, 404);
  });

  test("lists the errors of the first hundred rejected lines", async () => {
    const raw = "{}\n".repeat(250);
    const task = await importLines(server, "/v1/zoos", { token: keeper, raw });
    assert.deepEqual([task.lines, task.rejected], [250, 250]);
    assert.equal(task.errors.length, 100);
    assert.equal(task.errors[99]?.line, 100);
  });

  test("fails at a hundred thousand rejected lines", async () => {
    const raw = "0\n".repeat(100_000) + toLines([zoo]);
    const task = await importLines(server, "/v1/zoos", { token: keeper, raw });
    assert.deepEqual([task.status, task.rejected], ["failed", 100_000]);
    assert.equal(task.failure, "It was stopped at 100000 rejected lines.");
    assert.equal(task.imported, 0);
  });

  test("lists at most five errors of a line", async () => {
    const names = Array.from({ length: 20 }, (_, at) => [`more${at}`, at]);
    const raw = toLines([Object.fromEntries(names)]);
    const task = await importLines(server, "/v1/zoos", { token: keeper, raw });
    assert.equal(task.errors[0]?.errors.length, 5);
  });

  test("has its errors only in its task: no list shows, filters or sorts by them", async () => {
    const { url } = await importLines(server, "/v1/zoos", {
      token: keeper,
      raw: "{}\n",
    });
    const get = (path: string) =>
      server.request("GET", path, { token: keeper });
    assert.equal((await get(url)).body.errors.length, 1);
    assert.equal((await get(`${url}?fields=errors`)).body.errors.length, 1);
    const { body: list } = await get("/v1/tasks?rejected=1");
    assert.ok(list.length > 0);
    for (const task of list) {
      assert.equal("errors" in task, false);
      assert.match(task.url, /^\/v1\/tasks\/\d+$/);
    }
    for (const query of ["sortby=errors", "errors=1", "fields=errors"]) {
      assert.equal((await get(`/v1/tasks?${query}`)).status, 400, query);
    }
    const { body: document } = await get("/v1/openapi.json");
    const { schemas } = document.components;
    const listTasks = document.paths["/v1/tasks"]?.["get"];
    assert.doesNotMatch(JSON.stringify(listTasks?.parameters), /\berrors\b/);
    assert.equal(schemas.ListedTaskPart?.properties?.errors, undefined);
    assert.equal(schemas.TaskPart?.properties?.errors?.items?.type, "object");
  });

  test("of an empty body succeeds", async () => {
    const task = await importLines(server, "/v1/zoos", {
      token: keeper,
      raw: "",
    });
    assert.deepEqual([task.status, task.lines], ["succeeded", 0]);
  });

  test("is refused without access, and where a URL accepts none", async () => {
    await spoolsGone(server);
    const raw = toLines([zoo]);
    const nobody = await sendLines(server, "/v1/zoos", { raw });
    assert.equal(nobody.status, 401);
    const viewer = await signInNew(server, { token, username: "vic" });
    const low = await sendLines(server, "/v1/zoos", { token: viewer, raw });
    assert.equal(low.status, 403);
    for (const path of ["/v1/users", "/v1/authorizations"]) {
      const wrong = await sendLines(server, path, { token, raw });
      assert.equal(wrong.status, 415, path);
    }
    const put = await server.request("PUT", "/v1/zoos/1", {
      token,
      raw,
      headers: { "content-type": lines },
    });
    assert.equal(put.status, 415);
    const options = await server.request("OPTIONS", "/v1/zoos");
    assert.equal(
      options.headers.get("accept-post"),
      `application/json, ${lines}`,
    );
    assert.deepEqual(await spools(server), []);
  });

  test("with a Content-Length above 1 GiB is refused at once", async () => {
    const received = await new Promise<string>((resolve, reject) => {
      const socket = connect(server.port, "127.0.0.1", () => {
        socket.write(
          `POST /v1/zoos HTTP/1.1\r\nHost: a\r\nContent-Type: ${lines}\r\n` +
            `Authorization: Bearer ${keeper}\r\n` +
            `Content-Length: ${2 ** 30 + 1}\r\n\r\n{`,
        );
      });
      socket.once("data", (text) => {
        socket.destroy();
        resolve(String(text));
      });
      socket.once("error", reject);
    });
    assert.match(received, /^HTTP\/1\.1 413 /);
    assert.match(received, /"errorCode":41300/);
  });

  test("whose client disconnects leaves nothing behind", async () => {
    const path = "/v1/tasks?limit=1";
    const before = await server.request("GET", path, { token });
    const socket = connect(server.port, "127.0.0.1", () => {
      socket.write(
        `POST /v1/zoos HTTP/1.1\r\nHost: a\r\nContent-Type: ${lines}\r\n` +
          `Authorization: Bearer ${keeper}\r\nContent-Length: 500\r\n\r\n{}\n`,
      );
    });
    while ((await spools(server)).length === 0) await wait(5);
    socket.destroy();
    await spoolsGone(server);
    const after = await server.request("GET", path, { token });
    assert.equal(
      after.headers.get("x-total-count"),
      before.headers.get("x-total-count"),
    );
  });

  test("is visible to its user and to admins only", async () => {
    const raw = toLines([zoo]);
    const { url } = await importLines(server, "/v1/zoos", {
      token: keeper,
      raw,
    });
    const own = await server.request("GET", url, { token: keeper });
    assert.equal(own.status, 200);
    assert.equal((await server.request("GET", url)).status, 401);
    for (const method of ["GET", "DELETE"]) {
      const theirs = await server.request(method, url, { token: other });
      assertError(theirs, 40401);
    }
    const none = await server.request("GET", "/v1/tasks", { token: other });
    assert.equal(none.text, "[]");
    const all = await server.request(
      "GET",
      "/v1/tasks?status=succeeded&sortby=lines&order=desc&fields=lines",
      { token },
    );
    assert.equal(all.body[0]?.lines, 250);
    const done = "/v1/tasks?status=succeeded";
    const some = await server.request("GET", done, { token: keeper });
    assert.equal(some.headers.get("x-total-count"), String(all.body.length));
    assert.equal(
      (await server.request("GET", "/v1/")).body.tasks_url,
      "/v1/tasks",
    );
    const gone = await server.request("DELETE", url, { token: keeper });
    assert.equal(gone.status, 204);
    const again = await server.request("GET", url, { token: keeper });
    assert.equal(again.status, 410);
    for (const [method, path] of [["POST", "/v1/tasks"], ["PATCH", url]]) {
      const answer = await server.request(method ?? "", path ?? "", {
        token,
        json: {},
      });
      assert.equal(answer.status, 405);
    }
  });

  test("with an idempotency key runs once", async () => {
    const headers = { "idempotency-key": "once" };
    const raw = toLines([{ ...zoo, name: "Only one" }]);
    const options = { token: keeper, raw, headers };
    const first = await sendLines(server, "/v1/zoos", options);
    assert.equal(first.status, 202);
    const { url } = first.body;
    await taskWhen(server, { url, token: keeper, until: ended });
    const second = await sendLines(server, "/v1/zoos", options);
    assert.equal(second.status, 202);
    assert.equal(second.text, first.text);
    assert.equal(second.headers.get("location"), url);
    const changed = await sendLines(server, "/v1/zoos", {
      ...options,
      raw: `${raw}\n`,
    });
    assertError(changed, 42201);
    const found = await server.request("GET", "/v1/zoos?name=Only%20one");
    assert.equal(found.body.length, 1);
    await spoolsGone(server);
  });
});

/** Starts an application, and an import that waits for the disk after its first batch. */
async function startHeldImport(t: TestContext) {
  const { files, hold } = heldFiles();
  const app = await startApplication({ files });
  t.after(() => app.stop());
  const { store, token } = app;
  const animals = store.table("animals");
  await commit(store, [
    ["put", "zoos", { ...zoo, id: 1 }],
    ["put", "users", {
      ...storedAdmin,
      id: 2,
      username: "kim",
      role: "keeper",
    }],
  ], 0);
  let release: (() => void) | undefined;
  animals.listeners.add(() => release ??= hold());
  const raw = toLines(Array(3000).fill(animal));
  const { body } = await sendLines(app, "/v1/animals", {
    token: await app.signIn("kim"),
    raw,
  });
  await eventually(() => release !== undefined);
  const { size } = animals;
  assert.ok(size > 0 && size < 3000, String(size));
  return {
    ...app,
    animals,
    url: body.url,
    release: () => release?.(),
    ended: () => taskWhen(app, { url: body.url, token, until: ended }),
    firstBatch: size,
  };
}

test("a value of any type where an id is expected rejects its line, and no other", async (t) => {
  const library = await startLibrary();
  t.after(() => library.stop());
  const odd: readonly unknown[] = [
    { toString: null, valueOf: null },
    { valueOf: 1, toString: 2 },
    {},
    [],
    [7],
    "7",
    true,
    1.5,
    -1,
  ];
  const lines = odd.flatMap((value) =>
    ["id", "author_id", "sequel_of_id"].map((name) => ({
      title: "odd",
      [name]: value,
    }))
  );
  const last = { title: "last", author_id: null };
  const { token } = library;
  const task = await importLines(library, "/v1/books", {
    token,
    raw: toLines([{ title: "first" }, ...lines, last]),
  });
  const { status, imported, rejected } = task;
  assert.deepEqual(
    [status, imported, rejected],
    ["succeeded", 2, lines.length],
  );
});

test("the lines of an import keep their times although the clock is behind when it goes on", async (t) => {
  let now = Date.now();
  const app = await startApplication({ now: () => now });
  t.after(() => app.stop());
  const { store, token } = app;
  store.table("tasks").listeners.add(() => now = 0);
  const times = {
    created_at: "2020-01-01T00:00:00.000Z",
    updated_at: "2021-01-01T00:00:00.000Z",
  };
  const raw = toLines([{ ...zoo, id: 100, ...times }]);
  const task = await importLines(app, "/v1/zoos", { token, raw });
  assert.deepEqual([task.imported, now], [1, 0]);
  const { created_at, updated_at } = Object(
    store.table("zoos").get(100)?.document,
  );
  assert.deepEqual({ created_at, updated_at }, times);
});

test("an import is cancelled when its task is deleted, and imported records stay", async (t) => {
  const app = await startHeldImport(t);
  const { store, token, url, animals, firstBatch } = app;
  const deleting = app.request("DELETE", url, { token });
  await eventually(() => store.table("tasks").size === 0);
  app.release();
  assert.equal((await deleting).status, 204);
  // The next task runs after it, so nothing more of it can follow.
  await importLines(app, "/v1/zoos", { token, raw: "" });
  assert.equal(animals.size, firstBatch);
  await spoolsGone(store.folder);
});

test("an import fails when its user loses the right to write", async (t) => {
  const app = await startHeldImport(t);
  const { store, token } = app;
  const changing = app.request("PATCH", "/v1/users/2", {
    token,
    json: { role: "viewer" },
  });
  await eventually(() =>
    store.table("users").get(2)?.document["role"] === "viewer"
  );
  app.release();
  assert.equal((await changing).status, 201);
  const task = await app.ended();
  assert.equal(task.status, "failed");
  assert.equal(
    task.failure,
    "The user no longer has the rights that the request had.",
  );
  assert.equal(task.imported, app.firstBatch);
  assert.equal(app.animals.size, app.firstBatch);
});

test("an import that is killed again and again imports each valid line once", async (t) => {
  const count = Number(LINES);
  const kills = Number(KILLS);
  const records = Array.from({ length: count }, (_, at) => ({
    ...animal,
    name: `N${at}`,
    ...(at % 100 === 0 && { zoo_id: 999 }),
  }));
  const killedAt = (kill: number) => {
    const id = Math.round(kill / (kills + 1) * count);
    return { nodeArgs: signalBeforeWrite("SIGKILL", `"id":${id},"zoo_id"`) };
  };
  const first = await start({ seed, ...killedAt(1) });
  t.after(() => first.stop());
  const { folder } = first;
  const { body: { url } } = await sendLines(first, "/v1/animals", {
    token: await first.signIn(),
    raw: toLines(records),
  });
  assert.equal(await first.ended, null);
  for (let kill = 2; kill <= kills; kill++) {
    // It may be killed even before it listens.
    await start({ folder, ...killedAt(kill) }).then(
      (server) => server.ended,
      (error) => assert.match(String(error), /ended with code null/),
    );
  }
  const server = await startHere({ folder });
  t.after(() => server.stop());
  const token = await server.signIn();
  const task = await taskWhen(server, { url, token, until: ended });
  const good = records.filter(({ zoo_id }) => zoo_id === 1);
  assert.deepEqual(
    [task.status, task.lines, task.imported, task.rejected],
    ["succeeded", count, good.length, count - good.length],
  );
  const { text } = await fetchLines(server, "/v1/animals?fields=name");
  const names = fromLines(text).map(({ name }) => name);
  assert.deepEqual(names, good.map(({ name }) => name));
  await spoolsGone(server);
});

test("an import that waits while the feature is off finishes when it is on again", async (t) => {
  // More lines than can be written before the signal arrives.
  const records = Array.from({ length: 20_000 }, (_, at) => ({
    ...zoo,
    name: `N${at}`,
  }));
  const first = await start({
    nodeArgs: signalBeforeWrite("SIGTERM", '"id":100,"name"'),
  });
  t.after(() => first.stop());
  const { folder } = first;
  const { body: { url } } = await sendLines(first, "/v1/zoos", {
    token: await first.signIn(),
    raw: toLines(records),
  });
  assert.equal(await first.ended, 0);

  const without = await startHere({ folder, env: { FEATURES: "none" } });
  t.after(() => without.stop());
  const token = await without.signIn();
  const hidden = await without.request("GET", url, { token });
  assertError(hidden, 40400);
  const raw = toLines([zoo]);
  const refused = await sendLines(without, "/v1/zoos", { token, raw });
  assert.equal(refused.status, 415);
  const { headers } = await without.request("GET", "/v1/zoos?limit=1");
  const before = Number(headers.get("x-total-count"));
  assert.ok(before >= 100 && before < records.length, String(before));
  assert.equal((await spools(without)).length, 1);
  await without.end();

  const server = await startHere({ folder });
  t.after(() => server.stop());
  const task = await taskWhen(server, { url, token, until: ended });
  assert.deepEqual([task.status, task.imported], ["succeeded", records.length]);
  const { text } = await fetchLines(server, "/v1/zoos?fields=name");
  const names = fromLines(text).map(({ name }) => name);
  assert.deepEqual(names, records.map(({ name }) => name));
  await spoolsGone(server);
});

test("an export imports into an empty store as the same records", async () => {
  const server = await startHere({
    args: ["--seed", join(root, "data/seed.json")],
  });
  const token = await server.signIn();
  // With gaps, changes and all kinds of characters.
  await server.request("DELETE", "/v1/animals/7", { token });
  await server.request("PATCH", "/v1/zoos/2", {
    token,
    json: { name: "“Żoo”\u2028🦒", city: 'A"\\b' },
  });
  const empty = await startHere();
  try {
    const own = await empty.signIn();
    for (const path of ["/v1/zoos", "/v1/animals", "/v1/employees"]) {
      const before = await fetchLines(server, path, token);
      const raw = before.text;
      const task = await importLines(empty, path, { token: own, raw });
      assert.deepEqual([task.status, task.rejected], ["succeeded", 0]);
      const after = await fetchLines(empty, path, own);
      assert.equal(after.text, before.text);
    }
    const gone = await empty.request("GET", "/v1/animals/7");
    assert.equal(gone.status, 410);
  } finally {
    await empty.stop();
    await server.stop();
  }
});

describe("a long import", () => {
  let server: Server;
  let token: string;
  before(async () => {
    server = await start({ seed });
    token = await server.signIn();
  });
  after(() => server.stop());

  test("takes little memory, however long its body", {
    skip: process.platform !== "linux",
  }, async () => {
    const part = Buffer.from(`{"x":"${"y".repeat(1000)}"}\n`.repeat(1000));
    const mebibytes = Number(MIB);
    const parts = Math.floor(mebibytes * 2 ** 20 / part.length);
    const before = await peak(server);
    const headers = {
      authorization: `Bearer ${token}`,
      "content-type": lines,
      "content-length": String(parts * part.length),
    };
    const address = `${server.origin}/v1/animals`;
    const text = await new Promise<string>((resolve, reject) => {
      const sending = httpRequest(address, { method: "POST", headers });
      sending.once("response", async (response) => {
        let text = "";
        for await (const chunk of response.setEncoding("utf8")) text += chunk;
        resolve(text);
      });
      sending.once("error", reject);
      Readable.from(Array(parts).fill(part)).pipe(sending);
    });
    const { url } = JSON.parse(text);
    const task = await taskWhen(server, { url, token, until: ended });
    assert.equal(task.rejected, parts * 1000);
    const grown = await peak(server) - before;
    console.log(`${mebibytes} MiB took ${Math.round(grown / 2 ** 20)} MiB`);
    assert.ok(grown < 150 * 2 ** 20, `${grown} bytes`);
  });

  test("does not delay other requests", async () => {
    const raw = toLines(Array(Number(LINES)).fill(animal));
    const { body: { url } } = await sendLines(server, "/v1/animals", {
      token,
      raw,
    });
    for (let running = true; running;) {
      for (const path of ["/v1/zoos", "/v1/zoos/1/animals?limit=5"]) {
        const { status } = await server.request("GET", path);
        assert.equal(status, 200);
      }
      const json = { ...zoo, name: "Meanwhile" };
      const made = await server.request("POST", "/v1/zoos", { token, json });
      assert.equal(made.status, 201);
      const task = await server.request("GET", url, { token });
      running = !ended(task.body);
    }
  });
});

/** Returns a server's peak memory in bytes. */
async function peak({ child }: Server): Promise<number> {
  const status = await readFile(`/proc/${child.pid}/status`, "utf8");
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}
