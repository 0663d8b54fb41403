import { strict as assert } from "node:assert";
import { test } from "node:test";
import {
  boolean,
  choice,
  date,
  email,
  integer,
  number,
  optional,
  type Property,
  readOnly,
  reference,
  string,
  text,
  timestamp,
  unique,
  url,
  writeOnly,
} from "../../src/api/declaration/properties.ts";
import { declareApi } from "../../src/api/declaration/api.ts";
import { vocabulary } from "../../src/cli/declaration/checked-vocabulary.ts";
import { startLibrary } from "../library.ts";

// A property, a value, and the code of the failure; undefined if the value is allowed.
const checks: readonly [Property, unknown, string | undefined][] = [
  [boolean(), true, undefined],
  [boolean(), "true", "type"],
  [boolean(), 1, "type"],
  [integer(), -7, undefined],
  [integer(), 1.5, "type"],
  [integer(), 2 ** 53, "range"],
  [integer(), -(2 ** 53), "range"],
  [integer(), Infinity, "range"],
  [integer({ minimum: 3, maximum: 5 }), 2, "range"],
  [integer({ minimum: 3, maximum: 5 }), 5, undefined],
  [number({ minimum: 0 }), 0, undefined],
  [number({ exclusiveMinimum: 0 }), 0, "range"],
  [number(), -Infinity, "range"],
  [number(), [], "type"],
  [number(), {}, "type"],
  [timestamp(), "2026-02-28T23:59:59Z", undefined],
  [timestamp(), "2026-02-29T00:00:00Z", "format"],
  [timestamp(), "2026-02-28T24:00:00Z", "format"],
  [timestamp(), "2026-02-28", "format"],
  [timestamp(), 7, "type"],
  [date(), "2000-02-29", undefined],
  [date(), "1900-02-29", "format"],
  [date(), "2026-1-01", "format"],
  [date(), "2026-13-01", "format"],
  [date(), null, "type"],
  [reference("zoos"), 1, undefined],
  [reference("zoos"), 0, "range"],
  [reference("zoos"), "1", "type"],
  [choice("a", "b"), "b", undefined],
  [choice("a", "b"), "constructor", "enum"],
  [choice("a", "b"), 1, "type"],
  [string({ maxLength: 2 }), "\u{1F992}\u{1F992}", undefined],
  [string({ maxLength: 2 }), "abc", "length"],
  [string({ maxLength: 2 }), "\u3000", "length"],
  [string({ maxLength: 2 }), "\u200b\u00ad", "length"], // nobody sees them
  [string({ maxLength: 2, pattern: /^\d+$/u }), "12", undefined],
  [string({ maxLength: 2, pattern: /^\d+$/u }), "x", "format"],
  // Matching a pattern can take long, so it is not matched against a string
  // that is too long.
  [string({ maxLength: 2, pattern: /^\d+$/u }), "abc", "length"],
  [string({ minLength: 0, maxLength: 2 }), "", undefined],
  [string({ maxLength: 2 }), "\uDC00", "format"],
  [string({ maxLength: 2 }), "\x7f", "format"],
  [string({ maxLength: 2 }), ["a"], "type"],
  [string({ maxLength: 3 }), "a\nb", "format"],
  [text({ maxLength: 4 }), "a\n\tb", undefined],
  [text({ maxLength: 4 }), "a\r\nb", "format"],
  [text({ maxLength: 3 }), "\n\t\n", "length"],
  [text({ maxLength: 3, minLength: 0 }), "\n", undefined],
  [writeOnly(string({ minLength: 3, maxLength: 4 })), "ab", "length"],
  [url(), "https://example.org/a?b#c", undefined],
  [url(), "ftp://example.org/", "format"],
  [url(), "http://", "format"],
  [url(), "http://[::1", "format"],
  [url(), "http://a b/", "format"],
  [url(), "javascript:alert(1)", "format"],
  [email(), "first.last+tag@sub.example.org", undefined],
  [email(), `${"a".repeat(64)}@example.org`, undefined],
  [email(), `${"a".repeat(65)}@example.org`, "format"],
  [email(), "a..b@example.org", "format"],
  [email(), ".a@example.org", "format"],
  [email(), "a@b@example.org", "format"],
  [email(), "a@example", "format"],
  [email(), "a@-example.org", "format"],
  [email(), "a b@example.org", "format"],
];

test("each kind accepts its own values and has a code for all others", () => {
  for (const [property, value, code] of checks) {
    const message = `${property.kind} ${JSON.stringify(value)}`;
    assert.equal(property.check(value)?.code, code, message);
  }
});

test("each kind parses the parameters that spell one of its values", () => {
  const table: readonly [Property, string, unknown][] = [
    [boolean(), "true", true],
    [boolean(), "false", false],
    [boolean(), "1", undefined],
    [integer(), "0", 0],
    [integer(), "-12", -12],
    [integer(), "-0", undefined],
    [integer(), "007", undefined],
    [integer(), "1e2", undefined],
    [number(), "1.50", 1.5],
    [number(), "-2e-3", -0.002],
    [number(), ".5", undefined],
    [number(), "1e400", undefined],
    [number(), "Infinity", undefined],
    [number(), "", undefined],
    [date(), "2026-01-31", "2026-01-31"],
    [date(), "2026-02-31", undefined],
    [timestamp(), "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000Z"],
    [timestamp(), "2026-01-31t13:30:00.5+01:30", "2026-01-31T12:00:00.500Z"],
    [timestamp(), "2026-01-31T12:00:00", undefined],
    [timestamp(), "9999-12-31T23:59:59-01:00", undefined],
    [choice("a", "b"), "a", "a"],
    [choice("a", "b"), "c", undefined],
    [string({ maxLength: 1 }), "longer", "longer"],
  ];
  for (const [property, text, value] of table) {
    assert.equal(property.parse(text), value, `${property.kind} ${text}`);
  }
});

test("optional, unique and readOnly are visible in the property or its schema", () => {
  const nullable = optional(date());
  assert.deepEqual(nullable.schema, {
    type: ["string", "null"],
    format: "date",
    default: null,
  });
  assert.equal(nullable.nullable, true);
  assert.equal(nullable.required, false);
  const withDefault = optional(choice("a", "b"), "a");
  assert.deepEqual(withDefault.schema, {
    type: "string",
    enum: ["a", "b"],
    default: "a",
  });
  assert.equal(withDefault.nullable, false);
  assert.equal(unique(email()).unique, true);
  assert.equal(readOnly(timestamp()).schema["readOnly"], true);
  assert.equal(writeOnly(string({ maxLength: 9 })).schema["writeOnly"], true);
  const { schema } = text({ maxLength: 9 });
  assert.equal(schema["format"], "multiline");
  const pattern = new RegExp(String(schema["pattern"]), "u");
  assert.ok(
    pattern.test("a\n\tb") && !pattern.test("\n") && !pattern.test("a\r"),
  );
  const description = "two digits";
  const described = string({ maxLength: 2, description });
  assert.equal(described.schema["description"], description);
});

test("the bounds of a number are in its schema and in its description", () => {
  const maximum = Number.MAX_SAFE_INTEGER;
  const id = integer({ minimum: 1 });
  assert.deepEqual(id.schema, { type: "integer", minimum: 1, maximum });
  assert.equal(id.expected, "an integer from 1 up to 2^53-1");
  const weight = number({ exclusiveMinimum: 0, maximum: 20 });
  assert.deepEqual(weight.schema, {
    type: "number",
    exclusiveMinimum: 0,
    maximum: 20,
  });
  assert.equal(weight.expected, "a number above 0 up to 20");
});

test("timestamps are compared as points in time, however clients write them", async (t) => {
  const moments = vocabulary.collection({
    name: "moments",
    singular: "moment",
    access: { read: "anyone", write: "keeper", delete: "keeper" },
    properties: {
      at: unique(timestamp()),
      since: optional(timestamp(), "1970-01-01T01:00:00+01:00"),
    },
  });
  const declaration = declareApi({ collections: [moments] });
  const { send, stop } = await startLibrary({ declaration });
  t.after(stop);
  for (
    const at of [
      "2026-01-01T00:00:00Z",
      "2026-01-01T00:00:00.5Z",
      "2026-01-01T01:30:00+02:00",
    ]
  ) assert.equal((await send("POST", "moments", { at })).status, 201, at);
  const idsOf = async (query: string) =>
    (await send("GET", `moments?${query}`)).body.map(({ id }) => id);
  assert.deepEqual(await idsOf("sortby=at"), [3, 1, 2]);
  assert.deepEqual(await idsOf("at=2026-01-01T00:00:00Z"), [1]);
  assert.deepEqual(await idsOf("at:lt=2026-01-01T01:00:00%2B01:00"), [3]);
  assert.deepEqual(await idsOf("since=1970-01-01T00:00:00Z"), [1, 2, 3]);
  const same = { at: "2025-12-31T19:00:00-05:00" };
  const { body } = await send("POST", "moments", same);
  assert.equal(body.errors[0]?.code, "unique");
  const before = await send("GET", "moments/1");
  const after = await send("PATCH", "moments/1", same);
  assert.deepEqual([after.status, after.text], [201, before.text]);
  for (const at of ["2026-02-30T00:00:00Z", ["2026-01-01T00:00:00Z"]]) {
    assert.equal((await send("POST", "moments", { at })).status, 422);
  }
});
