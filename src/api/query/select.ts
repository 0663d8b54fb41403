/**
 * Finds the records of a query: a page of all records in order of id at once,
 * anything else by a scan. The rows that a unique property or a reference
 * narrows down, or all, are tested one by one, then sorted. A feature can
 * replace this by something that takes less time in a large table.
 */

import type { Requester } from "../../admission.ts";
import {
  type ChangeListener,
  compareBy,
  type Document,
  type Row,
  type Table,
} from "../../store/store.ts";
import { readValue, toIndexKey } from "../declaration/declaration.ts";
import { createSliceQueue, type Steps } from "./slices.ts";
import { type Filter, matches, type Query } from "./parameters.ts";
import { SortedRows } from "./sorted-rows.ts";

/** The condition that a URL, such as `/zoos/7/animals`, imposes on the records of a collection. */
export interface Scope {
  /** Properties with an index, and the values that they must have. */
  readonly conditions: Readonly<Record<string, number>>;
  /** A further condition. */
  readonly where?: ((document: Document) => boolean) | undefined;
  /** The sequence number of the record in the URL, such as the zoo. */
  readonly seq?: number;
  /** Describes the scope in messages, after the name of a record. */
  readonly name?: string;
  /** The URL of the collection in this scope. */
  readonly url?: string;
}

/** A page of the matching rows, and the number of all matching rows. */
export interface Page {
  /** The rows of an unlimited query are as of the moment of its selection, however late they are read. */
  readonly rows: Iterable<Row>;
  readonly total: number;
}

/** The records that a query selects from, and the requester. */
export interface Selection<T> {
  readonly table: Table;
  readonly scope: Scope | undefined;
  readonly use: (page: Page) => T;
  readonly requester: Requester;
}

/**
 * Returns the result of `use` for the page of a table that a query selects; a
 * promise if that takes long. The page and the total are as of the moment when
 * `use` is called, so `use` must also read the rest of the response.
 *
 * @throws {OverloadedError}; the reason of the requester's signal
 */
export type Select = <T>(
  query: Query,
  selection: Selection<T>,
) => T | Promise<T>;

/** Candidates for the rows of a query. */
export interface RowSource {
  readonly count: number;
  /** Begins to read them, as they are then; those that change meanwhile may be read in any version, or not at all. */
  readonly rows: () => Iterable<Row>;
}

/** The most rows that are tested at once, and for how long; the rest is tested in a turn of the requester. */
const maxImmediateRows = 250;
const immediateMs = 5;

/** Searches get a quarter of the time while others want it. */
const runSearch = createSliceQueue(1 / 3);

/** The rows that are tested in one step, as the text of one can be long. */
const rowsPerStep = 16;

/** Finds the rows of a query without any index but those by id and by key. */
export const select: Select = (query, selection) => {
  const { table, scope, use } = selection;
  const { sort: [column, ...more], offset, limit } = query;
  const isBackwards = column?.descending;
  const filters = filtersOf(query, scope);
  if (
    filters.length + more.length > 0 || scope?.where ||
    (isBackwards && limit === Infinity) // to reverse all would take long
  ) {
    return scan(lookUp(table, filters), query, selection);
  }
  const { size: total } = table;
  if (!isBackwards) {
    return use({ rows: table.frozen(offset, offset + limit), total });
  }
  const end = Math.max(total - offset, 0);
  const rows = table.rows(Math.max(end - limit, 0), end).toReversed();
  return use({ rows, total });
};

/** Returns all conditions of a query, with those of its scope. */
export function filtersOf(
  { filters }: Query,
  { conditions = {} }: Partial<Scope> = {},
): readonly Filter[] {
  return Object.entries(conditions).map(([name, value]): Filter => ({
    property: { name, default: null, unique: false, references: "" },
    operator: "eq",
    value,
  })).concat(filters);
}

/** Returns the smallest set of rows that a unique lookup or a hash index finds, or all rows. */
export function lookUp(table: Table, filters: readonly Filter[]): RowSource {
  let best: RowSource = { count: table.size, rows: () => table.frozen() };
  for (const { operator, property, value } of filters) {
    const { name, unique, references } = property;
    const key = operator === "eq" ? toIndexKey(value) : null;
    if (key === null) continue;
    if (name === "id") {
      const row = table.get(Number(key));
      return { count: 1, rows: () => row ? [row] : [] };
    }
    if (!unique && references === undefined) continue;
    const count = table.count(name, key);
    if (count > best.count) continue;
    best = { count, rows: () => table.rowsWith(name, key) };
  }
  return best;
}

/** Tests and sorts candidates: a few at once, many in a turn of the requester. */
export function scan<T>(
  source: RowSource,
  query: Query,
  selection: Selection<T>,
): T | Promise<T> {
  const steps = search(source, query, selection);
  const isShort = source.count <= maxImmediateRows;
  const end = isShort ? performance.now() + immediateMs : 0;
  while (performance.now() < end) {
    const { done, value } = steps.next();
    if (done) return value;
  }
  return runSearch(selection.requester, steps);
}

function* search<T>(
  { rows }: RowSource,
  query: Query,
  { table, scope, use, requester: { signal } }: Selection<T>,
): Steps<T> {
  const { sort, offset, limit } = query;
  const filters = filtersOf(query, scope);
  const isMatch = ({ document }: Row) =>
    scope?.where?.(document) !== false &&
    filters.every((each) => matches(readValue(document, each.property), each));
  const matching = new SortedRows(compareBy(sort));
  /** The ids of rows that changed during the search: of these, `matching` is up to date. */
  const changed = new Set<number | undefined>();
  const onChange: ChangeListener = (before, after) => {
    changed.add((before ?? after)?.document.id);
    if (before) matching.delete(before);
    if (after && isMatch(after)) matching.add(after);
  };
  table.listeners.add(onChange);
  try {
    let count = 0;
    for (const row of rows()) {
      if (!changed.has(row.document.id) && isMatch(row)) matching.add(row);
      if (++count % rowsPerStep > 0) continue;
      yield;
      signal.throwIfAborted();
    }
    const found = matching.all();
    const page = found.slice(offset, offset + limit);
    return use({ rows: page, total: found.length });
  } finally {
    table.listeners.delete(onChange);
  }
}
