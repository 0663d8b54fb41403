/**
 * The sorted indexes of one table: built on demand, the least recently used one
 * evicted. The constants below say what is built when. A build belongs to the
 * table: once begun it is finished, although its requester leaves.
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
import type { Memory } from "../memory/limit.ts";
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
 * Searches get a quarter of the time while others want it; so does bringing an
 * index up to date. An index that is being built gets half of it, so that no
 * load keeps it from being finished.
 *
 * This bounds the work that strangers can cause: one search, one catch-up and
 * one build run at a time, in turns by address. A stranger who asks for one
 * index after the other takes half of the time at most; each is built only
 * after rows of that number have been scanned for want of one, or while its
 * requester waits.
 */
const searches = new JobQueue(1 / 3);
const builds = new JobQueue(1);

/** The candidate rows of a search. */
export interface RowSource {
  readonly count: number;
  /** May yield versions that have been replaced since, or newer ones. */
  readonly rows: () => Iterable<Row>;
}

/** A B+tree and the changes of the table that it lacks. */
class MaintainedIndex {
  readonly tree: BPlusTree;
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
  /** By name, the least recently used first. */
  readonly #cached = new Map<string, MaintainedIndex>();
  /** The jobs that have begun to build an index or to bring it up to date, by its name. */
  readonly #building = new Map<string, Promise<SortedIndex>>();
  /** The number of rows scanned for want of an index since one was last built for that, and whether one is to be. */
  #scannedRows = 0;
  #hasPlanned = false;

  readonly #memory: Pick<Memory, "isTight" | "onTight"> | undefined;

  /** @param memory while it is tight, no index is cached */
  constructor(
    table: Table,
    memory?: Pick<Memory, "isTight" | "onTight">,
  ) {
    this.table = table;
    this.#memory = memory;
    memory?.onTight.add(() => {
      for (const name of this.#cached.keys()) this.#drop(name);
    });
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
    const name = nameOf(columns);
    const index = this.#cached.get(name);
    if (index === undefined || index.pendingCost > maxImmediateCost) {
      return undefined;
    }
    for (const _ of index.catchUp()); // without a pause
    this.#cached.delete(name);
    this.#cached.set(name, index);
    return index.tree;
  }

  /**
   * Returns the index of some columns, building it or bringing it up to date if
   * necessary. If that takes a while it returns a promise; call it again once
   * the promise is fulfilled, since more may have changed by then.
   *
   * @throws {OverloadedError}; the reason of the requester's signal
   */
  getOrBuild(
    columns: readonly Column[],
    requester: Requester,
  ): SortedIndex | Promise<SortedIndex> {
    const cached = this.cached(columns);
    if (cached !== undefined) return cached;
    return this.#build(columns, requester);
  }

  /**
   * Does the same as `getOrBuild` if the rows to scan without the index are too
   * many; otherwise returns undefined. The rows of all such scans are added up,
   * and once they exceed `buildShare` the index of the current query, which is
   * likely to be that of a frequent one, is built in the background.
   *
   * @throws {OverloadedError}; the reason of the requester's signal
   */
  getBuildOrScan(
    columns: readonly Column[],
    count: number,
    requester: Requester,
  ): SortedIndex | Promise<SortedIndex> | undefined {
    if (this.#memory?.isTight) return undefined;
    if (count > maxScannedRows) return this.getOrBuild(columns, requester);
    this.#scannedRows += count;
    const isDue = this.#scannedRows > this.table.size * buildShare;
    if (isDue && !this.#hasPlanned) {
      this.#scannedRows = 0;
      this.#hasPlanned = true;
      const { client } = requester;
      const { signal } = new AbortController(); // whoever leaves
      this.#build(columns, { client, signal }).catch(() => {})
        .finally(() => this.#hasPlanned = false);
    }
    return undefined;
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
    return searches.run(requester, {
      cost: count,
      start: function* () {
        return use(yield* index.build(rows));
      },
    });
  }

  /**
   * Builds an index, or brings it up to date, in the requester's turn. A job that
   * has begun is shared; one that waits is not, as its requester may wait long.
   */
  #build(
    columns: readonly Column[],
    requester: Requester,
  ): Promise<SortedIndex> {
    const name = nameOf(columns);
    const begun = this.#building.get(name);
    if (begun !== undefined) return begun;
    const queue = this.#cached.has(name) ? searches : builds;
    const job: Promise<SortedIndex> = Promise.resolve(queue.run(requester, {
      cost: Infinity,
      isShared: true,
      start: () => {
        this.#building.set(name, job);
        return this.#update(name, columns);
      },
    })).finally(() => {
      if (this.#building.get(name) === job) this.#building.delete(name);
    });
    return job;
  }

  /** Builds an index unless another request has meanwhile, and else brings it up to date. */
  *#update(name: string, columns: readonly Column[]): Steps<SortedIndex> {
    const cached = this.#cached.get(name);
    if (cached !== undefined) return yield* cached.catchUp();
    const tree = new BPlusTree(columns);
    const index = new MaintainedIndex(
      this.table,
      tree,
      () => this.#drop(name),
    );
    yield* index.build(this.all().rows);
    const [leastRecent = ""] = this.#cached.keys();
    if (this.#cached.size >= maxCachedIndexes) this.#drop(leastRecent);
    this.#cached.set(name, index);
    this.table.listeners.add(index.onChange);
    return tree;
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
