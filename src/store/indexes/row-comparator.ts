/** How rows and values are ordered: by the values of some properties, then by id. */

import type { Document, Json, Row } from "../memory/row.ts";

/** A property that decides the order, and its value where a record has none. */
export interface Column {
  readonly name: string;
  readonly default: Json;
  /** Texts are ordered as {@linkcode caseFold} makes them. */
  readonly caseFolded?: boolean;
}

/** A place in an order: of a row, or of all rows whose values begin so. */
export interface Bound {
  readonly values: readonly Json[];
  readonly id: number;
}

/** The order of rows by some columns, then by id. */
export class RowComparator {
  readonly #columns: readonly Column[];

  constructor(columns: readonly Column[]) {
    this.#columns = columns;
  }

  /** The place of a row. */
  boundOf({ document }: Row): Bound {
    const values = this.#columns.map((column) => valueOf(document, column));
    return { values, id: document.id };
  }

  /** Below 0 for a row before the place, 0 for the one at it, above 0 for one behind it. */
  compareTo({ document }: Row, { values, id }: Bound): number {
    for (let at = 0; at < values.length; at++) {
      const column = this.#columns[at];
      if (column === undefined) break;
      const value = valueOf(document, column);
      const order = compareValues(value, values[at] ?? null);
      if (order !== 0) return order;
    }
    return document.id - id;
  }

  /** What decides a row's place nearly always, to sort it by. */
  keyOf({ document }: Row): Json {
    const [column] = this.#columns;
    const key = column === undefined ? document.id : valueOf(document, column);
    return typeof key === "string" ? sortable(key) : key;
  }

  /** The order of two rows, with their keys. */
  compare(key: Json, other: Json, row: Row, another: Row): number {
    if (key !== other) {
      if (typeof key === "string" && typeof other === "string") {
        return key < other ? -1 : 1; // twice as fast as compareCodePoints
      }
      const order = compareValues(key, other);
      if (order !== 0) return order;
    }
    return this.#compareRest(row.document, another.document);
  }

  #compareRest(one: Document, other: Document): number {
    for (let at = 1; at < this.#columns.length; at++) {
      const column = this.#columns[at];
      if (column === undefined) break;
      const value = valueOf(one, column);
      const order = compareValues(value, valueOf(other, column));
      if (order !== 0) return order;
    }
    return one.id - other.id;
  }
}

function valueOf(document: Document, column: Column): Json {
  const value = document[column.name] ?? column.default;
  return column.caseFolded && typeof value === "string"
    ? caseFold(value)
    : value;
}

/**
 * A text in the form in which case makes no difference. A Greek word's last
 * sigma is one with any other: else a text would not begin with its own
 * beginning.
 */
export function caseFold(text: string): string {
  return text.toLowerCase().replaceAll("\u03c2", "\u03c3");
}

/** The text, as nearly always, or one instead of it that JavaScript's own order puts where that of code points has the text. */
function sortable(text: string): string {
  if (!/[\ud800-\uffff]/.test(text)) return text;
  return text.replace(/[\ud800-\uffff]/g, (unit) => {
    const code = unit.charCodeAt(0);
    return String.fromCharCode(code < 0xe000 ? code + 0x2000 : code - 0x800);
  });
}

/**
 * The order of two values: below 0, 0 or above 0. Numbers by size, texts by
 * Unicode code point, false before true; null is the last. Values of different
 * types, which only a changed declaration can bring together, have an order
 * too, as a tree can hold nothing without.
 */
export function compareValues(a: Json, b: Json): number {
  if (typeof a === "string" && typeof b === "string") {
    return compareCodePoints(a, b);
  }
  if (typeof a === "number" && typeof b === "number") return a - b;
  const order = typeOrder(a) - typeOrder(b);
  return order === 0 && typeof a === "boolean" ? Number(a) - Number(b) : order;
}

function typeOrder(value: Json): number {
  if (value === null) return 4;
  if (typeof value === "string") return 2;
  return typeof value === "number" ? 1 : typeof value === "boolean" ? 0 : 3;
}

/** Orders texts by Unicode code point; JavaScript's own order is by UTF-16 unit, which puts U+10000 before U+FFFD. */
function compareCodePoints(a: string, b: string): number {
  if (a === b) return 0;
  const shorter = Math.min(a.length, b.length);
  for (let at = 0; at < shorter; at++) {
    const unitA = a.charCodeAt(at);
    const unitB = b.charCodeAt(at);
    if (unitA === unitB) continue;
    // Surrogates stand for code points above all other units.
    const surrogateA = (unitA & 0xf800) === 0xd800;
    const surrogateB = (unitB & 0xf800) === 0xd800;
    if (surrogateA !== surrogateB) return surrogateA ? 1 : -1;
    return unitA - unitB;
  }
  return a.length - b.length;
}
