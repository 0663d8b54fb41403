/** The web's own rules: CONTRACT section 8, conditional requests, CORS, formats, health, metrics, X-Request-Id. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { clientsOf, serve, stop, temporaryFolder } from "../server.ts";
import { animal, zoo, zooApi } from "../zoo.ts";
import type { Row } from "../rows.ts";

const origin = "https://a.example";
const { rows, request, server, forget } = await zooApi({
  FEATURES: "all",
  METRICS: "local",
  LOG: "debug",
  CORS_ORIGINS: `${origin}, http://b.example:8080`,
});
const created = await request("keeper", "POST /zoos", zoo);
const url = created.json.url.slice(3);
const tag = String(created.headers["etag"]);
const { id: zoo_id } = created.json;
const inZoo = await request("keeper", "POST /animals", {
  ...animal,
  zoo_id,
});
const animalUrl = inZoo.json.url.slice(3);
const animalTag = String(inZoo.headers["etag"]);

const root = String((await request("anyone", "GET //v1")).headers["etag"]);

/** Reads a URL with a header field. */
const reading = (
  path: string,
  outcome: number,
  headers: Record<string, string> = {},
  has: Record<string, string | RegExp | undefined> = {},
  who = "anyone",
): Row => [who, `GET ${path}`, outcome, { headers, has }];

const vary = { Vary: "Accept, Origin" };
rows("A record has a strong ETag, anything else a weak one", [
  reading(url, 200, {}, { ...vary, ETag: tag, "Cache-Control": "no-cache" }),
  reading(url, 200, {}, { "Cache-Control": "private, no-cache" }, "viewer"),
  reading(url, 200, {}, { "Last-Modified": undefined }),
  reading(animalUrl, 200, {}, { ETag: animalTag }),
  reading(`${url}${animalUrl}`, 200, {}, { ETag: animalTag }),
  reading(`${url}?fields=name`, 200, {}, { ETag: /^W\/"/ }),
  reading(`${animalUrl}?expand=zoo`, 200, {}, { ETag: /^W\/"/ }),
  reading("/zoos", 200, {}, { ETag: /^W\/"/ }),
  reading("//v1", 200, {}, { ETag: /^W\/"/ }),
  reading("/openapi.json", 200, {}, { ETag: /^W\/"/ }),
]);

rows("If-None-Match is 304 for a state that is known", [
  ...[tag, `W/${tag}`, `"a,b", ${tag}`, "*", ` * `].map((value) =>
    reading(url, 304, { "If-None-Match": value }, {
      ...vary,
      ETag: tag,
      "Cache-Control": "no-cache",
      "Content-Length": undefined,
    })
  ),
  reading(url, 200, { "If-None-Match": '"a"' }),
  reading(url, 200, { "If-None-Match": tag.slice(1, -1) }),
  reading(`${url}?fields=name`, 200, { "If-None-Match": tag }),
  reading(url, 200, { "If-Modified-Since": new Date().toUTCString() }),
  reading("/zoos/999999", 40401, { "If-None-Match": "*" }),
  reading(`${url}?x=1`, 40003, { "If-None-Match": "*" }),
  reading("/employees", 40100, { "If-None-Match": "*" }),
]);

const odd = { toString: 0 };
rows("An object is no text, whatever it has", [
  ["anyone", "POST /authorizations", 42200, { username: odd, password: odd }],
  ["admin", "POST /zoos", 42200, [{ country: odd }]],
]);

rows("If-Match is 412 for another state, and judged first", [
  ...[tag, "*", `"a", ${tag}`].map((value) =>
    reading(url, 200, { "If-Match": value })
  ),
  ...['"a"', `W/${tag}`, ""].map((value) =>
    reading(url, value ? 41200 : 200, { "If-Match": value })
  ),
  reading(url, 41200, { "If-Match": '"a"', "If-None-Match": tag }),
  reading(url, 304, { "If-Match": tag, "If-None-Match": tag }),
  reading("/zoos", 41200, { "If-Match": '"a"' }),
  reading("//page/page.css", 41200, { "If-Match": '"a"' }),
  reading("//v1", 41200, { "If-Match": root }),
  reading("//v1", 304, { "If-None-Match": root }),
]);

/** Changes something with header fields. */
const changing = (
  line: Row[1],
  outcome: number,
  headers: Record<string, string>,
  body?: unknown,
  has: Record<string, string | RegExp | undefined> = {},
): Row => ["admin", line, outcome, body, { headers, has }];

rows("A precondition guards changes, after the record and before its rules", [
  changing("POST /zoos", 41200, { "If-None-Match": "*" }, [{}]),
  ...[{ "If-Match": '"a"' }, { "If-Match": `W/${tag}` }, {
    "If-None-Match": "*",
  }, { "If-None-Match": `"a", W/${tag}` }].flatMap((headers) => [
    changing(`PATCH ${url}`, 41200, headers, { name: 5 }),
    changing(`PUT ${url}`, 41200, headers, {}),
    changing(`DELETE ${url}`, 41200, headers),
  ]),
  changing("PATCH /zoos/999999", 40401, { "If-Match": '"a"' }, {}),
  changing(`PATCH ${url}`, 40001, { "If-Match": '"a"' }, "{"),
  changing("POST /zoos/999999/animals", 40401, { "If-None-Match": "*" }, {}),
  changing("POST /zoos", 41200, { "If-None-Match": "*" }, {}),
  changing("POST /zoos", 41200, { "If-None-Match": "*" }, [zoo]),
  changing("DELETE /animals?id=1", 41200, { "If-Match": '"a"' }),
  changing("POST /zoos", 201, { "If-Match": "*" }, zoo, { ETag: /^"/ }),
  changing("POST /zoos", 201, { "If-None-Match": '"a"' }, zoo),
  changing(`PATCH ${url}`, 42200, { "If-Match": tag }, { name: 5 }),
  ["admin", `PATCH ${url}`, 201, { name: zoo.name }, {
    headers: { "If-Match": tag },
    has: { ETag: tag },
    changes: "",
  }],
  changing(
    `PATCH ${url}`,
    201,
    { "If-Match": `"a", ${tag}` },
    { name: "New" },
    {
      ETag: /^"/,
    },
  ),
  changing(`PATCH ${url}`, 41200, { "If-Match": tag }, { name: "Again" }),
  changing(`PUT ${url}`, 201, { "If-Match": "*" }, { ...zoo, city: "Ghent" }, {
    ETag: undefined,
    "Content-Location": `/v1${url}`,
  }),
  changing("DELETE /animals/{animal}", 204, { "If-Match": "*" }),
]);

test("If-Match lets one of two changes at a time through", async () => {
  const { headers } = await request("anyone", `GET ${animalUrl}`);
  const answers = await Promise.all(
    ["a", "b", "c"].map((name) =>
      request("keeper", `PATCH ${animalUrl}`, { name }, {
        "If-Match": headers["etag"],
      })
    ),
  );
  const statuses = answers.map(({ status }) => status).sort();
  assert.deepEqual(statuses, [201, 412, 412]);
  forget();
});

test("REQUIRE_IF_MATCH asks for a precondition, and an ETag outlives a restart", async () => {
  const environment = {
    DATA_DIR: join(temporaryFolder(), "store"),
    FEATURES: "conditional,cors",
    CORS_ORIGINS: "*",
  };
  let server = await serve(environment);
  const { request, expect } = clientsOf(() => server.origin);
  const { headers: { etag } } = await request("admin", "POST /zoos", zoo);
  await stop(server);
  server = await serve({ ...environment, REQUIRE_IF_MATCH: "1" });
  const { headers } = await request("anyone", "GET /zoos/1");
  assert.equal(headers["access-control-allow-origin"], "*");
  assert.equal(headers["vary"], "Accept");
  assert.equal(headers["etag"], etag);
  const any = { "If-Match": "*" };
  const other = { "If-None-Match": '"a"' };
  await expect(42800, "admin", "PATCH /zoos/1", { name: "a" });
  await expect(42800, "admin", "PUT /zoos/1", zoo);
  await expect(42800, "admin", "DELETE /zoos/1");
  await expect(404, "admin", "PATCH /zoos/9", {});
  await expect(201, "admin", "PATCH /zoos/1", { name: "a" }, other);
  await expect(201, "admin", "PATCH /zoos/1", { name: "b" }, any);
  await expect(201, "admin", "POST /zoos", zoo);
  await expect(204, "admin", "DELETE /zoos/1", undefined, any);
  await expect(204, "admin", "DELETE /authorizations/1");
});

const exposed =
  /^(?=.*\bETag\b)(?=.*\bLink\b)(?=.*\bLocation\b)(?=.*\bX-Total-Count\b)(?=.*\bRetry-After\b)/;
const allows = (value: string | undefined) => ({
  "Access-Control-Allow-Origin": value,
  "Access-Control-Allow-Credentials": undefined,
});
const preflight = {
  Origin: origin,
  "Access-Control-Request-Method": "PUT",
  "Access-Control-Request-Headers": "authorization,if-match",
};
rows("CORS lets the listed origins alone read responses", [
  reading("/zoos", 200, { Origin: origin }, {
    ...allows(origin),
    ...vary,
    "Access-Control-Expose-Headers": exposed,
  }),
  reading("/none", 40400, { Origin: origin }, allows(origin)),
  reading("/employees", 40100, { Origin: origin }, allows(origin)),
  reading(url, 304, { Origin: origin, "If-None-Match": "*" }, allows(origin)),
  ...[
    "https://evil.example",
    `${origin}.evil.example`,
    "http://a.example",
    "HTTPS://A.EXAMPLE",
    "null",
    "",
  ].map((each) =>
    reading("/zoos", 200, { Origin: each }, { ...allows(undefined), ...vary })
  ),
  ["anyone", `OPTIONS ${url}`, 200, {
    headers: preflight,
    has: {
      ...allows(origin),
      "Access-Control-Allow-Methods": /\bPUT\b/,
      "Access-Control-Allow-Headers": /\bAuthorization\b.*\bIf-Match\b/,
      "Access-Control-Max-Age": /^\d+$/,
    },
  }],
  ["anyone", `OPTIONS ${url}`, 200, {
    headers: { ...preflight, Origin: "https://evil.example" },
    has: { ...allows(undefined), "Access-Control-Allow-Methods": undefined },
  }],
]);

const problem = "application/problem+json";
const asProblem = { "Content-Type": problem };
const asJson = { "Content-Type": "application/json; charset=utf-8" };
rows("An error is a problem (RFC 9457) where that is preferred", [
  ["anyone", "GET /none", 40400, {
    headers: { Accept: problem },
    has: asProblem,
    shows: {
      type: "about:blank",
      title: "Not Found",
      status: 404,
      detail: /./,
      error: undefined,
    },
  }],
  ["keeper", "POST /zoos", 42200, { city: "a" }, {
    headers: { Accept: `application/json;q=0.5, ${problem}` },
    has: asProblem,
    shows: { status: 422, errors: [{ field: "name" }, { field: "country" }] },
  }],
  reading(url, 41200, {
    Accept: `${problem}, application/json`,
    "If-Match": "a",
  }, asProblem),
  reading(
    "/none",
    40400,
    { Accept: `${problem};q=0.5, application/json` },
    asJson,
  ),
  reading("/none", 40400, { Accept: `${problem};q=0, */*` }, asJson),
  reading("/none", 40400, { Accept: "*/*" }, asJson),
  reading(url, 200, { Accept: `${problem}, application/json` }, asJson),
  reading(url, 40600, { Accept: problem }, asProblem),
  reading(url, 40600, { Accept: `${problem};q=0, image/png` }, asJson),
  reading(url, 200, { Accept: "application/json;q=0, */*" }, {
    "Content-Type": "text/html; charset=utf-8",
  }),
]);

rows("X-Request-Id is the client's own if it is plain", [
  reading(url, 200, { "X-Request-Id": "a-1" }, { "X-Request-Id": "a-1" }),
  reading("/none", 40400, { "X-Request-Id": "!~" }, { "X-Request-Id": "!~" }),
  reading(url, 200, {}, { "X-Request-Id": /^[!-~]{1,64}$/ }),
  ...["a b", "a".repeat(65), "\xe9"].map((bad) =>
    reading(url, 200, { "X-Request-Id": bad }, {
      "X-Request-Id": /^[\w-]{1,30}$/,
    })
  ),
]);

test("X-Request-Id is in the log", async () => {
  await request("viewer", `DELETE ${url}`, undefined, {
    "X-Request-Id": "log-1",
  });
  await request("anyone", "GET /zoos", undefined, {
    "X-Request-Id": "log-2",
  });
  await request("anyone", "GET /zoos"); // its log shows that those before are written
  assert.match(server.output, /"log-1"/);
  assert.match(server.output, /"log-2"/);
});

rows("Health is for anyone, and never stored", [
  ["anyone", "GET //health", 200, {
    has: { "Cache-Control": "no-store" },
    shows: { status: "ok", memory: { used: /^\d+/, limit: /^\d+/ } },
  }],
  ["anyone", "POST //health", 40500, {}, {
    has: { Allow: "GET, HEAD, OPTIONS" },
  }],
  reading("//health?x=1", 40003),
]);

const away = { "X-Forwarded-For": "192.0.2.1" };
rows("Metrics are for admins, and for this machine if METRICS=local", [
  ...[away, { Host: "zoo.example" }, { Origin: origin }, { Via: "1.1 a" }, {
    Forwarded: "for=a",
  }].flatMap((headers) => [
    reading("//metrics", 40100, headers),
    reading("//metrics", 40300, headers, {}, "keeper"),
  ]),
  reading("//metrics", 40600, { Accept: "application/json" }),
  reading("//metrics?x=1", 40003),
]);

test("Metrics are in the format of Prometheus", async () => {
  await request("anyone", "POST /zoos/7", {});
  await request("anyone", "GET /none/7");
  const { status, text, headers } = await request(
    "admin",
    "GET //metrics",
    undefined,
    away,
  );
  assert.equal(status, 200);
  assert.match(
    String(headers["content-type"]),
    /^text\/plain; version=0\.0\.4/,
  );
  assert.equal(headers["cache-control"], "no-store");
  assert.ok(text.endsWith("\n"));
  const known = new Map<string, string>();
  for (const line of text.trimEnd().split("\n")) {
    const [, name = "", type = ""] =
      /^# TYPE (\w+) (counter|gauge|histogram)$/.exec(line) ?? [];
    if (name) {
      assert.ok(!known.has(name), `twice: ${name}`);
      known.set(name, type);
      continue;
    }
    if (/^# HELP \w+ .+$/.test(line)) continue;
    const [, sample = "", suffix = ""] =
      /^(\w+?)(_bucket|_sum|_count)?(?:\{(?:\w+="[^"\\]*",?)+\})? (?:\d[\d.e+-]*)$/
        .exec(line) ?? [];
    const isHistogram = known.get(sample) === "histogram";
    assert.ok(isHistogram ? suffix : known.has(sample + suffix), line);
  }
  const counted = (labels: string) =>
    assert.ok(text.includes(`zoo_api_http_requests_total{${labels}}`), labels);
  counted('method="GET",route="/v1/zoos/:id",status="200"');
  counted('method="POST",route="/v1/zoos/:id",status="405"');
  counted('method="GET",route="none",status="404"');
  assert.match(text, /^zoo_api_records\{collection="animals"\} \d+$/m);
  assert.match(
    text,
    /_bucket\{route="\/v1\/zoos",le="\+Inf"\} (\d+)\n.*_sum.*\n.*_count\{route="\/v1\/zoos"\} \1\n/,
  );
});
