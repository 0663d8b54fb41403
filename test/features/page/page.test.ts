/**
 * The page as the server sends it to browsers: one document for every URL, with
 * the status of the resource; its scripts and style sheet; and the
 * documentation of errors. What the page does is tested in a browser, in
 * `test/browser/`.
 */

import { strict as assert } from "node:assert";
import { after, before, describe, test } from "node:test";
import { type Running, startApplication } from "../../application.ts";
import { exchange, type Server, start } from "../../harness.ts";

/** The Accept field that browsers send when a person follows a link. */
const browser =
  "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

/** A response to a request that no document describes. */
interface Page {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

async function get(
  url: string,
  headers: Readonly<Record<string, string>> = { accept: browser },
  method = "GET",
): Promise<Page> {
  const response = await fetch(url, { method, headers, redirect: "manual" });
  const { status } = response;
  return { status, headers: response.headers, text: await response.text() };
}

function typeOf({ headers }: Page): string | null {
  return headers.get("content-type");
}

const html = "text/html; charset=utf-8";
const json = "application/json; charset=utf-8";

describe("the page", () => {
  let running: Running;
  let origin: string;
  before(async () => {
    running = await startApplication({});
    origin = `http://127.0.0.1:${running.port}`;
    const { token } = running;
    for (let count = 0; count < 2; count++) {
      await running.request("POST", "/v1/zoos", { token, json: zoo });
    }
    await running.request("DELETE", "/v1/zoos/2", { token });
  });
  after(() => running.stop());

  test("is for every URL, with the status of its resource", async () => {
    const cases: readonly (readonly [string, number])[] = [
      ["/", 200],
      ["/v1", 200],
      ["/v1/zoos", 200],
      ["/v1/zoos?limit=1&sortby=name", 200],
      ["/v1/zoos/1", 200],
      ["/v1/zoos/1/animals", 200],
      ["/v1/openapi.json", 200],
      ["/health", 200],
      ["/docs", 200],
      ["/v1/zoos?limit=none", 400],
      ["/%", 400],
      ["/v1/user", 401],
      ["/v1/events", 401],
      ["/metrics", 401],
      ["/nowhere", 404],
      ["/v1/zoos/9", 404],
      ["/v1/zoos/2", 410],
    ];
    const { text: document } = await get(`${origin}/`);
    assert.match(document, /^<!DOCTYPE html><html lang="en">/);
    for (const [path, status] of cases) {
      const page = await get(origin + path);
      assert.equal(page.status, status, path);
      assert.equal(typeOf(page), html, path);
      assert.equal(page.text, document, path);
      assert.match(page.headers.get("vary") ?? "", /\bAccept\b/);
      const head = await get(origin + path, { accept: browser }, "HEAD");
      assert.equal(head.status, status, path);
      assert.equal(head.text, "");
      assert.equal(
        head.headers.get("content-length"),
        String(document.length),
      );
    }
    const { headers } = await get(`${origin}/v1/user`);
    assert.equal(headers.get("www-authenticate"), 'Bearer realm="zoo-api"');
  });

  test("is for clients that prefer it, according to the weights of Accept", async () => {
    const cases: readonly (readonly [string, string])[] = [
      [browser, html],
      ["text/html", html],
      ["TEXT/HTML", html],
      ["text/*", html],
      ["text/html;q=0.6, application/json;q=0.5", html],
      ["text/html;q=0.1, application/json;q=0", html],
      ["text/html;q=0.5, application/json;q=0.6", json],
      ["text/html, application/json", json],
      ["text/html, */*", json],
      ["text/html;q=0, */*;q=0.1", json],
      ["*/*", json],
      ["application/json", json],
      [
        "text/html;q=0.5, application/x-ndjson",
        "application/x-ndjson",
      ],
    ];
    for (const [accept, type] of cases) {
      const page = await get(`${origin}/v1/zoos`, { accept });
      assert.equal(page.status, 200, accept);
      assert.equal(typeOf(page), type, accept);
    }
    const image = await get(`${origin}/v1/zoos`, { accept: "image/png" });
    assert.equal(image.status, 406);
    const posted = await get(`${origin}/v1/zoos`, { accept: browser }, "POST");
    assert.equal(posted.status, 401);
    assert.equal(typeOf(posted), json);
    const plain = await get(`${origin}/v1/zoos/2`, { accept: "*/*" });
    assert.equal(plain.status, 410);
    assert.equal(typeOf(plain), json);
  });

  test("a trailing slash is redirected, also for browsers", async () => {
    const page = await get(`${origin}/v1/zoos/?limit=1`);
    assert.equal(page.status, 308);
    assert.equal(page.headers.get("location"), "/v1/zoos?limit=1");
  });

  test("is one representation with one validator, which is not the resource's", async () => {
    const page = await get(`${origin}/v1/zoos/1`);
    const etag = page.headers.get("etag") ?? "";
    assert.match(etag, /^"[\w-]+"$/);
    const other = await get(`${origin}/v1/zoos`);
    assert.equal(other.headers.get("etag"), etag);
    const error = await get(`${origin}/v1/zoos/9`);
    assert.equal(error.headers.get("etag"), null);
    const again = await get(`${origin}/v1/zoos/1`, {
      "accept": browser,
      "if-none-match": etag,
    });
    assert.equal(again.status, 304);
    assert.equal(again.headers.get("etag"), etag);
    const resource = await get(`${origin}/v1/zoos/1`, {});
    const ofResource = resource.headers.get("etag") ?? "";
    assert.notEqual(ofResource, etag);
    const mixed = await get(`${origin}/v1/zoos/1`, {
      "accept": browser,
      "if-none-match": ofResource,
    });
    assert.equal(mixed.status, 200);
    assert.equal(mixed.text, page.text);
  });

  test("may run its own scripts and nothing else", async () => {
    for (const path of ["/v1/zoos/1", "/v1/zoos/9"]) {
      const { headers, text } = await get(origin + path);
      const policy = headers.get("content-security-policy") ?? "";
      assert.match(policy, /^default-src 'none'; script-src 'self';/);
      assert.match(policy, /frame-ancestors 'none'/);
      assert.match(policy, /require-trusted-types-for 'script'/);
      assert.doesNotMatch(policy, /unsafe|\*|http/);
      assert.equal(headers.get("referrer-policy"), "no-referrer");
      assert.equal(headers.get("x-frame-options"), "DENY");
      assert.equal(headers.get("x-content-type-options"), "nosniff");
      assert.doesNotMatch(text, /<style|style=|<script(?! type="module" src)/);
    }
  });

  test("its scripts and its style sheet are served with validators", async () => {
    const { text } = await get(`${origin}/`);
    const found = [...text.matchAll(/(?:src|href)="([^"]*\/page\/[^"]+)"/g)];
    assert.ok(found.length >= 2);
    for (const [, path = ""] of found) {
      const url = origin + path;
      const accept = "text/css,*/*;q=0.1";
      const asset = await get(url, { accept });
      assert.equal(asset.status, 200, path);
      assert.match(
        typeOf(asset) ?? "",
        path.endsWith(".css") ? /^text\/css;/ : /^text\/javascript;/,
      );
      assert.equal(asset.headers.get("cache-control"), "no-cache");
      const etag = asset.headers.get("etag") ?? "";
      assert.match(etag, /^"[\w-]+"$/);
      const again = await get(url, { accept, "if-none-match": etag });
      assert.equal(again.status, 304);
      const head = await get(url, { accept }, "HEAD");
      assert.equal(
        Number(head.headers.get("content-length")),
        new TextEncoder().encode(asset.text).length,
      );
    }
    const missing = await get(`${origin}/page/feature.ts`, { accept: "*/*" });
    assert.equal(missing.status, 404);
  });

  test("all files together have less than 106 KB", async () => {
    let bytes = 0;
    for (const path of ["/", "/page/page.css", "/page/page.js"]) {
      const { text, status } = await get(origin + path);
      assert.equal(status, 200);
      bytes += new TextEncoder().encode(text).length;
    }
    assert.ok(bytes < 106_000, `${bytes} bytes`);
  });

  test("OPTIONS says what a form needs: descriptions, and the collections of references", async () => {
    const propertyOf = async (path: string, name: string) => {
      const { body } = await running.request("OPTIONS", path);
      return JSON.parse(JSON.stringify(body.schema.properties))[name];
    };
    const zoo = await propertyOf("/v1/animals", "zoo_id");
    assert.equal(zoo["x-collection"], "zoos");
    const type = await propertyOf("/v1/animals", "animal_type_id");
    assert.equal(type["x-collection"], undefined);
    const { description } = await propertyOf("/v1/zoos", "country");
    assert.match(description, /^two capital letters/);
    const city = await propertyOf("/v1/zoos", "city");
    assert.equal(city.description, undefined);
  });

  test("its scripts are not part of the API description", async () => {
    const { body } = await running.request("GET", "/v1/openapi.json");
    const paths = Object.keys(body.paths);
    assert.ok(paths.includes("/docs"));
    assert.deepEqual(paths.filter((path) => path.startsWith("/page")), []);
  });

  test("each error links to its documentation, which knows every code", async () => {
    const root = await running.request("GET", "/");
    assert.equal(root.body.documentation_url, "/docs");
    const docs = await running.request("GET", "/docs");
    const codes = [
      ["/v1/zoos/9", 40401],
      ["/v1/zoos/2", 41000],
      ["/v1/user", 40100],
      ["/nowhere", 40400],
    ] as const;
    for (const [path, code] of codes) {
      for (const accept of ["*/*", "application/problem+json"]) {
        const { body } = await running.request("GET", path, {
          headers: { accept },
        });
        assert.equal(body.errorCode, code);
        assert.equal(body.documentation_url, `/docs#${code}`);
      }
      assert.equal(typeof docs.body.errors[code], "string");
    }
    const refused = await running.request("POST", "/v1/zoos", {
      token: running.token,
      json: {},
    });
    assert.equal(refused.body.documentation_url, "/docs#42200");
  });

  test("so does the error of a request that cannot be parsed", async () => {
    const request = "GET / HTTP/1.1\r\nHost: a\r\nno field\r\n\r\n";
    const response = await exchange(running.port, request);
    const [, body = ""] = response.split("\r\n\r\n");
    assert.equal(JSON.parse(body).documentation_url, "/docs#40000");
  });
});

test("without the feature, HTML is not offered and errors link to the RFCs", async () => {
  const running = await startApplication({ features: ["events"] });
  try {
    const url = `http://127.0.0.1:${running.port}`;
    const page = await get(`${url}/`);
    assert.equal(typeOf(page), json);
    const only = await get(`${url}/`, { accept: "text/html" });
    assert.equal(only.status, 406);
    const refused = await running.request("GET", "/v1/user");
    assert.match(refused.body.documentation_url, /^https:\/\/www\.rfc-editor/);
    const missing = await running.request("GET", "/v1/zoos/9");
    assert.equal(missing.body.documentation_url, undefined);
  } finally {
    await running.stop();
  }
});

describe("the page below a base URL", () => {
  let server: Server;
  const base = "https://example.com/a-b/api/";
  before(async () => {
    server = await start({ args: ["--base-url", base] });
  });
  after(() => server.stop());

  test("refers to its files by path, and to the root document by its URL", async () => {
    const page = await get(`${server.origin}/a-b/api/v1/zoos`);
    assert.equal(page.status, 200);
    assert.ok(page.text.includes('href="https://example.com/a-b/api/"'));
    assert.ok(page.text.includes('src="/a-b/api/page/page.js"'));
    const script = await get(`${server.origin}/a-b/api/page/page.js`, {});
    assert.equal(script.status, 200);
    const root = await get(`${server.origin}/a-b/api/`, {});
    assert.equal(
      JSON.parse(root.text).documentation_url,
      "https://example.com/a-b/api/docs",
    );
  });
});
