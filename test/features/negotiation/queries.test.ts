/**
 * QUERY (RFC 10008): the same response as GET, with the parameters in a body.
 * Supported by every collection, and by no other resource.
 */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, describe, test } from "node:test";
import {
  type Answer,
  assertError,
  exchange,
  type RequestOptions,
  type Server,
  start,
} from "../../harness.ts";

const form = "application/x-www-form-urlencoded";

const seed = {
  zoos: [
    { id: 1, name: "Tierpark A+B", city: "Berlin", country: "DE" },
    { id: 2, name: "Artis", city: "New York", country: "US" },
    { id: 4, name: "Skansen", city: "Stockholm", country: "SE" },
  ],
  animals: [1, 2, 3].map((id) => ({
    id,
    zoo_id: id % 2 + 1,
    animal_type_id: 3,
    name: `Ada ${id}`,
  })),
  employees: [
    { id: 1, zoo_id: 1, name: "Eva", job_title: "Vet", email: "eva@a.example" },
  ],
};

const collections = [
  "/v1/zoos",
  "/v1/animals",
  "/v1/employees",
  "/v1/users",
  "/v1/authorizations",
  "/v1/zoos/1/animals",
  "/v1/zoos/1/employees",
];

let server: Server;
let token: string;

before(async () => {
  server = await start({ seed });
  token = await server.signIn();
});

after(() => server.stop());

/** Sends a QUERY with a form. */
function query(
  path: string,
  raw: string | Uint8Array,
  { headers, ...options }: RequestOptions = {},
): Promise<Answer> {
  return server.request("QUERY", path, {
    raw,
    ...options,
    headers: { "content-type": form, ...headers },
  });
}

/** Returns the header fields of a response without those that differ each time. */
function fields({ headers }: Answer): [string, string][] {
  return [...headers].filter(([name]) =>
    !["date", "x-request-id", "keep-alive"].includes(name)
  );
}

describe("QUERY of a collection", () => {
  for (const path of collections) {
    for (
      const parameters of [
        "",
        "limit=1",
        "page=2&per_page=1",
        "sortby=created_at&order=desc&limit=2",
        "sortby=created_at,id&order=asc,desc",
        "id:in=1,2&fields=id,url",
        "id:gt=1",
      ]
    ) {
      test(`${path} with "${parameters}" has the same response as GET`, async () => {
        const get = await server.request("GET", `${path}?${parameters}`, {
          token,
        });
        const response = await query(path, parameters, { token });
        assert.equal(response.status, 200, response.text);
        assert.equal(response.text, get.text);
        assert.deepEqual(fields(response), fields(get));
        assert.equal(response.headers.get("accept-query"), form);
      });
    }

    test(`${path} announces a form in Accept-Query`, async () => {
      for (const method of ["GET", "HEAD", "OPTIONS"]) {
        const { headers } = await server.request(method, path, { token });
        assert.equal(headers.get("accept-query"), form, method);
        if (method !== "OPTIONS") continue;
        assert.match(headers.get("allow") ?? "", /\bQUERY\b/);
      }
    });
  }

  test("accepts parameters in the URL", async () => {
    const response = await query("/v1/zoos?limit=1", "");
    assert.deepEqual(response.body.map(({ id }: { id: number }) => id), [1]);
  });

  test("accepts parameters in one place only", async () => {
    assertError(await query("/v1/zoos?limit=1", "offset=1"), 40003);
    assertError(await query("/v1/zoos?limit=1", "limit=1"), 40003);
  });

  test("reads a plus sign as a space, and %2B as a plus sign", async () => {
    const york = await query("/v1/zoos", "city=New+York");
    assert.equal(york.body.length, 1, york.text);
    assert.equal(york.headers.get("x-total-count"), "1");
    const encoded = await query("/v1/zoos", "city=New%20York");
    assert.equal(encoded.text, york.text);
    const plus = await query("/v1/zoos", "name=Tierpark+A%2BB");
    assert.equal(plus.body[0]?.id, 1, plus.text);
    // In a URL a plus sign stands for itself.
    const get = await server.request("GET", "/v1/zoos?city=New+York");
    assert.deepEqual(get.body, []);
  });

  test("links to pages that a GET can follow", async () => {
    const { headers } = await query("/v1/zoos", "city:ne=New+York&limit=1");
    const link = headers.get("link") ?? "";
    const next = /<([^>]+)>; rel="next"/.exec(link)?.[1] ?? "";
    const response = await server.request("GET", next);
    assert.deepEqual(response.body.map(({ id }: { id: number }) => id), [4]);
  });

  test("rejects the same parameters as GET", async () => {
    assertError(await query("/v1/zoos", "nope=1"), 40003);
    assertError(await query("/v1/zoos", "limit=1&limit=2"), 40003);
    assertError(await query("/v1/zoos", "limit=0"), 40004);
    assertError(await query("/v1/zoos", "__proto__=1"), 40003);
  });

  test("rejects text that is not UTF-8, raw or percent-encoded", async () => {
    const bytes = Buffer.from("name=\xff", "latin1");
    const raw = await query("/v1/zoos", bytes);
    assert.equal(raw.status, 400, raw.text);
    for (const parameters of ["name=%ff", "name=%", "name=%zz"]) {
      const response = await query("/v1/zoos", parameters);
      assert.equal(response.status, 400, response.text);
    }
  });

  test("requires the Content-Type of a form", async () => {
    const bytes = Buffer.from("limit=1"); // fetch sends no Content-Type for bytes
    const none = await server.request("QUERY", "/v1/zoos", { raw: bytes });
    assertError(none, 40000);
    const nothing = await server.request("QUERY", "/v1/zoos");
    assertError(nothing, 40000);
    for (const type of ["application/json", "text/plain", "x"]) {
      const headers = { "content-type": type };
      const response = await query("/v1/zoos", "limit=1", { headers });
      assertError(response, 41500);
      assert.equal(response.headers.get("accept-query"), form);
    }
    const latin = { "content-type": `${form}; charset=iso-8859-1` };
    assertError(await query("/v1/zoos", "", { headers: latin }), 41500);
    const zipped = { "content-encoding": "gzip" };
    assertError(await query("/v1/zoos", "", { headers: zipped }), 41500);
    const utf8 = { "content-type": `${form}; charset=UTF-8` };
    const response = await query("/v1/zoos", "limit=1", { headers: utf8 });
    assert.equal(response.body.length, 1);
  });

  test("has the size limit of every body", async () => {
    assertError(
      await query("/v1/zoos", "name=".padEnd(2 ** 16 + 1, "x")),
      41300,
    );
    const most = await query("/v1/zoos", "name=".padEnd(2 ** 16, "x"));
    assert.equal(most.status, 200);
  });

  test("requires the same access as GET", async () => {
    const nobody = await query("/v1/users", "");
    assertError(nobody, 40100);
    assertError(await query("/v1/users", "nope=1", {}), 40100);
  });

  test("checks Accept before the body", async () => {
    const headers = { accept: "image/png" };
    assertError(await query("/v1/zoos", "nope=1", { headers }), 40600);
  });

  test("is 410 for a deleted zoo and 404 for one that never existed", async () => {
    assertError(await query("/v1/zoos/3/animals", ""), 41000);
    assertError(await query("/v1/zoos/99/animals", ""), 40401);
    const headers = { "if-none-match": "*" };
    assertError(await query("/v1/zoos/3/animals", "", { headers }), 41000);
  });

  test("leaves a keep-alive connection usable", async () => {
    const head = `QUERY /v1/zoos HTTP/1.1\r\nHost: a\r\nContent-Type: ${form}`;
    const one = `${head}\r\nContent-Length: 7\r\n\r\nlimit=1`;
    const none = `${head}\r\n\r\n`;
    const chunked = `${head}\r\nTransfer-Encoding: chunked\r\n\r\n` +
      "3\r\nlim\r\n4\r\nit=1\r\n0\r\n\r\n";
    const last = "GET /v1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    const socket = connect(server.port, "127.0.0.1");
    let received = "";
    socket.setEncoding("utf8").on("data", (text) => received += text);
    for (const [at, request] of [one, none, chunked, one, last].entries()) {
      socket.write(request);
      while (received.match(/HTTP\/1.1 200 OK/g)?.length !== at + 1) {
        await once(socket, "data");
      }
    }
    await once(socket, "close");
  });
});

describe("a conditional QUERY", () => {
  test("is 304 if nothing changed", async () => {
    for (const path of ["/v1/zoos", "/v1/zoos/1/animals"]) {
      const first = await query(path, "limit=1");
      const etag = first.headers.get("etag") ?? "";
      assert.match(etag, /^W\/"/);
      for (const match of ["*", etag, `"a,b", ${etag}`, etag.slice(2)]) {
        const headers = { "if-none-match": match };
        const response = await query(path, "limit=1", { headers });
        assert.equal(response.status, 304, match);
        assert.equal(response.text, "");
        assert.equal(response.headers.get("etag"), etag);
      }
      const headers = { "if-none-match": '"other"' };
      const response = await query(path, "limit=1", { headers });
      assert.equal(response.text, first.text);
    }
  });

  test("is 412 if If-Match does not match", async () => {
    const headers = { "if-match": '"other"', "if-none-match": "*" };
    assertError(await query("/v1/zoos", "", { headers }), 41200);
    assertError(await query("/v1/zoos", "limit=0", { headers }), 40004);
  });
});

describe("QUERY elsewhere", () => {
  test("is 405 with Allow", async () => {
    for (
      const path of [
        "/",
        "/v1",
        "/health",
        "/v1/zoos/1",
        "/v1/zoos/999",
        "/v1/user",
        "/v1/users/1",
        "/v1/zoos/1/animals/1",
        "/v1/authorizations/1",
      ]
    ) {
      const response = await query(path, "", { token });
      assertError(response, 40500);
      assert.match(response.headers.get("allow") ?? "", /\bGET\b/);
      assert.doesNotMatch(response.headers.get("allow") ?? "", /QUERY/);
      const get = await server.request("GET", path, { token });
      assert.equal(get.headers.get("accept-query"), null);
    }
    assertError(await query("/v1/nope", ""), 40400);
  });

  test("is listed by OPTIONS *, unlike SEARCH", async () => {
    const all = await exchange(
      server.port,
      "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert.match(all, /^allow: .*\bQUERY\b/im);
    assertError(await server.request("SEARCH", "/v1/zoos"), 50100);
  });
});
