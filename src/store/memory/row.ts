/**
 * Records in memory. What the API calls a record is a {@linkcode Document} to
 * the store: its id and properties, as written to the log. A {@linkcode Row} is
 * the in-memory holder of one version of a document, and {@linkcode Rows} holds
 * those of one table.
 */

import { Buffer } from "node:buffer";

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

/** What is cached of a record. */
export interface CachedText {
  readonly text: string;
  /** Its ETag and Last-Modified fields. */
  readonly validators: readonly string[];
}

/** One version of a document. A class, not an object literal, so that all rows have the same hidden class. */
export class Row {
  readonly document: Document;
  /** The sequence number of its last change; of a row read from a snapshot, that of the snapshot. */
  readonly seq: number;
  /** Where the API caches the record's JSON text and header fields; the store does not use it. */
  cached: CachedText | undefined = undefined;

  constructor(document: Document, seq: number) {
    this.document = document;
    this.seq = seq;
  }
}

/** The size of the buffers that hold the documents of {@linkcode PackedRow}. */
const slabBytes = 1 << 16;

let slab = Buffer.alloc(0);
let slabEnd = 0;

/**
 * A row for the commands, which need less memory than a server: its document is
 * kept as JSON outside of V8's heap, and parsed each time it is read.
 */
export class PackedRow implements Row {
  readonly seq: number;
  cached: undefined;
  readonly #slab: Buffer;
  readonly #start: number;
  readonly #end: number;

  constructor(document: Document, seq: number) {
    const json = JSON.stringify(document);
    const length = Buffer.byteLength(json);
    if (slabEnd + length > slab.length) {
      slab = Buffer.allocUnsafeSlow(Math.max(slabBytes, length));
      slabEnd = 0;
    }
    this.seq = seq;
    this.#slab = slab;
    this.#start = slabEnd;
    this.#end = slabEnd += slab.write(json, slabEnd);
  }

  get document(): Document {
    return JSON.parse(this.#slab.toString("utf8", this.#start, this.#end));
  }
}

/** The number of ids per page. */
const pageLength = 32;

const emptyPage: readonly undefined[] = new Array(pageLength).fill(undefined);

/** The rows of neighboring ids. */
interface Page {
  /** The version of the table that created it; an older page is frozen. */
  readonly version: number;
  readonly rows: (Row | undefined)[];
}

/**
 * The rows of one table by id, in pages. Ids are assigned in sequence, so
 * neighbors share a page, and a row takes 12 bytes here. An isolated id wastes
 * a page. A reader that takes long freezes all pages, which takes less than a
 * millisecond for a million rows: after that a page is copied before its next
 * change (copy-on-write).
 */
export class Rows {
  /** The numbers of the pages in ascending order, then the pages, and the number of rows in each. */
  readonly #numbers: number[] = [];
  readonly #pages: Page[] = [];
  readonly #counts: number[] = [];
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
    const found = this.#numbers[at] === number ? this.#pages[at] : undefined;
    let page = found;
    if (page?.version !== this.#version) {
      if (page === undefined && row === undefined) return undefined;
      const rows = (page?.rows ?? emptyPage).slice();
      page = { version: this.#version, rows };
      this.#pages.splice(at, found ? 1 : 0, page);
    }
    if (found === undefined) {
      this.#numbers.splice(at, 0, number);
      this.#counts.splice(at, 0, 0);
    }
    const before = page.rows[id % pageLength];
    page.rows[id % pageLength] = row;
    const growth = Number(row !== undefined) - Number(before !== undefined);
    const count = (this.#counts[at] ?? 0) + growth;
    this.#counts[at] = count;
    this.size += growth;
    if (count === 0) {
      const lists = [this.#numbers, this.#pages, this.#counts];
      for (const list of lists) list.splice(at, 1);
    }
    return before;
  }

  /** Returns the number of rows with lower ids. */
  rank(id: number): number {
    const number = Math.floor(id / pageLength);
    const at = findPosition(this.#numbers, number);
    let rank = 0;
    for (const count of this.#counts.slice(0, at)) rank += count;
    if (this.#numbers[at] !== number) return rank;
    const before = this.#pages[at]?.rows.slice(0, id % pageLength) ?? [];
    return rank + before.filter((row) => row !== undefined).length;
  }

  /** Returns the rows from one rank up to, but not including, another, in ascending order of id. */
  slice(from: number, to: number): Row[] {
    const { at, skipped } = this.#locate(from);
    return [...read(this.#pages, at, skipped, to - from)];
  }

  /** Returns the same rows as they are now, whatever changes before they are read. */
  frozen(from: number, to: number): Iterable<Row> {
    this.#version++;
    const { at, skipped } = this.#locate(from);
    return read(this.#pages.slice(at), 0, skipped, to - from);
  }

  /** Returns the position of the page that has the row at a rank, and the number of rows before it in this page. */
  #locate(rank: number) {
    let at = 0;
    let skipped = rank;
    for (const count of this.#counts) {
      if (skipped < count) break;
      skipped -= count;
      at++;
    }
    return { at, skipped };
  }
}

/** Yields a number of rows, after some that are skipped, from a page on. */
function* read(
  pages: readonly Page[],
  at: number,
  skipped: number,
  count: number,
): Generator<Row> {
  for (; at < pages.length; at++) {
    for (const row of pages[at]?.rows ?? []) {
      if (row === undefined || skipped-- > 0) continue;
      if (count-- <= 0) return;
      yield row;
    }
  }
}

/**
 * Returns the position of a number in a list of different ones in ascending
 * order, or where it belongs. The sign of the numbers in the list is ignored.
 */
export function findPosition(list: readonly number[], value: number): number {
  let low = 0;
  // A list without gaps has it exactly there; most others are added at the end.
  let high = Math.min(list.length, value + 1);
  for (let middle = high - 1; low < high; middle = (low + high) >> 1) {
    const found = Math.abs(list[middle] ?? 0);
    if (found === value) return middle;
    if (found < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
