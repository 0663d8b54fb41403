import { strict as assert } from "node:assert";
import { test } from "node:test";
import { parseTraceId, requestId } from "../../src/http/server.ts";

test("an X-Request-Id of at most 64 visible characters is used", () => {
  for (const id of ["a", "!~", "x".repeat(64), "a,b"]) {
    assert.equal(requestId(id), id);
  }
});

test("any other is replaced by a unique one", () => {
  const sent = ["", "x".repeat(65), "a b", "1, 2", "a\n", "caf\xe9", [
    "a",
    "b",
  ]];
  const ids = [undefined, undefined, ...sent].map(requestId);
  assert.equal(new Set(ids).size, ids.length);
  for (const id of ids) assert.match(id, /^[\w-]{8}-[0-9a-z]+$/);
});

test("a traceparent is validated as W3C Trace Context requires", () => {
  const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const parent = "00f067aa0ba902b7";
  const zeros = "0".repeat(32);
  const table: readonly [string | string[] | undefined, string?][] = [
    [`00-${trace}-${parent}-01`, trace],
    [`00-${trace}-${parent}-ff`, trace],
    [`cc-${trace}-${parent}-01`, trace],
    [`cc-${trace}-${parent}-01-what-will-be`, trace],
    [undefined],
    [""],
    [`00-${trace}-${parent}-01-more`],
    [`00-${trace}-${parent}-01-`],
    [`cc-${trace}-${parent}-01.more`],
    [`ff-${trace}-${parent}-01`],
    [`00-${zeros}-${parent}-01`],
    [`00-${trace}-${zeros.slice(16)}-01`],
    [`00-${trace.toUpperCase()}-${parent}-01`],
    [`00-${trace}-${parent}`],
    [`00-${trace}-${parent}-1`],
    [`0-${trace}-${parent}-01`],
    [`00-${trace}0-${parent}-01`],
    [` 00-${trace}-${parent}-01`],
    [`00-${trace}-${parent}-01, 00-${trace}-${parent}-01`],
    [[`00-${trace}-${parent}-01`]],
  ];
  for (const [field, id] of table) {
    assert.equal(parseTraceId(field), id, `${field}`);
  }
});
