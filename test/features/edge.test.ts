/** Static files, RATE_LIMIT and TRUST_PROXY: CONTRACT sections 1, 9 and 17. */

import assert from "node:assert/strict";
import {
  chmodSync,
  mkdirSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { outputOf, send, serve, temporaryFolder } from "../server.ts";

const folder = temporaryFolder();
const PUBLIC = join(folder, "public");
const put = (path: string, mode = 0o644) => {
  const file = join(PUBLIC, path);
  mkdirSync(dirname(file), { recursive: true, mode: 0o755 });
  writeFileSync(file, `"This is ${path}"`);
  chmodSync(file, mode);
};
const media = {
  "a.html": "text/html; charset=utf-8",
  "a.css": "text/css; charset=utf-8",
  "a.mjs": "text/javascript; charset=utf-8",
  "a.JS": "text/javascript; charset=utf-8",
  "a.txt": "text/plain; charset=utf-8",
  "a.pdf": "application/pdf",
  "a.svg": "image/svg+xml",
  "a.webp": "image/webp",
  "a.webm": "video/webm",
  "a.ogg": "audio/ogg",
  "a.ttf": "font/ttf",
  "a.woff2": "font/woff2",
  "a.wasm": "application/wasm",
  "a.geojson": "application/geo+json",
  ".well-known/apple-app-site-association": "application/json",
  "a.unknown": "application/octet-stream",
  "a": "application/octet-stream",
};
const paths = [
  "index.html",
  "docs/index.html",
  "grün/b c.txt",
  ".well-known/a.txt",
];
for (const path of [...Object.keys(media), ...paths]) put(path);
for (
  const path of [
    ".hidden.txt",
    ".git/a.txt",
    "docs/.env",
    "docs/.well-known/a.txt",
  ]
) put(path);
put("unreadable.txt", 0o600);
put("locked/a.txt");
chmodSync(join(PUBLIC, "locked"), 0o700);
writeFileSync(join(folder, "secret.txt"), "secret");
symlinkSync("../secret.txt", join(PUBLIC, "link.txt"));
symlinkSync("..", join(PUBLIC, "linked"));

const server = await serve({
  PUBLIC,
  BASE_URL: "/api/",
  FEATURES: "static, conditional,rate-limit,trust-proxy,metrics",
  RATE_LIMIT: "3",
  TRUST_PROXY: "127.0.0.0/8,10.0.0.0/8,2001:db8::/32",
});
let clients = 0;
/** Sends a request as a client that has sent nothing before. */
const ask = (path: string, method = "GET", headers = {}) =>
  send(server.origin, path, {
    method,
    headers: { "X-Forwarded-For": `192.0.2.${++clients}`, ...headers },
  });
/** Sends such a request, and checks the status of the response. */
const gets = async (status: number, ...sent: Parameters<typeof ask>) => {
  const answer = await ask(...sent);
  assert.equal(answer.status, status, `${sent[0]}: ${answer.text}`);
  return answer;
};
const browser = { Accept: "text/html,application/xhtml+xml,*/*;q=0.8" };

describe("Static files", () => {
  test("have their media types, a strong ETag, HEAD and 304", async () => {
    for (const [path, type] of Object.entries(media)) {
      const { text, headers } = await gets(200, `/${path}`);
      assert.equal(text, `"This is ${path}"`);
      assert.equal(headers["content-type"], type, path);
      assert.equal(headers["x-content-type-options"], "nosniff");
      const etag = String(headers["etag"]);
      assert.match(etag, /^"/);
      const head = await ask(`/${path}`, "HEAD");
      assert.equal(head.text, "");
      assert.equal(head.headers["content-length"], headers["content-length"]);
      await gets(304, `/${path}`, "GET", { "If-None-Match": etag });
    }
  });

  const index = '"This is index.html"';
  const rows: [string, number, string?, object?][] = [
    ["/", 200, index],
    ["/?a=b", 200, index],
    ["/docs/", 200, '"This is docs/index.html"'],
    ["/docs", 308],
    ["/gr%C3%BCn/b%20c.txt", 200, '"This is grün/b c.txt"'],
    ["/.well-known/a.txt", 200, '"This is .well-known/a.txt"'],
    ["/a.txt?a=b", 200, '"This is a.txt"'],
    ["/reports/7", 200, index, browser],
    ["/reports/v1.2", 200, index, browser],
    ["/docs/none", 200, index, browser],
    ["/@kim/notes.txt", 200, index, browser],
    ["/.well-known/none", 404, "", browser],
    ["/reports/7", 404],
    ["/reports/7", 404, "", { Accept: "*/*" }],
    ["/reports/7", 404, "", { Accept: "text/html;q=0, */*" }],
    ["/a.txt", 200, '"This is a.txt"', browser],
    ["/api/none", 404, "", browser],
    ["/api/v1/zoos", 200, "[]", browser],
    ["/api", 200, ""],
    ["/%ff", 400],
  ];
  for (const [path, status, text, headers] of rows) {
    test(`${path} ${Object.values(headers ?? {}).join()} is ${status}`, async () => {
      const answer = await gets(status, path, "GET", headers);
      if (text) assert.equal(answer.text, text);
      if (status === 308) assert.equal(answer.headers["location"], "/docs/");
    });
  }

  test("are neither hidden, nor links, nor what others may not read", async () => {
    const hidden = [
      "/.hidden.txt",
      "/.git/a.txt",
      "/docs/.env",
      "/docs/.well-known/a.txt",
      "/unreadable.txt",
      "/locked/a.txt",
      "/link.txt",
      "/linked/secret.txt",
      "/../secret.txt",
      "/%2e%2e/secret.txt",
      "/..%2fsecret.txt",
      "//a.txt",
      "/A.TXT",
      "/docs//",
    ];
    for (const path of hidden) {
      await gets(404, path);
    }
  });

  test("take no method but GET, HEAD and OPTIONS", async () => {
    for (const method of ["POST", "PUT", "DELETE"]) {
      const { headers } = await gets(405, "/a.txt", method);
      assert.equal(headers["allow"], "GET, HEAD, OPTIONS");
    }
    const { headers } = await ask("/a.txt", "OPTIONS");
    assert.equal(headers["allow"], "GET, HEAD, OPTIONS");
    await gets(404, "/none", "POST");
  });

  test("are read at a start that a bad PUBLIC stops", async () => {
    const large = join(folder, "large");
    mkdirSync(large);
    writeFileSync(join(large, "a"), "", { mode: 0o644 });
    truncateSync(join(large, "a"), (64 << 20) + 1);
    const settings: [string, string][] = [
      [join(folder, "none"), "/api/"],
      [join(folder, "secret.txt"), "/api/"],
      [PUBLIC, "/"],
      [large, "/api/"],
    ];
    for (const [PUBLIC, BASE_URL] of settings) {
      const DATA_DIR = join(folder, "store");
      const start = { PUBLIC, BASE_URL, DATA_DIR, FEATURES: "static" };
      assert.match(await outputOf([], start, 2), /^.*PUBLIC.*\n$/);
    }
  });
});

describe("RATE_LIMIT", () => {
  const client = { "X-Forwarded-For": "198.51.100.1" };
  test("lets a client send so many requests a minute", async () => {
    const left = [];
    for (let count = 0; count < 3; count++) {
      const { headers } = await gets(200, "/api/v1/zoos", "GET", client);
      assert.equal(headers["ratelimit-policy"], '"default";q=3;w=60');
      left.push(
        /^"default";r=(\d);t=\d+$/.exec(String(headers["ratelimit"]))?.[1],
      );
    }
    assert.deepEqual(left, ["2", "1", "0"]);
    for (const path of ["/api/v1/zoos", "/none", "/a.txt"]) {
      const { headers, json } = await gets(429, path, "GET", client);
      assert.equal(json.errorCode, 42900);
      const wait = Number(headers["retry-after"]);
      assert.ok(wait >= 1 && wait <= 60);
    }
  });

  test("does not count health, sign-ins and preflights", async () => {
    const preflight = {
      ...client,
      Origin: "https://a.example",
      "Access-Control-Request-Method": "GET",
    };
    await gets(200, "/api/health", "GET", client);
    await gets(400, "/api/v1/authorizations", "POST", client);
    await gets(200, "/api/v1/zoos", "OPTIONS", preflight);
    await gets(429, "/api/v1/zoos", "OPTIONS", client);
  });
});

test("TRUST_PROXY finds the client behind proxies", async () => {
  const forwarded = (each: string) => ({ "X-Forwarded-For": each });
  /** Sends requests with these fields one by one, and compares their statuses: the fourth of a client is one too many. */
  const check = async (all: object[]) => {
    for (const [at, headers] of all.entries()) {
      await gets(at < 3 ? 200 : 429, "/a.txt", "GET", headers);
    }
  };
  await check([
    ...[
      "203.0.113.1",
      "9.9.9.9, 203.0.113.1",
      "203.0.113.1, 10.1.2.3",
      "203.0.113.1, 10.1.2.3,10.0.0.1",
    ].map(forwarded),
    ...[
      "for=203.0.113.1",
      'for="203.0.113.1:4711";proto=https, for=10.0.0.1',
      'for=unknown, For="203.0.113.1"',
    ].map((Forwarded) => ({ ...forwarded(""), Forwarded })),
  ]);
  // All of an IPv6 network are one client; a contradiction counts for the proxy itself.
  await check(
    [
      "[2001:db9::1]:80",
      "2001:db9::2",
      "2001:db9:0:0:ffff::3",
      "2001:db9::4",
    ].map(forwarded),
  );
  const contradiction = {
    ...forwarded("192.0.2.201"),
    Forwarded: "for=192.0.2.202",
  };
  await check([contradiction, forwarded(""), forwarded("who"), contradiction]);
});
