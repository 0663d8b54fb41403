/**
 * Finds the records of a query as select.ts does, in small steps: between two of
 * them other requests are answered, and records may change.
 */

import { type ChangeListener, compareBy, type Row } from "../../store/store.ts";
import type { Selection } from "../request-types.ts";
import type { Query } from "./parameters.ts";
import { isSelected } from "./select.ts";
import { createSliceQueue, type Steps } from "./slices.ts";
import { SortedRows } from "./sorted-rows.ts";

/** Searches get a quarter of the time while others want it. */
export const runSearch = createSliceQueue(1 / 3);

/** The rows that are tested in one step, as the text of one can be long. */
const rowsPerStep = 16;

/**
 * Tests rows one by one, and sorts those that match.
 *
 * @param rows begins to read the candidates, as they are then: those that change
 * meanwhile may be read in any version, or not at all.
 */
export function* search<T>(
  query: Query,
  selection: Selection<T>,
  rows: () => Iterable<Row>,
): Steps<T> {
  const { table, use, requester: { signal } } = selection;
  const { sort, offset, limit } = query;
  const isMatch = (row: Row) => isSelected(row, query, selection);
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
