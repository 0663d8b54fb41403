import { strict as assert } from "node:assert";
import { test } from "node:test";
import { parseReturnPreference } from "../../../src/features/negotiation/prefer.ts";

test("the preference `return` is parsed, and the first one counts (RFC 7240 section 2)", () => {
  const table: readonly [string, string | undefined][] = [
    ["", undefined],
    ["return=minimal", "minimal"],
    ["Return = Representation", "representation"],
    ['return="minimal"', "minimal"],
    ['return="min\\imal"', "minimal"],
    ["return=minimal; foo=bar", "minimal"],
    ['return=minimal; foo="a, return=representation"', "minimal"],
    ["handling=strict, return=minimal", "minimal"],
    ["handling=lenient;;,,wait=10", undefined],
    ["return=minimal, return=representation", "minimal"],
    ["return=other, return=minimal", undefined],
    ["return, return=minimal", undefined],
    ['return="", return=minimal', undefined],
    ['foo="return=minimal, x", respond-async', undefined],
    ["foo; return=minimal", undefined],
    ["return=minimal=x", undefined],
    ["ret urn=minimal, return=minimal", "minimal"],
    ['return="minimal', undefined],
    ["constructor=minimal, __proto__=strict", undefined],
  ];
  for (const [field, preference] of table) {
    assert.equal(parseReturnPreference(field), preference, field);
  }
});

test("a preference with a long gap is parsed without backtracking", () => {
  const gap = " ".repeat(1 << 20);
  assert.equal(parseReturnPreference(`a${gap}b`), undefined);
  assert.equal(parseReturnPreference(`return${gap}=${gap}minimal`), "minimal");
});
