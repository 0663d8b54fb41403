/**
 * What scripts of other origins may do: nothing unless CORS_ORIGINS names their
 * origin. Then responses have the fields of the CORS protocol (Fetch standard),
 * errors too, as a script could not read them otherwise.
 */

import { strict as assert } from "node:assert";
import { after, before, describe, test } from "node:test";
import {
  type Answer,
  exchange,
  removeFolder,
  start,
  temporaryFolder,
} from "../../harness.ts";
import { runHere, type ServerHere, startHere } from "../../in-process.ts";

const one = "https://one.example";
const two = "http://two.example:8080";
const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

/** The response fields that the protocol defines. */
function corsFields({ headers }: Answer): string[] {
  return [...headers.keys()].filter((name) =>
    name.startsWith("access-control-")
  );
}

function listOf(answer: Answer, name: string): string[] {
  const field = answer.headers.get(name) ?? "";
  return field.toLowerCase().split(/\s*,\s*/).filter((member) => member !== "");
}

/** Sends a preflight, as a browser does before the request of a script. */
function preflight(
  server: ServerHere,
  path: string,
  { origin = one, method = "PUT", asked = "authorization,if-match" } = {},
): Promise<Answer> {
  return server.request("OPTIONS", path, {
    headers: {
      origin,
      "access-control-request-method": method,
      "access-control-request-headers": asked,
    },
  });
}

describe("without CORS_ORIGINS", () => {
  let server: ServerHere;
  before(async () => server = await startHere({ env: { CORS_ORIGINS: "" } }));
  after(() => server.stop());

  test("no response has a field of CORS", async () => {
    const headers = { origin: one };
    for (const path of ["/v1", "/v1/zoos", "/v1/nope", "/v1/users"]) {
      const answer = await server.request("GET", path, { headers });
      assert.deepEqual(corsFields(answer), []);
      assert.doesNotMatch(answer.headers.get("vary") ?? "", /origin/i);
    }
    const answer = await preflight(server, "/v1/zoos");
    assert.equal(answer.status, 200);
    assert.deepEqual(corsFields(answer), []);
  });
});

describe("with a list of origins", () => {
  let server: ServerHere;
  let token: string;
  before(async () => {
    server = await start({ env: { CORS_ORIGINS: `${one}, ${two}` } });
    token = await server.signIn();
    const json = zoo;
    await server.request("POST", "/v1/zoos", { token, json });
  });
  after(() => server.stop());

  test("each of them may read responses, errors too", async () => {
    const rows: readonly (readonly [string, string, number])[] = [
      ["GET", "/v1", 200],
      ["HEAD", "/v1/zoos", 200],
      ["GET", "/v1/zoos/1", 200],
      ["GET", "/v1/zoos/", 308],
      ["GET", "/v1/zoos?nope=1", 400],
      ["GET", "/v1/zoos/%zz", 400],
      ["GET", "/v1/users", 401],
      ["GET", "/v1/nope", 404],
      ["PUT", "/v1/zoos", 405],
      ["PROPFIND", "/v1/zoos", 501],
    ];
    for (const origin of [one, two]) {
      for (const [method, path, status] of rows) {
        const options = { headers: { origin } };
        const answer = await server.request(method, path, options);
        assert.equal(answer.status, status, `${method} ${path}`);
        const { headers } = answer;
        assert.equal(headers.get("access-control-allow-origin"), origin);
        assert.equal(headers.get("access-control-allow-credentials"), null);
        assert.ok(listOf(answer, "vary").includes("origin"));
        assert.ok(listOf(answer, "vary").includes("accept"));
        const exposed = listOf(answer, "access-control-expose-headers");
        for (
          const name of [
            "accept-query",
            "allow",
            "content-location",
            "etag",
            "link",
            "location",
            "preference-applied",
            "retry-after",
            "www-authenticate",
            "x-request-id",
            "x-total-count",
          ]
        ) assert.ok(exposed.includes(name), name);
      }
    }
  });

  test("a 304, a 201 and a 204 may be read as well", async () => {
    const origin = one;
    const rows = [
      ["GET", { "if-none-match": "*" }, 304],
      ["PATCH", {}, 201],
      ["PATCH", { prefer: "return=minimal" }, 204],
      ["PATCH", { "if-match": '"x"' }, 412],
    ] as const;
    for (const [method, fields, status] of rows) {
      const json = method === "GET" ? {} : { json: {} };
      const headers = { origin, ...fields };
      const options = { token, headers, ...json };
      const answer = await server.request(method, "/v1/zoos/1", options);
      assert.equal(answer.status, status, answer.text);
      const allowed = answer.headers.get("access-control-allow-origin");
      assert.equal(allowed, origin);
      assert.ok(listOf(answer, "vary").includes("origin"));
    }
  });

  test("no other may, and Vary says that it depends on the origin", async () => {
    const others = [
      undefined,
      "null",
      "https://one.example.evil",
      "http://one.example",
      "https://one.example:8443",
      "https://ONE.example",
      `${one}, ${two}`,
      "*",
      "",
    ];
    for (const origin of others) {
      const headers: Record<string, string> = {};
      if (origin !== undefined) headers["origin"] = origin;
      const answer = await server.request("GET", "/v1/zoos", { headers });
      assert.equal(answer.status, 200);
      assert.deepEqual(corsFields(answer), [], origin);
      assert.ok(listOf(answer, "vary").includes("origin"));
      if (origin === undefined) continue;
      const asked = await preflight(server, "/v1/zoos", { origin });
      assert.deepEqual(corsFields(asked), [], origin);
      assert.ok(listOf(asked, "vary").includes("origin"));
    }
  });

  test("a preflight says what they may send, without credentials", async () => {
    const table = [
      ["/v1/authorizations", ["get", "head", "query", "post", "options"]],
      ["/v1/zoos/1", ["get", "head", "put", "patch", "delete", "options"]],
      ["/v1/users/99", ["get", "head", "put", "patch", "delete", "options"]],
      ["/v1/user", ["get", "head", "patch", "options"]],
    ] as const;
    for (const [path, methods] of table) {
      const answer = await preflight(server, path);
      assert.equal(answer.status, 200, answer.text);
      const origin = answer.headers.get("access-control-allow-origin");
      assert.equal(origin, one);
      assert.deepEqual(
        listOf(answer, "access-control-allow-methods").sort(),
        methods.toSorted(),
      );
      const names = listOf(answer, "access-control-allow-headers");
      for (
        const name of [
          "accept",
          "authorization",
          "content-type",
          "idempotency-key",
          "if-match",
          "if-modified-since",
          "if-none-match",
          "if-unmodified-since",
          "prefer",
          "x-request-id",
        ]
      ) assert.ok(names.includes(name), name);
      const age = answer.headers.get("access-control-max-age") ?? "";
      assert.match(age, /^\d+$/);
      assert.ok(listOf(answer, "vary").includes("origin"));
    }
  });

  test("a preflight succeeds whatever parameters the request will have", async () => {
    for (const path of ["/v1/animals?limit=5", "/v1/zoos/1?cascade=true"]) {
      const answer = await preflight(server, path, { method: "GET" });
      assert.equal(answer.status, 200, path);
      const origin = answer.headers.get("access-control-allow-origin");
      assert.equal(origin, one);
    }
  });

  test("a plain OPTIONS is not a preflight", async () => {
    const headers = { origin: one };
    const answer = await server.request("OPTIONS", "/v1/zoos", { headers });
    assert.equal(answer.headers.get("access-control-allow-methods"), null);
    assert.equal(answer.headers.get("access-control-allow-origin"), one);
    assert.equal(typeof answer.body.schema, "object");
  });

  test("a preflight for an unknown URL or method fails", async () => {
    const answer = await preflight(server, "/v1/nope");
    assert.equal(answer.status, 404);
    assert.equal(answer.headers.get("access-control-allow-methods"), null);
  });

  test("nothing that was sent is returned as a field", async () => {
    const received = await exchange(
      server.port,
      "GET /v1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" +
        `Origin: ${one}\r\nOrigin: https://evil.example\r\n` +
        "X-Request-Id: a\x0bX-Evil: 1\r\n\r\n",
    );
    assert.doesNotMatch(received, /evil/i);
  });
});

describe("with CORS_ORIGINS=*", () => {
  let server: ServerHere;
  before(async () =>
    server = await startHere({ args: ["--cors-origins", "*"] })
  );
  after(() => server.stop());

  test("all may read, and the response is the same for each", async () => {
    for (const origin of [undefined, one, "null"]) {
      const headers: Record<string, string> = {};
      if (origin !== undefined) headers["origin"] = origin;
      for (const path of ["/v1", "/v1/nope", "/v1/users"]) {
        const answer = await server.request("GET", path, { headers });
        assert.equal(answer.headers.get("access-control-allow-origin"), "*");
        const credentials = "access-control-allow-credentials";
        assert.equal(answer.headers.get(credentials), null);
        const exposed = listOf(answer, "access-control-expose-headers");
        assert.ok(exposed.includes("etag"));
      }
    }
    const answer = await preflight(server, "/v1/zoos/1", { origin: two });
    assert.equal(answer.status, 200);
    assert.match(
      answer.headers.get("access-control-allow-methods") ?? "",
      /\bPATCH\b/,
    );
  });
});

test("an invalid origin prevents the start", async () => {
  const folder = await temporaryFolder();
  try {
    const bad = [
      "one.example",
      `${one}/`,
      `${one}/path`,
      "null",
      "https://a,,",
    ];
    for (const origins of bad) {
      const args = ["serve", "--data-dir", folder, "--port", "0"];
      const env = { CORS_ORIGINS: origins };
      const { code, stderr } = await runHere(args, { env });
      assert.equal(code, 2, origins);
      assert.match(stderr, /CORS_ORIGINS/);
      assert.equal(stderr.trim().split("\n").length, 1, stderr);
    }
  } finally {
    await removeFolder(folder);
  }
});
