/**
 * Sorts many rows without stopping all else for long: small runs by JavaScript's
 * own sort, then runs merged, two by two. What is sorted are the numbers of the
 * rows, so that no row is moved, or looked into again for its key.
 */

import type { Json, Row } from "../memory/row.ts";
import type { RowComparator } from "./row-comparator.ts";

/** How many rows are sorted, or merged, at once: less than a millisecond. */
const few = 512;

/** Sorts rows; yields after each little while. */
export function* sort(
  rows: readonly Row[],
  order: RowComparator,
): Generator<undefined, Uint32Array> {
  const { length } = rows;
  const keys: Json[] = [];
  for (const row of rows) {
    if (keys.push(order.keyOf(row)) % few === 0) yield;
  }
  const compare = (a: number, b: number) =>
    order.compare(
      keys[a] ?? null,
      keys[b] ?? null,
      rows[a] as Row, // there are as many
      rows[b] as Row,
    );
  let sorted = Uint32Array.from(rows.keys());
  for (let from = 0; from < length; from += few) {
    sorted.subarray(from, from + few).sort(compare);
    yield;
  }
  for (let width = few; width < length; width *= 2) {
    const merged = new Uint32Array(length);
    for (let from = 0; from < length; from += 2 * width) {
      const middle = Math.min(from + width, length);
      const end = Math.min(middle + width, length);
      let [left, right] = [from, middle];
      for (let at = from; at < end; at++) {
        const first = right === end || (left < middle &&
          compare(sorted[left] ?? 0, sorted[right] ?? 0) <= 0);
        merged[at] = sorted[first ? left++ : right++] ?? 0;
        if (at % few === 0) yield;
      }
    }
    sorted = merged;
  }
  return sorted;
}
