/**
 * Rows in order: by the values of some properties, then by id. A B+tree that
 * knows how many rows are below each node, so that the place of a value, the
 * row at a place and the number of rows between two values each take a few
 * steps, however many rows there are. It holds references to rows, about ten
 * bytes for each, and no copy of anything.
 */

import type { Document, Json, Row } from "../memory/row.ts";
import { type Bound, type Column, RowComparator } from "./row-comparator.ts";
import { sort } from "./sorting.ts";

/** How many entries a node has at most: a balance of moving and searching. */
const most = 64;

/** How many rows are looked at between two yields. */
const chunk = 128;

class Node {
  /** Of a leaf: its rows. */
  readonly rows: Row[];
  /** Of a branch: what is below it; undefined in a leaf. */
  readonly children: Node[] | undefined;
  /** Not above any row in it, and above all rows before it. Unused in the first of its branch. */
  low: Row | undefined;
  /** How many rows are below it. */
  count: number;

  constructor(rows: Row[], children?: Node[]) {
    this.rows = rows;
    this.children = children;
    this.low = children === undefined ? rows[0] : children[0]?.low;
    this.count = children === undefined ? rows.length : sum(children);
  }
}

/** Rows in one order, for reading. */
export type SortedIndex = Pick<BPlusTree, "size" | "rank" | "slice">;

/** Rows in one order. */
export class BPlusTree {
  readonly #order: RowComparator;
  readonly #where: ((document: Document) => boolean) | undefined;
  #root = new Node([]);

  /** @param where which rows it holds; all, where it is left out */
  constructor(
    columns: readonly Column[],
    where?: (document: Document) => boolean,
  ) {
    this.#order = new RowComparator(columns);
    this.#where = where;
  }

  /** How many rows it holds. */
  get size(): number {
    return this.#root.count;
  }

  /**
   * How many rows are before this place: before the row with these values and
   * this id. Fewer values than columns stand for all rows that begin with
   * them; the id must then be -Infinity, before them, or Infinity, behind them.
   */
  rank(values: readonly Json[], id: number): number {
    if (values.length === 0 && !Number.isFinite(id)) {
      return id < 0 ? 0 : this.size;
    }
    const bound = { values, id };
    let node = this.#root;
    let rank = 0;
    while (node.children !== undefined) {
      const at = this.#childFor(node.children, bound);
      for (let before = 0; before < at; before++) {
        rank += node.children[before]?.count ?? 0;
      }
      node = node.children[at] ?? node;
    }
    return rank + this.#placeIn(node.rows, bound);
  }

  /** The rows from one rank up to before another. */
  slice(from: number, to: number): Row[] {
    const rows: Row[] = [];
    collect(this.#root, { from, to, rows });
    return rows;
  }

  /**
   * Takes rows in any order into an index that is empty: far faster than one
   * by one. It yields after each little while. A row may come twice.
   */
  *fill(rows: Iterable<Row>): Generator<undefined> {
    const found: Row[] = [];
    let count = 0;
    for (const row of rows) {
      if (this.#where?.(row.document) ?? true) found.push(row);
      if (++count % chunk === 0) yield;
    }
    let nodes: Node[] = [];
    let leaf: Row[] = [];
    let last: Row | undefined;
    for (const at of yield* sort(found, this.#order)) {
      const row = found[at];
      if (row === undefined || row.document.id === last?.document.id) continue;
      if (leaf.length === most) {
        nodes.push(new Node(leaf));
        leaf = [];
        yield;
      }
      leaf.push(last = row);
    }
    nodes.push(new Node(leaf));
    while (nodes.length > 1) {
      const below = nodes;
      const branches = Math.ceil(below.length / most);
      nodes = Array.from(
        { length: branches },
        (_, at) => new Node([], below.slice(at * most, (at + 1) * most)),
      );
    }
    this.#root = nodes[0] ?? this.#root;
  }

  /** Takes what a change made of a row; either may be undefined, or held or missing already. */
  move(before: Row | undefined, after: Row | undefined): void {
    const stays = after !== undefined && (this.#where?.(after.document) ?? true)
      ? after
      : undefined;
    const next = stays && this.#order.boundOf(stays);
    if (before !== undefined) {
      const same = next !== undefined &&
        this.#order.compareTo(before, next) === 0;
      if (!same) this.#delete(this.#root, this.#order.boundOf(before));
    }
    if (stays !== undefined && next !== undefined) this.#insert(stays, next);
    while (this.#root.children?.length === 1) {
      this.#root = this.#root.children[0] ?? this.#root;
    }
  }

  #insert(row: Row, bound: Bound): void {
    const right = this.#insertInto(this.#root, row, bound);
    if (right !== undefined) this.#root = new Node([], [this.#root, right]);
  }

  /** Puts a row in its place, or in that of an earlier version of itself; returns the node that was split off. */
  #insertInto(node: Node, row: Row, bound: Bound): Node | undefined {
    const { rows, children } = node;
    if (children === undefined) {
      const at = this.#placeIn(rows, bound);
      const found = rows[at];
      if (found !== undefined && found.document.id === row.document.id) {
        rows[at] = row;
        if (node.low === found) node.low = row; // lets go of the earlier one
        return undefined;
      }
      if (at === rows.length) rows.push(row);
      else rows.splice(at, 0, row);
      node.count++;
      if (rows.length <= most) return undefined;
      // What comes in order leaves full nodes behind.
      const right = rows.splice(at === most ? most : most / 2);
      node.count -= right.length;
      return new Node(right);
    }
    const at = this.#childFor(children, bound);
    const child = children[at] ?? node;
    const before = child.count;
    const split = this.#insertInto(child, row, bound);
    node.count += child.count - before;
    if (split === undefined) return undefined;
    children.splice(at + 1, 0, split);
    node.count += split.count;
    if (children.length <= most) return undefined;
    const right = new Node(
      [],
      children.splice(at === most - 1 ? most : most / 2),
    );
    node.count -= right.count;
    return right;
  }

  #delete(node: Node, bound: Bound): void {
    const { rows, children } = node;
    if (children === undefined) {
      const at = this.#placeIn(rows, bound);
      if (rows[at]?.document.id !== bound.id) return;
      if (this.#order.compareTo(rows[at], bound) !== 0) return;
      rows.splice(at, 1);
      node.count--;
      return;
    }
    const at = this.#childFor(children, bound);
    const child = children[at] ?? node;
    node.count -= child.count;
    this.#delete(child, bound);
    node.count += child.count;
    if (entries(child) >= most / 4) return;
    if (!join(children, at)) join(children, at - 1);
  }

  /** The last child whose rows may be at or behind the bound's place. */
  #childFor(children: readonly Node[], bound: Bound): number {
    let low = 1;
    let high = children.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const row = children[middle]?.low;
      if (row !== undefined && this.#order.compareTo(row, bound) <= 0) {
        low = middle + 1;
      } else high = middle;
    }
    return low - 1;
  }

  /** How many of the rows are before the bound. */
  #placeIn(rows: readonly Row[], bound: Bound): number {
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const row = rows[middle];
      if (row !== undefined && this.#order.compareTo(row, bound) < 0) {
        low = middle + 1;
      } else high = middle;
    }
    return low;
  }
}

function sum(nodes: readonly Node[]): number {
  return nodes.reduce((total, { count }) => total + count, 0);
}

function entries({ rows, children }: Node): number {
  return (children ?? rows).length;
}

/** Makes one of a child and the next where that is not too large. */
function join(children: Node[], at: number): boolean {
  const left = children[at];
  const right = children[at + 1];
  if (left === undefined || right === undefined) return false;
  if (entries(left) + entries(right) > most) return false;
  left.rows.push(...right.rows);
  left.children?.push(...right.children ?? []);
  left.count += right.count;
  children.splice(at + 1, 1);
  return true;
}

/** Adds the rows below a node from one rank to another, both counted from its first row. */
function collect(
  { rows, children }: Node,
  part: { readonly from: number; readonly to: number; readonly rows: Row[] },
): void {
  let { from, to } = part;
  if (children === undefined) {
    const end = Math.min(to, rows.length);
    for (let at = Math.max(from, 0); at < end; at++) {
      const row = rows[at];
      if (row !== undefined) part.rows.push(row);
    }
    return;
  }
  for (const child of children) {
    if (to <= 0) return;
    if (from < child.count) collect(child, { from, to, rows: part.rows });
    from -= child.count;
    to -= child.count;
  }
}
