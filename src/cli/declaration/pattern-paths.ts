/**
 * Bounds the number of paths by which a graph of positions can read a text. Two
 * paths can read the same one if they go through pairs of positions that have a
 * character in common. A. Weber and H. Seidl have proved ("On the degree of
 * ambiguity of finite automata", 1991):
 *
 * - If two paths from a position back to it read the same text, the number of
 *   paths grows exponentially.
 * - Otherwise n characters have at most c × n^d paths. Loops p and q in which one
 *   text leads from p to p, from p to q and from q to q add one to d, as in
 *   `a*a*`; d is the most that lie one after the other. Here it need not be the
 *   same text, so d may be too high.
 *
 * c is taken to be the product of the choices outside of loops, as in `a?a?`.
 * Matching reads all beginnings of the text: c × n^(d+1) / (d+1)! characters.
 */

/** Positions that can follow each other; the start is position 0. */
export interface Graph {
  /** The characters of each position, as ranges of code points. */
  readonly ranges: readonly (readonly Range[])[];
  /** The positions after each; one that follows in two ways is there twice. */
  readonly next: readonly (readonly number[])[];
}

export type Range = readonly [from: number, to: number];

/** Returns about how many steps the longest search takes; Infinity if they grow exponentially with its length. */
export function countSteps(graph: Graph, length: number): number {
  const paths = new Paths(graph);
  const factor = paths.factorFrom(0);
  if (factor * length > 1e9) return factor * length; // too many pairs
  const degree = paths.findDegree();
  if (degree === Infinity) return Infinity;
  let steps = factor;
  for (let power = 1; power <= degree + 1; power++) steps *= length / power;
  return steps;
}

class Paths {
  readonly #graph: Graph;
  readonly #positions: readonly number[];
  /** The positions that can be reached from each. */
  readonly #after: readonly ReadonlySet<number>[];
  readonly #factors = new Map<number, number>();

  constructor(graph: Graph) {
    this.#graph = graph;
    this.#positions = [...graph.next.keys()];
    this.#after = this.#positions.map((each) =>
      reach(each, (position) => graph.next[position])
    );
  }

  /** Returns the number of paths from a position that differ outside of loops. */
  factorFrom(position: number): number {
    const cached = this.#factors.get(position);
    if (cached !== undefined) return cached;
    const loop = this.#positions.filter((each) => this.#isLoop(position, each));
    const members = loop.length > 0 ? loop : [position];
    // Staying in a loop or leaving it is counted by the degree.
    const own = Math.max(...members.map((each) => this.#countChoices(each))) -
      Number(loop.length > 0);
    const rest = members.flatMap((each) => this.#graph.next[each] ?? [])
      .filter((each) => !members.includes(each))
      .map((each) => this.factorFrom(each));
    const factor = Math.max(1, own) * Math.max(1, ...rest);
    for (const each of members) this.#factors.set(each, factor);
    return factor;
  }

  /** Returns the most positions that can follow with one character. */
  #countChoices(position: number): number {
    const next = this.#graph.next[position] ?? [];
    const counts = next.map((one) =>
      next.filter((other) => this.#overlaps(one, other)).length
    );
    return Math.max(1, ...counts);
  }

  /** Returns the degree of the polynomial that bounds the number of paths; Infinity if none does. */
  findDegree(): number {
    const { next } = this.#graph;
    const size = this.#positions.length;
    const loops = this.#positions.filter((each) => this.#isLoop(each, each));
    const pairs = this.#connectPairs();
    const before = loops.map((q) =>
      reach(q * size + q, (pair) => pairs.get(pair)?.before)
    );
    const steps: [p: number, q: number][] = [];
    for (const p of loops) {
      const inLoop = next[p]?.filter((each) => this.#isLoop(p, each)) ?? [];
      if (new Set(inLoop).size < inLoop.length) return Infinity;
      const after = reach(p * size + p, (pair) => pairs.get(pair)?.after);
      for (const [index, q] of loops.entries()) {
        const isMet = (pair: number) =>
          after.has(pair) && before[index]?.has(pair);
        if (p !== q) {
          if (isMet(p * size + q)) steps.push([p, q]);
        } else if (
          [...after].some((pair) => pair % (size + 1) && isMet(pair))
        ) {
          return Infinity;
        }
      }
    }
    return this.#findLongest(0, steps);
  }

  /** Returns the most steps that lie one after the other. */
  #findLongest(
    position: number,
    steps: readonly (readonly [number, number])[],
    cache = new Map<number, number>(),
  ): number {
    let longest = cache.get(position);
    if (longest !== undefined) return longest;
    longest = 0;
    for (const [p, q] of steps) {
      if (!this.#after[position]?.has(p)) continue;
      longest = Math.max(longest, 1 + this.#findLongest(q, steps, cache));
    }
    cache.set(position, longest);
    return longest;
  }

  /** Returns the pairs that two paths from one position can go through, with those before and after each. */
  #connectPairs() {
    const { next } = this.#graph;
    const size = this.#positions.length;
    const pairs = new Map(
      this.#positions.map((each) => [each * size + each, newPair()]),
    );
    for (const [pair, { after }] of pairs) { // grows while it is iterated over
      for (const one of next[Math.floor(pair / size)] ?? []) {
        for (const other of next[pair % size] ?? []) {
          if (!this.#overlaps(one, other)) continue;
          const following = one * size + other;
          after.add(following);
          const found = pairs.get(following) ?? newPair();
          pairs.set(following, found);
          found.before.add(pair);
        }
      }
    }
    return pairs;
  }

  /** Returns whether a path leads from one position to another and back. */
  #isLoop(one: number, other: number): boolean {
    const { [one]: after, [other]: back } = this.#after;
    return after?.has(other) === true && back?.has(one) === true;
  }

  #overlaps(one: number, other: number): boolean {
    const { [one]: ranges = [], [other]: others = [] } = this.#graph.ranges;
    return ranges.some(([from, to]) =>
      others.some(([start, end]) => from <= end && start <= to)
    );
  }
}

function newPair() {
  return { before: new Set<number>(), after: new Set<number>() };
}

/** Returns all that can be reached in one step or more. */
function reach(
  start: number,
  next: (from: number) => Iterable<number> | undefined,
): ReadonlySet<number> {
  const found = new Set(next(start));
  for (const each of found) { // grows while it is iterated over
    for (const following of next(each) ?? []) found.add(following);
  }
  return found;
}
