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
  readonly #rows: Row[] = [];
  readonly #keys: Json[] = [];

  get size(): number {
    return this.#rows.length;
  }

  add({ row, key }: Entry): void {
    this.#rows.push(row);
    this.#keys.push(key);
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
}

/** Yields the rows in order, part by part; some parts have none. */
export function* sort(pile: Pile, order: RowOrder): Generator<Entry[]> {
  const compare = (one: Entry, other: Entry) => order.compare(one, other);
  if (pile.size <= few) {
    yield pile.slice(0, few).sort(compare);
    return;
  }
  const drawn = Array.from({ length: piles - 1 }, () => pile.draw());
  const bounds = drawn.flat().sort(compare);
  const dealt = Array.from({ length: piles }, () => new Pile());
  for (let from = 0; from < pile.size; from += few) {
    for (const entry of pile.slice(from, from + few)) {
      dealt[placeOf(entry, bounds, order)]?.add(entry);
    }
    yield [];
  }
  for (const each of dealt) {
    // All in one pile: one row, many times.
    if (each.size === pile.size) yield each.slice(0, 1);
    else yield* sort(each, order);
  }
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
