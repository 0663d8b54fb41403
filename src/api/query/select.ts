/**
 * Finds the records of a query: a page of all records in order of id at once,
 * anything else by a scan: all rows are tested and sorted, and nobody else is
 * answered meanwhile. A feature replaces this by something that takes less time
 * in a large table.
 */

import type { Select, Selection } from "../request-context.ts";
import { compareBy, type Row } from "../../store/store.ts";
import { readValue } from "../declaration/declaration.ts";
import { matches, type Query } from "./parameters.ts";

/** Finds the rows of a query without any index but that by id. */
export const select: Select = (query, selection) => {
  const { table, scope, use } = selection;
  const { filters, sort, offset, limit } = query;
  const [column, ...more] = sort;
  const end = offset + limit;
  const isPlain = filters.length + more.length === 0 && !column?.descending;
  if (isPlain && scope === undefined) {
    return use({ rows: table.frozen(offset, end), total: table.size });
  }
  const rows = table.rows()
    .filter((row) => isSelected(row, query, selection))
    .sort(compareBy(sort));
  return use({ rows: rows.slice(offset, end), total: rows.length });
};

/** Returns whether a row is in the scope of a request and passes all filters. */
export function isSelected(
  row: Row,
  { filters }: Query,
  { scope, isInScope }: Selection<unknown>,
): boolean {
  return isInScope(row) && scope?.where?.(row.document) !== false &&
    filters.every((each) =>
      matches(readValue(row.document, each.property), each)
    );
}
