/** The query of an export, which only features have. */

import type { Query } from "./parameters.ts";

/**
 * Returns the query of an export: all records from its offset on, in the order of
 * their ids, in which they can be imported, unless the caller asked for a page or
 * an order.
 */
export function asExport<Parsed extends Query>(query: Parsed): Parsed {
  const { parameters, isPaged, limit, sort } = query;
  const isOrdered = parameters.has("sortby") || parameters.has("order");
  return {
    ...query,
    limit: parameters.has("limit") || isPaged ? limit : Infinity,
    sort: isOrdered ? sort : sort.slice(-1),
  };
}
