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
import type { ChangeListener, Memory, Row, Table } from "../../store/store.ts";
import { BPlusTree, rowsPerStep, type SortedIndex } from "./b-plus-tree.ts";
import { createSliceQueue, type Steps } from "../../api/query/slices.ts";
import type { IndexColumn } from "./row-comparator.ts";

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
 * An index that is being built gets half of the time while others want it, so
 * that no load keeps it from being finished; bringing one up to date gets a
 * quarter, like a search.
 *
 * This bounds the work that strangers can cause: one catch-up and one build run
 * at a time, in turns by address. A stranger who asks for one index after the
 * other takes half of the time at most; each is built only after rows of that
 * number have been scanned for want of one, or while its requester waits.
 */
const runCatchUp = createSliceQueue(1 / 3);
const runBuild = createSliceQueue(1);

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

  /** Loads the rows of the table, then applies all that changed meanwhile. */
  *build(): Steps {
    const table = this.#table;
    table.listeners.add(this.onChange);
    try {
      yield* this.tree.bulkLoad(table.frozen(), (id) => this.#changed.has(id));
      yield* this.catchUp();
    } finally {
      table.listeners.delete(this.onChange);
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

  /**
   * Returns the index of some columns if it is cached and lacks few changes,
   * which are then applied. It is current until the next write: use it before
   * any `await`.
   */
  cached(columns: readonly IndexColumn[]): SortedIndex | undefined {
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
    columns: readonly IndexColumn[],
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
    columns: readonly IndexColumn[],
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
   * Builds an index, or brings it up to date, in the requester's turn. A job that
   * has begun is shared; one that waits is not, as its requester may wait long.
   */
  #build(
    columns: readonly IndexColumn[],
    requester: Requester,
  ): Promise<SortedIndex> {
    const name = nameOf(columns);
    const begun = this.#building.get(name);
    if (begun !== undefined) return begun;
    const run = this.#cached.has(name) ? runCatchUp : runBuild;
    const steps = this.#update(columns, () => this.#building.set(name, job));
    const job: Promise<SortedIndex> = run(requester, steps)
      .finally(() => {
        if (this.#building.get(name) === job) this.#building.delete(name);
      });
    return job;
  }

  /** Builds an index unless another request has meanwhile, and else brings it up to date. */
  *#update(
    columns: readonly IndexColumn[],
    onBegin: () => void,
  ): Steps<SortedIndex> {
    onBegin();
    const name = nameOf(columns);
    const cached = this.#cached.get(name);
    if (cached !== undefined) return yield* cached.catchUp();
    const tree = new BPlusTree(columns);
    const index = new MaintainedIndex(
      this.table,
      tree,
      () => this.#drop(name),
    );
    yield* index.build();
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

function nameOf(columns: readonly IndexColumn[]): string {
  let all = "";
  for (const { name, isFolded, descending, nullsFirst } of columns) {
    all += name;
    if (isFolded) all += "~";
    if (descending) all += "-";
    if (nullsFirst) all += "^";
    all += ",";
  }
  return all;
}
