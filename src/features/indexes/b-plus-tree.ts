/**
 * A B+tree of rows, sorted by some columns and then by id: a sorted index.
 * Each node counts the rows of its subtree (an order-statistics tree), so
 * that the rank of a value, the row at a rank (select) and the number of rows
 * in a range are found in O(log n). It holds references to rows, about ten
 * bytes for each, and no copies. A reader that takes long freezes the tree,
 * which costs nothing: after that a node is copied before its next change
 * (copy-on-write).
 */

import type { Steps } from "../../api/query/slices.ts";
import type { Json, Row } from "../../store/store.ts";
import {
  type Bound,
  type IndexColumn,
  RowComparator,
} from "./row-comparator.ts";

/** The rows, or changes, that are processed in one step. */
export const rowsPerStep = 128;

/** The most entries of a node: larger nodes are slower to change, smaller ones slower to search. */
const maxEntries = 64;

/** The number of rows sorted at once, and processed in a step: less than a millisecond. */
const runLength = 256;

class Node {
  /**
   * The rows of a leaf. In a branch the separators between its children: no
   * row of child `i` is after `rows[i]`, and all rows of child `i + 1` are.
   */
  readonly rows: Row[];
  /** The children of a branch; undefined in a leaf. */
  readonly children: Node[] | undefined;
  /**
   * The tree's version when it created the node. Once the tree has a later
   * version, the node is frozen.
   */
  readonly version: number;
  /** The number of rows in its subtree. */
  count: number;

  constructor(version: number, rows: Row[], children?: Node[]) {
    this.version = version;
    this.rows = rows;
    this.children = children;
    this.count = children === undefined ? rows.length : 0;
    for (const child of children ?? []) this.count += child.count;
  }
}

/** A sorted index, for reading. */
export type SortedIndex = Pick<BPlusTree, "rank" | "slice" | "rows">;

/** Yields the rows of a frozen tree. */
function* readSlices(
  root: Node,
  from: number,
  to: number,
  isBackwards: boolean,
): Generator<Row> {
  while (from < to) {
    const step = Math.min(rowsPerStep, to - from);
    if (isBackwards) {
      to -= step;
      yield* collect(root, to, to + step).reverse();
    } else {
      from += step;
      yield* collect(root, from - step, from);
    }
  }
}

export class BPlusTree {
  readonly #comparator: RowComparator;
  #version = 0;
  #root = new Node(0, []);

  constructor(columns: readonly IndexColumn[]) {
    this.#comparator = new RowComparator(columns);
  }

  /** The number of rows in the index. */
  get size(): number {
    return this.#root.count;
  }

  /**
   * Returns the number of rows before a position: that of the row with these
   * values and this id. Fewer values than columns are a prefix; the id must
   * then be -Infinity, for the position before all rows with this prefix, or
   * Infinity, for the one after them.
   */
  rank(values: readonly Json[], id: number): number {
    const bound = { values, id };
    let node = this.#root;
    let rank = 0;
    while (true) {
      const at = this.#comparator.lowerBound(node.rows, bound);
      if (node.children === undefined) return rank + at;
      for (let before = 0; before < at; before++) {
        rank += node.children[before]?.count ?? 0;
      }
      node = node.children[at] ?? node;
    }
  }

  /** Returns the rows from one rank up to, but not including, another. */
  slice(from: number, to = this.size): Row[] {
    return collect(this.#root, from, to);
  }

  /** Returns the same rows as they are now, whatever changes before they are read. */
  rows(from = 0, to = this.size, isBackwards = false): Iterable<Row> {
    this.#version++;
    return readSlices(this.#root, from, to, isBackwards);
  }

  /**
   * Inserts rows in any order. Sorts them first, which makes it several times
   * as fast. A row may occur twice.
   *
   * @param isOutdated returns whether the row with an id is to be left out,
   * because it has changed since it was read from `rows`
   */
  *bulkLoad(
    rows: Iterable<Row>,
    isOutdated: (id: number) => boolean = () => false,
  ): Steps {
    const loaded: Row[] = [];
    for (const row of rows) {
      if (loaded.push(row) % rowsPerStep === 0) yield;
    }
    let count = 0;
    for (const at of yield* sort(loaded, this.#comparator)) {
      const row = loaded[at];
      if (row === undefined || isOutdated(row.document.id)) continue;
      this.replace(undefined, row);
      if (++count % rowsPerStep === 0) yield;
    }
  }

  /**
   * Replaces one version of a row by the next; either may be undefined. An old
   * version that is not in the index is ignored.
   */
  replace(before: Row | undefined, after: Row | undefined): void {
    this.#root = this.#own(this.#root);
    const bound = after && this.#comparator.boundOf(after);
    const staysInPlace = before && bound &&
      this.#comparator.compareTo(before, bound) === 0;
    if (before && !staysInPlace) {
      this.#set(this.#root, this.#comparator.boundOf(before), undefined);
    }
    if (bound) this.#set(this.#root, bound, after);
    if (entryCount(this.#root) > maxEntries) {
      this.#root = new Node(this.#version, [], [this.#root]);
      splitChild(this.#root, 0);
    }
    while (this.#root.children?.length === 1) {
      this.#root = this.#root.children[0] ?? this.#root;
    }
  }

  /** Returns a node that may be changed: itself, or a copy if it is frozen. */
  #own(node: Node): Node {
    const { version, rows, children } = node;
    return version === this.#version
      ? node
      : new Node(this.#version, rows.slice(), children?.slice());
  }

  /** Puts a row at a position, in place of the version that is there; removes that version if there is no row. */
  #set(node: Node, bound: Bound, row: Row | undefined): void {
    const { rows, children } = node;
    const at = this.#comparator.lowerBound(rows, bound);
    const found = rows[at];
    const exists = found?.document.id === bound.id &&
      this.#comparator.compareTo(found, bound) === 0;
    // Replaces separators too, so that the old version can be
    // garbage-collected.
    if (exists && row !== undefined) rows[at] = row;
    if (children === undefined) {
      if (exists === (row !== undefined)) return;
      if (row === undefined) rows.splice(at, 1);
      else if (at === rows.length) rows.push(row);
      else rows.splice(at, 0, row);
      node.count = rows.length;
      return;
    }
    const child = this.#own(children[at] ?? node);
    children[at] = child;
    node.count -= child.count;
    this.#set(child, bound, row);
    node.count += child.count;
    if (entryCount(child) > maxEntries) splitChild(node, at);
    if (child.count > 0) return;
    // Only empty nodes are removed: deletes are rarer than inserts, which fill the others again.
    children.splice(at, 1);
    rows.splice(Math.max(at - 1, 0), 1);
  }
}

function entryCount({ rows, children }: Node): number {
  return (children ?? rows).length;
}

/** Splits a child with too many entries. */
function splitChild(node: Node, at: number): void {
  const left = node.children?.[at];
  if (left === undefined) return;
  // Rows that are inserted in ascending order leave full nodes.
  const size = at === node.rows.length ? maxEntries : maxEntries / 2;
  const right = new Node(
    node.version,
    left.rows.splice(size),
    left.children?.splice(size),
  );
  left.count -= right.count;
  const separator = left.rows.slice(-1);
  if (left.children !== undefined) left.rows.pop();
  node.rows.splice(at, 0, ...separator);
  node.children?.splice(at + 1, 0, right);
}

/** Adds the rows of a subtree from one rank to another, both counted from its first row. */
function collect(
  { rows, children }: Node,
  from: number,
  to: number,
  found: Row[] = [],
): Row[] {
  if (children === undefined) {
    found.push(...rows.slice(Math.max(from, 0), Math.max(to, 0)));
  }
  for (const child of children ?? []) {
    if (to <= 0) break;
    if (from < child.count) collect(child, from, to, found);
    from -= child.count;
    to -= child.count;
  }
  return found;
}

/**
 * Sorts many rows in steps, by merge sort: short runs by JavaScript's own sort,
 * then merged two by two. Returns the positions of the rows in sorted order, so
 * that no row is moved, and each is read only once for its sort key.
 */
function* sort(
  rows: readonly Row[],
  comparator: RowComparator,
): Steps<Uint32Array> {
  const { length } = rows;
  const keys: Json[] = [];
  let sorted = new Uint32Array(length);
  for (const row of rows) {
    sorted[keys.length] = keys.length;
    if (keys.push(comparator.sortKeyOf(row)) % runLength === 0) yield;
  }
  const compare = (a: number, b: number) =>
    comparator.compare(
      keys[a] ?? null,
      keys[b] ?? null,
      rows[a] as Row, // both positions are below rows.length
      rows[b] as Row,
    );
  for (let from = 0; from < length; from += runLength) {
    sorted.subarray(from, from + runLength).sort(compare);
    yield;
  }
  for (let width = runLength; width < length; width *= 2) {
    const merged = new Uint32Array(length);
    for (let from = 0; from < length; from += 2 * width) {
      const middle = Math.min(from + width, length);
      const end = Math.min(middle + width, length);
      let [left, right] = [from, middle];
      for (let at = from; at < end; at++) {
        const takesLeft = right === end || (left < middle &&
          compare(sorted[left] ?? 0, sorted[right] ?? 0) <= 0);
        merged[at] = sorted[takesLeft ? left++ : right++] ?? 0;
        if (at % runLength === 0) yield;
      }
    }
    sorted = merged;
  }
  return sorted;
}
