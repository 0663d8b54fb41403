/** Groups, expanded references, retention and the costs of many records: CONTRACT sections 9 and 17. */

import { against, type Row } from "../rows.ts";
import { beside } from "../server.ts";

const { rows } = await against({
  title: "Gr%C3%B6%C3%9Fe",
  roles: ["viewer", "keeper", "admin"],
  collections: ["articles", "codes", "readings", "proofs", "marks", "alarms"],
  fixtures: {
    article: ["articles", { title: "Long", body: "x" }],
    reading: ["readings", { value: 1 }],
    proof: ["proofs", { reading_id: "{reading}" }],
    other: ["proofs", { reading_id: "{reading2}" }],
    mark: ["marks", { reading_id: "{reading}", proof_id: "{proof}" }],
    lone: ["marks", { reading_id: "{reading}", proof_id: "{other}" }],
    last: ["marks", {
      reading_id: "{reading2}",
      proof_id: "{other}",
      mark_id: "{mark}",
    }],
  },
  environment: {
    COLLECTIONS: beside("features/measured"),
    FEATURES: "batches,aggregates,expand,imports",
  },
});

const bad = { code: `${"a".repeat(999)}` };
rows("A batch counts the time of patterns in all", [
  ["anyone", "POST /codes", 40100, [bad]],
  ["keeper", "POST /codes", 41300, Array(11).fill(bad)],
  ["keeper", "POST /codes", 42200, [bad], "code format"],
]);

const readings = [
  ["2026-01-01T10:15:30.500Z", 1],
  ["2026-01-01T10:59:00Z", 3],
  ["2026-01-01T23:59:59.999+01:00", null],
  ["2026-02-28T00:00:00Z", -0.5],
  [null, 2],
].map(([taken_at, value]) => ({ taken_at, value }));
const grouped = (
  query: string,
  shows: object[],
  total = shows.length,
): Row => [
  "anyone",
  `GET /readings?id:lte=5&aggregate=${query}`,
  200,
  { shows, has: { "X-Total-Count": String(total) } },
];
const refused = (query: string, code: number, says?: RegExp): Row => [
  "anyone",
  `GET /readings?${query}`,
  code,
  says ? { says } : {},
];
rows("Aggregates are values of groups of all that match", [
  ["keeper", "POST /readings", 201, readings, {
    changes: "/readings/1 /readings/2 /readings/3 /readings/4 /readings/5",
  }],
  grouped("count", [{ count: 5 }]),
  grouped("count,sum(value),avg(value),min(value),max(value)", [
    {
      count: 5,
      "sum(value)": 5.5,
      "avg(value)": 1.375,
      "min(value)": -0.5,
      "max(value)": 3,
    },
  ]),
  grouped("count&value=99", [{ count: 0 }]),
  grouped("avg(value),sum(value),min(taken_at)&value=99", [
    { "avg(value)": null, "sum(value)": 0, "min(taken_at)": null },
  ]),
  grouped("count&by=hour(taken_at)", [
    { "hour(taken_at)": "2026-01-01T10:00:00.000Z", count: 2 },
    { "hour(taken_at)": "2026-01-01T22:00:00.000Z", count: 1 },
    { "hour(taken_at)": "2026-02-28T00:00:00.000Z", count: 1 },
    { "hour(taken_at)": null, count: 1 },
  ]),
  grouped("count&by=day(taken_at)&limit=1", [
    { "day(taken_at)": "2026-01-01T00:00:00.000Z", count: 3 },
  ], 3),
  grouped("count&by=minute(taken_at)&limit=1", [
    { "minute(taken_at)": "2026-01-01T10:15:00.000Z" },
  ], 5),
  grouped("max(taken_at)&aggregate=count&by=month(taken_at)&order=desc", [
    { "month(taken_at)": "2026-02-01T00:00:00.000Z", count: 1 },
    {
      "month(taken_at)": "2026-01-01T00:00:00.000Z",
      "max(taken_at)": "2026-01-01T22:59:59.999Z",
    },
    { "month(taken_at)": null, "max(taken_at)": null },
  ]),
  grouped("count&by=value&sortby=value&order=desc&limit=2&offset=1", [
    { value: 2 },
    { value: 1 },
  ], 5),
  grouped("count&by=id,value&sortby=count,value&limit=1", [{
    id: 4,
    value: -0.5,
  }], 5),
  [
    "anyone",
    "GET /readings?aggregate=count&by=year(taken_at)&id:lte=5",
    200,
    {
      shows:
        /^\[\{"year\(taken_at\)":"2026-01-01T00:00:00.000Z","count":4\},\{"year\(taken_at\)":null,"count":1\}\]$/,
    },
  ],
  refused("by=value", 40003),
  refused("aggregate=count&fields=id", 40003),
  refused("aggregate=median(value)", 40004, /avg\(value\)/),
  ...[
    "aggregate=count,count",
    "aggregate=sum(taken_at)",
    "aggregate=sum(article_id)",
    "aggregate=count&by=hour(value)",
    "aggregate=count&by=value&by=value",
    "aggregate=count&limit=10001",
    "aggregate=count&sortby=value",
  ].map((each) => refused(each, 40004)),
  refused("aggregate=count&nothing=1", 40003, /aggregate/),
  ["viewer", "GET /articles?aggregate=count&by=body", 40004],
  ["anyone", "GET /articles?aggregate=count", 40100],
  ["admin", "GET /users?aggregate=count&by=password", 40004],
  ["viewer", "GET /tasks?aggregate=count&by=errors", 40004],
  ["viewer", "GET /tasks?aggregate=count&by=status", 200, {
    shows: [],
  }],
  ["viewer", "GET /alarms?aggregate=count", 200, {
    shows: [{ count: 0 }],
  }],
  ["keeper", "POST /readings", 201, [{ value: 1.7e308 }, { value: 1.7e308 }], {
    changes: "/readings/6 /readings/7",
  }],
  refused("aggregate=sum(value)", 40004, /double/),
  refused("aggregate=avg(value)", 40004, /double/),
]);

rows("An expanded reference is the record as the caller would get it", [
  ["keeper", "POST /articles", 201, { title: "Secret", body: "b" }],
  ["keeper", "POST /readings", 201, { article_id: 1, reading_id: 1 }],
  ["anyone", "GET /readings/8?expand=article,reading", 200, {
    shows: {
      article: null,
      article_id: 1,
      reading: { id: 1, value: 1, link: {} },
    },
  }],
  [
    "viewer",
    "GET /readings?id:gte=7&expand=article&fields=value",
    200,
    {
      shows: [{ article: null }, { id: 8, article: { title: "Secret" } }],
    },
  ],
  // Who may not read an article may not read what refers to it, below it.
  ["anyone", "GET /articles/1/readings", 40401],
  ["viewer", "GET /articles/1/readings", 200, { shows: [8] }],
  ["viewer", "GET /readings/8?expand=alarm", 40004, {
    says: /article/,
  }],
  ["viewer", "GET /articles?expand=readings", 40004],
  ["keeper", "PATCH /readings/8?expand=article", 40003, {}],
  ["viewer", "GET /readings?expand=article", 40003, {
    headers: { Accept: "application/x-ndjson" },
  }],
]);

rows("A cascade deletes what its sender may delete", [
  ["keeper", "DELETE /readings/{reading}?cascade=true", 40300, {
    with: "{proof}",
    says: /proofs/,
  }],
  ["admin", "DELETE /readings/{reading}?cascade=true", 204, {
    with: "{proof}",
    changes: "-/readings/{reading} -/proofs/{proof}",
  }],
  // The mark is at first to lose its reading, then to go with its proof.
  ["admin", "DELETE /readings/{reading}?cascade=true", 204, {
    with: "{last}",
    changes:
      "-/readings/{reading} -/proofs/{proof} -/marks/{mark} /marks/{last}",
  }],
  ["admin", "DELETE /readings/{reading}?cascade=true", 40900, {
    with: "{lone}",
    says: /mark/,
  }],
]);
