/** Idempotency-Key: the response to the first request again, without a second record. */

import { strict as assert } from "node:assert";
import { hash } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { holdHashes, startApplication } from "../../application.ts";
import {
  type Answer,
  assertError,
  exchange,
  type RequestOptions,
  type Server,
  start,
} from "../../harness.ts";
import { ended, taskWhen } from "../../lines.ts";
import { commit } from "../../commit.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

let server: Server;
let token: string;

before(async () => {
  server = await start();
  token = await server.signIn();
  await server.request("POST", "/v1/zoos", { token, json: zoo });
});

after(() => server.stop());

/** A server: a process, or an application in this one. */
type Answering = Pick<Server, "request">;

function post(
  key: string,
  options: RequestOptions & { at?: Answering; path?: string } = {},
): Promise<Answer> {
  const { at = server, path = "/v1/zoos", headers, ...rest } = options;
  return at.request("POST", path, {
    token,
    ...(rest.raw === undefined && { json: zoo }),
    ...rest,
    headers: {
      "content-type": "application/json",
      "idempotency-key": key,
      ...headers,
    },
  });
}

/** Asserts that a response is the first one, sent again. */
function assertReplay(answer: Answer, first: Answer): void {
  assert.equal(answer.status, first.status, answer.text);
  assert.equal(answer.text, first.text);
  for (const name of ["location", "etag", "content-type", "vary"]) {
    assert.equal(answer.headers.get(name), first.headers.get(name), name);
  }
}

async function count(at: Answering = server): Promise<number> {
  const { headers } = await at.request("GET", "/v1/zoos");
  return Number(headers.get("x-total-count"));
}

describe("Idempotency-Key", () => {
  test("repeats the first response, and writes nothing", async () => {
    const first = await post("again");
    assert.equal(first.status, 201);
    const before = await count();
    assertReplay(await post("again"), first);
    assert.equal(await count(), before);
    const path = first.headers.get("location") ?? "";
    await server.request("PATCH", path, { token, json: { name: "New" } });
    assertReplay(await post("again"), first);
  });

  test("repeats it after the record was changed and moved, and its URL is gone", async () => {
    const [from, to] = [
      await server.request("POST", "/v1/zoos", { token, json: zoo }),
      await server.request("POST", "/v1/zoos", { token, json: zoo }),
    ];
    const path = `/v1/zoos/${from.body.id}/animals`;
    const json = { animal_type_id: 3, name: "Ada", born_on: "2020-02-29" };
    const first = await post("moved", { path, json });
    assert.equal(first.status, 201, first.text);
    const url = first.headers.get("location") ?? "";
    const changed = {
      zoo_id: to.body.id,
      animal_type_id: 4,
      name: "Bo",
      sex: "female",
    };
    await server.request("PUT", url, { token, json: changed });
    assertReplay(await post("moved", { path, json }), first);
    const old = from.body.url;
    assert.equal(
      (await server.request("DELETE", old, { token })).status,
      204,
    );
    assertReplay(await post("moved", { path, json }), first);
    assert.equal((await server.request("GET", url)).body.name, "Bo");
    assertError(await post("unheard", { path, json }), 40401);
  });

  test("is 410 after the record was deleted, and creates no second one", async () => {
    const first = await post("deleted");
    const before = await count();
    const path = first.headers.get("location") ?? "";
    await server.request("DELETE", path, { token });
    for (let time = 0; time < 2; time++) {
      const again = await post("deleted");
      assertError(again, 41000);
      assert.match(again.body.error, /^The zoo \d+ was deleted for good\.$/);
    }
    assertError(await post("deleted", { json: {} }), 42201);
    assert.equal(await count(), before - 1);
  });

  test("repeats the task of an import as it was when queued; deleted, it is 410", async () => {
    const options = {
      raw: "{}\n",
      headers: { "content-type": "application/x-ndjson" },
    };
    const first = await post("import", options);
    assert.equal(first.status, 202, first.text);
    const url = first.headers.get("location") ?? "";
    await taskWhen(server, { url, token, until: ended });
    const again = await post("import", options);
    assertReplay(again, first);
    assert.equal(again.body.status, "queued");
    assertError(await post("import", { ...options, raw: "{}" }), 42201);
    await server.request("DELETE", url, { token });
    assertError(await post("import", options), 41000);
  });

  test("stores nothing of the body and of the key", async (t) => {
    const app = await startApplication();
    t.after(() => app.stop());
    const long = { ...zoo, name: "Z".repeat(100) };
    const first = await post("a-long-key", {
      at: app,
      token: app.token,
      json: long,
    });
    assert.equal(first.status, 201, first.text);
    const stored = app.store.table("answers").rows().map(({ document }) =>
      document
    );
    assert.equal(stored.length, 1);
    assert.ok(JSON.stringify(stored).length < 120, JSON.stringify(stored));
  });

  test("repeats responses that an older version stored", async (t) => {
    const app = await startApplication();
    t.after(() => app.stop());
    const body = JSON.stringify(zoo);
    const options = { at: app, token: app.token, raw: body };
    const first = await post("new", options);
    const row = {
      id: 100,
      key: `1 /v1/zoos old`,
      by: 1,
      hash: hash("sha256", body, "base64url"),
      status: 201,
      headers: ["Location", first.headers.get("location") ?? ""],
      body: first.text,
      created_at: new Date().toISOString(),
    };
    await commit(app.store, [["put", "answers", row]], 1);
    assertReplay(await post("old", options), first);
    assertError(await post("old", { ...options, raw: body + " " }), 42201);
    await app.request("DELETE", "/v1/zoos/1", { token: app.token });
    assertError(await post("old", options), 41000);
  });

  test("repeats the whole record, even if the first response omitted it", async () => {
    const short = await post("prefer", {
      headers: { prefer: "return=minimal" },
    });
    const whole = await post("prefer");
    assert.equal(short.text, "");
    assert.equal(whole.body.url, short.headers.get("location"));
  });

  test("with another body is 422, byte for byte", async () => {
    const first = await post("body");
    const before = await count();
    assertError(await post("body", { json: { ...zoo, name: "B" } }), 42201);
    assertError(await post("body", { raw: JSON.stringify(zoo) + " " }), 42201);
    assertError(await post("body", { json: {} }), 42201);
    assertReplay(await post("body"), first);
    assert.equal(await count(), before);
  });

  test("repeats the first response at any spelling of its URL", async () => {
    const first = await post("spelled");
    for (const path of ["/v1/zo%6fs", "/v1/%7Aoos"]) {
      assertReplay(await post("spelled", { path }), first);
    }
  });

  test("belongs to one user and one URL", async () => {
    const tokens = [];
    for (const username of ["kim", "kim-2"]) {
      const password = `the password of ${username}`;
      const json = { username, role: "keeper", password };
      const made = await post(username, { path: "/v1/users", json });
      assert.equal(made.status, 201, made.text);
      tokens.push(await server.signIn(username, password));
    }
    const urls = [];
    for (const each of [token, ...tokens]) {
      const answer = await post("shared", { token: each });
      assert.equal(answer.status, 201);
      urls.push(answer.body.url);
    }
    assert.equal(new Set(urls).size, 3);
    const animal = { zoo_id: 1, animal_type_id: 3, name: "Ada" };
    const json = animal;
    const there = await post("shared", { path: "/v1/animals", json });
    assert.equal(there.status, 201, there.text);
    const inZoo = await post("shared", { path: "/v1/zoos/1/animals", json });
    assert.equal(inZoo.status, 201);
    assert.notEqual(inZoo.body.url, there.body.url);
    assertError(await post("shared", { token: "" }), 40102);
  });

  test("stores no response that failed", async () => {
    assertError(await post("failed", { json: {} }), 42200);
    assertError(await post("failed", { raw: "{" }), 40001);
    assert.equal((await post("failed")).status, 201);
    const path = "/v1/zoos/999/animals";
    assertError(await post("failed", { path }), 40401);
  });

  test("is one of 1 to 255 visible characters", async () => {
    const before = await count();
    for (const key of ["", "a b", "a\tb", "\xe9", "a".repeat(256)]) {
      assertError(await post(key), 40000);
    }
    const body = JSON.stringify(zoo);
    for (const second of ["two", "one"]) {
      const received = await exchange(
        server.port,
        "POST /v1/zoos HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" +
          `Authorization: Bearer ${token}\r\nContent-Type: application/json` +
          `\r\nContent-Length: ${body.length}\r\nIdempotency-Key: one\r\n` +
          `Idempotency-Key: ${second}\r\n\r\n${body}`,
      );
      assert.match(received, /^HTTP\/1\.1 400 /);
      assert.match(received, /Idempotency-Key/);
    }
    assert.equal(await count(), before);
    for (const key of ["__proto__", '"a,b"', "a".repeat(255)]) {
      const first = await post(key);
      assert.equal(first.status, 201);
      assertReplay(await post(key), first);
    }
  });

  test("has an effect only on a POST of a record", async () => {
    const json = { username: "admin", password: "correct horse battery" };
    const path = "/v1/authorizations";
    const answers = await Promise.all(
      [1, 2].map(() => post("in", { path, json })),
    );
    const [one, two] = answers.map(({ body }) => body.token);
    assert.notEqual(one, two);
    const headers = { "idempotency-key": "a b" };
    assert.equal(
      (await server.request("GET", "/v1/zoos", { headers })).status,
      200,
    );
    const options = { token, json: { name: "Put" }, headers };
    assert.equal(
      (await server.request("PATCH", "/v1/zoos/1", options)).status,
      201,
    );
  });

  test("is 409 while the first request is still running", async (t) => {
    const app = await startApplication();
    t.after(() => app.stop());
    const json = { username: "slow", password: "hashed for a while" };
    const options = { at: app, token: app.token, path: "/v1/users", json };
    const hashes = holdHashes(t);
    const first = post("run", options);
    await hashes.begun(1);
    assertError(await post("run", options), 40902);
    hashes.computeAll();
    const made = await first;
    assert.equal(made.status, 201);
    assertReplay(await post("run", options), made);
  });
});
