/** Patterns of a declaration: those that could keep the server busy are refused, and others are not. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { findWeakness } from "../../src/cli/declaration/pattern.ts";
import {
  type Node,
  parsePattern,
} from "../../src/cli/declaration/pattern-syntax.ts";
import { emailAddress } from "../../src/api/declaration/properties.ts";
import { Random } from "../torture/random.ts";

/** Patterns of everyday use, with the length of the strings. */
const safe: readonly (readonly [RegExp, number])[] = [
  [/^97[89]\d{10}$/, 13],
  [/^[a-z0-9][a-z0-9._-]{1,31}$/, 32],
  [/^\d{4}-\d\d$/, 7],
  [/^(a|b|c)+$/, 1000],
  [/^[\w.]+@[\w.]+$/, 254],
  [/^([A-Z]{2}\d+,)*[A-Z]{2}\d+$/, 500],
  [/^[^\s@]+@[^\s@]+\.[^\s@]+$/, 254],
  [/^[a-z0-9]+(?:-[a-z0-9]+)*$/, 200],
  [
    /^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$/,
    100,
  ],
  [/^\+?[1-9]\d{1,14}$/, 16],
  [
    /^\+?\d{1,4}?[-.\s]?\(?\d{1,3}?\)?[-.\s]?\d{1,4}[-.\s]?\d{1,4}[-.\s]?\d{1,9}$/,
    30,
  ],
  [/^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$/, 34],
  [/^[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?$/, 42],
  [/^[A-Za-z]{1,2}\d{1,2}[A-Za-z]? ?\d[A-Za-z]{2}$/, 10],
  [/^\d{5}(-\d{4})?$/, 10],
  [
    /^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    36,
  ],
  [/^#[0-9a-fA-F]{6}$/, 7],
  [/^(\d{1,3}\.){3}\d{1,3}$/, 15],
  [/^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)$/, 15],
  [/^(?=.*[A-Z])(?=.*\d).{8,64}$/, 64],
  [/^https?:\/\/[^\s/]+(\/[^\s]*)?$/, 2000],
  [/^[A-Z]{2}$/, 2],
  [/^\S+( \S+)*$/, 2000],
  [/^.+$/, 10000],
  [/\d/, 1000],
  [/^\p{L}+(?:[ '-]\p{L}+)*$/u, 100],
  [/^[a-z]+(_[a-z]+)*$/, 100],
  [/^-?\d+(\.\d+)?$/, 50],
  [/^([01]\d|2[0-3]):[0-5]\d$/, 5],
  [/^(?:[A-Z]{3}-\d{4})(?:, [A-Z]{3}-\d{4})*$/, 1000],
  [/^[A-Z]\w*\s\w+$/, 100],
  [/^\w+\s?\w*$/, 100],
  [/abc/, 5000],
  [/^(?!.*url$)[a-z][a-z0-9_]*$/, 100],
  [
    /^(?=.{1,64}@)[\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*@(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)+[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$/,
    254,
  ],
  [/^(\d{4}[ -]?){3}\d{4}$/, 19],
  [/^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}$/, 254],
  [/^\d{1,3}(,\d{3})*(\.\d+)?$/, 50],
  [/^[\u4e00-\u9fff]{2,10}$/, 10],
  [/^(https?|ftp):\/\/[^\s\/$.?#].[^\s]*$/, 500],
  [/^\s*\S.*$/, 200],
  [/^(\([0-9]{3}\) ?|[0-9]{3}-)?[0-9]{3}-[0-9]{4}$/, 20],
  [/^[A-Z][a-z]+(?: [A-Z][a-z]+)*$/, 500],
  [/^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$/, 253],
  [/^M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})$/, 15],
  [/^(?:(?:\d{1,2}\/){2}\d{4})$/, 10],
  [/^[A-HJ-NPR-Z0-9]{17}$/, 17],
  [/^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$/, 17],
  [/^\/(?:[\w-]+\/)*[\w-]*$/, 500],
  [/^[a-z]{2}(-[A-Z]{2})?$/, 5],
  [/^\d+(?:\.\d+){0,3}$/, 30],
  [/^(?:a|ab)c$/, 5],
];

/** Patterns that take exponential time, or polynomial time of a high degree. */
const slow: readonly (readonly [RegExp, number])[] = [
  [/^(a+)+$/, 100],
  [/^([A-Za-z]+ ?)+$/, 100],
  [/^(a*)*$/, 100],
  [/^(a|a)*$/, 100],
  [/^(a|aa)+$/, 100],
  [/^(a|a?)+$/, 100],
  [/(.*a){12}$/, 100],
  [/^(\w+\s?)*$/, 100],
  [
    /^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$/,
    100,
  ],
  [/^(([a-z])+.)+[A-Z]([a-z])+$/, 100],
  [/a*a*a*a*b/, 200],
  [/^\s+|\s+$/, 5000],
  [/\s*$/, 5000],
  [/^(.*?,){11}P/, 200],
  [/^(?:a?){30}a{30}$/, 60],
  [
    /^a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?aaaaaaaaaaaaaaaaaaaaaaaa$/,
    60,
  ],
  [/^(\d+|\d+\.)*x$/, 100],
  [/^(?=(a+)+$)/, 100],
  [/^(?!(a|a)*b)/, 100],
  [/^(x+x+)+y$/, 100],
  [/^((ab)*|(ab)*)*c$/, 100],
  [/^("[^"]*"|[^,]*)*$/, 100],
  [/^(a+)\1+$/, 100],
  [/^(?:.*)*$/, 100],
  [/^[\w.]*[\w.]*[\w.]*@$/, 1000],
  [/^(\w*\d*)+$/, 100],
  [/^([a-z]+-?)+$/, 100],
  [/^(?:\d{1,3},?){1,30}$/, 90],
  [/^(\s*\w+\s*)+$/, 200],
  [/^(?:[^"\\]|\\.|\\)*$/, 100],
  [/(a|b|ab)*c/, 100],
  [/<(.|\n)*?>*</, 5000],
  [/^.*.*=.*$/, 2000],
  [
    /^(([^<>()[\]\\.,;:\s@"]+(\.[^<>()[\]\\.,;:\s@"]+)*)|(".+"))@((\[[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\])|(([a-zA-Z\-0-9]+\.?)+[a-zA-Z]{2,}))$/,
    100,
  ],
  [/^(?:(a+)?b?)*c$/, 50],
  [/^([^\/]+\/?)+$/, 100],
  [/(?<=a*)b/, 10],
  [/^(ab?|a?b)*c$/, 50],
];

test("patterns of everyday use are accepted", () => {
  for (const [pattern, maxLength] of safe) {
    const weakness = findWeakness(pattern, maxLength);
    assert.equal(weakness, undefined, `${pattern} ${weakness}`);
  }
});

test("the pattern of e-mail addresses would be accepted", () => {
  const source = emailAddress.source.replaceAll("a-z", "a-zA-Z");
  assert.equal(findWeakness(new RegExp(source), 254), undefined);
});

test("patterns that backtrack for long are refused, with a way to write them", () => {
  for (const [pattern, maxLength] of slow) {
    const weakness = findWeakness(pattern, maxLength);
    assert.match(
      String(weakness),
      /: (?:write|begin|leave|shorten) /,
      `${pattern}`,
    );
  }
});

test("whether polynomial time is too long depends on maxLength", () => {
  for (
    const [source, short, long] of [
      [/\d+$/, 1000, 5000],
      [/^a*a*$/, 1000, 5000],
      [/^a*a*a*$/, 60, 2000],
    ] as const
  ) {
    assert.equal(findWeakness(source, short), undefined);
    assert.notEqual(findWeakness(source, long), undefined);
  }
});

test("an accepted pattern takes few steps for any string, as a backtracking matcher counts them", () => {
  const maxLength = 120;
  const random = new Random(7);
  const seen = { accepted: 0, refused: 0 };
  const words = ["a", "b", "ab", "aab", "ba", "abb", "ab,"];
  for (let round = 0; round < 400; round++) {
    const pattern = new RegExp(`^${randomSource(random, 3)}$`);
    if (findWeakness(pattern, maxLength) !== undefined) {
      seen.refused++;
      continue;
    }
    seen.accepted++;
    const node = parsePattern(pattern);
    assert.ok(typeof node !== "string");
    for (const first of ["", "a", "ab,"]) {
      for (const word of words) {
        const pumped = first + word.repeat(maxLength);
        const text = `${pumped.slice(0, maxLength - 1)}!`;
        const steps = countSteps(node, text, 4e6);
        assert.ok(steps < 4e6, `${pattern} ${JSON.stringify(text)}`);
      }
    }
  }
  assert.ok(seen.accepted > 50 && seen.refused > 50, JSON.stringify(seen));
});

/** Returns the source of a random pattern without anchors. */
function randomSource(random: Random, depth: number): string {
  const choose = (options: readonly string[]) =>
    options[random.below(options.length)] ?? "";
  if (depth === 0) return choose(["a", "b", ",", "[ab]", ".", "[^,]", "ab"]);
  const one = () => randomSource(random, depth - 1);
  switch (random.below(4)) {
    case 0:
      return `(?:${one()}|${one()})`;
    case 1: {
      const quantifier = choose([
        "*",
        "+",
        "?",
        "{0,3}",
        "{2}",
        "{1,40}",
        "*?",
      ]);
      return `(?:${one()})${quantifier}`;
    }
  }
  return one() + one();
}

/** Counts the characters that a backtracking matcher compares before it fails, up to a limit. */
function countSteps(node: Node, text: string, limit: number): number {
  let steps = 0;
  const match = (
    node: Node,
    at: number,
    then: (at: number) => boolean,
  ): boolean => {
    switch (node.kind) {
      case "start":
        return at === 0 && then(at);
      case "characters": {
        if (++steps >= limit) throw new Error("too many steps");
        const code = text.charCodeAt(at);
        const isIn = node.ranges.some(([from, to]) =>
          from <= code && code <= to
        );
        return isIn && then(at + 1);
      }
      case "choice":
        return node.nodes.some((each) => match(each, at, then));
      case "lookahead":
        return match(node.node, at, () => true) && then(at);
      case "sequence": {
        const next = (index: number, at: number): boolean => {
          const each = node.nodes[index];
          return each ? match(each, at, (at) => next(index + 1, at)) : then(at);
        };
        return next(0, at);
      }
      case "repetition": {
        const again = (count: number, at: number): boolean =>
          (count < node.max &&
            match(node.node, at, (end) => end > at && again(count + 1, end))) ||
          (count >= node.min && then(at));
        return again(0, at);
      }
    }
  };
  try {
    match(node, 0, (at) => at === text.length && !text.endsWith("!"));
  } catch (error) {
    if (!/too many steps/.test(String(error))) throw error;
  }
  return steps;
}
