/**
 * The records of one collection in memory, with their indexes. A change creates
 * a new row and leaves the old one as it was, so a reference to a row (held by
 * a waiting reader, a snapshot being written, the undo of a failed write) is a
 * consistent version of the record.
 */

import type { LogHeader, Mutation } from "../log/format.ts";
import type { Memory } from "./limit.ts";
import {
  type Document,
  findPosition,
  Row,
  type RowClass,
  Rows,
} from "./row.ts";

/** Returns the key under which a hash index holds a document; null for one that it does not hold. */
type ToIndexKey = (document: Document) => string | number | null;

/** The part of a collection's declaration that the store needs before it reads the disk. */
export interface TableDeclaration {
  readonly name: string;
  /** The keys that records are looked up by, by the names of their indexes. */
  readonly indexes?: Readonly<Record<string, ToIndexKey>>;
}

/**
 * Receives each change of a table: `before` is undefined for a new row, `after`
 * for a deleted one.
 */
export type ChangeListener = (
  before: Row | undefined,
  after: Row | undefined,
) => void;

/** At most one in eight ids of a key is a deleted one. */
const minLengthPerDeleted = 8;

/**
 * A hash index: the ids of the records by a key that is computed from them, in
 * ascending order. Most changes are at the end; a record that is deleted
 * elsewhere leaves its id with a minus sign until there are many such, because
 * to remove one of a million ids takes a millisecond.
 */
class HashIndex {
  readonly #keyOf: ToIndexKey;
  readonly #ids = new Map<string | number, number[]>();
  /** The number of ids with a minus sign, of the keys that have some. */
  readonly #deleted = new Map<string | number, number>();

  constructor(keyOf: ToIndexKey) {
    this.#keyOf = keyOf;
  }

  count(key: string | number): number {
    const { length } = this.#ids.get(key) ?? [];
    return length - (this.#deleted.get(key) ?? 0);
  }

  /** Returns the lowest id of a key that is higher than another. */
  next(key: string | number, after: number): number | undefined {
    const ids = this.#ids.get(key) ?? [];
    let at = findPosition(ids, after + 1);
    while ((ids[at] ?? 0) < 0) at++;
    return ids[at];
  }

  replace(before: Row | undefined, after: Row | undefined): void {
    const from = (before && this.#keyOf(before.document)) ?? null;
    const to = (after && this.#keyOf(after.document)) ?? null;
    if (from === to) return;
    if (before && from !== null) this.#delete(from, before.document.id);
    if (after && to !== null) this.#insert(to, after.document.id);
  }

  #insert(key: string | number, id: number): void {
    const ids = this.#ids.get(key);
    if (ids === undefined) {
      this.#ids.set(key, [id]);
      return;
    }
    const at = findPosition(ids, id);
    if (at === ids.length) ids.push(id); // far faster than splice
    else if (ids[at] !== -id) ids.splice(at, 0, id);
    else {
      ids[at] = id;
      this.#deleted.set(key, (this.#deleted.get(key) ?? 0) - 1);
    }
  }

  #delete(key: string | number, id: number): void {
    const ids = this.#ids.get(key) ?? [];
    ids[findPosition(ids, id)] = -id;
    const deleted = (this.#deleted.get(key) ?? 0) + 1;
    this.#deleted.set(key, deleted);
    if (deleted * minLengthPerDeleted <= ids.length) return;
    this.#deleted.delete(key);
    const rest = ids.filter((each) => each > 0);
    if (rest.length > 0) this.#ids.set(key, rest);
    else this.#ids.delete(key);
  }
}

/** Rolls back one change; newer ones must be rolled back first. */
export type Undo = () => void;

/** Rolls back changes, the newest first. */
export function rollBack(changes: readonly Undo[]): void {
  for (const undo of changes.toReversed()) undo();
}

/** The records of one collection, for reading. */
export type Table = Omit<
  WritableTable,
  "put" | "load" | "delete" | "replace" | "advanceCounters"
>;

/** The records of one collection. */
export class WritableTable {
  readonly name: string;
  readonly #rows = new Rows();
  readonly #indexes = new Map<string, HashIndex>();
  /** The listeners that receive each change. */
  readonly listeners = new Set<ChangeListener>();
  /** The highest id ever assigned. */
  lastId = 0;
  /** The sequence number of the last change of any of its records. */
  lastSeq = 0;
  readonly #rowClass: RowClass;

  constructor(
    { name, indexes = {} }: TableDeclaration,
    { rowClass = Row, memory }: TableOptions = {},
  ) {
    this.name = name;
    this.#rowClass = rowClass;
    if (memory) this.listeners.add(memory.count);
    for (const [index, keyOf] of Object.entries(indexes)) {
      this.#indexes.set(index, new HashIndex(keyOf));
    }
  }

  /** The number of records. */
  get size(): number {
    return this.#rows.size;
  }

  get(id: number): Row | undefined {
    return this.#rows.get(id);
  }

  /** Returns a copy of all rows, or of those from one rank up to another, in ascending order of id. */
  rows(from?: number, to?: number): readonly Row[] {
    return [...this.frozen(from, to)];
  }

  /** Returns the same rows as they are now, whatever changes before they are read. */
  frozen(from = 0, to = Infinity): Iterable<Row> {
    return this.#rows.frozen(from, to);
  }

  /** Returns the rows with a key of a declared index, or the first ones, in ascending order of id. */
  find(index: string, key: string | number, limit?: number): readonly Row[] {
    return [...this.rowsWith(index, key, limit)];
  }

  /**
   * Yields the same rows, of which there may be very many, as they are when it
   * reaches them.
   */
  *rowsWith(
    index: string,
    key: string | number,
    limit = Infinity,
  ): Generator<Row> {
    const ids = this.#index(index);
    let id = ids.next(key, 0);
    for (; id !== undefined && limit-- > 0; id = ids.next(key, id)) {
      const row = this.get(id);
      if (row !== undefined) yield row;
    }
  }

  /** Returns the number of rows with a key of a declared index. */
  count(index: string, key: string | number): number {
    return this.#index(index).count(key);
  }

  /** Stores a document; returns its undo. */
  put(document: Document, seq: number): Undo {
    const undo = this.#undo(document.id);
    this.advanceCounters(document.id, seq); // before its listeners, who read them
    this.load(document, seq);
    return undo;
  }

  /** Stores a document of a snapshot, whose header has the counters; they are never below what is there. */
  load(document: Document, seq: number): void {
    this.advanceCounters(document.id, 0);
    this.replace(document.id, new this.#rowClass(document, seq));
  }

  /** Deletes a record if it exists; returns the undo. */
  delete(id: number, seq: number): Undo {
    const undo = this.#undo(id);
    this.advanceCounters(0, seq);
    this.replace(id, undefined);
    return undo;
  }

  /** Raises the counters; never lowers either of them. */
  advanceCounters(lastId: number, lastSeq: number): void {
    this.lastId = Math.max(this.lastId, lastId);
    this.lastSeq = Math.max(this.lastSeq, lastSeq);
  }

  /** Returns the undo of the next change of a record. */
  #undo(id: number): Undo {
    const { lastId, lastSeq } = this;
    const row = this.get(id);
    return () => {
      this.replace(id, row);
      this.lastId = lastId;
      this.lastSeq = lastSeq;
    };
  }

  /** Replaces the row of an id, or deletes it, without advancing the counters. */
  replace(id: number, row: Row | undefined): void {
    const before = this.#rows.replace(id, row);
    for (const index of this.#indexes.values()) index.replace(before, row);
    for (const listener of this.listeners) listener(before, row);
  }

  #index(name: string): HashIndex {
    const found = this.#indexes.get(name);
    if (found !== undefined) return found;
    throw new Error(`Cannot look up "${name}": there is no such index`);
  }
}

/** How tables hold their rows. */
export interface TableOptions {
  /** The class of the rows, if not the usual one. */
  readonly rowClass?: RowClass | undefined;
  /** Bounds the memory of the records; nothing does by default. */
  readonly memory?: Memory | undefined;
}

/** All tables by name: those declared, and those found on disk. */
export class Tables extends Map<string, WritableTable> {
  readonly options: TableOptions;

  constructor(
    declared: readonly TableDeclaration[] = [],
    options: TableOptions = {},
  ) {
    super();
    this.options = options;
    options.memory?.begin();
    for (const each of declared) {
      this.set(each.name, new WritableTable(each, options));
    }
  }
}

export function countRecords(tables: ReadonlyMap<string, Table>): number {
  let count = 0;
  for (const { size } of tables.values()) count += size;
  return count;
}

/** Returns a table that is named on disk; its records are retained even if it is not declared. */
export function getOrCreateTable(tables: Tables, name: string): WritableTable {
  const table = tables.get(name) ?? new WritableTable({ name }, tables.options);
  tables.set(name, table);
  return table;
}

/** Raises the counters of all tables to those in the header of a snapshot. */
export function restoreCounters(
  tables: Tables,
  { last = {} }: Partial<LogHeader>,
): void {
  for (const [name, counters] of Object.entries(last)) {
    getOrCreateTable(tables, name).advanceCounters(...counters);
  }
}

/** Applies a mutation of another kind than those of the store itself. */
type ApplyOther = (
  tables: Tables,
  mutation: Mutation,
  seq: number,
) => Undo | undefined;

/** The mutations of further kinds, by their names: those of the files that are loaded. */
export const otherMutations = new Map<string, ApplyOther>();

/** Applies a mutation and returns its undo; undefined if its kind is unknown. */
export function applyMutation(
  tables: Tables,
  mutation: Mutation,
  seq: number,
): Undo | undefined {
  const [kind, name] = mutation;
  switch (kind) {
    case "put":
      return getOrCreateTable(tables, name).put(mutation[2], seq);
    case "del":
      return getOrCreateTable(tables, name).delete(mutation[2], seq);
    default:
      return otherMutations.get(kind)?.(tables, mutation, seq);
  }
}
