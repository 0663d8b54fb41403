/**
 * The records of one collection in memory, with their indexes. A change makes
 * a new row and leaves the old one as it was, so whoever holds a row (a reader
 * that waits, a snapshot being written, the undo of a failed write) holds a
 * state that was once true.
 */

import { BPlusTree } from "../indexes/b-plus-tree.ts";
import { type Document, type Json, Row } from "./row.ts";
import { Rows } from "./rows.ts";

/** Folds a value to the key under which it is found; null is not indexed. */
export type ToIndexKey = (value: Json) => string | number | null;

/** What the store must know of a table before it reads the disk. */
export interface TableDeclaration {
  readonly name: string;
  /** Properties that are looked up by equality. */
  readonly indexes?: Readonly<Record<string, ToIndexKey>>;
}

/** Takes what a change made of a row: undefined where it was not there, or is no more. */
export interface ChangeListener {
  onChange(before: Row | undefined, after: Row | undefined): void;
}

/** The rows by one property. */
class Index {
  readonly property: string;
  readonly #keyOf: ToIndexKey;
  /** One row stands for itself, so that a unique property costs no list for each record; some are by ascending id. */
  readonly #groups = new Map<string | number, Row | Row[]>();

  constructor(property: string, keyOf: ToIndexKey) {
    this.property = property;
    this.#keyOf = keyOf;
  }

  /** The rows of this moment. */
  find(key: string | number): readonly Row[] {
    const group = this.#groups.get(key) ?? [];
    return Array.isArray(group) ? group.slice() : [group];
  }

  count(key: string | number): number {
    const group = this.#groups.get(key) ?? [];
    return Array.isArray(group) ? group.length : 1;
  }

  move(before: Row | undefined, after: Row | undefined): void {
    const from = this.#keyFor(before);
    const to = this.#keyFor(after);
    if (before !== undefined && from !== null && from !== to) {
      this.#remove(from, before);
    }
    if (after !== undefined && to !== null) this.#put(to, after);
  }

  #keyFor(row: Row | undefined): string | number | null {
    const value = row?.document[this.property];
    return value === undefined ? null : this.#keyOf(value);
  }

  /** Puts a row in its place, or in that of an earlier version of itself. */
  #put(key: string | number, row: Row): void {
    const { id } = row.document;
    const group = this.#groups.get(key);
    if (Array.isArray(group)) {
      const at = placeOf(group, id);
      if (at === group.length) group.push(row); // far faster
      else group.splice(at, group[at]?.document.id === id ? 1 : 0, row);
    } else if (group === undefined || group.document.id === id) {
      this.#groups.set(key, row);
    } else {
      const rows = group.document.id < id ? [group, row] : [row, group];
      this.#groups.set(key, rows);
    }
  }

  #remove(key: string | number, { document: { id } }: Row): void {
    const group = this.#groups.get(key);
    if (Array.isArray(group)) {
      const at = placeOf(group, id);
      if (group[at]?.document.id === id) group.splice(at, 1);
      if (group.length > 0) return;
    } else if (group?.document.id !== id) return;
    this.#groups.delete(key);
  }
}

/** Where a row is in a list by ascending id, or where it goes. */
function placeOf(rows: readonly Row[], id: number): number {
  let low = 0;
  let high = rows.length;
  if ((rows[high - 1]?.document.id ?? 0) < id) return high; // a new one
  while (low < high) {
    const middle = (low + high) >> 1;
    const row = rows[middle];
    if (row !== undefined && row.document.id < id) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** What a change replaced, so that it can be taken back. */
export interface Undo {
  readonly table: WritableTable;
  readonly id: number;
  readonly row: Row | undefined;
  readonly lastId: number;
  readonly lastSeq: number;
}

/** Takes changes back, the newest first. */
export function rollBack(undo: readonly Undo[]): void {
  for (const each of undo.toReversed()) each.table.restore(each);
}

/** The records of one collection, for reading. */
export type Table = Omit<
  WritableTable,
  "put" | "load" | "delete" | "restore" | "raise"
>;

/** The records of one collection. */
export class WritableTable {
  readonly name: string;
  /** All rows by id, with nothing before it. */
  readonly byId = new BPlusTree([]);
  readonly #rows = new Rows();
  readonly #indexes: readonly Index[];
  readonly #followers = new Set<ChangeListener>();
  /** The highest id ever given. */
  lastId = 0;
  /** The log sequence of the last change of any record in it. */
  lastSeq = 0;

  constructor(declaration: TableDeclaration) {
    this.name = declaration.name;
    this.#indexes = Object.entries(declaration.indexes ?? {}).map(
      ([property, keyOf]) => new Index(property, keyOf),
    );
  }

  /** How many records there are. */
  get size(): number {
    return this.#rows.size;
  }

  get(id: number): Row | undefined {
    return this.#rows.get(id);
  }

  /** All rows of this moment, ascending by id. */
  rows(): readonly Row[] {
    return this.byId.slice(0, this.byId.size);
  }

  /** Tells of every change from now on, until {@linkcode removeListener}. */
  addListener(follower: ChangeListener): void {
    this.#followers.add(follower);
  }

  removeListener(follower: ChangeListener): void {
    this.#followers.delete(follower);
  }

  /** The rows with this key of a declared index, in no order of meaning. */
  find(property: string, key: string | number): readonly Row[] {
    return this.#index(property).find(key);
  }

  /** How many rows have this key of a declared index. */
  count(property: string, key: string | number): number {
    return this.#index(property).count(key);
  }

  /** Stores a document and returns what takes that back. */
  put(document: Document, seq: number): Undo {
    const undo = this.#undo(document.id);
    this.#place(document.id, new Row(document, seq));
    this.advanceCounters(document.id, seq);
    return undo;
  }

  /** Takes a document from a snapshot, which tells the table's numbers itself. */
  load(document: Document, seq: number): void {
    this.#place(document.id, new Row(document, seq));
  }

  /** Deletes a record, if it is there, and returns what takes that back. */
  delete(id: number, seq: number): Undo {
    const undo = this.#undo(id);
    this.#place(id, undefined);
    this.advanceCounters(0, seq);
    return undo;
  }

  /** Takes one change back; the newest must go first. */
  restore(undo: Undo): void {
    this.#place(undo.id, undo.row);
    this.lastId = undo.lastId;
    this.lastSeq = undo.lastSeq;
  }

  /** Never lowers either number. */
  advanceCounters(lastId: number, lastSeq: number): void {
    this.lastId = Math.max(this.lastId, lastId);
    this.lastSeq = Math.max(this.lastSeq, lastSeq);
  }

  #undo(id: number): Undo {
    const { lastId, lastSeq } = this;
    return { table: this, id, row: this.#rows.get(id), lastId, lastSeq };
  }

  #place(id: number, row: Row | undefined): void {
    const before = row ? this.#rows.set(row) : this.#rows.delete(id);
    for (const index of this.#indexes) index.move(before, row);
    this.byId.move(before, row);
    for (const follower of this.#followers) follower.onChange(before, row);
  }

  #index(property: string): Index {
    const found = this.#indexes.find((index) => index.property === property);
    if (found === undefined) {
      throw new Error(`Cannot look up "${property}": it has no index`);
    }
    return found;
  }
}

/** All tables by name: those declared, and those found on the disk. */
export type Tables = Map<string, WritableTable>;

/** Empty tables. */
export function makeTables(declared: readonly TableDeclaration[]): Tables {
  return new Map(declared.map((each) => [each.name, new WritableTable(each)]));
}

/** A table that the disk names; its records are kept though undeclared. */
export function getOrCreateTable(tables: Tables, name: string): WritableTable {
  const table = tables.get(name) ?? new WritableTable({ name });
  tables.set(name, table);
  return table;
}
