import { strict as assert } from "node:assert";
import { test } from "node:test";
import { negotiate } from "../../src/http/negotiate.ts";
import { parseMediaType, splitList } from "../../src/http/headers.ts";

const offers = [
  "application/json",
  "application/x-ndjson",
  "text/html",
] as const;

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
    ['a/b;x="\\1\\"2"', "a/b", [["x", '1"2']]],
    ['a/b;x="1', "a/b", [["x", '"1']]],
    ['a/b;x="1;2" ; y=3', "a/b", [["x", "1;2"], ["y", "3"]]],
    ["", undefined],
    ["json", undefined],
    ["a/b/c", undefined],
    ["a b/c", undefined],
    ["a/b; charset", undefined],
    ["a/b; =x", undefined],
    ["a/b; x=1; x=2", undefined],
    ["a/b;;x=1;", "a/b", [["x", "1"]]],
    [";a/b", undefined],
    [" ;a/b;x=1", undefined],
    [";;", undefined],
  ];
  for (const [text, type, parameters] of table) {
    const parsed = parseMediaType(text);
    assert.equal(parsed?.type, type, text);
    if (parsed) assert.deepEqual([...parsed.parameters], parameters, text);
  }
});

test("the parameters of a range must be those of the type (RFC 9110 section 12.5.1)", () => {
  const text = 'text/plain; version=0.0.4; profile="https://a/b"';
  const table: readonly [string, boolean][] = [
    ["text/plain;version=0.0.4", true],
    ["text/plain; charset=utf-8;version=0.0.4;q=0.5", true],
    ['text/plain;profile="https://a/b"', true],
    ["text/plain;version=1.0.0", false],
    ["text/plain;version=1.0.0, text/plain;q=0.1", true],
    ["text/plain;level=1", false],
  ];
  for (const [accept, fits] of table) {
    assert.equal(negotiate(accept, [text]) === text, fits, accept);
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
    [" , ", true],
  ];
  for (const [accept, allowed] of table) {
    const chosen = negotiate(accept, ["application/json"]);
    assert.equal(chosen, allowed ? "application/json" : undefined, `${accept}`);
  }
});

test("of several types the most preferred one is chosen, and the first of equals", () => {
  const [json, lines, html] = offers;
  const table: readonly [string | undefined, string | undefined][] = [
    [undefined, json],
    ["", json],
    ["*/*", json],
    ["application/*", json],
    [lines, lines],
    ["Application/X-NDJSON", lines],
    ["application/x-ndjson, */*", json],
    ["application/x-ndjson, */*;q=0.9", lines],
    ["application/x-ndjson;q=0.9, application/json;q=0.8", lines],
    ["application/json;q=0.8, application/x-ndjson;q=0.9", lines],
    ["application/x-ndjson, application/json", json],
    ["application/*;q=0.5, text/html;q=0.4", json],
    ["application/*;q=0.5, application/json;q=0.1", lines],
    ["*/*, application/*;q=0", html],
    ["*/*;q=0.1, text/*;q=0.2", html],
    ["text/html, application/xhtml+xml, */*;q=0.8", html],
    ["application/json;charset=utf-8;q=0.1, application/*", lines],
    [
      "application/json;charset=utf-8;q=0.1, application/json, */*;q=0.5",
      lines,
    ],
    ["*/*;charset=utf-8;q=0.1, application/*;q=0", html],
    ["application/json;q=0.2, application/json;q=0.7, text/html;q=0.5", json],
    ["image/png, text/plain", undefined],
    ["*/*;q=0", undefined],
  ];
  for (const [accept, chosen] of table) {
    assert.equal(negotiate(accept, offers), chosen, `${accept}`);
  }
});
