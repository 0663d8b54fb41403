/**
 * The sort order of rows and of values. Rows are sorted by the values of some
 * columns, then by id, so that no two are equal. Numbers are sorted by size,
 * strings by Unicode code point, false before true, and null after all else,
 * unless a column says otherwise.
 */

import type { Document, Json, Row } from "../memory/row.ts";

/** A property that rows are sorted by, and its value in rows that lack it. */
export interface Column {
  readonly name: string;
  readonly default: Json;
  readonly descending?: boolean;
  /** True if null sorts before all other values, not after them, whatever the direction. */
  readonly nullsFirst?: boolean;
  /** True if strings are compared as {@linkcode caseFold} returns them. */
  readonly caseFolded?: boolean;
}

/** A position in a sorted index: that of a row, or before or after all rows with a prefix of values. */
export interface Bound {
  readonly values: readonly Json[];
  readonly id: number;
}

/** Compares rows by some columns, then by id. */
export class RowComparator {
  readonly columns: readonly Column[];
  /** The first column, or the id. */
  readonly #first: Column;

  constructor(columns: readonly Column[]) {
    this.columns = columns;
    this.#first = columns[0] ?? { name: "id", default: null };
  }

  /** Returns the position of a row. */
  boundOf({ document }: Row): Bound {
    const values = this.columns.map((column) => valueOf(document, column));
    return { values, id: document.id };
  }

  /** Returns a number below 0 for a row before the position, 0 for the one at it, above 0 for one after it. */
  compareTo({ document }: Row, { values, id }: Bound): number {
    for (let at = 0; at < values.length; at++) {
      const column = this.columns[at];
      if (column === undefined) break;
      const value = valueOf(document, column);
      const order = compareIn(column, value, values[at] ?? null);
      if (order !== 0) return order;
    }
    return document.id - id;
  }

  /** Returns the index of the first row at or after a position in a sorted list. */
  lowerBound(rows: readonly Row[], bound: Bound): number {
    let low = 0;
    let high = rows.length;
    // The last row first, as most rows are added in ascending order.
    for (let middle = high - 1; low < high; middle = (low + high) >> 1) {
      const row = rows[middle];
      if (row !== undefined && this.compareTo(row, bound) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Returns the value of the first column, which nearly always decides, in a form for {@linkcode compare}. */
  sortKeyOf({ document }: Row): Json {
    const key = valueOf(document, this.#first);
    return typeof key === "string" ? toCodePointOrder(key) : key;
  }

  /** Compares two rows by their sort keys, then by the other columns and id. */
  compare(key: Json, otherKey: Json, row: Row, otherRow: Row): number {
    if (key !== otherKey) {
      if (typeof key === "string" && typeof otherKey === "string") {
        const isBefore = key < otherKey; // twice as fast as compareValues
        return isBefore === !this.#first.descending ? -1 : 1;
      }
      const order = compareIn(this.#first, key, otherKey);
      if (order !== 0) return order;
    }
    const { document } = row;
    const { document: other } = otherRow;
    for (let at = 1; at < this.columns.length; at++) {
      const column = this.columns[at];
      if (column === undefined) break;
      const value = valueOf(document, column);
      const order = compareIn(column, value, valueOf(other, column));
      if (order !== 0) return order;
    }
    return document.id - other.id;
  }
}

/** Compares two values in the direction of a column. */
function compareIn(
  { descending, nullsFirst }: Column,
  a: Json,
  b: Json,
): number {
  const order = compareValues(a, b);
  const isReversed = a === null || b === null ? nullsFirst : descending;
  return isReversed ? -order : order;
}

function valueOf(document: Document, column: Column): Json {
  const value = document[column.name] ?? column.default;
  return column.caseFolded && typeof value === "string"
    ? caseFold(value)
    : value;
}

/**
 * Folds a string for comparison without regard to case. The final form of the
 * Greek sigma becomes the usual one: else a word in capital letters would not
 * start with its own first letters.
 */
export function caseFold(text: string): string {
  return text.toLowerCase().replaceAll("\u03c2", "\u03c3");
}

/** Compares two values of one type, or null, which comes last; returns a number below 0, 0 or above 0. */
export function compareValues(a: Json, b: Json): number {
  if (typeof a === "string" && typeof b === "string") {
    if (a === b) return 0;
    return toCodePointOrder(a) < toCodePointOrder(b) ? -1 : 1;
  }
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  return Number(a) - Number(b);
}

/**
 * Returns a string that the operators of JavaScript order as code points:
 * nearly always the string itself. They compare UTF-16 code units, which puts
 * U+10000 before U+FFFD.
 */
function toCodePointOrder(text: string): string {
  if (!/[\ud800-\uffff]/.test(text)) return text;
  return text.replace(
    /[\ud800-\uffff]/g,
    (character) => {
      const unit = character.charCodeAt(0);
      // Surrogates, which stand for code points from U+10000 on, come last.
      return String.fromCharCode(unit + (unit < 0xe000 ? 0x2000 : -0x800));
    },
  );
}
