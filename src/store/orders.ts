/**
 * The orders of one table that readers asked for. Each is built when it is
 * first asked for, in slices that let others through, and kept up to date by
 * every change from then on; of those not asked for any more, some go.
 *
 * Building needs no copy of the table and no stop of writes: an index follows
 * the table from the first slice on, so it holds what has changed, and the
 * slices bring what has not. A row that comes both ways is the same row.
 */

import { type Column, type Order, OrderedIndex } from "./ordered-index.ts";
import type { Document, Row } from "./row.ts";
import type { Table } from "./table.ts";

/** At a million records each takes about 12 MB. */
const mostKept = 8;

/** How long a slice may take, in ms. */
const sliceTime = 3;

/** How many rows are looked at between two looks at the clock. */
const chunk = 128;

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

  /** All rows by some columns, then by id; a promise where that is to be built first. To be used in the turn in which it is got. */
  obtain(columns: readonly Column[]): Order | Promise<Order> {
    if (columns.length === 0) return this.#table.byId;
    const name = columns.map(({ name }) => name).join();
    const kept = this.#kept.get(name);
    if (kept !== undefined) {
      this.#kept.delete(name);
      this.#kept.set(name, kept);
      return kept;
    }
    const building = this.#building.get(name);
    if (building !== undefined) return building;
    const built = this.#build(new OrderedIndex(columns), this.all());
    if (built instanceof OrderedIndex) return this.#keep(name, built);
    const promise = built.then((index) => this.#keep(name, index))
      .finally(() => this.#building.delete(name));
    this.#building.set(name, promise);
    return promise;
  }

  /**
   * What is made of those rows of a source that fulfil a condition, by some
   * columns, then by id. All of it is of the moment in which `use` is called,
   * whatever was written while the rows were looked through.
   */
  gather<T>(
    source: Source,
    { columns, where, use }: {
      readonly columns: readonly Column[];
      readonly where: (document: Document) => boolean;
      readonly use: (found: Order) => T;
    },
  ): T | Promise<T> {
    const index = new OrderedIndex(columns, where);
    const finish = () => {
      try {
        return use(index);
      } finally {
        this.#table.unfollow(index);
      }
    };
    const built = this.#build(index, source);
    return built instanceof OrderedIndex ? finish() : built.then(finish);
  }

  #keep(name: string, index: OrderedIndex): OrderedIndex {
    this.#kept.set(name, index);
    const [oldest] = this.#kept;
    if (this.#kept.size > mostKept && oldest !== undefined) {
      this.#kept.delete(oldest[0]);
      this.#table.unfollow(oldest[1]);
    }
    return index;
  }

  /** Fills an index from a source; it follows the table from then on. */
  #build(
    index: OrderedIndex,
    { count, rows }: Source,
  ): OrderedIndex | Promise<OrderedIndex> {
    if (count > fewRows) {
      return inTurn(async () => {
        for (const _ of this.#fill(index, rows())) await pause();
        return index;
      });
    }
    for (const _ of this.#fill(index, rows())); // to its end, without a pause
    return index;
  }

  /** Yields when others should have a turn. */
  *#fill(index: OrderedIndex, rows: Iterable<Row>): Generator<undefined> {
    this.#table.follow(index);
    let until = performance.now() + sliceTime;
    let count = 0;
    for (const { document: { id } } of rows) {
      // As it is now, for what was written since can be gone or otherwise.
      index.move(undefined, this.#table.get(id));
      if (++count % chunk > 0 || performance.now() < until) continue;
      yield;
      until = performance.now() + sliceTime;
    }
  }
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

function pause(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

let last: Promise<unknown> = Promise.resolve();

/** Long work is done one after the other, so that all of it together takes no more than a slice of each turn. */
function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const done = last.then(work);
  last = done.catch(() => {});
  return done;
}
