/**
 * The orders of one table that readers asked for. Each is built when it is
 * first asked for, in slices that let others through, and kept up to date by
 * every change from then on; of those not asked for any more, some go.
 *
 * Building needs no copy of the table and no stop of writes: what changes
 * meanwhile is noted and done to the index at its end. Then a row is in it as
 * the last change left it, whichever of its states was met in the table: the
 * change that made that state finds it there already, and each change takes
 * away what it replaced.
 */

import { StoreError } from "./error.ts";
import { type Order, OrderedIndex } from "./ordered-index.ts";
import type { Column } from "./row-order.ts";
import type { Document, Row } from "./row.ts";
import type { Follower, Table } from "./table.ts";

/** At a million records each takes 10 to 13 MB. */
const mostKept = 8;

/** How long a slice may take, in ms. */
const sliceTime = 3;

/** How many rows are taken, or changes made up for, at once. */
const chunk = 128;

/** How many searches and orders to be built may wait for their turn. */
const mostWaiting = 32;

/** What takes less than about a millisecond is done at once. */
const fewRows = 1000;

/** Rows to look through. */
export interface Source {
  /** How many there are. */
  readonly count: number;
  /** May be outdated by later changes. */
  readonly rows: () => Iterable<Row>;
}

/** The orders of one table. */
export class Orders {
  readonly #table: Table;
  /** The one asked for last at the end. */
  readonly #kept = new Map<string, OrderedIndex>();
  readonly #building = new Map<string, Promise<OrderedIndex>>();

  constructor(table: Table) {
    this.#table = table;
  }

  /** All rows, by ascending id. */
  all(): Source {
    const { size, byId } = this.#table;
    return { count: size, rows: () => ascending(byId) };
  }

  /** All rows by some columns, then by id, where they are there in this order by now. To be used in the turn in which it is got. */
  kept(columns: readonly Column[]): Order | undefined {
    if (columns.length === 0) return this.#table.byId;
    const name = nameOf(columns);
    const kept = this.#kept.get(name);
    if (kept !== undefined) {
      this.#kept.delete(name);
      this.#kept.set(name, kept);
    }
    return kept;
  }

  /**
   * The same; a promise where the order is to be built first.
   *
   * @throws {StoreError} `overloaded`
   */
  obtain(columns: readonly Column[]): Order | Promise<Order> {
    const kept = this.kept(columns);
    if (kept !== undefined) return kept;
    const name = nameOf(columns);
    const building = this.#building.get(name);
    if (building !== undefined) return building;
    const index = new OrderedIndex(columns);
    const done = () => this.#keep(name, index);
    const built = this.#build(index, this.all(), { done });
    if (!(built instanceof Promise)) return built;
    const promise = built.finally(() => this.#building.delete(name));
    this.#building.set(name, promise);
    return promise;
  }

  /**
   * What is made of those rows of a source that fulfil a condition, by some
   * columns, then by id. All of it is of the moment in which `use` is called,
   * whatever was written while the rows were looked through.
   *
   * @throws {StoreError} `overloaded`
   */
  gather<T>(
    source: Source,
    { columns, where, use, check }: {
      readonly columns: readonly Column[];
      readonly where: (document: Document) => boolean;
      readonly use: (found: Order) => T;
      /** Called now and then where it takes a while; may end it by throwing. */
      readonly check?: () => void;
    },
  ): T | Promise<T> {
    const index = new OrderedIndex(columns, where);
    const done = () => use(index);
    return this.#build(index, source, { done, check });
  }

  #keep(name: string, index: OrderedIndex): OrderedIndex {
    this.#kept.set(name, index);
    this.#table.follow(index, () => this.#kept.delete(name));
    const [oldest] = this.#kept;
    if (this.#kept.size > mostKept && oldest !== undefined) {
      this.#kept.delete(oldest[0]);
      this.#table.unfollow(oldest[1]);
    }
    return index;
  }

  /** Fills an index from a source; returns what `done` makes of it while it is as the table is. */
  #build<T>(
    index: OrderedIndex,
    source: Source,
    { done, check = () => {} }: {
      readonly done: () => T;
      readonly check?: (() => void) | undefined;
    },
  ): T | Promise<T> {
    const steps = this.#fill(index, source.rows);
    if (source.count > fewRows) {
      return inTurn(() => inSlices(steps, { done, check }));
    }
    for (const _ of steps); // to its end, without a pause
    return done();
  }

  /** Yields after each little while. */
  *#fill(
    index: OrderedIndex,
    rows: () => Iterable<Row>,
  ): Generator<undefined> {
    const moves: Parameters<Follower["move"]>[] = [];
    const recorder: Follower = { move: (...rows) => void moves.push(rows) };
    this.#table.follow(recorder);
    try {
      yield* index.fill(rows());
      for (const [at, [before, after]] of moves.entries()) {
        index.move(before, after);
        if (at % chunk === 0) yield;
      }
    } finally {
      this.#table.unfollow(recorder);
    }
  }
}

function nameOf(columns: readonly Column[]): string {
  let all = "";
  for (const { name, folded } of columns) {
    all += folded ? `${name}~,` : `${name},`;
  }
  return all;
}

/** All rows of an order by id; it looks anew after each few of them. */
function* ascending(byId: Order): Generator<Row> {
  let next = 0;
  while (true) {
    const from = byId.rank([], next);
    const rows = byId.slice(from, from + chunk);
    yield* rows;
    const last = rows.at(-1);
    if (last === undefined) return;
    next = last.document.id + 1;
  }
}

/** Takes steps, with a pause after each slice of time, and with the last of them is done; `check` may end it by throwing. */
async function inSlices<T>(
  steps: Iterable<undefined>,
  { done, check }: { readonly done: () => T; readonly check: () => void },
): Promise<T> {
  check();
  let until = performance.now() + sliceTime;
  for (const _ of steps) {
    if (performance.now() < until) continue;
    await new Promise((resolve) => setImmediate(resolve));
    check();
    until = performance.now() + sliceTime;
  }
  return done();
}

let last: Promise<unknown> = Promise.resolve();
let waiting = 0;

/** Long work is done one after the other, so that all of it together takes no more than a slice of each turn. */
function inTurn<T>(work: () => Promise<T>): Promise<T> {
  if (waiting === mostWaiting) {
    throw new StoreError(
      "overloaded",
      "Too many searches are waiting; try again later.",
    );
  }
  waiting++;
  const done = last.then(() => {
    waiting--;
    return work();
  });
  last = done.catch(() => {});
  return done;
}
