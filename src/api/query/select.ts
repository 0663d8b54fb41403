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
import { JobQueue, type Steps } from "./job-queue.ts";
import { type Filter, matches, type Query } from "./parameters.ts";

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

/** What a query selects from, and for whom. */
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
  /** May yield versions that have been replaced since, or newer ones. */
  readonly rows: () => Iterable<Row>;
}

/** The most rows that are tested at once; more of them are tested in slices of time. */
const maxImmediateRows = 250;

/** The rows that are tested in one step, as the text of one can be long. */
const testsPerStep = 16;

/** The rows that are sorted, or merged, in one step. */
const sortedPerStep = 256;

/**
 * Searches get a quarter of the time while others want it. One runs at a time,
 * in turns by address, which bounds the work that strangers can cause.
 */
export const searches = new JobQueue(1 / 3);

/** Finds the rows of a query without any index but those by id and by key. */
export const select: Select = (query, selection) => {
  const { table, scope, use } = selection;
  const { sort, isBackwards, offset, limit } = query;
  const filters = filtersOf(query, scope);
  const isById = filters.length === 0 && !scope?.where && sort.length === 0;
  if (!isById || isBackwards && limit === Infinity) {
    return scan(lookUp(table, filters), query, selection);
  }
  const { size: total } = table;
  if (limit === Infinity) return use({ rows: table.frozen(offset), total });
  if (!isBackwards) {
    return use({ rows: table.slice(offset, offset + limit), total });
  }
  const end = total - offset;
  const rows = table.slice(Math.max(end - limit, 0), end).reverse();
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
    if (operator !== "eq") continue;
    const { name, unique, references } = property;
    if (name === "id") {
      const row = table.get(Number(value));
      return { count: 1, rows: () => row === undefined ? [] : [row] };
    }
    const isIndexed = unique || references !== undefined;
    const key = toIndexKey(value);
    if (!isIndexed || key === null) continue;
    const count = table.count(name, key);
    if (count > best.count) continue;
    best = { count, rows: () => table.rowsWith(name, key) };
  }
  return best;
}

/** Tests and sorts candidates: a few at once, many in a turn of the requester. */
export function scan<T>(
  { count, rows }: RowSource,
  query: Query,
  selection: Selection<T>,
): T | Promise<T> {
  const steps = search(rows, query, selection);
  if (count > maxImmediateRows) return searches.run(selection.requester, steps);
  while (true) {
    const result = steps.next();
    if (result.done) return result.value;
  }
}

function* search<T>(
  rows: () => Iterable<Row>,
  query: Query,
  { table, scope, use }: Selection<T>,
): Steps<T> {
  const { sort, isBackwards, offset, limit } = query;
  const filters = filtersOf(query, scope);
  const isMatch = ({ document }: Row) =>
    scope?.where?.(document) !== false &&
    filters.every((each) => matches(readValue(document, each.property), each));
  const compare = compareBy(sort);
  const changedIds = new Set<number>();
  const onChange: ChangeListener = (before, after) => {
    for (const row of [before, after]) if (row) changedIds.add(row.document.id);
  };
  table.listeners.add(onChange);
  try {
    const matching: Row[] = [];
    let tested = 0;
    for (const row of rows()) {
      if (isMatch(row)) matching.push(row);
      if (++tested % testsPerStep === 0) yield;
    }
    let found = yield* sortInSteps(matching, compare);
    if (changedIds.size > 0) {
      found = found.filter(({ document }) => !changedIds.has(document.id));
      for (const id of changedIds) {
        const row = table.get(id);
        if (row && isMatch(row)) found.push(row);
      }
      found.sort(compare); // takes one pass, as nearly all of them are sorted
    }
    if (isBackwards) found.reverse();
    const page = found.slice(offset, offset + limit);
    return use({ rows: page, total: found.length });
  } finally {
    table.listeners.delete(onChange);
  }
}

/** Sorts many rows in steps, by merge sort. */
function* sortInSteps(
  rows: Row[],
  compare: (a: Row, b: Row) => number,
): Steps<Row[]> {
  if (rows.length <= sortedPerStep) {
    yield;
    return rows.sort(compare);
  }
  const middle = rows.length >> 1;
  const left = yield* sortInSteps(rows.slice(0, middle), compare);
  const right = yield* sortInSteps(rows.slice(middle), compare);
  const sorted: Row[] = [];
  let [at, otherAt] = [0, 0];
  while (sorted.length < rows.length) {
    const [row, other] = [left[at], right[otherAt]];
    if (row && (!other || compare(row, other) < 0)) {
      sorted.push(row);
      at++;
    } else if (other) {
      sorted.push(other);
      otherAt++;
    }
    if (sorted.length % sortedPerStep === 0) yield;
  }
  return sorted;
}
