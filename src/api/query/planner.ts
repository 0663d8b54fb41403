/**
 * The query planner: chooses how the records of a query are found.
 *
 * 1. Unique lookup. Equality on `id` or a unique property leaves at most one
 *    record, which is then tested against the other conditions.
 * 2. Index range scan. If the only other conditions are bounds of the sort
 *    property, a sorted index on (properties with equality, sort property, id)
 *    has all matching rows side by side. Their number is a difference of
 *    ranks, a page is a slice from a rank. The index is built on demand, see
 *    store/indexes/index-cache.ts; while a scan is cheaper (a small zoo in a
 *    large table), the rows are scanned instead.
 * 3. Scan and sort. Any other condition is tested row by row: on the rows that
 *    refer to a record, on those in a range of an index (bounds of a property,
 *    the first letters of a text), or on all.
 *
 * In an index null sorts after all other values. A descending page is read
 * from it backwards; but nulls come last in both directions, so the page is
 * read in two pieces, each backwards: values, then nulls. For example, five
 * records of which two have no weight:
 *
 *     rank     0   1   2   3     4
 *     weight   10  20  30  null  null      from = 0, nulls = 3, to = 5
 *     id       5   4   3   1     2
 *
 * `sortby=weight&order=desc` lists the ids 3, 4, 5, 2, 1: the ranks 2, 1, 0,
 * then 4, 3. With `offset=2&limit=2` the page is 5, 2. Of the values the first
 * two are skipped, which leaves rank 0. Of the nulls none is skipped, and one
 * is needed: rank 4. The ranks 0 and 4 are not adjacent, hence two slices.
 */

import type { Requester } from "../../admission.ts";
import {
  type Column,
  type Document,
  IndexCache,
  type Row,
  rowsOf,
  type RowSource,
  type SortedIndex,
  type Table,
} from "../../store/store.ts";
import { readValue, toIndexKey } from "../declaration/declaration.ts";
import { type Filter, matches, type Query } from "./parameters.ts";

/** The condition that a URL, such as `/zoos/7/animals`, imposes on the records of a collection. */
export interface Scope {
  /** A property with an index, and the value that it must have. */
  readonly property: string;
  readonly value: number;
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
  /** Of an unlimited query as of the moment of its selection, however late they are read. */
  readonly rows: Iterable<Row>;
  readonly total: number;
}

/** A range of a sorted index on the equalities' properties, then `by`. */
interface QueryPlan {
  readonly equalities: readonly Filter[];
  /** The property that rows with equal values are sorted by; undefined if that is the id. */
  readonly by: Column | undefined;
  /** Bounds of that property. */
  readonly bounds: readonly Pick<Filter, "operator" | "value">[];
}

interface SelectOptions<T> {
  readonly scope: Scope | undefined;
  readonly use: (page: Page) => T;
  readonly requester: Requester;
}

/** The fewest candidates for which an index is used, or built, to narrow them down. */
const minCandidatesForIndex = 1000;

/** The cost of reading a row in index order, relative to a scan: such rows are scattered in memory. */
const indexReadCost = 4;

/** The number of rows of an unlimited query that are read at once. */
const rowsPerSlice = 128;

const boundOperators: ReadonlySet<string> = new Set(["lt", "lte", "gt", "gte"]);

/** Finds records in one table. */
export class QueryPlanner {
  readonly #table: Table;
  readonly #indexes: IndexCache;

  constructor(table: Table) {
    this.#table = table;
    this.#indexes = new IndexCache(table);
  }

  /**
   * Returns the result of `use` for the page that a query selects; a promise if
   * records must be scanned, or an index built. Page and total are as of the
   * moment when `use` is called, and the rest of the response must be too.
   *
   * @throws {OverloadedError}
   */
  select<T>(query: Query, options: SelectOptions<T>): T | Promise<T> {
    const { scope, use, requester } = options;
    const where = scope?.where;
    const filters = scope === undefined
      ? query.filters
      : [filterOf(scope), ...query.filters];
    const rangeScan = where === undefined
      ? rangeScanOf(filters, query.sortby)
      : undefined;
    const plan = rangeScan ?? sortPlanOf(query);
    const columns = columnsOf(plan);
    const cached = rangeScan && this.#indexes.cached(columns);
    if (cached !== undefined) return use(pageOf(cached, plan, query));
    const found = this.#lookUp(filters);
    const source = rangeScan === undefined
      ? this.#narrow(found, filters, requester)
      : this.#indexes.getBuildOrScan(columns, found.count, requester) ??
        found;
    if (source instanceof Promise) {
      return source.then(() => this.select(query, options));
    }
    if ("rank" in source) return use(pageOf(source, plan, query));
    const sortPlan = sortPlanOf(query);
    return this.#indexes.scan(source, {
      columns: columnsOf(sortPlan),
      where: (document) =>
        (where === undefined || where(document)) &&
        filters.every((each) =>
          matches(readValue(document, each.property), each)
        ),
      use: (index) => use(pageOf(index, sortPlan, query)),
      requester,
    });
  }

  /** Returns the smallest set of rows that a unique lookup or a hash index finds, or all rows. */
  #lookUp(filters: readonly Filter[]): RowSource {
    const table = this.#table;
    let best = this.#indexes.all();
    for (const { property, value } of equalitiesOf(filters)) {
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
      best = { count, rows: () => table.find(name, key) };
    }
    return best;
  }

  /** Returns the rows of an index range that contains all matches, if these are far fewer than `found`; a promise if the index must be built first. */
  #narrow(
    found: RowSource,
    filters: readonly Filter[],
    requester: Requester,
  ): RowSource | Promise<unknown> {
    const plan = boundedRangeOf(filters);
    if (plan === undefined || found.count <= minCandidatesForIndex) {
      return found;
    }
    const columns = columnsOf(plan);
    const index = this.#indexes.cached(columns) ??
      this.#indexes.getBuildOrScan(columns, found.count, requester);
    if (index === undefined || index instanceof Promise) return index ?? found;
    const { from, to } = rangeOf(index, plan);
    const count = to - from;
    if (count * indexReadCost > found.count) return found;
    const rows = () => {
      // While the scan waited in the queue the index may have been evicted.
      const index = this.#indexes.cached(columns);
      if (index === undefined) return this.#indexes.all().rows();
      const { from, to } = rangeOf(index, plan);
      return rowsOf(index, from, to); // copying them all would take long
    };
    return { count, rows };
  }
}

/** Returns the plan that sorts rows which already match all conditions. */
function sortPlanOf({ sortby }: Query): QueryPlan {
  return { equalities: [], by: columnFor(sortby), bounds: [] };
}

/** Returns the column to sort by a property; undefined for the id, which comes last in every index. */
function columnFor(property: Column): Column | undefined {
  return property.name === "id" ? undefined : property;
}

function columnsOf({ equalities, by }: QueryPlan): readonly Column[] {
  const columns = equalities.map(({ property }) => property);
  return by === undefined ? columns : [...columns, by];
}

function equalitiesOf(filters: readonly Filter[]): Filter[] {
  return filters.filter(({ operator }) => operator === "eq");
}

/** Returns the condition of a scope, but for its `where`, as a filter. */
function filterOf({ property: name, value }: Scope): Filter {
  const property = { name, default: null, unique: false, references: "" };
  return { property, operator: "eq", value };
}

/** Returns the index range that has the rows which match all conditions; undefined if a scan is needed, or a unique lookup is better. */
function rangeScanOf(
  filters: readonly Filter[],
  sortby: Column,
): QueryPlan | undefined {
  const equalities = equalitiesOf(filters);
  const names = new Set(equalities.map(({ property }) => property.name));
  // Two conditions on one property, as in /zoos/7/animals?zoo_id=8.
  if (names.size < equalities.length) return undefined;
  const isUnique = equalities.some(({ property, value }) =>
    property.name === "id" || (property.unique && value !== null)
  );
  const isSorted = names.has(sortby.name); // all have the same value
  const bounds = isSorted ? [] : boundsOf(filters, sortby);
  const isCovered = filters.every((each) =>
    each.operator === "eq" || bounds.includes(each)
  );
  if (isUnique || !isCovered) return undefined;
  // One index for these properties, in whatever order the query names them.
  equalities.sort((a, b) => a.property.name < b.property.name ? -1 : 1);
  return { equalities, by: isSorted ? undefined : columnFor(sortby), bounds };
}

/** Returns the index range that has all rows which match the first condition with bounds; undefined if there is none. */
function boundedRangeOf(filters: readonly Filter[]): QueryPlan | undefined {
  const first = filters.find(({ operator }) =>
    operator === "starts" || boundOperators.has(operator)
  );
  if (first === undefined) return undefined;
  const { property, operator, value } = first;
  if (operator !== "starts") {
    const bounds = boundsOf(filters, property);
    return { equalities: [], by: columnFor(property), bounds };
  }
  const { name, default: defaultValue } = property;
  const by: Column = { name, default: defaultValue, caseFolded: true };
  // After every continuation: no text contains half of a surrogate pair.
  const end = `${value}\udfff`;
  const bounds = [
    { operator: "gte", value },
    { operator: "lt", value: end },
  ] as const;
  return { equalities: [], by, bounds };
}

function boundsOf(filters: readonly Filter[], { name }: Column): Filter[] {
  return filters.filter(({ property, operator }) =>
    property.name === name && boundOperators.has(operator)
  );
}

/**
 * Returns the ranks of a plan's rows in an index: `from` up to, but not
 * including, `to`. Those with null begin at `nulls`, which is computed only if
 * it is needed: for a descending page, or with bounds.
 */
function rangeOf(
  index: SortedIndex,
  { equalities, by, bounds }: QueryPlan,
  withNulls = false,
): { readonly from: number; readonly to: number; readonly nulls: number } {
  const equal = equalities.map(({ value }) => value);
  let from = index.rank(equal, -Infinity);
  let to = index.rank(equal, Infinity);
  let nulls = to;
  if (by !== undefined && (withNulls || bounds.length > 0)) {
    nulls = index.rank([...equal, null], -Infinity);
  }
  for (const { operator, value } of bounds) {
    const isAfter = operator === "gt" || operator === "lte";
    const rank = by === undefined
      ? index.rank(equal, Number(value) + (isAfter ? 1 : 0))
      : index.rank([...equal, value], isAfter ? Infinity : -Infinity);
    if (operator === "gt" || operator === "gte") from = Math.max(from, rank);
    else nulls = Math.min(nulls, rank);
    to = nulls; // null never satisfies a bound
  }
  return { from: Math.min(from, to), to, nulls }; // bounds can contradict
}

function pageOf(index: SortedIndex, plan: QueryPlan, query: Query): Page {
  if (query.limit < Infinity) return slicePage(index, plan, query);
  const { total } = slicePage(index, plan, { ...query, limit: 0 });
  return { rows: allRows(index.freeze(), plan, query), total };
}

/** Yields all rows of a plan from the offset, a few at a time, from an index that does not change. */
function* allRows(
  index: SortedIndex,
  plan: QueryPlan,
  query: Query,
): Generator<Row> {
  for (let { offset } = query;; offset += rowsPerSlice) {
    const slice = { ...query, offset, limit: rowsPerSlice };
    const { rows } = slicePage(index, plan, slice);
    yield* rows;
    if (rows.length < rowsPerSlice) return;
  }
}

/** Returns a page of a plan's rows; the head of this file has an example. */
function slicePage(
  index: SortedIndex,
  plan: QueryPlan,
  { descending, offset, limit }: Query,
): Page & { readonly rows: readonly Row[] } {
  const { from, to, nulls } = rangeOf(index, plan, descending);
  const total = to - from;
  if (!descending) {
    const start = from + offset;
    return { rows: index.slice(start, Math.min(start + limit, to)), total };
  }
  const backwards = (start: number, end: number, limit: number) =>
    index.slice(Math.max(end - limit, start), end).reverse();
  const rows = backwards(from, nulls - offset, limit);
  const skippedNulls = Math.max(offset - (nulls - from), 0);
  const last = backwards(nulls, to - skippedNulls, limit - rows.length);
  return { rows: [...rows, ...last], total };
}
