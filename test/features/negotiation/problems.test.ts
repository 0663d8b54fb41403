/**
 * Errors as `application/problem+json` (RFC 9457) for clients that ask for it,
 * and the id of every response, by which it can be found in the log.
 */

import { strict as assert } from "node:assert";
import { after, before, describe, test } from "node:test";
import {
  type Answer,
  exchange,
  type RequestOptions,
  type Server,
  signInNew,
  start,
} from "../../harness.ts";
import { seed } from "../../seed.ts";

const problem = "application/problem+json";

let server: Server;
let token: string;
let viewer: string;

before(async () => {
  server = await start({ seed, env: { LOG: "debug" } });
  token = await server.signIn();
  viewer = await signInNew(server, { token, username: "viewer" });
});

after(() => server.stop());

/** Every kind of error that a client can cause: request, its parts, code. */
type Row = readonly [string, () => RequestOptions, number];

const rows: readonly Row[] = [
  ["GET /v1/zoos/%zz", () => ({}), 40000],
  [
    "POST /v1/zoos",
    () => ({
      token,
      raw: "{",
      headers: { "content-type": "application/json" },
    }),
    40001,
  ],
  ["POST /v1/zoos", () => ({ token, json: [] }), 40002],
  ["GET /v1/zoos?nope=1", () => ({}), 40003],
  ["GET /v1/zoos?limit=x", () => ({}), 40004],
  ["GET /v1/users", () => ({}), 40100],
  [
    "POST /v1/authorizations",
    () => ({ json: { username: "a", password: "b" } }),
    40101,
  ],
  ["GET /v1/zoos", () => ({ token: "bad" }), 40102],
  ["POST /v1/zoos", () => ({ token: viewer, json: {} }), 40300],
  ["GET /v1/nope", () => ({}), 40400],
  ["GET /v1/zoos/99", () => ({}), 40401],
  ["PUT /v1/zoos", () => ({}), 40500],
  ["DELETE /v1/zoos/1", () => ({ token }), 40900],
  ["DELETE /v1/users/1", () => ({ token }), 40901],
  ["GET /v1/zoos/3", () => ({}), 41000],
  ["GET /v1/zoos/1", () => ({ headers: { "if-match": '"x"' } }), 41200],
  [
    "POST /v1/zoos",
    () => ({
      token,
      raw: "[".repeat(2 ** 20 + 1),
      headers: { "content-type": "application/json" },
    }),
    41300,
  ],
  [
    "POST /v1/zoos",
    () => ({ token, raw: "{}", headers: { "content-type": "text/plain" } }),
    41500,
  ],
  ["POST /v1/zoos", () => ({ token, json: { name: 5, nope: 1 } }), 42200],
  ["PROPFIND /v1/zoos", () => ({}), 50100],
];

function send(
  line: string,
  { headers, ...options }: RequestOptions,
  accept: string,
): Promise<Answer> {
  const [method = "", path = ""] = line.split(" ");
  return server.request(method, path, {
    ...options,
    headers: { ...headers, accept },
  });
}

describe("Accept: application/problem+json", () => {
  for (const [line, options, code] of rows) {
    test(`${line} reports ${code} as RFC 9457 defines`, async () => {
      const plain = await send(line, options(), "application/json");
      const { body: old } = plain;
      assert.equal(old.errorCode, code, plain.text);
      const type = plain.headers.get("content-type");
      assert.equal(type, "application/json; charset=utf-8");

      const answer = await send(line, options(), problem);
      const { body, headers, status } = answer;
      assert.equal(status, Math.floor(code / 100), answer.text);
      assert.equal(headers.get("content-type"), problem);
      assert.match(headers.get("vary") ?? "", /\bAccept\b/);
      assert.equal(body.status, status);
      assert.equal(body.type, "about:blank");
      assert.match(body.title, /^[A-Z][A-Za-z ]+$/);
      assert.equal(body.detail, old.error);
      assert.equal(body.errorCode, code);
      assert.equal(body.documentation_url, old.documentation_url);
      assert.deepEqual(body.errors, old.errors);
      if (status === 422) assert.ok(body.errors.length > 2);
      for (const name of ["www-authenticate", "allow"]) {
        assert.equal(headers.get(name), plain.headers.get(name));
      }
      assert.equal(headers.has("www-authenticate"), status === 401);
    });
  }

  test("is compared with the weight of JSON", async () => {
    const table: readonly (readonly [string, boolean])[] = [
      ["*/*", false],
      ["application/*", false],
      ["text/html", false],
      [`${problem}, application/json`, true],
      [`application/json, ${problem}`, true],
      [`application/json, ${problem};q=0.9`, false],
      [`application/json;q=0.5, ${problem};q=0.6`, true],
      [`${problem};q=0, */*`, false],
      ["Application/Problem+JSON", true],
    ];
    for (const [accept, expected] of table) {
      const answer = await send("PUT /v1/zoos", {}, accept);
      const type = answer.headers.get("content-type");
      const json = "application/json; charset=utf-8";
      assert.equal(type, expected ? problem : json, accept);
      assert.equal(answer.body.errorCode, 40500);
      assert.equal("error" in answer.body, !expected);
    }
  });

  test("does not bring back JSON that is excluded", async () => {
    for (
      const accept of [
        "application/json;q=0, */*",
        `${problem}, application/json;q=0`,
        `${problem}, */*;q=0`,
      ]
    ) {
      const answer = await send("GET /v1/zoos/1", {}, accept);
      assert.equal(answer.status, 406, accept);
      assert.equal(answer.body.errorCode, 40600);
    }
  });

  test("alone gets JSON if nothing is wrong", async () => {
    for (const path of ["/v1", "/v1/zoos", "/v1/zoos/1", "/health"]) {
      for (const method of ["GET", "HEAD"]) {
        const answer = await send(`${method} ${path}`, {}, problem);
        assert.equal(answer.status, 200);
        const type = answer.headers.get("content-type");
        assert.equal(type, "application/json; charset=utf-8");
      }
    }
  });

  test("is no reason against the other formats of a URL", async () => {
    const table: readonly (readonly [string, string])[] = [
      ["application/x-ndjson", "application/x-ndjson"],
      ["text/html", "text/html; charset=utf-8"],
    ];
    for (const [accepted, type] of table) {
      for (
        const accept of [`${accepted}, ${problem}`, `${problem}, ${accepted}`]
      ) {
        const url = `http://127.0.0.1:${server.port}/v1/zoos`;
        const { status, headers } = await fetch(url, { headers: { accept } });
        assert.equal(status, 200);
        assert.equal(headers.get("content-type"), type, accept);
      }
    }
  });

  test("does not avoid a 406 for other types", async () => {
    for (const accept of ["image/png", "image/*", `${problem};q=0`]) {
      const answer = await send("GET /v1/zoos/1", {}, accept);
      assert.equal(answer.status, 406);
      assert.equal(answer.body.errorCode, 40600);
    }
    const both = "image/png, application/*;q=0.1";
    assert.equal((await send("GET /v1/zoos", {}, both)).status, 200);
  });

  test("is reported by HEAD as by GET", async () => {
    const get = await send("GET /v1/zoos/99", {}, problem);
    const head = await send("HEAD /v1/zoos/99", {}, problem);
    assert.equal(head.text, "");
    for (const name of ["content-type", "content-length", "vary"]) {
      assert.equal(head.headers.get(name), get.headers.get(name));
    }
  });
});

describe("X-Request-Id", () => {
  const requests: readonly (readonly [string, () => RequestOptions, number])[] =
    [
      ["GET /v1/zoos", () => ({}), 200],
      ["HEAD /v1/zoos", () => ({}), 200],
      ["OPTIONS /v1/zoos", () => ({}), 200],
      [
        "POST /v1/zoos",
        () => ({ token, json: { name: "A", city: "B", country: "BE" } }),
        201,
      ],
      [
        "PATCH /v1/zoos/4",
        () => ({ token, json: {}, headers: { prefer: "return=minimal" } }),
        204,
      ],
      ["GET /v1/zoos", () => ({ headers: { "if-none-match": "*" } }), 304],
      ["GET /v1/zoos/", () => ({}), 308],
      ...rows.map(([line, options, code]) =>
        [line, options, Math.floor(code / 100)] as const
      ),
    ];

  test("is the one that was sent, on every response", async () => {
    for (const [line, options, status] of requests) {
      for (const id of ["x", "a".repeat(64), '{"a":1}!~']) {
        const [method = "", path = ""] = line.split(" ");
        const { headers, ...rest } = options();
        const answer = await server.request(method, path, {
          ...rest,
          headers: { ...headers, "x-request-id": id },
        });
        assert.equal(answer.status, status, `${line}: ${answer.text}`);
        assert.equal(answer.headers.get("x-request-id"), id, line);
      }
    }
  });

  test("is a new one, if none or no valid one was sent", async () => {
    const ids = new Set<string>();
    const sent = [undefined, "", "a b", "a".repeat(65), "\xe9", "a\tb"];
    for (const id of sent) {
      const headers = id === undefined ? {} : { "x-request-id": id };
      const answer = await server.request("GET", "/v1/zoos", { headers });
      const own = answer.headers.get("x-request-id") ?? "";
      assert.match(own, /^[!-~]{1,64}$/);
      assert.notEqual(own, id);
      ids.add(own);
    }
    const twice = await exchange(
      server.port,
      "GET /v1 HTTP/1.1\r\nHost: a\r\nX-Request-Id: a\r\nX-Request-Id: b\r\n" +
        "Connection: close\r\n\r\n",
    );
    const [, own = ""] = /^x-request-id: (\S+)\r?$/im.exec(twice) ?? [];
    assert.match(own, /^[!-~]{3,64}$/);
    ids.add(own);
    assert.equal(ids.size, sent.length + 1);
  });

  test(
    "is on responses to requests that are hardly HTTP",
    async () => {
      const table: readonly (readonly [string, number])[] = [
        ["nonsense\r\n\r\n", 400],
        ["GET /v1 HTTP/1.1\r\n\r\n", 400],
        ["GET /v1 HTTP/1.1\r\nHost: a\r\nBad Name: 1\r\n\r\n", 400],
        ["GET /v1#a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 400],
        ["BREW /v1 HTTP/1.1\r\nHost: a\r\n\r\n", 400],
        ["TRACE /v1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 501],
        [
          `GET /v1 HTTP/1.1\r\nHost: a\r\nX: ${"a".repeat(20_000)}\r\n\r\n`,
          431,
        ],
        ["OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 204],
      ];
      for (const [bytes, status] of table) {
        const received = await exchange(
          server.port,
          bytes,
          /\}$|^HTTP\S+ 204[^]*\r\n\r\n$/,
        );
        const [head = ""] = received.split("\r\n\r\n");
        assert.match(head, new RegExp(`^HTTP/1\\.1 ${status} `), bytes);
        assert.match(head, /^x-request-id: [!-~]{1,64}\r?$/im, head);
      }
    },
  );

  test("is in the log, on the line of its request", async () => {
    const id = "find-me-again";
    const headers = { "x-request-id": id };
    await server.request("GET", "/v1/zoos/99", { headers });
    // The response may arrive before the line.
    while (!server.output().includes(id)) await server.request("GET", "/v1");
    const lines = server.output().split("\n").filter((one) => one.includes(id));
    assert.equal(lines.length, 1);
    const line = JSON.parse(lines[0] ?? "");
    assert.equal(line.id, id);
    assert.equal(line.path, "/v1/zoos/99");
    assert.equal(line.status, 404);
  });
});
