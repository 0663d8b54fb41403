/**
 * The orders of one table that readers asked for. Each is built when it is
 * first asked for (where few rows are in question, once looking through those
 * has cost enough), in slices that let others through. From then on changes are
 * noted, and made up for when it is asked for again: a write does not wait for
 * orders, and of a row that changes again and again only the last time costs.
 * Those that have long not been asked for go.
 *
 * Building needs no copy of the table and no stop of writes: what changes
 * meanwhile is noted and done to the index at its end. Then a row is in it as
 * the last change left it, whichever of its states was met in the table: the
 * change that made that state finds it there already, and each change takes
 * away what it replaced.
 */

import { StoreError } from "../error.ts";
import { BPlusTree, type SortedIndex } from "./b-plus-tree.ts";
import type { Column } from "./row-comparator.ts";
import type { Document, Row } from "../memory/row.ts";
import type { ChangeListener, Table } from "../memory/table.ts";

/** At a million records each takes 10 to 13 MB. */
const mostKept = 8;

/** How many changes are made up for at once: less than a few milliseconds of work. */
const fewChanges = 256;

/** How many changes an order may be behind: of a large table a part of its rows, where to build it anew takes not much longer. */
const mostBehind = { least: 1000, part: 1 / 8 };

/** How long a slice may take, in ms: an answer can wait for two of them. */
const sliceTime = 1.5;

/** How many rows are taken, or changes made up for, at once. */
const chunk = 128;

/** How many searches, and how many orders to be built, may wait for their turn. */
const mostWaiting = 32;

/** What takes less than about a millisecond is done at once. */
const fewRows = 1000;

/** How many rows are looked through again and again where there is no order, until an order pays. */
const mostLooked = 10_000;

/** Of how many orders it is counted what they would have saved. */
const mostCounted = 1000;

/** Rows to look through. */
export interface RowSource {
  /** How many there are. */
  readonly count: number;
  /** May be outdated by later changes. */
  readonly rows: () => Iterable<Row>;
}

/** An order that is being built. */
interface Building {
  readonly promise: Promise<SortedIndex>;
  /** Those of all who wait for it. */
  readonly checks: (() => void)[];
}

/** An order, and which rows have changed since it was last asked for. */
class CachedIndex implements ChangeListener {
  readonly index: BPlusTree;
  readonly #table: Table;
  readonly #leave: () => void;
  /** What the index has of them, by id. */
  readonly #changed = new Map<number, Row | undefined>();

  /** @param leave called when it is too far behind to be kept */
  constructor(index: BPlusTree, table: Table, leave: () => void) {
    this.index = index;
    this.#table = table;
    this.#leave = leave;
  }

  /** How many rows have changed. */
  get pendingChanges(): number {
    return this.#changed.size;
  }

  onChange(before: Row | undefined, after: Row | undefined): void {
    const id = (before ?? after)?.document.id;
    if (id === undefined || this.#changed.has(id)) return;
    this.#changed.set(id, before);
    const { least, part } = mostBehind;
    const most = Math.max(least, this.#table.size * part);
    if (this.#changed.size > most) this.#leave();
  }

  /** Makes up for what has changed, and for what changes meanwhile; yields after each little while. */
  *catchUp(): Generator<undefined> {
    yield* makeUp(this.#changed, () => this.pendingChanges, ([id, before]) => {
      this.#changed.delete(id);
      this.index.move(before, this.#table.get(id));
    });
  }
}

/** The orders of one table. */
export class IndexCache {
  readonly #table: Table;
  /** The one asked for last at the end. */
  readonly #kept = new Map<string, CachedIndex>();
  readonly #building = new Map<string, Building>();
  /** How many rows were looked through instead of building an order. */
  readonly #looked = new Map<string, number>();

  constructor(table: Table) {
    this.#table = table;
  }

  /** All rows, by ascending id. */
  all(): RowSource {
    const { size, byId } = this.#table;
    return { count: size, rows: () => ascending(byId) };
  }

  /** All rows by some columns, then by id, where they are there in this order by now, or nearly. To be used in the turn in which it is got. */
  cached(columns: readonly Column[]): SortedIndex | undefined {
    if (columns.length === 0) return this.#table.byId;
    const name = nameOf(columns);
    const kept = this.#kept.get(name);
    if (kept === undefined || kept.pendingChanges > fewChanges) {
      return undefined;
    }
    for (const _ of kept.catchUp()); // to its end, without a pause
    this.#kept.delete(name);
    this.#kept.set(name, kept);
    return kept.index;
  }

  /**
   * The same; a promise where the order is to be built first, or much is to be
   * made up for: then it is to be asked for again.
   *
   * @param check called now and then where it takes a while; where it throws
   * for all who asked, the order is not built
   * @throws {StoreError} `overloaded`
   */
  getOrBuild(
    columns: readonly Column[],
    check: () => void = () => {},
  ): SortedIndex | Promise<SortedIndex> {
    const kept = this.cached(columns);
    if (kept !== undefined) return kept;
    const name = nameOf(columns);
    const building = this.#building.get(name);
    if (building !== undefined) {
      building.checks.push(check);
      return building.promise;
    }
    const checks = [check];
    const checking = { check: () => checkAny(checks) };
    const known = this.#kept.get(name);
    const index = known?.index ?? new BPlusTree(columns);
    const built = known === undefined
      ? this.#build(index, this.all(), builds, {
        done: () => this.#keep(name, index),
        ...checking,
      })
      : catchUps.run(() =>
        inSlices(known.catchUp(), { done: () => index, ...checking })
      );
    if (!(built instanceof Promise)) return built;
    const promise = built.finally(() => this.#building.delete(name));
    this.#building.set(name, { promise, checks });
    return promise;
  }

  /**
   * The same; undefined where it is better to look through so many rows. What
   * was looked through pays for the order in the end: beyond an eighth of the
   * table it is built beside that, and beyond a quarter it is waited for, as
   * those who look leave little time for building it.
   *
   * @throws {StoreError} `overloaded`
   */
  getBuildOrScan(
    columns: readonly Column[],
    rows: number,
    check: () => void,
  ): SortedIndex | Promise<SortedIndex> | undefined {
    if (rows > mostLooked) return this.getOrBuild(columns, check);
    const name = nameOf(columns);
    const looked = (this.#looked.get(name) ?? 0) + rows;
    const share = looked / this.#table.size;
    if (share > 1 / 4) return this.getOrBuild(columns, check);
    if (this.#looked.size === mostCounted) this.#looked.clear();
    this.#looked.set(name, looked);
    if (share < 1 / 8 || builds.full) return undefined;
    const order = this.getOrBuild(columns);
    if (!(order instanceof Promise)) return order;
    order.catch(() => {}); // who waits for it is told
    return undefined;
  }

  /**
   * What is made of those rows of a source that fulfil a condition, by some
   * columns, then by id. All of it is of the moment in which `use` is called,
   * whatever was written while the rows were looked through.
   *
   * @throws {StoreError} `overloaded`
   */
  scan<T>(
    source: RowSource,
    { columns, where, use, check }: {
      readonly columns: readonly Column[];
      readonly where: (document: Document) => boolean;
      readonly use: (found: SortedIndex) => T;
      /** Called now and then where it takes a while; may end it by throwing. */
      readonly check?: () => void;
    },
  ): T | Promise<T> {
    const index = new BPlusTree(columns, where);
    const done = () => use(index);
    return this.#build(index, source, searches, { done, check });
  }

  #keep(name: string, index: BPlusTree): BPlusTree {
    this.#looked.delete(name);
    const leave = () => this.#drop(name);
    const kept = new CachedIndex(index, this.#table, leave);
    this.#kept.set(name, kept);
    this.#table.addListener(kept);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > mostKept && oldest !== undefined) this.#drop(oldest);
    return index;
  }

  #drop(name: string): void {
    const kept = this.#kept.get(name);
    if (kept !== undefined) this.#table.removeListener(kept);
    this.#kept.delete(name);
  }

  /** Fills an index from a source; returns what `done` makes of it while it is as the table is. */
  #build<T>(
    index: BPlusTree,
    source: RowSource,
    queue: Queue,
    { done, check = () => {} }: {
      readonly done: () => T;
      readonly check?: (() => void) | undefined;
    },
  ): T | Promise<T> {
    const steps = this.#fill(index, source.rows);
    if (source.count > fewRows) {
      return queue.run(() => inSlices(steps, { done, check }));
    }
    for (const _ of steps); // to its end, without a pause
    return done();
  }

  /** Yields after each little while. */
  *#fill(
    index: BPlusTree,
    rows: () => Iterable<Row>,
  ): Generator<undefined> {
    const moves: Parameters<ChangeListener["onChange"]>[] = [];
    const recorder: ChangeListener = {
      onChange: (...rows) => void moves.push(rows),
    };
    this.#table.addListener(recorder);
    try {
      yield* index.fill(rows());
      yield* makeUp(moves, () => moves.length, (move) => index.move(...move));
    } finally {
      this.#table.removeListener(recorder);
    }
  }
}

/** Goes through changes that grow more meanwhile; yields after each little while. */
function* makeUp<T>(
  changes: Iterable<T>,
  size: () => number,
  make: (change: T) => void,
): Generator<undefined> {
  let count = 0;
  let least = 0;
  for (const change of changes) {
    make(change);
    if (++count % chunk !== 0 || count < least) continue;
    const before = size();
    yield;
    // Twice as many as have come meanwhile: else it could have no end.
    least = count + 2 * (size() - before);
  }
}

function nameOf(columns: readonly Column[]): string {
  let all = "";
  for (const { name, caseFolded } of columns) {
    all += caseFolded ? `${name}~,` : `${name},`;
  }
  return all;
}

/** All rows of an order by id; it looks anew after each few of them. */
function* ascending(byId: SortedIndex): Generator<Row> {
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

/** Throws where all of them throw, and forgets those that do. */
function checkAny(checks: (() => void)[]): void {
  while (true) {
    try {
      return checks[0]?.();
    } catch (error) {
      checks.shift();
      if (checks.length === 0) throw error;
    }
  }
}

/** Long work is done one after the other, so that all of it together takes no more than a slice of each turn. */
class Queue {
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  get full(): boolean {
    return this.#waiting === mostWaiting;
  }

  run<T>(work: () => Promise<T>): Promise<T> {
    if (this.full) {
      throw new StoreError(
        "overloaded",
        "Too many searches are waiting; try again later.",
      );
    }
    this.#waiting++;
    const done = this.#last.then(() => {
      this.#waiting--;
      return work();
    });
    this.#last = done.catch(() => {});
    return done;
  }
}

// Three, so that what takes less need not wait for what takes more.
const searches = new Queue();
const catchUps = new Queue();
const builds = new Queue();
