import type { Operation } from "../../../src/api/operation.ts";
import { strict as assert } from "node:assert";
import { test } from "node:test";
import { buildRoute } from "../../../src/api/operations.ts";
import { corsHeaders } from "../../../src/features/cors/feature.ts";

const exposed = [
  "Access-Control-Expose-Headers",
  "Accept-Patch, Accept-Post, Accept-Query, Allow, Content-Location, ETag, Last-Modified, Link, Location, Preference-Applied, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id, X-Total-Count",
];
const preflight = [
  "Access-Control-Allow-Methods",
  "GET, HEAD, PUT, OPTIONS",
  "Access-Control-Allow-Headers",
  "Accept, Authorization, Content-Type, Idempotency-Key, If-Match, If-Modified-Since, If-None-Match, If-Unmodified-Since, Last-Event-ID, Prefer, Traceparent, Tracestate, X-Request-Id",
  "Access-Control-Max-Age",
  "7200",
];
const vary = ["Vary", "Origin"];
const a = "https://a.example";
const b = "http://b.example:8080";
const forA = ["Access-Control-Allow-Origin", a];
const forAll = ["Access-Control-Allow-Origin", "*"];

const get: Operation = {
  access: "anyone",
  parse: () => undefined,
  run: () => ({ status: 200, headers: [], seq: 0 }),
};

test("scripts of the configured origins may read responses and send preflights (Fetch standard)", () => {
  const asks = (method: string, origin?: string, asked?: string) => ({
    method,
    route: buildRoute({ methods: { GET: get, PUT: get } }),
    headers: { origin, "access-control-request-method": asked },
  });
  const unknown = { ...asks("OPTIONS", a, "PUT"), route: undefined };
  const table: readonly [
    readonly string[],
    Parameters<typeof corsHeaders>[1],
    string[],
  ][] = [
    [[a, b], asks("GET", a), [...vary, ...forA, ...exposed]],
    [[a, b], asks("PUT", a), [...vary, ...forA, ...exposed]],
    [[a, b], asks("GET"), vary],
    [[a, b], asks("GET", "https://evil.example"), vary],
    [[a, b], asks("GET", "https://a.example.evil.example"), vary],
    [[a, b], asks("GET", "https://sub.a.example"), vary],
    [[a, b], asks("GET", "http://a.example"), vary],
    [[a, b], asks("GET", "HTTPS://A.EXAMPLE"), vary],
    [[a, b], asks("GET", `${a}, ${a}`), vary],
    [[a, b], asks("GET", "null"), vary],
    [[a, b], asks("GET", ""), vary],
    [[a, b], asks("OPTIONS", a, "PUT"), [...vary, ...forA, ...preflight]],
    [[a, b], asks("OPTIONS", a, "TRACE"), [...vary, ...forA, ...preflight]],
    [[a, b], asks("OPTIONS", a), [...vary, ...forA, ...exposed]],
    [[a, b], asks("OPTIONS", "https://evil.example", "PUT"), vary],
    [[a, b], unknown, [...vary, ...forA]],
    [["*"], asks("GET", a), [...forAll, ...exposed]],
    [["*"], asks("GET"), [...forAll, ...exposed]],
    [["*"], asks("GET", "null"), [...forAll, ...exposed]],
    [["*"], asks("OPTIONS", a, "PUT"), [...forAll, ...preflight]],
    [["*"], asks("OPTIONS", undefined, "PUT"), [...forAll, ...exposed]],
    [[a, "*"], asks("GET", b), [...forAll, ...exposed]],
  ];
  for (const [origins, request, fields] of table) {
    const text = JSON.stringify([origins, request]);
    assert.deepEqual(corsHeaders(origins, request), fields, text);
  }
});

test("the credentials of a browser are never allowed", () => {
  const headers = { origin: a, "access-control-request-method": "PUT" };
  for (const origins of [["*"], [a]]) {
    for (const method of ["GET", "OPTIONS"]) {
      const request = {
        method,
        headers,
        route: buildRoute({ methods: { GET: get } }),
      };
      const fields = corsHeaders(origins, request);
      assert.ok(!fields.includes("Access-Control-Allow-Credentials"));
    }
  }
});
