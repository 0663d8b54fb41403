import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { test } from "node:test";
import { parseJsonObject } from "../../src/http/json.ts";

const parse = (text: string) => parseJsonObject(Buffer.from(text));

test("an object is parsed as JSON.parse would", () => {
  const texts = [
    "{}",
    ' {"a" : [1, {"b": "\\"{:,"}], "c": {"a": 1}} ',
    '{"a":{"x":1},"b":{"x":1}}',
    '{"list":[{"a":1},{"a":1}]}',
    '{"a\\\\":1,"a":2}',
    '{"é":1,"e\\u0301":2}',
    '{"1e400":1e400}',
  ];
  for (const text of texts) {
    assert.deepEqual(parse(text), JSON.parse(text), text);
  }
  assert.deepEqual(Object.keys(parse('{"__proto__":1}')), ["__proto__"]);
});

test("a duplicate name is rejected at any depth and in any spelling", () => {
  const texts = [
    ['{"a":1,"a":1}', '"a"'],
    ['{"a":1,"\\u0061":2}', '"a"'],
    ['{"x":[{"b":{"c":1,"d":":","c":3}}]}', '"c"'],
    ['{"x":{"n":1},"y":[{"n":"{"}],"m":1,"m":2}', '"m"'],
    ['{"":1,"":2}', '""'],
    ['{"__proto__":1,"__proto__":2}', '"__proto__"'],
    ['{"a\\"b":1,"a\\u0022b":2}', '"a\\"b"'],
  ];
  for (const [text = "", name] of texts) {
    const message = `The body names ${name} twice: send each property once.`;
    assert.throws(() => parse(text), { code: 40001, message }, text);
  }
});

test("anything but a JSON object in UTF-8 is rejected with its reason", () => {
  const table: readonly [Uint8Array | string, number, RegExp][] = [
    ["", 40001, /missing/],
    [" ", 40001, /not valid JSON/],
    ["{", 40001, /not valid JSON/],
    ["{'a':1}", 40001, /not valid JSON/],
    ["{}{}", 40001, /not valid JSON/],
    ["[".repeat(64), 40001, /not valid JSON/],
    ["[".repeat(100_000), 40001, /too complex: .* 64 levels/],
    [`{"a":${"[".repeat(64)}${"]".repeat(64)}}`, 40001, /too complex/],
    [JSON.stringify(manyNames(1001)), 40001, /too complex: .* 1000 names/],
    ['{"a', 40001, /not valid JSON/],
    ['{"a\\', 40001, /not valid JSON/],
    ['{"\\u00":1}', 40001, /not valid JSON/],
    ["\uFEFF{}", 40001, /byte-order mark/],
    [Uint8Array.of(0x7b, 0xff, 0x7d), 40001, /UTF-8/],
    [Uint8Array.of(0x22, 0xed, 0xa0, 0x80, 0x22), 40001, /UTF-8/],
    ["[]", 40002, /not an array/],
    ["null", 40002, /not null/],
    ["7", 40002, /not 7/],
    [`"${"x".repeat(100)}"`, 40002, /not "x{59}…/],
  ];
  for (const [text, code, message] of table) {
    const bytes = typeof text === "string" ? Buffer.from(text) : text;
    assert.throws(() => parseJsonObject(bytes), { code, message });
  }
});

test("the maximum numbers of names and levels are parsed", () => {
  const deep = `{"a":${"[".repeat(63)}${"]".repeat(63)}}`;
  assert.ok(Array.isArray(parse(deep)["a"]));
  const many = manyNames(1000);
  assert.deepEqual(parse(JSON.stringify(many)), many);
  const trusted = Buffer.from(JSON.stringify(manyNames(5000)));
  assert.ok(parseJsonObject(trusted, "seed", Infinity));
});

/** Names at two levels. */
function manyNames(count: number): Record<string, unknown> {
  const names = Array.from({ length: count }, (_, at) => [`p${at}`, at]);
  const half = Object.fromEntries(names.slice(count / 2 + 1));
  return { ...Object.fromEntries(names.slice(0, count / 2)), half };
}
