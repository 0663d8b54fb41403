/** Aggregates: counts, sums, means and extremes of a list, in groups. */

import { strict as assert } from "node:assert";
import { describe, test } from "node:test";
import { vocabulary } from "../../../src/cli/declaration/checked-vocabulary.ts";
import type { Mutation } from "../../../src/store/store.ts";
import { apiOf } from "../../collections.ts";
import { assertError, lacks } from "../../harness.ts";
import { type Library, startLibrary } from "../../library.ts";
import { Random } from "../../torture/random.ts";
import { commit } from "../../commit.ts";

const {
  boolean,
  collection,
  date,
  number,
  optional,
  reference,
  string,
  text,
  timestamp,
} = vocabulary;

const access = { read: "anyone", write: "keeper", delete: "keeper" };
const declaration = apiOf([
  collection({
    name: "sensors",
    singular: "sensor",
    access,
    properties: { name: string({ maxLength: 9 }) },
  }),
  collection({
    name: "readings",
    singular: "reading",
    access,
    properties: {
      sensor_id: optional(reference("sensors")),
      value: optional(number()),
      taken_at: optional(timestamp()),
      day: optional(date()),
      note: optional(string({ maxLength: 9 })),
      good: optional(boolean(), true),
    },
  }),
  collection({
    name: "notes",
    singular: "note",
    access: { read: "viewer", write: "viewer", delete: "viewer" },
    private: true,
    properties: { stars: number() },
  }),
]);

const lines = text({ maxLength: 9 });
const twoTexts = apiOf([
  collection({
    name: "pairs",
    singular: "pair",
    access,
    properties: { a: lines, b: lines },
  }),
]);

const created_at = "2026-01-01T00:00:00.000Z";

interface Reading {
  readonly sensor_id: number | null;
  readonly value: number | null;
  readonly taken_at: string | null;
  readonly day: string | null;
  readonly note: string | null;
}

async function startWith(
  readings: readonly Partial<Reading>[],
): Promise<Library> {
  const app = await startLibrary({ declaration });
  const none = {
    sensor_id: null,
    value: null,
    taken_at: null,
    day: null,
    note: null,
  };
  await commit(app.store, [
    ["put", "sensors", {
      id: 1,
      name: "a",
      created_at,
      updated_at: created_at,
    }],
    ["put", "sensors", {
      id: 2,
      name: "b",
      created_at,
      updated_at: created_at,
    }],
    ...readings.map((each, index): Mutation => [
      "put",
      "readings",
      { id: index + 1, ...none, ...each, created_at, updated_at: created_at },
    ]),
  ], 0);
  return app;
}

const values = [
  {
    sensor_id: 1,
    value: 1,
    taken_at: "2026-01-31T12:30:00.000Z",
    day: "2026-01-31",
  },
  {
    sensor_id: 1,
    value: 2.5,
    taken_at: "2026-01-31T12:59:59.999Z",
    day: "2026-01-31",
  },
  {
    sensor_id: 2,
    value: null,
    taken_at: "2026-01-31T13:00:00.000Z",
    day: "2026-02-01",
  },
  { sensor_id: null, value: -4, taken_at: null, day: null },
];

describe("aggregates", () => {
  test("are one object without groups, also of no records", async (t) => {
    const app = await startWith(values);
    t.after(() => app.stop());
    const all =
      "aggregate=count,sum(value),avg(value),min(value),max(taken_at)";
    const { status, body, headers } = await app.send("GET", `readings?${all}`);
    assert.equal(status, 200);
    assert.deepEqual(body, [{
      count: 4,
      "sum(value)": -0.5,
      "avg(value)": -0.5 / 3,
      "min(value)": -4,
      "max(taken_at)": "2026-01-31T13:00:00.000Z",
    }]);
    assert.equal(headers.get("x-total-count"), "1");
    const none = await app.send("GET", `readings?${all}&value:gt=9`);
    assert.deepEqual(none.body, [{
      count: 0,
      "sum(value)": 0,
      "avg(value)": null,
      "min(value)": null,
      "max(taken_at)": null,
    }]);
    const noGroup = await app.send("GET", `readings?${all}&value:gt=9&by=day`);
    assert.deepEqual(noGroup.body, []);
  });

  test("have groups by properties and by time in UTC, null apart", async (t) => {
    const app = await startWith(values);
    t.after(() => app.stop());
    const get = async (query: string) =>
      (await app.send("GET", `readings?aggregate=count&${query}`)).body;
    assert.deepEqual(await get("by=sensor_id,hour(taken_at)"), [
      { sensor_id: 1, "hour(taken_at)": "2026-01-31T12:00:00Z", count: 2 },
      { sensor_id: 2, "hour(taken_at)": "2026-01-31T13:00:00Z", count: 1 },
      { sensor_id: null, "hour(taken_at)": null, count: 1 },
    ]);
    assert.deepEqual(
      (await get("by=sensor_id&by=hour(taken_at)")).length,
      3,
      "repeated is the same as joined",
    );
    const units: Readonly<Record<string, string>> = {
      "year(taken_at)": "2026-01-01T00:00:00Z",
      "month(taken_at)": "2026-01-01T00:00:00Z",
      "day(taken_at)": "2026-01-31T00:00:00Z",
      "minute(taken_at)": "2026-01-31T12:30:00Z",
      "year(day)": "2026-01-01",
      "month(day)": "2026-01-01",
      "day(day)": "2026-01-31",
    };
    for (const [unit, first] of Object.entries(units)) {
      const groups = await get(`by=${unit}`);
      assert.equal(groups[0]?.[unit], first);
    }
    assert.deepEqual(await get("by=good"), [{ good: true, count: 4 }]);
  });

  test("keep keys of several values apart, whatever is in them", async (t) => {
    const app = await startWith([
      { note: "x\ny", sensor_id: 1 },
      { note: "x", sensor_id: 1 },
      { note: "null", sensor_id: null },
      { note: null, sensor_id: null },
      { note: "1", sensor_id: 1 },
      { note: "1,1", sensor_id: null },
    ]);
    t.after(() => app.stop());
    const path = "readings?aggregate=count&by=note,sensor_id";
    const { body } = await app.send("GET", path);
    assert.deepEqual(body.map(({ count }) => count), [1, 1, 1, 1, 1, 1]);
    const two = await startLibrary({ declaration: twoTexts });
    t.after(() => two.stop());
    const values = [["x\ny", "z"], ["x", "y\nz"]];
    for (const [a, b] of values) await two.send("POST", "pairs", { a, b });
    const pairs = await two.send("GET", "pairs?aggregate=count&by=a,b");
    assert.deepEqual(pairs.body.map(({ count }) => count), [1, 1]);
  });

  test("are sorted and paged as groups, ties like those of records", async (t) => {
    const app = await startWith(
      ["b", "a", "c", "a", "b", "d"].map((note, value) => ({ note, value })),
    );
    t.after(() => app.stop());
    const get = (query: string) =>
      app.send("GET", `readings?aggregate=count,max(value)&by=note&${query}`);
    const names = async (query: string) =>
      (await get(query)).body.map(({ note }) => note).join("");
    assert.equal(await names(""), "abcd");
    assert.equal(await names("sortby=count&order=desc"), "abdc");
    assert.equal(await names("sortby=count,max(value)&order=desc,asc"), "abcd");
    const page = await get("limit=2&offset=1&sortby=max(value)");
    assert.deepEqual(page.body.map(({ note }) => note), ["a", "b"]);
    assert.equal(page.headers.get("x-total-count"), "4");
    const next = /<([^>]*)>; rel="next"/.exec(page.headers.get("link") ?? "");
    const { body } = await app.request("GET", next?.[1] ?? "");
    assert.deepEqual(body.map(({ note }) => note), ["d"]);
  });

  test("refuse what cannot be computed, with the names that can", async (t) => {
    const app = await startWith([]);
    t.after(() => app.stop());
    const codes: Readonly<Record<string, number>> = {
      "by=day": 40003,
      "aggregate=count&fields=id": 40003,
      "aggregate=count&expand=sensor": 40003,
      "aggregate=count&nope=1": 40003,
      "aggregate=": 40004,
      "aggregate=count,count": 40004,
      "aggregate=sum(day)": 40004,
      "aggregate=avg(note)": 40004,
      "aggregate=min(note)": 40004,
      "aggregate=sum(sensor_id)": 40004,
      "aggregate=sum(nope)": 40004,
      "aggregate=median(value)": 40004,
      "aggregate=count&by=nope": 40004,
      "aggregate=count&by=hour(day)": 40004,
      "aggregate=count&by=day(note)": 40004,
      "aggregate=count&by=day,day": 40004,
      "aggregate=count&sortby=value": 40004,
      "aggregate=count&limit=101": 40004,
    };
    for (const [query, code] of Object.entries(codes)) {
      assertError(await app.send("GET", `readings?${query}`), code);
    }
    const wrong = await app.send("GET", "readings?aggregate=sum(note)");
    assertError(wrong, 40004, "count, sum(id), ", "max(taken_at)");
    const secret = await app.send("GET", "users?aggregate=count&by=password");
    assertError(secret, 40004);
  });

  test("show a property that has the name of a value, or refuse both of them", async (t) => {
    const counted = collection({
      name: "boxes",
      singular: "box",
      access,
      properties: { count: number(), value: number() },
    });
    const app = await startLibrary({ declaration: apiOf([counted]) });
    t.after(() => app.stop());
    for (const count of [7, 7, 8]) {
      await app.send("POST", "boxes", { count, value: 1 });
    }
    const groups = async (query: string) =>
      (await app.send("GET", `boxes?aggregate=${query}`)).body;
    assert.deepEqual(await groups("sum(value)&by=count&sortby=count"), [
      { count: 7, "sum(value)": 2 },
      { count: 8, "sum(value)": 1 },
    ]);
    assert.deepEqual(await groups("count,sum(count)&by=value"), [
      { value: 1, count: 3, "sum(count)": 22 },
    ]);
    for (const query of ["count&by=count", "sum(value),count&by=value,count"]) {
      const both = await app.send("GET", `boxes?aggregate=${query}`);
      assertError(both, 40004, '"by" must be', "of id, value, created_at");
    }
  });

  test("have at most 10,000 groups", async (t) => {
    const many = (count: number) =>
      Array.from({ length: count }, (_, value) => ({ value }));
    const app = await startWith(many(10_001));
    t.after(() => app.stop());
    const path = "readings?aggregate=count&by=value";
    assertError(await app.send("GET", path), 40004, "10000 groups");
    const { body } = await app.send("GET", `${path}&value:lt=10000&limit=1`);
    assert.equal(body.length, 1);
  });

  test("are those that a plain computation finds", async (t) => {
    const random = new Random(7);
    const all = Array.from({ length: 5000 }, () => ({
      sensor_id: random.pick([1, 2, null]),
      value: random.pick([0.25, 0.5, 1e14, -1e14, 3, null]),
      day: `2026-0${1 + random.below(9)}-1${random.below(10)}`,
    }));
    const app = await startWith(all);
    t.after(() => app.stop());
    const { body } = await app.send(
      "GET",
      "readings?aggregate=count,sum(value)&by=sensor_id,month(day)&day:gte=2026-03-01&limit=100",
    );
    const expected = new Map<string, number[]>();
    for (const { sensor_id, value, day } of all) {
      if (day < "2026-03-01") continue;
      const key = `${sensor_id} ${day.slice(0, 7)}-01`;
      const of = expected.get(key) ?? [];
      expected.set(key, [...of, value ?? NaN]);
    }
    assert.equal(body.length, expected.size);
    for (const group of body) {
      const key = `${group["sensor_id"]} ${group["month(day)"]}`;
      const of = expected.get(key) ?? [];
      assert.equal(group["count"], of.length);
      // In quarters, which are exact.
      const quarters = of.filter((each) => !Number.isNaN(each))
        .reduce((sum, each) => sum + BigInt(Math.round(each * 4)), 0n);
      assert.equal(group["sum(value)"], Number(quarters) / 4, key);
    }
  });

  test("count what the caller may see, of the records of the URL", async (t) => {
    const app = await startWith(values);
    t.after(() => app.stop());
    const ofOne = await app.send("GET", "sensors/1/readings?aggregate=count");
    assert.deepEqual(ofOne.body, [{ count: 2 }]);
    assertError(
      await app.send("GET", "sensors/9/readings?aggregate=count"),
      40401,
    );
    const [one, two] = [
      await app.join("one", "viewer"),
      await app.join("two", "viewer"),
    ];
    await app.send("POST", "notes", { stars: 5 }, one);
    await app.send("POST", "notes", { stars: 1 }, two);
    const sum = "notes?aggregate=sum(stars)";
    for (
      const [token, expected] of [[one, 5], [two, 1], [app.token, 6]] as const
    ) {
      const { body } = await app.send("GET", sum, undefined, token);
      assert.deepEqual(body, [{ "sum(stars)": expected }]);
    }
    assert.equal((await app.send("GET", sum, undefined, "")).status, 401);
  });

  test("have validators, HEAD, QUERY and lines like lists", {
    skip: ["conditional", "negotiation", "imports"].map(lacks).find(Boolean) ??
      false,
  }, async (t) => {
    const app = await startWith(values);
    t.after(() => app.stop());
    const path = "/v1/readings?aggregate=count&by=sensor_id&limit=1";
    const first = await app.request("GET", path);
    const etag = first.headers.get("etag") ?? "";
    const same = await app.request("GET", path, {
      headers: { "if-none-match": etag },
    });
    assert.equal(same.status, 304);
    await app.send("POST", "readings", { value: 1 });
    const changed = await app.request("GET", path, {
      headers: { "if-none-match": etag },
    });
    assert.equal(changed.status, 200);
    const head = await app.request("HEAD", path);
    assert.equal(head.headers.get("x-total-count"), "3");
    const query = await app.request("QUERY", "/v1/readings", {
      raw: "aggregate=count&by=sensor_id",
      headers: { "content-type": "application/x-www-form-urlencoded" },
    });
    assert.equal(query.body.length, 3);
    const lines = await app.request(
      "GET",
      "/v1/readings?aggregate=count&by=sensor_id",
      {
        headers: { accept: "application/x-ndjson" },
      },
    );
    assert.equal(
      lines.text,
      '{"sensor_id":1,"count":2}\n{"sensor_id":2,"count":1}\n{"sensor_id":null,"count":2}\n',
    );
  });

  test("leave a collection alone that has a property of the name of a parameter", async (t) => {
    for (const name of ["by", "aggregate"]) {
      const properties = { [name]: string({ maxLength: 9 }) };
      const works = { name: "works", singular: "work", access, properties };
      const app = await startLibrary({
        declaration: apiOf([collection(works)]),
      });
      t.after(() => app.stop());
      for (const value of ["kim", "lou"]) {
        await app.send("POST", "works", { [name]: value });
      }
      const { body } = await app.send("GET", `works?${name}=kim`);
      assert.deepEqual(body.map(({ id }) => id), [1]);
      const other = name === "by" ? "aggregate" : "by";
      assertError(await app.send("GET", `works?${other}=id`), 40003);
    }
  });
});
