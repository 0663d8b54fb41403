/**
 * Sorts many rows without stopping all else for long: rows are dealt out to
 * piles, between some that were drawn, and so on with each pile until it is
 * small. That a small pile fits into the processor's cache, and that no row is
 * looked into again for its key, makes it faster than merging.
 */

import type { Json, Row } from "./row.ts";
import type { Entry, RowOrder } from "./row-order.ts";

/** How many rows are sorted, or dealt out, at once: less than a millisecond. */
const few = 512;

/** Into how many piles rows are dealt out. */
const piles = 64;

/** Rows with their keys, in two lists: a million pairs would be much to keep. */
export class Pile {
  readonly order: RowOrder;
  readonly #rows: Row[] = [];
  readonly #keys: Json[] = [];
  #last: Entry | undefined;
  #ascending = true;

  constructor(order: RowOrder) {
    this.order = order;
  }

  get size(): number {
    return this.#rows.length;
  }

  /** Whether they were added in order. */
  get ascending(): boolean {
    return this.#ascending;
  }

  add(entry: Entry): void {
    this.#ascending &&= this.#last === undefined ||
      this.order.compare(this.#last, entry) <= 0;
    this.#last = entry;
    this.#rows.push(entry.row);
    this.#keys.push(entry.key);
  }

  /** Some of them. */
  slice(from: number, to: number): Entry[] {
    const keys = this.#keys.slice(from, to);
    return this.#rows.slice(from, to).map((row, at) => ({
      row,
      key: keys[at] ?? null,
    }));
  }

  /** One of them, at random: a fixed step could meet a pattern. */
  draw(): Entry[] {
    const at = Math.floor(Math.random() * this.size);
    return this.slice(at, at + 1);
  }

  /** Lets go of them, as they take much memory. */
  clear(): void {
    this.#rows.length = 0;
    this.#keys.length = 0;
  }
}

/** Yields what a pile holds in order, part by part, and leaves it empty; some parts have nothing. */
export function* sort(pile: Pile): Generator<Entry[]> {
  const { order, size } = pile;
  const compare = (one: Entry, other: Entry) => order.compare(one, other);
  if (size <= few || pile.ascending) {
    for (let from = 0; from < size; from += few) {
      yield pile.slice(from, from + few).sort(compare);
    }
    return pile.clear();
  }
  const drawn = Array.from({ length: piles - 1 }, () => pile.draw());
  const bounds = drawn.flat().sort(compare);
  const dealt = Array.from({ length: piles }, () => new Pile(order));
  for (let from = 0; from < size; from += few) {
    for (const entry of pile.slice(from, from + few)) {
      dealt[placeOf(entry, bounds, order)]?.add(entry);
    }
    yield [];
  }
  pile.clear();
  for (const each of dealt) yield* sort(each);
}

/** How many of the bounds are not behind the entry. */
function placeOf(
  entry: Entry,
  bounds: readonly Entry[],
  order: RowOrder,
): number {
  let low = 0;
  let high = bounds.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const bound = bounds[middle];
    if (bound !== undefined && order.compare(bound, entry) <= 0) {
      low = middle + 1;
    } else high = middle;
  }
  return low;
}
