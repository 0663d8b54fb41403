/**
 * The sort order of rows and of values. Rows are sorted by the values of some
 * columns, then by id, so that no two are equal. Numbers are sorted by size,
 * strings by Unicode code point, false before true, and null after all else in
 * either direction.
 */

import type { Json, Row } from "./row.ts";

/** A property that rows are sorted by, and its value in rows that lack it. */
export interface Column {
  readonly name: string;
  readonly default: Json;
  readonly descending?: boolean;
}

/** Returns a function that compares rows by some columns, then by id. */
export function compareBy(columns: readonly Column[]) {
  return ({ document: a }: Row, { document: b }: Row): number => {
    for (const column of columns) {
      const value = a[column.name] ?? column.default;
      const other = b[column.name] ?? column.default;
      const order = compareValues(value, other);
      if (order === 0) continue;
      const isReversed = column.descending && value !== null && other !== null;
      return isReversed ? -order : order;
    }
    return a.id - b.id;
  };
}

/**
 * Folds a string for a comparison in which only the text counts: not its case
 * (`straße` is `STRASSE`), the form of its characters (composed or not, full
 * width), characters that nobody sees, or space around it. This comes close to
 * Unicode's NFKC_Casefold. The final form of the Greek sigma becomes the usual
 * one: else a word in capital letters would not start with its own first letters.
 */
export function foldText(text: string): string {
  if (/^[\0-\x7f]*$/.test(text)) return text.toLowerCase().trim();
  return text.normalize("NFKC")
    .replace(/\p{Default_Ignorable_Code_Point}/gu, "")
    .toLowerCase().toUpperCase().toLowerCase().replaceAll("\u03c2", "\u03c3")
    .normalize("NFKC").trim();
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
export function toCodePointOrder(text: string): string {
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
