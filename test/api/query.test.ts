import { strict as assert } from "node:assert";
import { test } from "node:test";
import { deriveCollections } from "../../src/api/declaration/declaration.ts";
import {
  parseForm,
  parseParameters,
  parseQuery,
} from "../../src/api/query/parameters.ts";
import { collections } from "../collections.ts";

test("a plus sign is a space in a form, and a plus sign in a URL", () => {
  const table: readonly [string, [string, string][], [string, string][]?][] = [
    ["", []],
    ["&&", []],
    ["a=1&b=", [["a", "1"], ["b", ""]]],
    ["a", [["a", ""]]],
    ["a=b=c", [["a", "b=c"]]],
    ["a=1+2", [["a", "1 2"]], [["a", "1+2"]]],
    ["a+b=+", [["a b", " "]], [["a+b", "+"]]],
    ["a=1%2B2%20%C3%A9", [["a", "1+2 é"]]],
    ["a=é", [["a", "é"]]],
  ];
  for (const [text, form, query = form] of table) {
    assert.deepEqual([...parseForm(text)], form, text);
    assert.deepEqual([...parseParameters(text)], query, text);
  }
});

test("a malformed form is rejected like a malformed query", () => {
  const table: readonly [string, number][] = [
    ["a=1&a=2", 40003],
    ["a+b=1&a%20b=2", 40003],
    ["a=%", 40000],
    ["a=%+1", 40000],
    ["a=%ff", 40000],
  ];
  for (const [text, code] of table) {
    assert.throws(() => parseForm(text), { name: "ApiError", code }, text);
  }
});

test("a query has at most a hundred parameters, and a list at most a thousand values", () => {
  const names = (count: number) =>
    Array.from({ length: count }, (_, index) => `p${index}=1`).join("&");
  assert.equal(parseParameters(names(100)).size, 100);
  assert.throws(() => parseParameters(names(101)), {
    code: 40003,
    message: /at most 100 /,
  });
  const zoos = deriveCollections(collections, []).get("zoos");
  assert.ok(zoos);
  const ids = (count: number) =>
    parseQuery(
      zoos,
      parseParameters(`id:in=${Array(count).fill("7").join(",")}`),
    );
  assert.equal(ids(1000).filters[0]?.valueSet?.size, 1);
  assert.throws(() => ids(1001), { code: 40004, message: /at most 1000 / });
});
