/**
 * How the records of a query are found. The plan:
 *
 * 1. Equality on `id` or on a unique property leaves one record at most: look.
 * 2. Equality on other properties and bounds of the property that decides the
 *    order are what an order can tell by itself: the order by those properties,
 *    then the one that decides, has all that match side by side. How many they
 *    are is a difference of ranks, a page is a walk from a rank.
 * 3. With any other condition all records are looked through, or those that
 *    refer to the one in question.
 *
 * The first two answer at once, once the order is there; see orders.ts.
 */

import {
  type Document,
  type Order,
  Orders,
  type Row,
  type Source,
  type Table,
} from "../store/store.ts";
import { foldText, type Named, readValue } from "./declaration.ts";
import type { Json } from "./properties.ts";
import { type Filter, fulfils, type Query } from "./query.ts";

/** What an address, not a parameter, demands of the records of a collection. */
export interface Scope {
  /** A property by which the store finds records, and the value that it must have. */
  readonly property: string;
  readonly value: number;
  /** A further condition. */
  readonly where?: (document: Document) => boolean;
}

/** One page of what matches, and how many match in all. */
export interface Page {
  readonly rows: readonly Row[];
  readonly total: number;
}

/** A property with the value that it must have. */
interface Equality {
  readonly property: Pick<Named, "name" | "default" | "unique" | "references">;
  readonly value: Json;
}

/** How an order serves a query. */
interface Plan {
  readonly equalities: readonly Equality[];
  /** The property that decides the order among equals; undefined where the id does. */
  readonly by: Named | undefined;
  /** Bounds of that property. */
  readonly bounds: readonly Filter[];
}

/** Finds records in one table. */
export class Selection {
  readonly #table: Table;
  readonly #orders: Orders;

  constructor(table: Table) {
    this.#table = table;
    this.#orders = new Orders(table);
  }

  /**
   * Finds the records of a query and makes something of the page; a promise
   * where that takes a while. Page and total are of the very moment in which
   * `use` is called, and so must be all else that goes into the answer.
   */
  select<T>(
    query: Query,
    scope: Scope | undefined,
    use: (page: Page) => T,
  ): T | Promise<T> {
    const plan = planOf(query, scope);
    if (plan === undefined) return this.#scan(query, scope, use);
    const columns = plan.equalities.map(({ property }) => property);
    const order = this.#orders.obtain(
      plan.by === undefined ? columns : [...columns, plan.by],
    );
    if (order instanceof Promise) {
      return order.then(() => this.select(query, scope, use));
    }
    return use(pageOf(order, plan, query));
  }

  #scan<T>(
    query: Query,
    scope: Scope | undefined,
    use: (page: Page) => T,
  ): T | Promise<T> {
    const { filters, sortby } = query;
    const by = sortby.name === "id" ? undefined : sortby;
    const plan: Plan = { equalities: [], by, bounds: [] };
    return this.#orders.gather(this.#source(equalitiesOf(query, scope)), {
      columns: by === undefined ? [] : [by],
      where: (document) =>
        (scope === undefined || document[scope.property] === scope.value) &&
        (scope?.where === undefined || scope.where(document)) &&
        filters.every((each) =>
          fulfils(readValue(document, each.property), each)
        ),
      use: (order) => use(pageOf(order, plan, query)),
    });
  }

  /** The fewest rows that can be had without looking at each. */
  #source(equalities: readonly Equality[]): Source {
    const table = this.#table;
    let best = this.#orders.all();
    for (
      const { property: { name, unique, references }, value } of equalities
    ) {
      if (name === "id") {
        const row = table.get(Number(value));
        return { count: 1, rows: () => row === undefined ? [] : [row] };
      }
      const key = foldText(value);
      if ((!unique && references === undefined) || key === null) continue;
      const count = table.count(name, key);
      if (count > best.count) continue;
      best = { count, rows: () => table.find(name, key) };
    }
    return best;
  }
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
function planOf(query: Query, scope: Scope | undefined): Plan | undefined {
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
  return { equalities, by, bounds };
}

const boundOperators: ReadonlySet<string> = new Set(["lt", "lte", "gt", "gte"]);

/**
 * A page of the rows that have the values of a plan. In an order null is
 * behind all else; read backwards it is still the last.
 */
function pageOf(
  order: Order,
  { equalities, by, bounds }: Plan,
  { descending, offset, limit }: Query,
): Page {
  const equal = equalities.map(({ value }) => value);
  let from = order.rank(equal, -Infinity);
  let to = order.rank(equal, Infinity);
  let nulls = to;
  if (by !== undefined && (descending || bounds.length > 0)) {
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
  const total = Math.max(to - from, 0);
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
