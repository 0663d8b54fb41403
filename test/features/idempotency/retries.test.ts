/**
 * What a client that is not sure asks for: the answer without the record
 * (Prefer), and the first answer again (Idempotency-Key), whatever happened in
 * between, be it kill -9.
 */

import { strict as assert } from "node:assert";
import { after, before, describe, test } from "node:test";
import {
  type Answer,
  exchange,
  type RequestOptions,
  type Server,
  start,
} from "../../harness.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

let server: Server;
let token: string;

before(async () => {
  server = await start();
  token = await server.signIn();
});

after(() => server.stop());

/** Whoever answers requests: a process, or an application in this one. */
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

function assertError(answer: Answer, code: number): void {
  assert.equal(answer.status, Math.floor(code / 100), answer.text);
  assert.equal(answer.body.errorCode, code, answer.text);
}

/** Asserts that an answer is a first one, given again. */
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

describe("Prefer", () => {
  const minimal = { prefer: "return=minimal" };

  test("return=minimal leaves out the record", async () => {
    const made = await server.request("POST", "/v1/zoos", {
      token,
      json: zoo,
      headers: minimal,
    });
    assert.equal(made.status, 201);
    const path = made.headers.get("location") ?? "";
    for (const [method, status] of [["PUT", 204], ["PATCH", 204]] as const) {
      const json = { ...zoo, name: method };
      const options = { token, json, headers: minimal };
      const answer = await server.request(method, path, options);
      assert.equal(answer.status, status);
      assert.equal(answer.text, "");
      const { headers } = answer;
      assert.equal(headers.get("preference-applied"), "return=minimal");
      assert.equal(headers.get("content-type"), null);
      assert.match(headers.get("vary") ?? "", /\bPrefer\b/);
      assert.equal(headers.has("etag"), method === "PATCH");
      const location = headers.get("content-location");
      assert.equal(location, method === "PUT" ? path : null);
      const now = await server.request("GET", path);
      assert.equal(now.body.name, method);
      assert.equal(
        headers.get("etag") ?? now.headers.get("etag"),
        now.headers.get("etag"),
      );
    }
    assert.equal(made.text, "");
    assert.equal(made.headers.get("content-type"), null);
    assert.equal(made.headers.get("content-length"), "0");
    assert.equal(made.headers.get("preference-applied"), "return=minimal");
    assert.match(made.headers.get("etag") ?? "", /^"/);
  });

  test("return=representation is what is done anyway, and said", async () => {
    for (
      const prefer of [
        "return=representation",
        'Return = "representation"; x, return=minimal',
      ]
    ) {
      const headers = { prefer };
      const options = { token, json: zoo, headers };
      const answer = await server.request("POST", "/v1/zoos", options);
      assert.equal(answer.status, 201);
      assert.equal(answer.body.name, zoo.name);
      const applied = answer.headers.get("preference-applied");
      assert.equal(applied, "return=representation");
    }
  });

  test("signing in shows its token all the same", async () => {
    const json = { username: "admin", password: "correct horse battery" };
    const options = { json, headers: minimal };
    const answer = await server.request("POST", "/v1/authorizations", options);
    assert.equal(answer.status, 201);
    assert.match(answer.body.token, /^ey/);
    assert.equal(answer.headers.get("preference-applied"), null);
    assert.equal(answer.headers.get("cache-control"), "no-store");
  });

  test("shortens no error, no GET and no replay of somebody else's wish", async () => {
    const options = { token, json: {}, headers: minimal };
    assertError(await server.request("POST", "/v1/zoos", options), 42200);
    const list = await server.request("GET", "/v1/zoos", { headers: minimal });
    assert.equal(list.status, 200);
    assert.ok(list.body.length > 0);
    assert.equal(list.headers.get("preference-applied"), null);
    // What Vary does not name has no say.
    const strict = { headers: { prefer: "handling=strict" } };
    const { headers } = await server.request("GET", "/v1/zoos", strict);
    assert.equal(headers.get("preference-applied"), null);
    assert.equal(headers.get("vary"), "Accept");
    const short = await post("prefer", { headers: minimal });
    const whole = await post("prefer");
    assert.equal(short.text, "");
    assert.equal(whole.body.url, short.headers.get("location"));
  });

  test("handling=strict is told as applied, what is unknown ignored", async () => {
    const headers = { prefer: "handling=strict, respond-async, wait=5" };
    const options = { token, json: zoo, headers };
    const answer = await server.request("POST", "/v1/zoos", options);
    assert.equal(answer.status, 201);
    const applied = answer.headers.get("preference-applied");
    assert.equal(applied, "handling=strict");
    const strict = { ...options, json: { ...zoo, nope: 1 } };
    assertError(await server.request("POST", "/v1/zoos", strict), 42200);
    const unknown = { ...options, headers: { prefer: "return=nothing" } };
    const whole = await server.request("POST", "/v1/zoos", unknown);
    assert.equal(whole.headers.get("preference-applied"), null);
    assert.equal(whole.body.name, zoo.name);
  });
});

describe("Idempotency-Key", () => {
  test("gives the first answer again, and writes nothing", async () => {
    const first = await post("again");
    assert.equal(first.status, 201);
    const before = await count();
    assertReplay(await post("again"), first);
    assert.equal(await count(), before);
    const path = first.headers.get("location") ?? "";
    await server.request("PATCH", path, { token, json: { name: "New" } });
    assertReplay(await post("again"), first);
    await server.request("DELETE", path, { token });
    assertReplay(await post("again"), first);
    assert.equal(await count(), before - 1);
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

  test("is one user's, and one address's", async () => {
    const tokens = [];
    for (const username of ["kim", "kim-2"]) {
      const password = `the password of ${username}`;
      const json = { username, role: "keeper", password };
      const made = await post("user", { path: "/v1/users", json }).then(
        (answer) =>
          answer.status === 201 ? answer : post("user-2", {
            path: "/v1/users",
            json,
          }),
      );
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

  test("keeps no answer that failed", async () => {
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

  test("counts for nothing but a POST of a record", async () => {
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

  test("is 409 while the first request is still running", async () => {
    const json = { username: "slow", password: "hashed for a while" };
    const path = "/v1/users"; // a password takes a while to be hashed
    const both = [1, 2].map(() => post("run", { path, json }));
    const answers = await Promise.all(both);
    const [made, refused] = answers.sort((a, b) => a.status - b.status);
    assert.ok(made && refused);
    assert.equal(made.status, 201);
    assertError(refused, 40902);
    assertReplay(await post("run", { path, json }), made);
  });
});
