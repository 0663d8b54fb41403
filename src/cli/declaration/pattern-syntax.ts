/**
 * Parses the regular expressions that a `pattern` may be. JavaScript has compiled
 * them already, so their syntax is valid.
 */

import type { Range } from "./pattern-paths.ts";

/** A part of a pattern. */
export type Node =
  | { readonly kind: "start" }
  | { readonly kind: "characters"; readonly ranges: readonly Range[] }
  | { readonly kind: "sequence" | "choice"; readonly nodes: readonly Node[] }
  | { readonly kind: "lookahead"; readonly node: Node }
  | {
    readonly kind: "repetition";
    readonly node: Node;
    readonly min: number;
    readonly max: number;
  };

const last = 0x10ffff;
const anyCharacter: readonly Range[] = [[0, last]];
const digits: readonly Range[] = [[0x30, 0x39]];
const wordCharacters: readonly Range[] = [
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
];
const spaces: readonly Range[] = [
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
];
const classes: Readonly<Record<string, readonly Range[]>> = {
  d: digits,
  D: complement(digits),
  w: wordCharacters,
  W: complement(wordCharacters),
  s: spaces,
  S: complement(spaces),
};
const controls: Readonly<Record<string, number>> = {
  b: 8, // in a class
  t: 9,
  n: 10,
  v: 11,
  f: 12,
  r: 13,
};

/** Returns the ranges between others. */
function complement(ranges: readonly Range[]): readonly Range[] {
  const found: Range[] = [];
  let start = 0;
  for (const [from, to] of ranges.toSorted(([one], [other]) => one - other)) {
    if (from > start) found.push([start, from - 1]);
    start = Math.max(start, to + 1);
  }
  return start > last ? found : [...found, [start, last]];
}

const nothing: Node = { kind: "sequence", nodes: [] };

/** Matches at each place of a text. */
const search: Node = {
  kind: "repetition",
  node: { kind: "characters", ranges: anyCharacter },
  min: 0,
  max: Infinity,
};

/** Returns the parsed pattern; if it cannot be checked, why. */
export function parsePattern(pattern: RegExp): Node | string {
  const parser = new Parser(pattern);
  const node = parser.parseChoice();
  if (parser.refusal !== undefined) return parser.refusal;
  return isAnchored(node) ? node : { kind: "sequence", nodes: [search, node] };
}

/** Returns whether all ways to match a node begin with `^`. */
function isAnchored(node: Node): boolean {
  switch (node.kind) {
    case "start":
      return true;
    case "sequence":
      return node.nodes.slice(0, 1).some(isAnchored);
    case "choice":
      return node.nodes.every(isAnchored);
    case "repetition":
      return node.min > 0 && isAnchored(node.node);
  }
  return false;
}

class Parser {
  readonly #source: string;
  readonly #isUnicode: boolean;
  #at = 0;
  /** Why the pattern cannot be checked. */
  refusal: string | undefined;

  constructor({ source, unicode }: RegExp) {
    this.#source = source;
    this.#isUnicode = unicode;
  }

  parseChoice(): Node {
    const nodes = [this.#parseSequence()];
    while (this.#match(/\|/y)) nodes.push(this.#parseSequence());
    return { kind: "choice", nodes };
  }

  #parseSequence(): Node {
    const nodes: Node[] = [];
    while (this.#at < this.#source.length && !/[|)]/.test(this.#peek())) {
      nodes.push(this.#parseQuantifiers(this.#parseAtom()));
    }
    return { kind: "sequence", nodes };
  }

  #parseQuantifiers(node: Node): Node {
    const [sign, symbol, min, comma, max] = this.#match(
      /(?:([*+?])|\{(\d+)(,?)(\d*)\})\??/y,
    ) ?? [];
    if (sign === undefined) return node;
    if (symbol === "?") return { kind: "repetition", node, min: 0, max: 1 };
    return {
      kind: "repetition",
      node,
      min: symbol ? Number(symbol === "+") : Number(min),
      max: symbol || (comma && !max) ? Infinity : Number(max || min),
    };
  }

  #parseAtom(): Node {
    if (this.#match(/\^/y)) return { kind: "start" };
    if (this.#match(/\$|\\[bB]/y)) return nothing;
    if (this.#match(/\\[1-9]|\\k</y)) {
      this.refusal =
        "refers back to a group, whose time cannot be bounded: write its choices out, as 'a'|\"a\" instead of (['\"])a\\1";
      return nothing;
    }
    if (this.#match(/\(/y)) return this.#parseGroup();
    if (this.#match(/\./y)) return { kind: "characters", ranges: anyCharacter };
    const ranges = this.#match(/\[/y)
      ? this.#parseClass()
      : this.#parseCharacter();
    return { kind: "characters", ranges };
  }

  #parseGroup(): Node {
    const start = this.#at;
    const [type = ""] = this.#match(/\?(?:[:=!]|<[=!]|<[^>]*>|[a-z-]*:)/y) ??
      [];
    const node = this.parseChoice();
    this.#at++; // the closing parenthesis
    const text = this.#source.slice(start, this.#at);
    if (/^\?<[=!]/.test(type)) {
      if (/[*+{]/.test(text)) {
        this.refusal =
          "repeats something in a lookbehind: write it as a lookahead, or check it in the collection's check";
      }
      return nothing;
    }
    if (/[a-z]:$/.test(type)) {
      this.refusal = "changes flags: write [Aa] instead of (?i:a)";
    }
    return /[=!]$/.test(type) ? { kind: "lookahead", node } : node;
  }

  #parseClass(): readonly Range[] {
    const isNegated = this.#match(/\^/y) !== undefined;
    const ranges: Range[] = [];
    while (!this.#match(/\]/y)) {
      const from = this.#parseCharacter();
      if (!this.#match(/-(?!\])/y)) {
        ranges.push(...from);
        continue;
      }
      const to = this.#parseCharacter();
      const [[start, end] = [0, 0], [, stop] = [0, 0]] = [from[0], to[0]];
      if (from.length === 1 && start === end && to.length === 1) {
        ranges.push([start, stop]);
      } else ranges.push(...from, ...to, [0x2d, 0x2d]);
    }
    return isNegated ? complement(ranges) : ranges;
  }

  /** Parses a character, or an escape that stands for one or several. */
  #parseCharacter(): readonly Range[] {
    if (!this.#match(/\\/y)) return this.#parseLiteral();
    const ranges = classes[this.#match(/[dDwWsS]/y)?.[0] ?? ""];
    if (ranges !== undefined) return ranges;
    const [property] = this.#isUnicode && this.#match(/p\{[^}]*\}/iy) || [];
    if (property !== undefined) return rangesOf(property);
    const [, hex, byte] = this.#match(/u([\da-fA-F]{4})|x([\da-fA-F]{2})/y) ??
      (this.#isUnicode && this.#match(/u\{([\da-fA-F]+)\}/y) || []);
    const code = parseInt(hex ?? byte ?? "", 16);
    if (code >= 0) return single(this.#joinSurrogates(code));
    const [, letter = ""] = this.#match(/c([A-Za-z])/y) ?? [];
    if (letter) return single(letter.charCodeAt(0) % 32);
    if (this.#match(/[0-7]{1,3}/y)) return anyCharacter;
    const control = controls[this.#peek()];
    if (control === undefined) return this.#parseLiteral();
    this.#at++;
    return single(control);
  }

  /** Returns the code point of two escapes with the flag u, such as `\uD83D\uDE00`. */
  #joinSurrogates(high: number): number {
    if (!this.#isUnicode || high < 0xd800 || high > 0xdbff) return high;
    const [, low] = this.#match(/\\u(d[c-f][\da-f]{2})/iy) ?? [];
    if (low === undefined) return high;
    return (high - 0xd800) * 0x400 + parseInt(low, 16) - 0xdc00 + 0x10000;
  }

  #parseLiteral(): readonly Range[] {
    const code = this.#isUnicode
      ? this.#source.codePointAt(this.#at)
      : this.#source.charCodeAt(this.#at);
    this.#at += String.fromCodePoint(code ?? 0).length;
    return single(code ?? 0);
  }

  #peek(): string {
    return this.#source.charAt(this.#at);
  }

  /** Advances past what a sticky expression matches here. */
  #match(sticky: RegExp): RegExpExecArray | undefined {
    sticky.lastIndex = this.#at;
    const found = sticky.exec(this.#source) ?? undefined;
    if (found) this.#at = sticky.lastIndex;
    return found;
  }
}

/** Returns the ASCII characters with a Unicode property, and all others: too many can only lead to too many paths. */
function rangesOf(property: string): readonly Range[] {
  const pattern = new RegExp(`\\${property}`, "u");
  const codes = Array.from({ length: 128 }, (_, code) => code)
    .filter((code) => pattern.test(String.fromCharCode(code)));
  return [...codes.flatMap(single), [128, last]];
}

function single(code: number): readonly Range[] {
  return [[code, code]];
}
