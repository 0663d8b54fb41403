/**
 * Checks that a `pattern` decides quickly about every string. JavaScript matches
 * by backtracking: in the worst case it tries each path by which a text can be
 * read, so `/^(a+)+$/` takes 2^n steps for n letters and another character.
 *
 * So a pattern becomes a graph of positions (Glushkov's automaton): its
 * characters and classes, and those that can follow each. What only cuts paths
 * off is ignored: `^`, `$` and `\b` are read as nothing, the end of a lookahead as
 * an end, a longer count as a loop. pattern-paths.ts counts the paths.
 */

import { countSteps, type Graph } from "./pattern-paths.ts";
import { type Node, parsePattern } from "./pattern-syntax.ts";

/** The most steps: in V8, 10 ms are enough for about so many before it has compiled the pattern. */
const maxSteps = 1e6;

/** The most positions: the time of the check grows with their cube. */
const maxPositions = 200;

/** A count that needs no more positions is unrolled; a longer one is read as a loop. */
const unrolledLengths = [0, 60];

const tooSlow = {
  exponential:
    "can read the same text in two ways within a repetition, which doubles the time with each character: write it so that the next character decides, as a+(?: a+)* instead of (a+ ?)+, [ab]* instead of (a|[ab])*",
  slow:
    "can read the same text in too many ways: begin it with ^, put a character between neighboring repetitions that neither can match, or lower maxLength",
};

/** Returns why a pattern is refused, and how to write it otherwise; undefined if it is fast enough for strings of this length. */
export function findWeakness(
  pattern: RegExp,
  maxLength: number,
): string | undefined {
  const parsed = parsePattern(pattern);
  if (typeof parsed === "string") return parsed;
  const refusals = unrolledLengths.map((length) => {
    const builder = new GraphBuilder(length);
    builder.build(parsed);
    if (builder.refusal !== undefined) return builder.refusal;
    const steps = countSteps(builder, maxLength);
    if (steps === Infinity) return tooSlow.exponential;
    return steps > maxSteps ? tooSlow.slow : undefined;
  });
  return refusals.includes(undefined) ? undefined : refusals[0];
}

/** The part of a graph that a node of the pattern is. */
interface Part {
  readonly first: readonly number[];
  readonly last: readonly number[];
  readonly isNullable: boolean;
}

const nothing: Part = { first: [], last: [], isNullable: true };

class GraphBuilder implements Graph {
  readonly ranges: Graph["ranges"][number][] = [[]];
  readonly next: number[][] = [[]];
  /** Why the pattern is refused, if it is. */
  refusal: string | undefined;
  readonly #unrolledLength: number;

  constructor(unrolledLength: number) {
    this.#unrolledLength = unrolledLength;
  }

  build(node: Node): void {
    this.#join([0], this.#add(node).first);
  }

  #add(node: Node): Part {
    if (this.next.length > maxPositions) {
      this.refusal ??=
        "is too long to be checked: shorten it, or check the rest in the collection's check";
      return nothing;
    }
    switch (node.kind) {
      case "start":
        return nothing;
      case "characters": {
        const at = this.ranges.push(node.ranges) - 1;
        this.next.push([]);
        return { first: [at], last: [at], isNullable: false };
      }
      case "choice": {
        const parts = node.nodes.map((each) => this.#add(each));
        return {
          first: parts.flatMap(({ first }) => first),
          last: parts.flatMap(({ last }) => last),
          isNullable: parts.some(({ isNullable }) => isNullable),
        };
      }
      case "sequence":
        return this.#addSequence(node.nodes);
      case "lookahead": {
        const { first } = this.#add(node.node);
        return { first, last: [], isNullable: true };
      }
      case "repetition":
        return this.#addRepetition(node);
    }
  }

  #addSequence(nodes: readonly Node[]): Part {
    return nodes.reduce<Part>((before, node) => {
      const after = this.#add(node);
      this.#join(before.last, after.first);
      return {
        first: before.isNullable
          ? [...before.first, ...after.first]
          : before.first,
        last: after.isNullable ? [...before.last, ...after.last] : after.last,
        isNullable: before.isNullable && after.isNullable,
      };
    }, nothing);
  }

  #addRepetition(
    { node, min, max }: Extract<Node, { kind: "repetition" }>,
  ): Part {
    if (max === 0) return nothing;
    const size = this.next.length;
    const part = this.#add(node);
    const length = this.next.length - size;
    if (max === 1) {
      return { ...part, isNullable: min === 0 || part.isNullable };
    }
    if (part.isNullable) {
      this.refusal ??=
        "repeats a part that can be empty: leave the inner repetition away, (a*)* is a*, or let the part begin with a character that it must have";
    }
    if (length === 0 || length * max > this.#unrolledLength) {
      this.#join(part.last, part.first);
      return { ...part, isNullable: min === 0 };
    }
    // As a sequence: (a(a(a)?)?)? for {0,3}.
    const last = min <= 1 ? [...part.last] : [];
    let end = part.last;
    for (let count = 2; count <= max; count++) {
      const copy = this.#add(node);
      this.#join(end, copy.first);
      end = copy.last;
      if (count >= min) last.push(...end);
    }
    return { first: part.first, last, isNullable: min === 0 };
  }

  #join(from: readonly number[], to: readonly number[]): void {
    for (const each of from) this.next[each]?.push(...to);
  }
}
