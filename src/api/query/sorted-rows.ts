/**
 * Rows in a sort order, in chunks: among a million of them one is added or
 * deleted in microseconds, so that very many are sorted in short steps.
 */

import { lowerBound, type Row } from "../../store/store.ts";

/** The most rows of a chunk: short ones are fast to change, few ones fast to search. */
const maxLength = 512;

/** Rows that differ in a comparison. */
export class SortedRows {
  readonly #compare: (a: Row, b: Row) => number;
  /** None but the last one is empty. */
  readonly #chunks: Row[][] = [[]];

  constructor(compare: (a: Row, b: Row) => number) {
    this.#compare = compare;
  }

  add(row: Row): void {
    const { at, chunk, place } = this.#locate(row);
    chunk.splice(place, 0, row);
    if (chunk.length <= maxLength) return;
    this.#chunks.splice(at + 1, 0, chunk.splice(maxLength / 2));
  }

  /** Deletes a row if it is there. */
  delete(row: Row): void {
    const { at, chunk, place } = this.#locate(row);
    if (chunk[place] !== row) return;
    chunk.splice(place, 1);
    if (chunk.length === 0 && this.#chunks.length > 1) {
      this.#chunks.splice(at, 1);
    }
  }

  /** Returns a copy of all of them. */
  all(): Row[] {
    return new Array<Row>().concat(...this.#chunks); // flat is far slower
  }

  /** Returns the chunk where a row is or belongs, and its place in it. */
  #locate(row: Row) {
    const chunks = this.#chunks;
    const isBefore = (other: Row | undefined) =>
      other !== undefined && this.#compare(other, row) < 0;
    const at = lowerBound(
      chunks.length - 1,
      (at) => isBefore(chunks[at]?.at(-1)),
    );
    const chunk = chunks[at] ?? [];
    const place = lowerBound(chunk.length, (place) => isBefore(chunk[place]));
    return { at, chunk, place };
  }
}
