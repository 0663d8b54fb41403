/** Patterns of a declaration: CONTRACT section 9. Those that are accepted never take more than the square of a text's length. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { randomOf } from "./random.ts";
import { fileOf, outputOf, temporaryFolder } from "./server.ts";

/** Returns what a declaration with these patterns is told, by their places; undefined for those that are accepted. */
async function judge(patterns: (readonly [RegExp, number?])[]) {
  const properties = patterns.map(([pattern, maxLength = 1000], at) =>
    `p${at}: string({ maxLength: ${maxLength}, pattern: ${pattern} })`
  );
  const COLLECTIONS = fileOf(
    "patterns.mjs",
    `export default ({ collection, string }) => ({ collections: [collection({
      name: "things", singular: "thing",
      access: { read: "anyone", write: "viewer", delete: "viewer" },
      properties: { last: string(), ${properties.join(",\n")} },
    })] });`,
  );
  const DATA_DIR = temporaryFolder();
  const output = await outputOf([], { COLLECTIONS, DATA_DIR }, 2); // as "last" has no maxLength
  const refusals: (string | undefined)[] = patterns.map(() => undefined);
  for (const line of output.split("\n")) {
    const [, at] = /things\.p(\d+): the pattern /.exec(line) ?? [];
    if (at) refusals[Number(at)] = line;
  }
  return refusals;
}

const accepted: RegExp[] = [
  /^$/,
  /^.+$/,
  /^97[89]\d{10}$/,
  /^97[89](?:-\d{1,7}){3}-\d$/,
  /^\d{9}[\dX]$/,
  /^\+?[1-9]\d{1,14}$/,
  /^\+?[0-9 ()-]{5,20}$/,
  /^[a-z0-9]+(?:-[a-z0-9]+)*$/,
  /^[A-Z]{1,3}-[A-Z]{1,2} \d{1,4}$/,
  /^[A-Z]{1,3}[ -]?\d{1,4}$/,
  /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$/,
  /^\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$/,
  /^[^@ ]+@[^@ ]+\.[a-z]+$/,
  /^[\w.]+@[\w.]+$/,
  /^https?:\/\/[^\s/]+(\/\S*)?$/,
  /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
  /^#[0-9a-fA-F]{6}$/,
  /^(\d{1,3}\.){3}\d{1,3}$/,
  /^([01]\d|2[0-3]):[0-5]\d$/,
  /^-?\d+(\.\d+)?$/,
  /^\w{3}\w{4}\w{2}\d+$/,
  /^\d{5}(-\d{4})?$/,
  /^(?<year>\d{4})-W\d\d$/,
  /^\p{L}+(?:[ '-]\p{L}+)*$/u,
  /^[\u{1f600}-\u{1f64f}]+$/u,
  /^[a-\d]+$/,
  /^\S+( \S+)*$/,
  /^[a-z]+$/,
];

const refused: [RegExp, RegExp, number?][] = [
  [/[a-z]+/, /begin with \^ and end with \$/],
  [/^a\$/, /end with \$/],
  [/^a|b$/, /alternatives outside of a group/],
  [/^a$/i, /the flag "u" or none/],
  [new RegExp("^\\p{L}$"), /needs it/],
  [/^[a-z]+$/, /maxLength of at most 1000/, 1001],
  [/^(?=a)a$/, /look around/],
  [/^(?<!a?)b$/, /look around/],
  [/^(?<=a|b)b$/, /look around/],
  [/^(a)\1$/, /has \\1/],
  [/^\ba$/, /has \\b/],
  [new RegExp("^\\060*0*0*$"), /has \\0/],
  [/^(?:a|ab)c$/, /alternatives that begin with the same character: put it/],
  [/^(?:|a)*$/, /alternatives/],
  [/^(a+)+$/, /after a\+: what follows must not begin with .* as in \[/],
  [/^(?:[a-z]+-?)+$/, /after -\?|after \[a-z\]\+/],
  [/^(?:\d{1,3},?){1,30}$/, /two ways/],
  [/^(?:a?){30}$/, /two ways after a\?/],
  [/^[^@ ]+@[\w.]+\.[a-z.]+\.[a-z]+$/, /two ways/],
  [/^\w*\d*\w*$/, /two ways/],
  [/^[a-\d]*-*[-\d]*$/, /two ways/],
  [/^[\u{3fff0}-\u{3ffff}]*[\u{3fff8}-\u{3ffff}]*[^a]$/u, /two ways/],
  [/^\u{50000}*$/u, /up to \\u\{3ffff\}/],
];

test("Patterns that people write are accepted, and others explained", async () => {
  const found = await judge([
    ...accepted.map((pattern) => [pattern] as const),
    ...refused.map(([pattern, , maxLength = 1000]) =>
      [pattern, maxLength] as const
    ),
  ]);
  for (const [at, pattern] of accepted.entries()) {
    assert.equal(found[at], undefined, String(pattern));
  }
  for (const [at, [pattern, message]] of refused.entries()) {
    assert.match(
      found[accepted.length + at] ?? "accepted",
      message,
      String(pattern),
    );
  }
});

/** A part of a generated pattern: characters, a sequence, alternatives, a repetition. */
type Part =
  | { characters: string }
  | { all: Part[] }
  | { any: Part[] }
  | { of: Part; min: number; max: number };

const below = randomOf(1);
const several = (most: number, depth: number): Part[] =>
  Array.from({ length: 1 + below(most) }, () => generate(depth - 1));

function generate(depth: number): Part {
  const kind = depth === 0 ? 0 : below(4);
  if (kind === 1) return { all: several(4, depth) };
  if (kind === 2) return { any: several(3, depth) };
  if (kind === 3) {
    const min = below(3);
    const max = [1, min, min + 1, 1000][below(4)] ?? 1;
    return { of: generate(depth - 1), min, max: Math.max(min, max, 1) };
  }
  return { characters: ["a", "b", "-", "ab", "b-", "1"][below(6)] ?? "a" };
}

function sourceOf(part: Part): string {
  if ("characters" in part) return `[${part.characters}]`;
  if ("all" in part) return `(?:${part.all.map(sourceOf).join("")})`;
  if ("any" in part) return `(?:${part.any.map(sourceOf).join("|")})`;
  return `(?:${sourceOf(part.of)}){${part.min},${part.max}}`;
}

const sizeOf = (part: Part) => sourceOf(part).length;

/** Returns how many steps a backtracking matcher takes (ECMA-262 section 22.2.2); above a limit, the limit. */
function stepsOf(whole: Part, text: string, limit: number): number {
  let steps = 0;
  type Next = (at: number) => boolean;
  const match = (part: Part, at: number, next: Next): boolean => {
    if (++steps >= limit) return true;
    if ("characters" in part) {
      return part.characters.includes(text[at] ?? "!") && next(at + 1);
    }
    if ("any" in part) return part.any.some((one) => match(one, at, next));
    if ("all" in part) {
      const rest = (index: number): Next => (at) => {
        const one = part.all[index];
        return one ? match(one, at, rest(index + 1)) : next(at);
      };
      return rest(0)(at);
    }
    const again = (count: number): Next => (at) => {
      const more = count < part.max &&
        match(
          part.of,
          at,
          (end) => (end > at || count < part.min) && again(count + 1)(end),
        );
      return more || count >= part.min && next(at);
    };
    return again(0)(at);
  };
  match(whole, 0, (at) => at === text.length);
  return steps;
}

test("Accepted patterns take at most quadratic time", async () => {
  const parts = Array.from({ length: 500 }, () => generate(4));
  const found = await judge(
    parts.map((part) => [new RegExp(`^${sourceOf(part)}$`)]),
  );
  const length = 120;
  let count = 0;
  let slow = 0;
  for (const [index, part] of parts.entries()) {
    const isAccepted = found[index] === undefined;
    if (!isAccepted && slow > 2) continue; // the matcher sees slow ones
    const limit = sizeOf(part) * length ** 2;
    let most = 0;
    for (const word of ["a", "b", "ab", "a-", "aab", "b-1", "ab-1"]) {
      const text = word.repeat(length).slice(0, length);
      most = Math.max(most, stepsOf(part, `${text}!`, limit));
      if (most >= limit) break;
    }
    if (isAccepted) {
      count++;
      assert.ok(most < limit, `/${sourceOf(part)}/ takes ${most} steps`);
    } else if (most >= limit) slow++;
  }
  assert.ok(count > 100 && slow > 2, `${count} accepted, ${slow} are slow`);
});
