/**
 * Sorts many rows in steps, by merge sort: short runs by JavaScript's own sort,
 * then merged two by two. The list that is sorted holds the positions of the
 * rows, so that no row is moved, and each is read only once for its sort key.
 */

import type { Json, Row } from "../memory/row.ts";
import type { Steps } from "./job-queue.ts";
import type { RowComparator } from "./row-comparator.ts";

/** The number of rows in a run, and in a step: less than a millisecond. */
const runLength = 512;

/** Sorts rows; returns their positions in sorted order. */
export function* sort(
  rows: readonly Row[],
  comparator: RowComparator,
): Steps<Uint32Array> {
  const { length } = rows;
  const keys: Json[] = [];
  for (const row of rows) {
    if (keys.push(comparator.sortKeyOf(row)) % runLength === 0) yield;
  }
  const compare = (a: number, b: number) =>
    comparator.compare(
      keys[a] ?? null,
      keys[b] ?? null,
      rows[a] as Row, // both positions are below rows.length
      rows[b] as Row,
    );
  let sorted = Uint32Array.from(rows.keys());
  for (let from = 0; from < length; from += runLength) {
    sorted.subarray(from, from + runLength).sort(compare);
    yield;
  }
  for (let width = runLength; width < length; width *= 2) {
    const merged = new Uint32Array(length);
    for (let from = 0; from < length; from += 2 * width) {
      const middle = Math.min(from + width, length);
      const end = Math.min(middle + width, length);
      let [left, right] = [from, middle];
      for (let at = from; at < end; at++) {
        const takesLeft = right === end || (left < middle &&
          compare(sorted[left] ?? 0, sorted[right] ?? 0) <= 0);
        merged[at] = sorted[takesLeft ? left++ : right++] ?? 0;
        if (at % runLength === 0) yield;
      }
    }
    sorted = merged;
  }
  return sorted;
}
