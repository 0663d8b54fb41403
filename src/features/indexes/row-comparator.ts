/** Compares rows with each other and with positions in an index, by the values of some columns, then by id. */

import {
  type Column,
  compareValues,
  type Document,
  foldText,
  type Json,
  lowerBound,
  type Row,
  toCodePointOrder,
} from "../../store/store.ts";

/** A column of an index. */
export interface IndexColumn extends Column {
  /** True if strings are compared as {@linkcode foldText} returns them. */
  readonly isFolded?: boolean;
  /** True if null sorts before all other values, not after them, whatever the direction. */
  readonly nullsFirst?: boolean;
}

/** Compares two values in the direction of a column. */
function compareIn(
  { descending, nullsFirst }: IndexColumn,
  a: Json,
  b: Json,
): number {
  const order = compareValues(a, b);
  const isReversed = a === null || b === null ? nullsFirst : descending;
  return isReversed ? -order : order;
}

/** A position in a sorted index: that of a row, or before or after all rows with a prefix of values. */
export interface Bound {
  readonly values: readonly Json[];
  readonly id: number;
}

/** Compares rows by some columns, then by id. */
export class RowComparator {
  readonly columns: readonly IndexColumn[];
  /** The first column, or the id. */
  readonly #first: IndexColumn;

  constructor(columns: readonly IndexColumn[]) {
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
    return lowerBound(rows.length, (at) => {
      const row = rows[at];
      return row !== undefined && this.compareTo(row, bound) < 0;
    });
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

function valueOf(document: Document, column: IndexColumn): Json {
  const value = document[column.name] ?? column.default;
  return column.isFolded && typeof value === "string" ? foldText(value) : value;
}
