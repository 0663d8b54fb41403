/**
 * Finds the records of a query: a page of all records in order of id at once,
 * anything else by a scan: all rows are tested one by one, and sorted. A feature
 * can replace this by something that takes less time in a large table.
 */

import type { Select, Selection } from "../request-context.ts";
import { type ChangeListener, compareBy, type Row } from "../../store/store.ts";
import { readValue } from "../declaration/declaration.ts";
import { createSliceQueue, type Steps } from "./slices.ts";
import { matches, type Query } from "./parameters.ts";
import { SortedRows } from "./sorted-rows.ts";

/** Searches get a quarter of the time while others want it. */
export const runSearch = createSliceQueue(1 / 3);

/** The rows that are tested in one step, as the text of one can be long. */
const rowsPerStep = 16;

/** Finds the rows of a query without any index but that by id. */
export const select: Select = (query, selection) => {
  const { table, scope, use, requester } = selection;
  const { filters, sort: [column, ...more], offset, limit } = query;
  const isPlain = filters.length + more.length === 0 && !column?.descending;
  return isPlain && scope === undefined
    ? use({ rows: table.frozen(offset, offset + limit), total: table.size })
    : runSearch(requester, search(query, selection));
};

/**
 * Tests rows one by one, and sorts those that match.
 *
 * @param rows begins to read the candidates, as they are then: those that change
 * meanwhile may be read in any version, or not at all. By default all rows
 */
export function* search<T>(
  query: Query,
  { table, scope, isInScope, use, requester: { signal } }: Selection<T>,
  rows: () => Iterable<Row> = () => table.frozen(),
): Steps<T> {
  const { filters, sort, offset, limit } = query;
  const isMatch = (row: Row) =>
    isInScope(row) && scope?.where?.(row.document) !== false &&
    filters.every((each) =>
      matches(readValue(row.document, each.property), each)
    );
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
