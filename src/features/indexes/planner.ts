/**
 * The query planner: chooses how the records of a query are found.
 *
 * 1. Unique lookup. Equality on `id` or a unique property leaves at most one
 *    record, which is then tested against the other conditions.
 * 2. Index range scan. If the only other conditions are bounds of the first
 *    sort property, a sorted index on (properties with equality, sort
 *    properties, id) has all matching rows next to each other. Their number is
 *    the difference of two ranks, and a page is a slice that begins at a rank.
 *    The index is built on demand, see index-cache.ts; while a
 *    scan is cheaper (a small zoo in a large table), the rows are scanned
 *    instead.
 * 3. Scan and sort. Any other condition is tested row by row: on the rows that
 *    refer to a record, on those in a range of an index (bounds of a property,
 *    the first letters of a text), or on all.
 *
 * In every index the id ascends. If the id of a query descends, the index is read
 * backwards, so it has the opposite directions.
 * Thus one index serves both directions of a property, unless it can be null:
 * nulls come last in both directions, so an index that is read backwards has
 * them first. For example, `sortby=name,weight&order=asc,desc` reads an index
 * on (name descending, weight ascending with null first, id) backwards.
 */

import type { Page, Scope, Selection } from "../../api/request-context.ts";
import { runSearch, search } from "../../api/query/search.ts";
import { select } from "../../api/query/select.ts";
import type { Filter, Query } from "../../api/query/parameters.ts";
import { toIndexKey } from "../../api/declaration/declaration.ts";
import type { Row, Table } from "../../store/store.ts";
import type { SortedIndex } from "./b-plus-tree.ts";
import type { IndexCache } from "./index-cache.ts";
import type { IndexColumn } from "./row-comparator.ts";

/** A range of a sorted index on the equalities' properties, then `by`. */
interface QueryPlan {
  readonly equalities: readonly Filter[];
  /** The columns that rows with equal values are sorted by, before the id. */
  readonly by: readonly IndexColumn[];
  /** Bounds of the first of them; of the id if there are none. */
  readonly bounds: readonly Pick<Filter, "operator" | "value">[];
}

/** Candidates for the rows of a query. */
interface RowSource {
  readonly count: number;
  /** Begins to read them. */
  readonly rows: () => Iterable<Row>;
}

/** The most rows that are tested at once, and for how long; the rest is tested in a turn of the requester. */
const maxImmediateRows = 250;
const immediateMs = 5;

/** The number of candidates from which an index is used, or built, to narrow them down. */
const minCandidatesForIndex = 1000;

/** The cost of reading a row in index order, relative to a scan: such rows are scattered in memory. */
const indexReadCost = 4;

const boundOperators: ReadonlySet<string> = new Set(["lt", "lte", "gt", "gte"]);

/** Finds the rows of a query as {@linkcode select} does, in less time. */
export function selectByIndex<T>(
  indexes: IndexCache,
  query: Query,
  selection: Selection<T>,
): T | Promise<T> {
  const { table, scope, use, requester } = selection;
  const filters = filtersOf(query, scope);
  if (filters.length === 0 && query.sort.length === 1 && !scope?.where) {
    const { limit, offset } = query;
    const { size: total } = table;
    if (!isReadBackwards(query)) return select(query, selection);
    if (limit === Infinity) return scan(lookUp(table, []), query, selection);
    const end = Math.max(total - offset, 0);
    const rows = table.rows(Math.max(end - limit, 0), end).toReversed();
    return use({ rows, total });
  }
  const exact = scope?.where ? undefined : rangeScanOf(filters, query);
  const plan = exact ?? boundedRangeOf(filters);
  const source = lookUp(table, filters);
  if (plan && (exact || source.count > minCandidatesForIndex)) {
    const columns = columnsOf(plan);
    const index = indexes.cached(columns) ??
      indexes.getBuildOrScan(columns, source.count, requester);
    if (index instanceof Promise) {
      return index.then(() => {
        requester.signal.throwIfAborted();
        return selectByIndex(indexes, query, selection);
      });
    }
    if (index && exact) return use(pageOf(index, exact, query));
    const range = index && rangeOf(index, plan);
    const count = range ? range.to - range.from : Infinity;
    if (count * indexReadCost <= source.count) {
      const rows = () => rowsIn(indexes, plan);
      return scan({ count, rows }, query, selection);
    }
  }
  return scan(source, query, selection);
}

/** Returns all conditions of a query, with those of its scope. */
function filtersOf(
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
function lookUp(table: Table, filters: readonly Filter[]): RowSource {
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
function scan<T>(
  source: RowSource,
  query: Query,
  selection: Selection<T>,
): T | Promise<T> {
  const steps = search(query, selection, source.rows);
  const isShort = source.count <= maxImmediateRows;
  const end = isShort ? performance.now() + immediateMs : 0;
  while (performance.now() < end) {
    const { done, value } = steps.next();
    if (done) return value;
  }
  return runSearch(selection.requester, steps);
}

/** Returns the rows in the range of an index. */
function rowsIn(indexes: IndexCache, plan: QueryPlan): Iterable<Row> {
  // While the scan waited in the queue the index may have been evicted.
  const index = indexes.cached(columnsOf(plan));
  if (index === undefined) return indexes.table.frozen();
  const { from, to } = rangeOf(index, plan);
  return index.rows(from, to); // copying all of them would take long
}

function columnsOf({ equalities, by }: QueryPlan): readonly IndexColumn[] {
  return [...equalities.map(({ property }) => property), ...by];
}

/**
 * Returns the index range of exactly the rows that match all conditions;
 * undefined if a scan is needed, or a unique lookup is better.
 */
function rangeScanOf(
  filters: readonly Filter[],
  query: Query,
): QueryPlan | undefined {
  const equalities = filters.filter(({ operator }) => operator === "eq");
  const names = new Set(equalities.map(({ property }) => property.name));
  // Two conditions on one property, as in /zoos/7/animals?zoo_id=8.
  if (names.size < equalities.length) return undefined;
  const isUnique = equalities.some(({ property, value }) =>
    property.name === "id" || (property.unique && value !== null)
  );
  const by = indexColumns(query)
    .filter(({ name }) => !names.has(name)); // the others are equal
  const bounds = boundsOf(filters, by[0]?.name ?? "id");
  const isCovered = filters.every((each) =>
    each.operator === "eq" || bounds.includes(each)
  );
  if (isUnique || !isCovered) return undefined;
  // Sorted, so that one index serves these properties, in whatever order the
  // query names them.
  equalities.sort((a, b) => a.property.name < b.property.name ? -1 : 1);
  return { equalities, by, bounds };
}

/** Returns whether the index of a query is read from its end. */
function isReadBackwards({ sort }: Query): boolean {
  return sort.at(-1)?.descending === true;
}

/** Returns the columns of the index in the order of a query, without the id. */
function indexColumns(query: Query): IndexColumn[] {
  const isBackwards = isReadBackwards(query);
  return query.sort.slice(0, -1).map((column) => ({
    ...column,
    descending: column.descending !== isBackwards,
    nullsFirst: column.nullable && isBackwards,
  }));
}

/**
 * Returns the index range of all rows that match the first condition with
 * bounds; undefined if there is no such condition.
 */
function boundedRangeOf(filters: readonly Filter[]): QueryPlan | undefined {
  const first = filters.find(({ operator }) =>
    operator === "starts" || boundOperators.has(operator)
  );
  if (first === undefined) return undefined;
  const { property, operator, value } = first;
  if (operator !== "starts") {
    const by = property.name === "id" ? [] : [property];
    return { equalities: [], by, bounds: boundsOf(filters, property.name) };
  }
  return {
    equalities: [],
    by: [{ ...property, isFolded: true }],
    bounds: [
      { operator: "gte", value },
      // After every continuation: no text contains half of a surrogate pair.
      { operator: "lt", value: `${value}\udfff` },
    ],
  };
}

function boundsOf(filters: readonly Filter[], name: string): Filter[] {
  return filters.filter(({ property, operator }) =>
    property.name === name && boundOperators.has(operator)
  );
}

/** Returns the ranks of a plan's rows in an index: `from` up to, but not including, `to`. */
function rangeOf(
  index: SortedIndex,
  { equalities, by: [column], bounds }: QueryPlan,
) {
  const equal = equalities.map(({ value }) => value);
  let from = index.rank(equal, -Infinity);
  let to = index.rank(equal, Infinity);
  const { descending = false, nullsFirst } = column ?? {};
  if (column !== undefined && bounds.length > 0) {
    // null never satisfies a bound.
    if (nullsFirst) from = index.rank([...equal, null], Infinity);
    else to = index.rank([...equal, null], -Infinity);
  }
  for (const { operator, value } of bounds) {
    const isAfter = (operator === "gt" || operator === "lte") !== descending;
    const rank = column === undefined
      ? index.rank(equal, Number(value) + (isAfter ? 1 : 0))
      : index.rank([...equal, value], isAfter ? Infinity : -Infinity);
    const isStart = operator.startsWith("gt") !== descending;
    if (isStart) from = Math.max(from, rank);
    else to = Math.min(to, rank);
  }
  return { from: Math.min(from, to), to }; // bounds can contradict each other
}

/** Returns a page of a plan's rows. */
function pageOf(
  index: SortedIndex,
  plan: QueryPlan,
  query: Query,
): Page {
  const { offset, limit } = query;
  const isBackwards = isReadBackwards(query);
  const { from, to } = rangeOf(index, plan);
  const total = to - from;
  const [start, end] = isBackwards
    ? [Math.max(to - offset - limit, from), to - offset]
    : [from + offset, Math.min(from + offset + limit, to)];
  if (limit === Infinity) {
    return { rows: index.rows(start, end, isBackwards), total };
  }
  const rows = index.slice(start, end);
  return { rows: isBackwards ? rows.reverse() : rows, total };
}
