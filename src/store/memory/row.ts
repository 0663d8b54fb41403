/** What a record is in memory. */

/** What JSON can say. */
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

/** A record in memory. A class and no literal: every row has the same shape from its birth. */
export class Row {
  readonly document: Document;
  /**
   * The log sequence of its last change; of a record that was read from a
   * snapshot, the snapshot's.
   */
  readonly seq: number;
  /** Where the API keeps the record's text; the store never looks at it. */
  text: string | undefined = undefined;
  /** Likewise for the header fields by which caches know it. */
  validators: readonly string[] | undefined = undefined;

  constructor(document: Document, seq: number) {
    this.document = document;
    this.seq = seq;
  }
}
