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
}

/** One version of a document. A class, not an object literal, so that all rows have the same hidden class. */
export class Row {
  readonly document: Document;
  /** The sequence number of its last change; of a row read from a snapshot, that of the snapshot. */
  readonly seq: number;
  /** Where the API caches the record's JSON text; the store does not use it. */
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

/**
 * The rows of one table by id, in pages. Ids are assigned in sequence, so
 * neighbors share a page: a million rows load in a third of the time that a
 * Map of all of them takes, in half the memory. An isolated id wastes a page.
 */
export class Rows {
  readonly #pages = new Map<number, (Row | undefined)[]>();

  get(id: number): Row | undefined {
    return this.#pages.get(Math.floor(id / pageLength))?.[id % pageLength];
  }

  /** Replaces the row of an id, or deletes it; returns the previous one. */
  replace(id: number, row: Row | undefined): Row | undefined {
    const number = Math.floor(id / pageLength);
    let page = this.#pages.get(number);
    if (page === undefined) {
      if (row === undefined) return undefined;
      page = new Array(pageLength).fill(undefined);
      this.#pages.set(number, page);
    }
    const before = page[id % pageLength];
    page[id % pageLength] = row;
    if (row === undefined && page.every((each) => each === undefined)) {
      this.#pages.delete(number);
    }
    return before;
  }
}
