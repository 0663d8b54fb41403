/**
 * A record in memory. What the API calls a record is a {@linkcode Document} to
 * the store: its id and properties, as written to the log. A {@linkcode Row} is
 * the in-memory holder of one version of a document.
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
  /** Where the API caches the record's JSON text; the store does not use it. */
  text: string | undefined = undefined;
  /** Likewise for the record's ETag and Last-Modified fields. */
  validators: readonly string[] | undefined = undefined;

  constructor(document: Document, seq: number) {
    this.document = document;
    this.seq = seq;
  }
}
