/**
 * QUERY (RFC 10008): what GET answers, with the parameters in a body. Asked of
 * every collection, and refused everywhere else.
 */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { after, before, describe, test } from "node:test";
import {
  type Answer,
  assertError,
  exchange,
  type RequestOptions,
  type Server,
  start,
} from "../harness.ts";

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

/** Sends a form. */
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

/** All fields of an answer but those that tell any two apart. */
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
        "id:in=1,2&fields=id,url",
        "id:gt=1",
      ]
    ) {
      test(`${path} with "${parameters}" answers as GET`, async () => {
        const get = await server.request("GET", `${path}?${parameters}`, {
          token,
        });
        const answer = await query(path, parameters, { token });
        assert.equal(answer.status, 200, answer.text);
        assert.equal(answer.text, get.text);
        assert.deepEqual(fields(answer), fields(get));
        assert.equal(answer.headers.get("accept-query"), form);
      });
    }

    test(`${path} tells with Accept-Query that it takes a form`, async () => {
      for (const method of ["GET", "HEAD", "OPTIONS"]) {
        const { headers } = await server.request(method, path, { token });
        assert.equal(headers.get("accept-query"), form, method);
        if (method !== "OPTIONS") continue;
        assert.match(headers.get("allow") ?? "", /\bQUERY\b/);
      }
    });
  }

  test("takes its parameters from the address too", async () => {
    const answer = await query("/v1/zoos?limit=1", "");
    assert.deepEqual(answer.body.map(({ id }: { id: number }) => id), [1]);
  });

  test("takes parameters from one place only", async () => {
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
    // In an address it is a plus sign as it stands.
    const get = await server.request("GET", "/v1/zoos?city=New+York");
    assert.deepEqual(get.body, []);
  });

  test("links to pages that a GET can follow", async () => {
    const { headers } = await query("/v1/zoos", "city:ne=New+York&limit=1");
    const link = headers.get("link") ?? "";
    const next = /<([^>]+)>; rel="next"/.exec(link)?.[1] ?? "";
    const answer = await server.request("GET", next);
    assert.deepEqual(answer.body.map(({ id }: { id: number }) => id), [4]);
  });

  test("refuses parameters as GET does", async () => {
    assertError(await query("/v1/zoos", "nope=1"), 40003);
    assertError(await query("/v1/zoos", "limit=1&limit=2"), 40003);
    assertError(await query("/v1/zoos", "limit=0"), 40004);
    assertError(await query("/v1/zoos", "__proto__=1"), 40003);
  });

  test("refuses text that is not UTF-8, be it encoded or as it is", async () => {
    const bytes = Buffer.from("name=\xff", "latin1");
    const raw = await query("/v1/zoos", bytes);
    assert.equal(raw.status, 400, raw.text);
    for (const parameters of ["name=%ff", "name=%", "name=%zz"]) {
      const answer = await query("/v1/zoos", parameters);
      assert.equal(answer.status, 400, answer.text);
    }
  });

  test("needs a Content-Type, and a form's", async () => {
    const bytes = Buffer.from("limit=1"); // bytes get no type from fetch
    const none = await server.request("QUERY", "/v1/zoos", { raw: bytes });
    assertError(none, 40000);
    const nothing = await server.request("QUERY", "/v1/zoos");
    assertError(nothing, 40000);
    for (const type of ["application/json", "text/plain", "x"]) {
      const headers = { "content-type": type };
      const answer = await query("/v1/zoos", "limit=1", { headers });
      assertError(answer, 41500);
      assert.equal(answer.headers.get("accept-query"), form);
    }
    const latin = { "content-type": `${form}; charset=iso-8859-1` };
    assertError(await query("/v1/zoos", "", { headers: latin }), 41500);
    const zipped = { "content-encoding": "gzip" };
    assertError(await query("/v1/zoos", "", { headers: zipped }), 41500);
    const utf8 = { "content-type": `${form}; charset=UTF-8` };
    const answer = await query("/v1/zoos", "limit=1", { headers: utf8 });
    assert.equal(answer.body.length, 1);
  });

  test("has the limits of every body", async () => {
    assertError(await query("/v1/zoos", "&".repeat(2 ** 20 + 1)), 41300);
    const most = await query("/v1/zoos", "&".repeat(2 ** 20));
    assert.equal(most.status, 200);
  });

  test("is for who may GET", async () => {
    const nobody = await query("/v1/users", "");
    assertError(nobody, 40100);
    assertError(await query("/v1/users", "nope=1", {}), 40100);
  });

  test("judges Accept before the body", async () => {
    const headers = { accept: "image/png" };
    assertError(await query("/v1/zoos", "nope=1", { headers }), 40600);
  });

  test("through a zoo that was deleted is 410, through none 404", async () => {
    assertError(await query("/v1/zoos/3/animals", ""), 41000);
    assertError(await query("/v1/zoos/99/animals", ""), 40401);
    const headers = { "if-none-match": "*" };
    assertError(await query("/v1/zoos/3/animals", "", { headers }), 41000);
  });

  test("does no harm to a keep-alive connection", async () => {
    const head = `QUERY /v1/zoos HTTP/1.1\r\nHost: a\r\nContent-Type: ${form}`;
    const one = `${head}\r\nContent-Length: 7\r\n\r\nlimit=1`;
    const none = `${head}\r\n\r\n`;
    const chunked = `${head}\r\nTransfer-Encoding: chunked\r\n\r\n` +
      "3\r\nlim\r\n4\r\nit=1\r\n0\r\n\r\n";
    const last = "GET /v1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    const received = await exchange(
      server.port,
      one + none + chunked + one + last,
    );
    assert.equal(received.match(/HTTP\/1.1 200 OK/g)?.length, 5, received);
  });
});

describe("a conditional QUERY", () => {
  test("is 304 where nothing changed", async () => {
    for (const path of ["/v1/zoos", "/v1/zoos/1/animals"]) {
      const first = await query(path, "limit=1");
      const etag = first.headers.get("etag") ?? "";
      assert.match(etag, /^W\/"/);
      for (const match of ["*", etag, `"a,b", ${etag}`, etag.slice(2)]) {
        const headers = { "if-none-match": match };
        const answer = await query(path, "limit=1", { headers });
        assert.equal(answer.status, 304, match);
        assert.equal(answer.text, "");
        assert.equal(answer.headers.get("etag"), etag);
      }
      const headers = { "if-none-match": '"other"' };
      const answer = await query(path, "limit=1", { headers });
      assert.equal(answer.text, first.text);
    }
  });

  test("is 412 where If-Match names something else", async () => {
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
      const answer = await query(path, "", { token });
      assertError(answer, 40500);
      assert.match(answer.headers.get("allow") ?? "", /\bGET\b/);
      assert.doesNotMatch(answer.headers.get("allow") ?? "", /QUERY/);
      const get = await server.request("GET", path, { token });
      assert.equal(get.headers.get("accept-query"), null);
    }
    assertError(await query("/v1/nope", ""), 40400);
  });

  test("is among what OPTIONS * tells, and SEARCH is not", async () => {
    const all = await exchange(
      server.port,
      "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert.match(all, /^allow: .*\bQUERY\b/im);
    assertError(await server.request("SEARCH", "/v1/zoos"), 50100);
  });
});
