/**
 * The sorted indexes of one table: built on demand, evicted when least
 * frequently used. The constants below say what is built when.
 *
 * A write only notes which row has changed, in a map per index; the changes
 * are applied the next time the index is used. So writes do not wait for
 * indexes, and a row that changes repeatedly is applied only once.
 *
 * An index is built while rows change, without a copy of the table: the rows
 * that change meanwhile are noted in the same way, left out of the bulk load
 * (which may have read any of their versions), and then applied like others.
 */

import type { Requester } from "../../admission.ts";
import { BPlusTree, type SortedIndex } from "./b-plus-tree.ts";
import { JobQueue, rowsPerStep, type Steps } from "./job-queue.ts";
import type { Column } from "./row-comparator.ts";
import type { Document, Row } from "../memory/row.ts";
import type { ChangeListener, Table } from "../memory/table.ts";

/**
 * The most indexes cached for one table. Each takes 10 to 13 MB for a million
 * rows.
 */
const maxCachedIndexes = 8;

/** The cost of applying one change to an index, in rows: a delete and an insert. */
const rowsPerChange = 4;

/** The cost, in rows, up to which changes are applied at once: a millisecond. */
const maxImmediateCost = 1000;

/**
 * The most changes that an index may lack, as a share of the table's rows, or
 * `minPendingChanges` in a small table. Beyond that, rebuilding it takes
 * hardly longer than applying them, and the list of changes would only grow.
 */
const maxPendingShare = 1 / 8;
const minPendingChanges = 1000;

/** The most rows that are scanned for want of an index. Beyond that (10 ms) the index is built at once. */
const maxScannedRows = 10_000;

/**
 * The share of the table's rows, summed over repeated scans, from which the
 * index that would save the next one is built. Building it costs about as much
 * as scanning all rows, so by then at most a quarter of that is wasted.
 */
const buildShare = 1 / 4;

/**
 * The time after which a use of an index counts half. Long, so that indexes
 * requested once each do not evict one that is in use, however many they are.
 */
const useHalfLifeMs = 600_000;

// Separate queues, so that shorter jobs do not wait for longer ones.
const searches = new JobQueue();
const catchUps = new JobQueue();
const builds = new JobQueue();

/** The candidate rows of a search. */
export interface RowSource {
  readonly count: number;
  /** May yield versions that have been replaced since. */
  readonly rows: () => Iterable<Row>;
}

/** A B+tree and the changes of the table that it lacks. */
class MaintainedIndex {
  readonly tree: BPlusTree;
  /** How often it was used recently. */
  uses = 1;
  readonly #table: Table;
  readonly #onOutdated: () => void;
  /** The version of each changed row that the tree may hold, by id. */
  readonly #changed = new Map<number, Row | undefined>();

  /** @param onOutdated called when it lacks so many changes that it should be dropped */
  constructor(table: Table, tree: BPlusTree, onOutdated = () => {}) {
    this.tree = tree;
    this.#table = table;
    this.#onOutdated = onOutdated;
  }

  /** The cost of applying the pending changes, in rows. */
  get pendingCost(): number {
    return this.#changed.size * rowsPerChange;
  }

  readonly onChange: ChangeListener = (before, after) => {
    const id = (before ?? after)?.document.id;
    if (id === undefined || this.#changed.has(id)) return;
    this.#changed.set(id, before);
    const share = this.#table.size * maxPendingShare;
    if (this.#changed.size > Math.max(minPendingChanges, share)) {
      this.#onOutdated();
    }
  };

  /** Loads rows of the table, then applies all that changed meanwhile. */
  *build(rows: () => Iterable<Row>): Steps<BPlusTree> {
    this.#table.listeners.add(this.onChange);
    try {
      yield* this.tree.bulkLoad(rows(), (id) => this.#changed.has(id));
      return yield* this.catchUp();
    } finally {
      this.#table.listeners.delete(this.onChange);
    }
  }

  /** Applies all changes, and those that are made meanwhile. */
  *catchUp(): Steps<BPlusTree> {
    let remaining = rowsPerStep;
    for (const [id, before] of this.#changed) {
      this.#changed.delete(id);
      this.tree.replace(before, this.#table.get(id));
      if (--remaining > 0) continue;
      const { size } = this.#changed;
      yield;
      // Twice the number of changes made meanwhile: else it might never end.
      remaining = Math.max(rowsPerStep, 2 * (this.#changed.size - size));
    }
    return this.tree;
  }
}

export class IndexCache {
  readonly table: Table;
  /** By name. */
  readonly #cached = new Map<string, MaintainedIndex>();
  /**
   * The indexes that are being built or brought up to date, by name and client:
   * later requests of a client wait together with its first.
   */
  readonly #building = new Map<string, Promise<SortedIndex>>();
  #evictedAt = performance.now();
  /**
   * The number of rows scanned for want of an index since the last one was
   * requested.
   */
  #scannedRows = 0;

  constructor(table: Table) {
    this.table = table;
  }

  /** Returns all rows of the table, in ascending order of id. */
  all(): RowSource {
    const { size, byId } = this.table;
    return { count: size, rows: () => byId.rows() };
  }

  /**
   * Returns the index of some columns if it is cached and lacks few changes,
   * which are then applied. It is current until the next write: use it before
   * any `await`.
   */
  cached(columns: readonly Column[]): SortedIndex | undefined {
    if (columns.length === 0) return this.table.byId;
    const index = this.#cached.get(nameOf(columns));
    if (index === undefined || index.pendingCost > maxImmediateCost) {
      return undefined;
    }
    for (const _ of index.catchUp()); // without a pause
    index.uses++;
    return index.tree;
  }

  /**
   * Returns the index of some columns, building it or bringing it up to date if
   * necessary. If that takes a while it returns a promise; call it again once
   * the promise is fulfilled, since more may have changed by then.
   *
   * If the client disconnects the work ends, and begins again for others who
   * wait for this index.
   *
   * @throws {OverloadedError}
   */
  getOrBuild(
    columns: readonly Column[],
    requester: Requester,
  ): SortedIndex | Promise<SortedIndex> {
    const cached = this.cached(columns);
    if (cached !== undefined) return cached;
    const name = nameOf(columns);
    const key = `${requester.client} ${name}`;
    const building = this.#building.get(key);
    if (building !== undefined) {
      return building.catch(() => this.getOrBuild(columns, requester));
    }
    const outdated = this.#cached.get(name);
    const index = outdated ?? new MaintainedIndex(
      this.table,
      new BPlusTree(columns),
      () => this.#drop(name),
    );
    const result = outdated === undefined
      ? builds.run(requester, this.table.size, () => this.#build(name, index))
      : catchUps.run(requester, index.pendingCost, () => index.catchUp());
    if (!(result instanceof Promise)) return result;
    const promise = result.finally(() => this.#building.delete(key));
    this.#building.set(key, promise);
    return promise;
  }

  /**
   * Does the same as `getOrBuild` if the index pays off; returns undefined if
   * scanning `count` candidates is cheaper. The rows of all such scans are
   * added up, and once they exceed `buildShare` the index of the current query
   * is built, which is likely to be that of a frequent one.
   *
   * @throws {OverloadedError}
   */
  getBuildOrScan(
    columns: readonly Column[],
    count: number,
    requester: Requester,
  ): SortedIndex | Promise<SortedIndex> | undefined {
    this.#scannedRows += count;
    const isDue = this.#scannedRows > this.table.size * buildShare;
    if (count <= maxScannedRows && !isDue) return undefined;
    this.#scannedRows = 0;
    return this.getOrBuild(columns, requester);
  }

  /**
   * Sorts those rows of a source that match a condition, and returns the result
   * of `use`. All rows are as of the moment when `use` is called, whatever was
   * written during the scan.
   *
   * @throws {OverloadedError}
   */
  scan<T>(
    { count, rows }: RowSource,
    { columns, where, use, requester }: {
      readonly columns: readonly Column[];
      readonly where: (document: Document) => boolean;
      readonly use: (found: SortedIndex) => T;
      readonly requester: Requester;
    },
  ): T | Promise<T> {
    const tree = new BPlusTree(columns, where);
    const index = new MaintainedIndex(this.table, tree);
    return searches.run(requester, count, function* () {
      return use(yield* index.build(rows));
    });
  }

  *#build(name: string, index: MaintainedIndex): Steps<SortedIndex> {
    // A request of another client may have built it in the meantime.
    if (!this.#cached.has(name)) yield* index.build(this.all().rows);
    const cached = this.#cached.get(name);
    if (cached !== undefined) return cached.tree;
    if (this.#cached.size >= maxCachedIndexes) this.#evictOne();
    this.#cached.set(name, index);
    this.table.listeners.add(index.onChange);
    return index.tree;
  }

  /** Drops the least frequently used index. */
  #evictOne(): void {
    const now = performance.now();
    const factor = 0.5 ** ((now - this.#evictedAt) / useHalfLifeMs);
    this.#evictedAt = now;
    for (const index of this.#cached.values()) index.uses *= factor;
    const [least] = Array.from(this.#cached)
      .sort(([, one], [, other]) => one.uses - other.uses);
    if (least !== undefined) this.#drop(least[0]);
  }

  #drop(name: string): void {
    const index = this.#cached.get(name);
    if (index !== undefined) this.table.listeners.delete(index.onChange);
    this.#cached.delete(name);
  }
}

function nameOf(columns: readonly Column[]): string {
  let all = "";
  for (const { name, caseFolded, descending, nullsFirst } of columns) {
    all += name;
    if (caseFolded) all += "~";
    if (descending) all += "-";
    if (nullsFirst) all += "^";
    all += ",";
  }
  return all;
}
