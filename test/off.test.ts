/**
 * Features that are off: CONTRACT section 12. Of any two features one starts
 * without the other, and all but one with `WHOLE=1`; what a feature adds is
 * there, or as if nobody had thought of it.
 */

import assert from "node:assert/strict";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import {
  authorize,
  type Environment,
  fileOf,
  outputOf,
  send,
  serve,
  stop,
  temporaryFolder,
} from "./server.ts";

const folder = temporaryFolder();
const PUBLIC = join(folder, "public");
mkdirSync(PUBLIC, { mode: 0o755 });
writeFileSync(join(PUBLIC, "a.txt"), "a", { mode: 0o644 });
const zoo = { name: "a", city: "b", country: "NL" };
const SEED = fileOf(
  "seed.json",
  JSON.stringify({
    zoos: [zoo],
    animals: [{ zoo_id: 1, animal_type_id: 1, name: "c" }],
  }),
);

/** A status, or what a header field of the response is. */
type Outcome = number | [header: string, value: RegExp];
const no = (header: string): Outcome => [header, /^undefined$/];

/** A feature, a request as admin, its outcome with and without the feature. */
const rows: [
  feature: string,
  request: string,
  on: Outcome,
  off: Outcome,
  headers?: Record<string, string>,
  body?: unknown,
][] = [
  ["open-network", "GET /health", 400, 200, { Host: "" }],
  ["memory", "GET /health", 200, 200],
  ["idempotency", "POST /v1/zoos", 201, 201, { "Idempotency-Key": "a" }, zoo],
  ["idempotency", "POST /v1/zoos", 422, 201, { "Idempotency-Key": "a" }, {
    ...zoo,
    name: "other",
  }],
  ["events", "OPTIONS /v1/events", 200, 404],
  ["openapi", "GET /v1/openapi.json", 200, 404],
  ["indexes", "GET /v1/zoos?id=1", 200, 200],
  ["expand", "GET /v1/animals/1?expand=zoo", 200, 400],
  ["deletions", "DELETE /v1/animals?name=z", 200, 405],
  ["deletions", "OPTIONS /v1/animals", ["allow", /DELETE/], [
    "allow",
    /^(?!.*DELETE)/,
  ]],
  ["aggregates", "GET /v1/animals?aggregate=count", 200, 400],
  ["imports", "GET /v1/tasks", 200, 404],
  ["imports", "GET /v1/zoos", 200, 406, { Accept: "application/x-ndjson" }],
  ["imports", "POST /v1/zoos", 202, 415, {
    "Content-Type": "application/x-ndjson",
  }, `${JSON.stringify(zoo)}\n`],
  ["batches", "POST /v1/zoos", 201, 400, {}, [zoo]],
  ["evolution", "GET /health", 200, 200],
  ["conditional", "GET /v1/zoos/1", ["etag", /^"/], no("etag")],
  ["conditional", "GET /v1/zoos/1", 304, 200, { "If-None-Match": "*" }],
  ["negotiation", "GET /none", ["content-type", /problem/], [
    "content-type",
    /^application\/json/,
  ], { Accept: "application/problem+json" }],
  ["page", "GET /v1/zoos", 200, 406, { Accept: "text/html" }],
  ["metrics", "GET /metrics", 200, 404],
  ["static", "GET /a.txt", 200, 404],
  ["cors", "GET /v1/zoos", ["access-control-allow-origin", /./], [
    "access-control-allow-origin",
    /^undefined$/,
  ], { Origin: "https://a.example" }],
  ["rate-limit", "GET /health", 200, 200],
  ["trust-proxy", "GET /health", 200, 200],
];

/** What a feature is switched on with. */
const switches: Record<string, Environment> = {
  static: { PUBLIC, BASE_URL: "/api/" },
  cors: { CORS_ORIGINS: "*" },
  "rate-limit": { RATE_LIMIT: "1000" },
  "trust-proxy": { TRUST_PROXY: "10.0.0.0/8" },
  tls: { TLS_CERT: "a", TLS_KEY: "b" },
};
const all = [...new Set(rows.map(([feature]) => feature))];

/** Starts a server with these features, and compares what the rows say, or those of some features. */
async function check(
  features: string[],
  rowsOf = all,
) {
  const FEATURES = features.join() || "none";
  const environment: Environment = Object.assign(
    { FEATURES, SEED },
    ...features.map((feature) => switches[feature]),
  );
  const server = await serve(environment);
  const admin = environment["BASE_URL"] ? {} : await authorize(server.origin); // files are for anyone
  for (const [feature, request, on, off, fields = {}, body] of rows) {
    if (!rowsOf.includes(feature)) continue;
    const [method = "", path = ""] = request.split(" ");
    const headers = { ...admin, ...fields };
    const answer = await send(server.origin, path, { method, headers, body });
    const expected = features.includes(feature) ? on : off;
    const place = `${feature} of ${FEATURES}: ${request}: ${
      answer.text.slice(0, 300)
    }`;
    if (typeof expected === "number") {
      assert.equal(answer.status, expected, place);
    } else {
      assert.match(String(answer.headers[expected[0]]), expected[1], place);
    }
    if (FEATURES === "none") {
      assert.doesNotMatch(answer.text, /allowed[^"]*\b(expand|aggregate|by)\b/);
    }
  }
  assert.equal(await stop(server), 0);
}

describe("A feature", { concurrency: 2 }, () => {
  test("none: nothing is there", () => check([]));
  test("static alone starts", () => check(["static"], ["static"])); // it moves the URLs of all others
  const others = all.filter((name) => name !== "static");
  // Each is in three of six groups, and no two are in the same three.
  const triples = Array.from({ length: 64 }, (_, bits) => bits)
    .filter((bits) => bits.toString(2).split("1").length === 4);
  for (let group = 0; group < 6; group++) {
    const features = others.filter((_, at) => Number(triples[at]) >> group & 1);
    test(`of group ${group} starts without others`, () => check(features));
  }
  for (const feature of all) {
    test(`all but ${feature} start`, {
      skip: process.env["WHOLE"] === undefined,
    }, () => check(others.filter((name) => name !== feature), [feature]));
  }
  const settings: Environment[] = [
    ...Object.values(switches),
    { REQUIRE_IF_MATCH: "1" },
    { METRICS: "local" },
  ];
  for (const setting of settings) {
    const [name = ""] = Object.keys(setting);
    test(`${name} is refused if its feature is off`, async () => {
      const DATA_DIR = join(folder, name);
      const output = await outputOf([], { DATA_DIR, ...setting }, 2);
      assert.match(output, new RegExp(`^.*${name}.*FEATURES.*\n$`));
      assert.ok(!existsSync(DATA_DIR));
    });
  }
});
