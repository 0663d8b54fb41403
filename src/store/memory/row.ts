/**
 * Records in memory. What the API calls a record is a {@linkcode Document} to
 * the store: its id and properties, as written to the log. A {@linkcode Row} is
 * the in-memory holder of one version of a document, and {@linkcode Rows} holds
 * those of one table.
 */

/** Any JSON value. */
export type Json =
  | null
  | boolean
  | number
  | string
  | readonly Json[]
  | { readonly [name: string]: Json };

/** A record as it is stored; never changed in place. */
export type Document = { readonly id: number } & {
  readonly [property: string]: Json;
};

/** One version of a document. A class, not an object literal, so that all rows have the same hidden class. */
export class Row {
  readonly document: Document;
  /** The sequence number of its last change; of a row read from a snapshot, that of the snapshot. */
  readonly seq: number;

  constructor(document: Document, seq: number) {
    this.document = document;
    this.seq = seq;
  }
}

/** A class of rows: commands have one that takes less memory. */
export type RowClass = new (document: Document, seq: number) => Row;

/** The number of ids per page. */
const pageLength = 32;

/** The rows of neighboring ids. */
interface Page {
  /** The version of the table that created it; an older page is frozen. */
  readonly version: number;
  readonly rows: (Row | undefined)[];
  /** The number of rows. */
  count: number;
}

const emptyPage: Page = {
  version: -1,
  rows: new Array(pageLength).fill(undefined),
  count: 0,
};

/**
 * The rows of one table by id, in pages. Ids are assigned in sequence, so
 * neighbors share a page, and a row takes 12 bytes here. An isolated id wastes
 * a page. A reader freezes all pages, which takes less than a millisecond for a
 * million rows: after that a page is copied before its next change
 * (copy-on-write).
 */
export class Rows {
  /** In ascending order of the pages' numbers, which are in another array, as it is searched faster. */
  readonly #pages: Page[] = [];
  readonly #numbers: number[] = [];
  #version = 0;
  /** The number of rows. */
  size = 0;

  get(id: number): Row | undefined {
    const number = Math.floor(id / pageLength);
    const at = findPosition(this.#numbers, number);
    if (this.#numbers[at] !== number) return undefined;
    return this.#pages[at]?.rows[id % pageLength];
  }

  /** Replaces the row of an id, or deletes it; returns the previous one. */
  replace(id: number, row: Row | undefined): Row | undefined {
    const number = Math.floor(id / pageLength);
    const at = findPosition(this.#numbers, number);
    if (this.#numbers[at] !== number) {
      this.#numbers.splice(at, 0, number);
      this.#pages.splice(at, 0, emptyPage);
    }
    let page = this.#pages[at] ?? emptyPage;
    if (page.version !== this.#version) {
      const { rows, count } = page;
      page = { version: this.#version, rows: rows.slice(), count };
      this.#pages[at] = page;
    }
    const before = page.rows[id % pageLength];
    page.rows[id % pageLength] = row;
    const growth = Number(row !== undefined) - Number(before !== undefined);
    page.count += growth;
    this.size += growth;
    if (page.count === 0) {
      this.#numbers.splice(at, 1);
      this.#pages.splice(at, 1);
    }
    return before;
  }

  /**
   * Returns the rows from one rank up to, but not including, another, in
   * ascending order of id: as they are now, whatever changes before they are
   * read.
   */
  frozen(from: number, to: number): Iterable<Row> {
    this.#version++;
    let skipped = from;
    let at = 0;
    for (const { count } of this.#pages) {
      if (skipped < count) break;
      skipped -= count;
      at++;
    }
    const length = to - from;
    return read(this.#pages.slice(at, at + length + 1), skipped, length);
  }
}

/** Yields a number of rows, after some that are skipped. */
function* read(
  pages: readonly Page[],
  skipped: number,
  remaining: number,
): Generator<Row> {
  for (const { rows } of pages) {
    for (const row of rows) {
      if (row === undefined || skipped-- > 0) continue;
      if (remaining-- <= 0) return;
      yield row;
    }
  }
}

/**
 * Returns the position of a number in a list of different ones in ascending
 * order, or where it belongs. The sign of the numbers in the list is ignored.
 */
export function findPosition(list: readonly number[], value: number): number {
  return list[value] === value // in a list without gaps
    ? value
    : lowerBound(list.length, (at) => Math.abs(list[at] ?? 0) < value);
}

/**
 * Returns the first position in a sorted list that is not before what is
 * searched; the length if all are.
 */
export function lowerBound(
  length: number,
  isBefore: (at: number) => boolean,
): number {
  let low = 0;
  let high = length;
  // The last one first, as most things are added in ascending order.
  for (let middle = high - 1; low < high; middle = (low + high) >> 1) {
    if (isBefore(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}
