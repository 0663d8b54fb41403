/**
 * RATE_LIMIT: too many requests of one client. They come from several clients,
 * as this machine is a trusted proxy.
 */

import { strict as assert } from "node:assert";
import { beforeEach, describe, test, type TestContext } from "node:test";
import { type Running, startApplication } from "../../application.ts";
import {
  adminPassword,
  type Answer,
  assertError,
  exchange,
} from "../../harness.ts";

let time = Date.parse("2026-05-05T12:00:00Z");

/** The lines of the log at the level `info`. */
let reported: Record<string, unknown>[] = [];

beforeEach(() => reported = []);

async function startWith(t: TestContext, rateLimit = 0): Promise<Running> {
  const app = await startApplication({
    now: () => time,
    log(level, message, fields) {
      const more = typeof fields === "function" ? fields() : fields;
      if (level === "info") reported.push({ message, ...more });
    },
    rateLimit,
    trustProxy: "127.0.0.0/8",
  });
  t.after(() => app.stop());
  return app;
}

function from(client: string): Record<string, string> {
  return { "x-forwarded-for": client };
}

function signIn(app: Running): Promise<Answer> {
  return app.request("POST", "/v1/authorizations", {
    headers: from("192.0.2.1"),
    json: { username: "admin", password: adminPassword },
  });
}

describe("RATE_LIMIT", () => {
  const uncounted: readonly [name: string, line: string, fields?: string][] = [
    ["OPTIONS *", "OPTIONS *"],
    ["malformed percent-encoding", "GET /%zz"],
    ["a malformed target", "GET http:///v1"],
    ["65 fields", "GET /v1", "A: b\r\n".repeat(64)],
    ["another expectation", "GET /v1", "Expect: x\r\n"],
    ["two Hosts", "GET /v1", "Host: a\r\n"],
  ];
  for (const [name, line, fields = ""] of uncounted) {
    test(`counts a request with ${name}`, async (t) => {
      const app = await startWith(t, 1);
      const bytes = `${line} HTTP/1.1\r\nHost: a\r\n` +
        `X-Forwarded-For: 192.0.2.1\r\n${fields}Connection: close\r\n\r\n`;
      const first = await exchange(app.port, bytes);
      assert.match(first, /^RateLimit: "default";r=0;t=60\r$/m);
      const second = await exchange(app.port, bytes);
      assert.match(second, /^HTTP\/1\.1 429 /);
    });
  }

  test("refuses requests of a client beyond its quota, whatever the URL", async (t) => {
    const app = await startWith(t, 3);
    const get = (path: string, client = "192.0.2.1") =>
      app.request("GET", path, { headers: from(client) });
    const first = await get("/v1/zoos");
    assert.equal(
      first.headers.get("ratelimit-policy"),
      '"default";q=3;w=60',
    );
    assert.equal(first.headers.get("ratelimit"), '"default";r=2;t=60');
    time += 20_000;
    const second = await get("/v1/nothing");
    assert.equal(second.status, 404);
    assert.equal(second.headers.get("ratelimit"), '"default";r=1;t=40');
    await get("/v1/zoos/");
    const body = { headers: from("192.0.2.1"), raw: "{" };
    const refused = await app.request("POST", "/v1/zoos", body);
    assertError(refused, 42900);
    assert.equal(refused.headers.get("ratelimit"), '"default";r=0;t=40');
    assert.equal(refused.headers.get("retry-after"), "40");
    assert.equal((await get("/v1/zoos", "192.0.2.2")).status, 200);
    const [{ id, ...line } = {}, ...others] = reported;
    assert.match(String(id), /^\S+$/);
    assert.deepEqual(line, {
      message: "There are too many requests: try again in 40 s.",
      client: "192.0.2.1",
      by: undefined,
      byName: undefined,
      method: "POST",
      path: "/v1/zoos",
      status: 429,
    });
    assert.deepEqual(others, []);
    time += 40_000;
    assert.equal((await get("/v1/zoos")).status, 200);
  });

  test("counts requests that are malformed", async (t) => {
    const app = await startWith(t, 3);
    const bytes = [
      "GET /v1/%zz HTTP/1.1\r\nHost: a\r\n",
      "GET /v1 HTTP/1.1\r\nHost: a/b\r\n",
    ].map((head) => `${head}X-Forwarded-For: 192.0.2.1\r\n\r\n`);
    const received = await exchange(app.port, bytes.join(""), /r=1[^]*\}$/);
    assert.equal(received.match(/HTTP\/1\.1 400 /g)?.length, 2);
    const headers = from("192.0.2.1");
    const last = await app.request("GET", "/v1", { headers });
    assert.equal(last.headers.get("ratelimit"), '"default";r=0;t=60');
  });

  test("never refuses a preflight, whose response no page can read", async (t) => {
    const app = await startWith(t, 1);
    const client = { ...from("192.0.2.1"), origin: "https://a.example" };
    const options = (fields: Record<string, string>) =>
      app.request("OPTIONS", "/v1/zoos", { headers: { ...client, ...fields } });
    const asked = { "access-control-request-method": "POST" };
    for (let time = 0; time < 3; time++) {
      const { status, headers } = await options(asked);
      assert.equal(status, 200);
      assert.equal(headers.get("ratelimit"), null);
    }
    assert.equal((await options({})).status, 200);
    assertError(await options({}), 42900);
    assert.equal((await options(asked)).status, 200);
    const headers = { ...from("192.0.2.1"), ...asked };
    const other = await app.request("OPTIONS", "/v1/zoos", { headers });
    assertError(other, 42900); // of no page, as it has no origin
  });

  test("counts neither /health nor sign-ins, and both work without a quota", async (t) => {
    const app = await startWith(t, 3);
    const headers = from("192.0.2.1");
    for (const method of ["GET", "HEAD"]) {
      const health = await app.request(method, "/health", { headers });
      assert.equal(health.headers.get("ratelimit"), null);
    }
    await signIn(app);
    for (let count = 0; count < 3; count++) {
      const used = await app.request("GET", "/", { headers });
      assert.equal(used.status, 200);
    }
    const refused = await app.request("GET", "/", { headers });
    assert.equal(refused.status, 429);
    const health = await app.request("GET", "/health", { headers });
    assert.equal(health.status, 200);
    assert.equal((await signIn(app)).status, 201);
  });

  test("is off by default: no fields", async (t) => {
    const app = await startWith(t);
    const { headers } = await app.request("GET", "/v1/zoos");
    assert.equal(headers.get("ratelimit"), null);
    assert.equal(headers.get("ratelimit-policy"), null);
  });
});
