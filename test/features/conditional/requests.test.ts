/**
 * More about conditional requests: collections, the fields of a 304, when a
 * precondition is evaluated, and when one is required.
 */

import { strict as assert } from "node:assert";
import { after, before, describe, test } from "node:test";
import {
  type Answer,
  assertError,
  exchange,
  lacks,
  type RequestOptions,
  type Server,
  start,
} from "../../harness.ts";
import { type ServerHere, startHere } from "../../in-process.ts";
import { seed } from "../../seed.ts";

const zoo = { name: "New", city: "Ghent", country: "BE" };
const animal = { zoo_id: 1, animal_type_id: 3, name: "Bo" };

let server: Server;
let token: string;

before(async () => {
  server = await start({ seed });
  token = await server.signIn();
});

after(() => server.stop());

async function etagOf(path: string): Promise<string> {
  const { headers } = await server.request("GET", path, { token });
  return headers.get("etag") ?? "";
}

/** Sends a request with a precondition that always fails. */
function failing(
  line: string,
  { headers, ...options }: RequestOptions = {},
): Promise<Answer> {
  const [method = "", path = ""] = line.split(" ");
  return server.request(method, path, {
    token,
    ...options,
    headers: { "if-match": '"x"', ...headers },
  });
}

describe("a collection's ETag", () => {
  const collections = [
    "/v1/zoos",
    "/v1/zoos?country=BE&limit=1",
    "/v1/animals",
    "/v1/zoos/1/animals",
    "/v1/zoos/1/animals?name:contains=a&fields=id",
    "/v1/employees",
    "/v1/users",
  ];

  test("is weak, the same until something changes, and has no date", async () => {
    for (const path of collections) {
      const { headers, text } = await server.request("GET", path, { token });
      const etag = headers.get("etag") ?? "";
      assert.match(etag, /^W\/"[!#-~]+"$/);
      assert.equal(headers.get("last-modified"), null);
      assert.equal(await etagOf(path), etag);
      for (const match of [etag, etag.slice(2), "*", `"a,b", ${etag}`]) {
        for (const method of ["GET", "HEAD"]) {
          const answer = await server.request(method, path, {
            token,
            headers: { "if-none-match": match },
          });
          assert.equal(answer.status, 304, path);
          assert.equal(answer.text, "");
          assert.equal(answer.headers.get("etag"), etag);
        }
      }
      const headersOld = { "if-none-match": 'W/"old"' };
      const options = { token, headers: headersOld };
      const whole = await server.request("GET", path, options);
      assert.equal(whole.text, text);
      // A weak tag never satisfies If-Match.
      const strict = { token, headers: { "if-match": etag } };
      const failed = await server.request("GET", path, strict);
      assertError(failed, 41200);
      assert.match(failed.text, /If-Match never holds for a weak tag/);
    }
  });

  test("changes with every change of a record in it", async () => {
    const paths = collections.filter((path) => path.includes("animals"));
    const seen = new Set<string>();
    const see = async () => {
      const tags = await Promise.all(paths.map(etagOf));
      for (const tag of new Set(tags)) {
        assert.ok(!seen.has(tag), tag);
        seen.add(tag);
      }
    };
    await see();
    const made = await server.request("POST", "/v1/zoos/1/animals", {
      token,
      json: animal,
    });
    await see();
    const path = made.body.url;
    for (const json of [{ name: "Ba" }, { sex: "male" }, { zoo_id: 2 }]) {
      await server.request("PATCH", path, { token, json });
      await see();
    }
    await server.request("PUT", path, { token, json: animal });
    await see();
    await server.request("DELETE", path, { token });
    await see();
  });

  test("does not count once the zoo has been deleted", async () => {
    const headers = { "if-none-match": "*" };
    for (
      const path of ["/v1/zoos/3/animals", "/v1/zoos/3", "/v1/zoos/3/animals/1"]
    ) {
      assertError(await server.request("GET", path, { headers }), 41000);
    }
    assertError(
      await server.request("GET", "/v1/zoos/9/animals", { headers }),
      40401,
    );
  });
});

test("a 304 has what a cache needs, and no content", async () => {
  for (const path of ["/v1/zoos", "/v1/zoos/1", "/v1/zoos/1/animals/1"]) {
    for (const signed of [false, true]) {
      const received = await exchange(
        server.port,
        `GET ${path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n` +
          (signed ? `Authorization: Bearer ${token}\r\n` : "") +
          "If-None-Match: *\r\n\r\n",
      );
      const [head = "", ...content] = received.split("\r\n\r\n");
      assert.deepEqual(content, [""]);
      assert.match(head, /^HTTP\/1\.1 304 Not Modified\r\n/);
      assert.match(head, /^etag: \S+"$/im);
      assert.match(head, /^vary: .*\bAccept\b/im);
      assert.match(head, /^date: \S/im);
      assert.match(head, /^x-request-id: \S/im);
      assert.match(
        head,
        signed
          ? /^cache-control: private, no-cache\r?$/im
          : /^cache-control: no-cache\r?$/im,
      );
      assert.doesNotMatch(head, /^(content-|transfer-encoding)/im);
      const get = await server.request("GET", path);
      const etag = /^etag: (.*)$/im.exec(head)?.[1];
      assert.equal(etag, get.headers.get("etag"));
    }
  }
});

describe("a precondition is evaluated", () => {
  const large = { raw: "[".repeat(2 ** 20 + 1) };
  const typed = { headers: { "content-type": "application/json" } };
  const text = { raw: "{}", headers: { "content-type": "text/plain" } };
  const rows: readonly (readonly [string, RequestOptions, number])[] = [
    ["GET /v1/nope", {}, 40400],
    ["DELETE /v1/tasks", {}, 40500],
    ["PATCH /v1/zoos/1", { token: "bad" }, 40102],
    ["GET /v1/zoos/1", { headers: { accept: "image/png" } }, 40600],
    ["GET /v1/zoos/1?nope=1", {}, 40003],
    ["GET /v1/zoos?limit=0", {}, 40004],
    ["PATCH /v1/zoos/1", text, 41500],
    ["PUT /v1/zoos/1", text, 41500],
    ["PATCH /v1/zoos/1", { ...large, ...typed }, 41300],
    ["PATCH /v1/zoos/1", { raw: "{", ...typed }, 40001],
    ["PUT /v1/zoos/1", { json: [] }, 40002],
    ["PATCH /v1/zoos/99", { json: {} }, 40401],
    ["PUT /v1/zoos/99", { json: {} }, 40401],
    ["DELETE /v1/zoos/99", {}, 40401],
    ["DELETE /v1/zoos/3", {}, 40401],
    ["GET /v1/zoos/3", {}, 41000],
    ["PATCH /v1/zoos/2/animals/1", { json: {} }, 40401],
    ["POST /v1/zoos/99/animals", { json: {} }, 40401],
    ["PATCH /v1/zoos/1", { json: { name: 5 } }, 41200],
    ["PUT /v1/zoos/1", { json: {} }, 41200],
    ["POST /v1/zoos", { json: {} }, 41200],
    ["DELETE /v1/zoos/1", {}, 41200], // which has an animal
    ["DELETE /v1/users/1", {}, 41200], // the last admin
    ["PATCH /v1/users/1", { json: { role: "viewer" } }, 41200],
    ["PATCH /v1/user", { json: { role: "viewer" } }, 41200],
  ];
  for (const [line, options, code] of rows) {
    test(`${line} is ${code}`, async () => {
      const before = await server.request("GET", "/v1/zoos");
      assertError(await failing(line, options), code);
      const { text } = await server.request("GET", "/v1/zoos");
      assert.equal(text, before.text);
    });
  }

  test("not for OPTIONS", async () => {
    assert.equal((await failing("OPTIONS /v1/zoos/1")).status, 200);
  });

  test("with If-None-Match: * on a POST: the collection exists", async () => {
    const headers = { "if-none-match": "*" };
    const options = { token, headers, json: zoo };
    assertError(await server.request("POST", "/v1/zoos", options), 41200);
    const match = { token, headers: { "if-match": "*" }, json: zoo };
    const answer = await server.request("POST", "/v1/zoos", match);
    assert.equal(answer.status, 201);
  });
});

describe("with REQUIRE_IF_MATCH=1", () => {
  let strict: ServerHere;
  let admin: string;
  before(async () => {
    strict = await startHere({ seed, env: { REQUIRE_IF_MATCH: "1" } });
    admin = await strict.signIn();
  });
  after(() => strict.stop());

  test("signing out needs none", async () => {
    const token = await strict.signIn();
    const [{ url = "" } = {}] = (await strict.request(
      "GET",
      "/v1/authorizations?sortby=id&order=desc&limit=1",
      { token },
    )).body;
    assert.equal((await strict.request("DELETE", url, { token })).status, 204);
  });

  test("cancelling an import needs none", {
    skip: lacks("imports"),
  }, async () => {
    const { body: task } = await strict.request("POST", "/v1/zoos", {
      token: admin,
      raw: "",
      headers: { "content-type": "application/x-ndjson" },
    });
    const ended = await strict.request("DELETE", task.url, { token: admin });
    assert.equal(ended.status, 204, ended.text);
  });

  test("a change without a precondition is 428", async () => {
    const rows: readonly (readonly [string, unknown, number])[] = [
      ["PUT /v1/zoos/1", zoo, 42800],
      ["PATCH /v1/zoos/1", { name: 5 }, 42800],
      ["PUT /v1/zoos/1", {}, 42800],
      ["DELETE /v1/zoos/1", undefined, 42800],
      ["PATCH /v1/zoos/1/animals/1", {}, 42800],
      ["DELETE /v1/users/1", undefined, 42800],
      ["PATCH /v1/zoos/99", {}, 40401],
      ["DELETE /v1/zoos/3", undefined, 40401],
      ["PUT /v1/zoos/1", [], 40002],
      ["POST /v1/zoos", {}, 42200],
    ];
    for (const [line, json, code] of rows) {
      const [method = "", path = ""] = line.split(" ");
      for (
        const headers of [
          {},
          { "if-modified-since": new Date(0).toUTCString() },
          { "if-unmodified-since": "yesterday" },
        ]
      ) {
        const options = { token: admin, headers };
        const sent = json === undefined ? options : { ...options, json };
        assertError(await strict.request(method, path, sent), code);
      }
    }
    const nobody = await strict.request("PATCH", "/v1/zoos/1", { json: {} });
    assertError(nobody, 40100);
  });

  test("any precondition is enough, and it is evaluated", async () => {
    const { headers } = await strict.request("GET", "/v1/zoos/2");
    const etag = headers.get("etag") ?? "";
    const rows: readonly (readonly [Record<string, string>, number])[] = [
      [{ "if-match": '"x"' }, 412],
      [{ "if-none-match": "*" }, 412],
      [{ "if-none-match": '"x"' }, 201],
      [{ "if-match": "*" }, 201],
      [{ "if-unmodified-since": headers.get("last-modified") ?? "" }, 201],
      [{ "if-match": etag }, 201],
    ];
    for (const [fields, status] of rows) {
      const options = { token: admin, headers: fields, json: {} };
      const answer = await strict.request("PATCH", "/v1/zoos/2", options);
      assert.equal(answer.status, status, answer.text);
    }
    const options = { token: admin, headers: { "if-match": etag } };
    const gone = await strict.request("DELETE", "/v1/zoos/2", options);
    assert.equal(gone.status, 204);
  });

  test("reading and creating need none", async () => {
    const options = { token: admin, json: zoo };
    const made = await strict.request("POST", "/v1/zoos", options);
    assert.equal(made.status, 201);
    assert.equal((await strict.request("GET", made.body.url)).status, 200);
  });
});
