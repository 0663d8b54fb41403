/** Values for a schema: valid ones, and ones that are nearly valid. */

import type { Random } from "../torture/random.ts";
import type { Schema } from "./document.ts";

const words = [
  "a",
  "Zoo",
  "München",
  "日本語",
  "🦊 fox",
  "O'Hara",
  'say "hi"',
  "a\\b",
  "<b>&amp;",
  "50%",
  "null",
  "0",
  "x".repeat(100),
  "é".repeat(100),
  " padded ",
  "a,b",
  "\u2028",
  "__proto__",
  "constructor",
];

/** Strings that fit the patterns of the sample API. */
const patterned = ["DE", "CZ", "ab", "a1.b-c", "viewer-7"];

const wrongValues: readonly unknown[] = [
  null,
  true,
  0,
  -1,
  1.5,
  1e21,
  9007199254740993,
  "",
  "   ",
  "\u0000",
  "\ud800",
  "\u007f",
  "x".repeat(101),
  "2024-02-30",
  "2024-13-01T00:00:00Z",
  "javascript:alert(1)",
  "http://[",
  "a@",
  [],
  [1, [2, [3]]],
  {},
  { toString: 1 },
  { a: { b: { c: null } } },
];

/** Ids on the edges, as they are written in a URL. */
const oddIds = [
  "0",
  "-1",
  "01",
  "1.0",
  "1e3",
  "%31",
  "9007199254740991",
  "9007199254740992",
  "18446744073709551616",
  "x",
  "null",
  "%2e%2e",
  "%00",
  "%",
  "1%2F2",
  "%EF%BC%91",
];

/** Returns an id that no record has or that is no id. */
export function oddId(random: Random): string {
  return random.pick(oddIds);
}

/** Returns a value that fits a schema, most of the time. */
export function validValue(schema: Schema, random: Random): unknown {
  if (schema.enum !== undefined) return random.pick(schema.enum);
  const types = [schema.type ?? "string"].flat();
  const type = random.pick(types);
  switch (type) {
    case "null":
      return null;
    case "boolean":
      return random.chance(0.5);
    case "integer":
      return integerOf(schema, random);
    case "number":
      return integerOf(schema, random) + random.pick([0, 0.5, 0.125]);
    case "array":
      return Array.from(
        { length: 1 + random.below(3) },
        () => validValue(schema.items ?? {}, random),
      );
    case "object":
      return {};
    default:
      return stringOf(schema, random);
  }
}

function integerOf(schema: Schema, random: Random): number {
  const { exclusiveMinimum = -1, maximum = 1000 } = schema;
  const lowest = schema.minimum ?? exclusiveMinimum + 1;
  if (random.chance(0.1)) return random.chance(0.5) ? lowest : maximum;
  return lowest + random.below(Math.min(maximum - lowest, 50) + 1);
}

function stringOf(schema: Schema, random: Random): string {
  const two = (limit: number) =>
    String(1 + random.below(limit)).padStart(2, "0");
  const date = `${1900 + random.below(200)}-${two(12)}-${two(28)}`;
  switch (schema.format) {
    case "date":
      return date;
    case "date-time":
      return `${date}T${two(23)}:${two(59)}:${two(59)}.000Z`;
    case "email":
      return `fuzz-${random.below(1e9)}@example.com`;
    case "uri":
      return `https://example.com/${random.below(1000)}?q=%20#x`;
  }
  const { minLength = 1 } = schema;
  if (minLength > 5) return random.pick(["short", "long enough to hash"]); // a password
  if (schema.pattern !== undefined) {
    const pattern = new RegExp(schema.pattern, "u");
    const fitting = [...patterned, `user-${random.below(1e6)}`]
      .filter((each) => pattern.test(each));
    return fitting.length === 0 ? "x" : random.pick(fitting);
  }
  const { maxLength = 1000 } = schema;
  return [...random.pick(words)].slice(0, maxLength).join("");
}

/** Returns a value that rarely fits any schema. */
export function wrongValue(random: Random): unknown {
  return random.pick(wrongValues);
}

/** Returns a text that is nearly a JSON object. */
export function brokenJson(text: string, random: Random): string {
  switch (random.below(9)) {
    case 0:
      return `[${text}]`;
    case 1:
      return `${text}${text}`;
    case 2:
      return text.slice(0, random.below(text.length + 1));
    case 3: // a name twice
      return text.replace(/^\{("[^"]*":)/, "{$1null,$1");
    case 4:
      return `\ufeff${text}`;
    case 5:
      return '{"a":'.repeat(1 + random.below(200));
    case 6:
      return text.replaceAll('"', "'");
    case 7:
      return text.replace("{", '{"x":1e999,"y":-0,"z":"\\ud800",');
    default:
      return "";
  }
}
