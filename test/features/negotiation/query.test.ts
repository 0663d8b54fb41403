import { strict as assert } from "node:assert";
import { test } from "node:test";
import { parseParameters } from "../../../src/api/query/parameters.ts";
import { parseForm } from "../../../src/features/negotiation/query.ts";

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
