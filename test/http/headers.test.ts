import { strict as assert } from "node:assert";
import { test } from "node:test";
import {
  accepts,
  formatLinks,
  parseMediaType,
  splitList,
} from "../../src/http/headers.ts";

test("a list is split at its commas, but not inside quoted strings", () => {
  const table: readonly [string, readonly string[]][] = [
    ["", []],
    [" , ,", []],
    ["a", ["a"]],
    ["a, b ,c", ["a", "b", "c"]],
    ['"a,b", c', ['"a,b"', "c"]],
    ['"a\\",b", c', ['"a\\",b"', "c"]],
    ['"never closed, c', ['"never closed, c']],
    ['a, "x\\', ["a", '"x\\']],
  ];
  for (const [text, members] of table) {
    assert.deepEqual(splitList(text, ","), members, text);
  }
});

test("a media type is parsed with its parameters", () => {
  const table: readonly [string, string | undefined, [string, string][]?][] = [
    ["application/json", "application/json", []],
    ["Application/JSON", "application/json", []],
    ["text/html; charset=UTF-8", "text/html", [["charset", "utf-8"]]],
    ['a/b;x="1;2" ; y=3', "a/b", [["x", "1;2"], ["y", "3"]]],
    ["", undefined],
    ["json", undefined],
    ["a/b/c", undefined],
    ["a b/c", undefined],
    ["a/b; charset", undefined],
    ["a/b; =x", undefined],
    ["a/b; x=1; x=2", undefined],
  ];
  for (const [text, type, parameters] of table) {
    const parsed = parseMediaType(text);
    assert.equal(parsed?.type, type, text);
    if (parsed) assert.deepEqual([...parsed.parameters], parameters, text);
  }
});

test("the most specific range of an Accept field decides (RFC 9110 section 12.5.1)", () => {
  const table: readonly [string | undefined, boolean][] = [
    [undefined, true],
    ["*/*", true],
    ["application/*", true],
    ["application/json", true],
    ["APPLICATION/JSON", true],
    ["application/json;charset=utf-8", true],
    ["application/json;charset=latin1", false],
    ["application/json;version=2", false],
    ["application/json;q=0.001", true],
    ["application/json;q=1.000;ext=1", true],
    ["application/json;q=0", false],
    ["application/json;q=0.000", false],
    ["application/json;q=2", false],
    ["application/json;q=", false],
    ["text/html", false],
    ["text/*", false],
    ["text/html, */*;q=0.1", true],
    ["application/json;q=0, */*", false],
    ["application/json;q=0, application/*", false],
    ["application/*;q=0, */*", false],
    ["application/*;q=0, application/json", true],
    ["*/*;q=0, application/json;q=0.1", true],
    ["application/json;q=0, application/json;charset=utf-8", true],
    ["nonsense, application/json", true],
    ["nonsense", false],
    ["", true],
  ];
  for (const [accept, allowed] of table) {
    assert.equal(accepts(accept, "application/json"), allowed, `${accept}`);
  }
});

test("links are written with their relation (RFC 8288)", () => {
  assert.equal(
    formatLinks([
      { rel: "first", href: "/a?x=1" },
      { rel: "last", href: "/a?x=2" },
    ]),
    '</a?x=1>; rel="first", </a?x=2>; rel="last"',
  );
});
