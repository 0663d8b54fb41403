/**
 * How the records of a query are found. The plan:
 *
 * 1. Equality on `id` or on a unique property leaves one record at most: look.
 * 2. Equality on other properties and bounds of the property that decides the
 *    order are what an order can tell by itself: the order by those properties,
 *    then the one that decides, has all that match side by side. How many they
 *    are is a difference of ranks, a page is a walk from a rank.
 * 3. With any other condition records are looked through: those that refer to
 *    the one in question; or those within the bounds of a property, or with the
 *    beginning of a text, which an order by that property has side by side; or
 *    all.
 *
 * The first two answer at once, once the order is there; see index-cache.ts. Until
 * then, where an index leaves few records, these are looked through: a small
 * zoo waits for no order of all animals.
 */

import {
  type Column,
  type Document,
  IndexCache,
  type Row,
  type RowSource,
  type SortedIndex,
  type Table,
} from "../../store/store.ts";
import {
  type NamedProperty,
  readValue,
  toIndexKey,
} from "../declaration/declaration.ts";
import type { Json } from "../declaration/properties.ts";
import { type Filter, matches, type Query } from "./parameters.ts";

/** What an address, not a parameter, demands of the records of a collection. */
export interface Scope {
  /** A property by which the store finds records, and the value that it must have. */
  readonly property: string;
  readonly value: number;
  /** A further condition. */
  readonly where?: (document: Document) => boolean;
  /** The sequence of what it rests on itself, such as the zoo. */
  readonly seq?: number;
  /** What it is called in messages, behind a record. */
  readonly name?: string;
  /** Where the collection of it is. */
  readonly address?: string;
}

/** One page of what matches, and how many match in all. */
export interface Page {
  readonly rows: readonly Row[];
  readonly total: number;
}

/** A property with the value that it must have. */
interface Equality {
  readonly property: Pick<
    NamedProperty,
    "name" | "default" | "unique" | "references"
  >;
  readonly value: Json;
}

/** How an order serves a query. */
interface QueryPlan {
  readonly equalities: readonly Equality[];
  /** The property that decides the order among equals; undefined where the id does. */
  readonly by: Column | undefined;
  /** Bounds of that property. */
  readonly bounds: readonly Pick<Filter, "operator" | "values">[];
}

/** What to do with what is found. */
interface SelectOptions<T> {
  readonly scope: Scope | undefined;
  readonly use: (page: Page) => T;
  /** Asked now and then while records are looked through; throws where nobody waits for them any more. */
  readonly check: () => void;
}

/** From how many records on an order is built to look through fewer. */
const many = 1000;

/** Finds records in one table. */
export class QueryPlanner {
  readonly #table: Table;
  readonly #orders: IndexCache;

  constructor(table: Table) {
    this.#table = table;
    this.#orders = new IndexCache(table);
  }

  /**
   * Finds the records of a query and makes something of the page; a promise
   * where that takes a while. Page and total are of the very moment in which
   * `use` is called, and so must be all else that goes into the answer.
   *
   * @throws {StoreError} where too many others wait
   */
  select<T>(query: Query, purpose: SelectOptions<T>): T | Promise<T> {
    const { scope, use, check } = purpose;
    const plan = planOf(query, scope);
    if (plan === undefined) {
      const source = this.#source(query, purpose);
      return source instanceof Promise
        ? source.then(() => this.select(query, purpose))
        : this.#scan(source, query, purpose);
    }
    const columns = columnsOf(plan);
    const kept = this.#orders.cached(columns);
    if (kept !== undefined) return use(pageOf(kept, plan, query));
    const source = this.#narrowest(query, scope);
    const order = this.#orders.getBuildOrScan(columns, source.count, check);
    if (order === undefined) return this.#scan(source, query, purpose);
    return order instanceof Promise
      ? order.then(() => this.select(query, purpose))
      : use(pageOf(order, plan, query));
  }

  #scan<T>(
    source: RowSource,
    query: Query,
    { scope, use, check }: SelectOptions<T>,
  ): T | Promise<T> {
    const { filters, sortby } = query;
    const by = sortby.name === "id" ? undefined : sortby;
    const plan: QueryPlan = { equalities: [], by, bounds: [] };
    return this.#orders.scan(source, {
      columns: columnsOf(plan),
      where: (document) =>
        (scope === undefined || document[scope.property] === scope.value) &&
        (scope?.where === undefined || scope.where(document)) &&
        filters.every((each) =>
          matches(readValue(document, each.property), each)
        ),
      use: (order) => use(pageOf(order, plan, query)),
      throwIfAborted: check,
    });
  }

  /** The fewest rows that an index of the table has side by side. */
  #narrowest(query: Query, scope: Scope | undefined): RowSource {
    const table = this.#table;
    let best = this.#orders.all();
    for (const { property, value } of equalitiesOf(query, scope)) {
      const { name, unique, references, default: otherwise } = property;
      if (name === "id") {
        const row = table.get(Number(value));
        return { count: 1, rows: () => row === undefined ? [] : [row] };
      }
      const key = toIndexKey(value);
      if ((!unique && references === undefined) || key === null) continue;
      // The index has what is stored: not a default that is not.
      if (value === otherwise) continue;
      const count = table.count(name, key);
      if (count > best.count) continue;
      best = { count, rows: () => table.find(name, key) };
    }
    return best;
  }

  /** The fewest rows that can be had without looking at each; a promise where an order is to be built first. */
  #source(
    query: Query,
    { scope, check }: Pick<SelectOptions<unknown>, "scope" | "check">,
  ): RowSource | Promise<unknown> {
    const best = this.#narrowest(query, scope);
    const plan = narrowing(query);
    if (plan === undefined || best.count <= many) return best;
    const columns = columnsOf(plan);
    const order = this.#orders.cached(columns) ??
      this.#orders.getBuildOrScan(columns, best.count, check);
    if (order === undefined) return best;
    if (order instanceof Promise) return order;
    const { from, to } = rangeOf(order, plan);
    // Rows that are not side by side in memory take longer to look at.
    if (to - from > best.count / 4) return best;
    return {
      count: to - from,
      rows: () => {
        // Who waited may find that others were built instead.
        const order = this.#orders.cached(columns);
        if (order === undefined) return this.#orders.all().rows();
        const { from, to } = rangeOf(order, plan);
        return order.slice(from, to);
      },
    };
  }
}

function columnsOf({ equalities, by }: QueryPlan): readonly Column[] {
  const columns = equalities.map(({ property }) => property);
  return by === undefined ? columns : [...columns, by];
}

function equalitiesOf(
  { filters }: Query,
  scope: Scope | undefined,
): Equality[] {
  const equalities: Equality[] = scope === undefined ? [] : [{
    property: {
      name: scope.property,
      default: null,
      unique: false,
      references: "",
    },
    value: scope.value,
  }];
  for (const { property, operator, values: [value = null] } of filters) {
    if (operator === "eq") equalities.push({ property, value });
  }
  return equalities;
}

/** How an order can serve a query by itself; undefined where it can't, or where one record at most can match. */
function planOf(query: Query, scope: Scope | undefined): QueryPlan | undefined {
  const { filters, sortby } = query;
  const equalities = equalitiesOf(query, scope);
  if (scope?.where !== undefined) return undefined;
  const names = new Set(equalities.map(({ property }) => property.name));
  // The same twice, as in /zoos/7/animals?zoo_id=8, is for a scan to judge.
  if (names.size < equalities.length) return undefined;
  const single = equalities.some(({ property, value }) =>
    property.name === "id" || (property.unique && value !== null)
  );
  const decided = names.has(sortby.name);
  const bounds = filters.filter(({ property, operator }) =>
    property.name === sortby.name && !decided && boundOperators.has(operator)
  );
  const served = filters.every((each) =>
    each.operator === "eq" || bounds.includes(each)
  );
  if (single || !served) return undefined;
  const by = decided || sortby.name === "id" ? undefined : sortby;
  // One order for them, in whatever sequence they are named.
  equalities.sort((a, b) => a.property.name < b.property.name ? -1 : 1);
  return { equalities, by, bounds };
}

const boundOperators: ReadonlySet<string> = new Set(["lt", "lte", "gt", "gte"]);

/** How an order can tell by itself what fulfils the first condition that has bounds. */
function narrowing({ filters }: Query): QueryPlan | undefined {
  const bounded = filters.filter(({ operator }) =>
    operator === "starts" || boundOperators.has(operator)
  );
  const [first] = bounded;
  if (first === undefined) return undefined;
  const { property, operator, values: [value = null] } = first;
  if (operator === "starts") {
    const { name, default: otherwise } = property;
    const by: Column = { name, default: otherwise, caseFolded: true };
    // Behind all that goes on after it: no text holds half of a surrogate pair.
    const end = `${value}\udfff`;
    const bounds = [
      { operator: "gte", values: [value] },
      { operator: "lt", values: [end] },
    ] as const;
    return { equalities: [], by, bounds };
  }
  const by = property.name === "id" ? undefined : property;
  const bounds = bounded.filter((each) =>
    each.property === property && each.operator !== "starts"
  );
  return { equalities: [], by, bounds };
}

/**
 * Where in an order the rows of a plan are. In an order null is behind all
 * else; where those begin is told if it is asked for, or there are bounds.
 */
function rangeOf(
  order: SortedIndex,
  { equalities, by, bounds }: QueryPlan,
  withNulls = false,
): { readonly from: number; readonly to: number; readonly nulls: number } {
  const equal = equalities.map(({ value }) => value);
  let from = order.rank(equal, -Infinity);
  let to = order.rank(equal, Infinity);
  let nulls = to;
  if (by !== undefined && (withNulls || bounds.length > 0)) {
    nulls = order.rank([...equal, null], -Infinity);
  }
  for (const { operator, values: [value = null] } of bounds) {
    const behind = operator === "gt" || operator === "lte";
    const rank = by === undefined
      ? order.rank(equal, Number(value) + (behind ? 1 : 0))
      : order.rank([...equal, value], behind ? Infinity : -Infinity);
    if (operator === "gt" || operator === "gte") from = Math.max(from, rank);
    else nulls = Math.min(nulls, rank);
    to = nulls; // null is neither less nor more than anything
  }
  return { from: Math.min(from, to), to, nulls }; // bounds can contradict
}

/** A page of the rows that a plan finds. Read backwards, null is still the last. */
function pageOf(
  order: SortedIndex,
  plan: QueryPlan,
  { descending, offset, limit }: Query,
): Page {
  const { from, to, nulls } = rangeOf(order, plan, descending);
  const total = to - from;
  if (!descending) {
    const start = from + offset;
    return { rows: order.slice(start, Math.min(start + limit, to)), total };
  }
  const skipped = Math.max(offset - Math.max(nulls - from, 0), 0);
  const end = nulls - offset;
  const rows = order.slice(Math.max(end - limit, from), end).reverse();
  const start = Math.max(to - skipped - limit + rows.length, nulls);
  return {
    rows: [...rows, ...order.slice(start, to - skipped).reverse()],
    total,
  };
}
