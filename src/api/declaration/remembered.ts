/** The declaration that a store was last opened with, which it remembers. */

import type { Logger, Mutation, Store } from "../../store/store.ts";
import type { Collection } from "./declaration.ts";

/** The table of the remembered declaration, its only document. No collection can have this name. */
export const declarationTable = "_declaration";

/** A declaration that a store is opened with, and the functions that read and change what is stored. */
export interface OpenedDeclaration {
  readonly collections: readonly Collection[];
  readonly store: Pick<Store, "tables" | "table">;
  readonly apply: (mutation: Mutation) => void;
  readonly log: Logger;
}

/** How texts are compared where no two records may share one: with another value, stored ones are validated again. */
const uniqueText = "NFKC, folded, trimmed";

/** The attributes of properties and their schemas that do not decide which values are allowed. */
const undecisive = [
  "name",
  "target",
  "renamed",
  "expected",
  "description",
  "x-collection",
  "x-as",
];

/**
 * Returns the rules that decide which records fit, as text, by name: that of a
 * collection, `books`, or of a property, `books.title`.
 */
export function rulesOf(
  collections: readonly Collection[],
): Map<string, string> {
  const found = new Map<string, string>();
  for (const collection of collections) {
    const { name: of, unique, private: isPrivate, check } = collection;
    const rules = {
      unique,
      text: unique && uniqueText,
      isPrivate,
      check: check && String(check),
    };
    found.set(of, JSON.stringify(rules));
    for (const property of collection.properties) {
      const text = property.unique ? uniqueText : undefined;
      const rules = JSON.stringify(
        { ...property, text },
        (key, value) => undecisive.includes(key) ? undefined : value,
      );
      // As version 0.2.0 called it: the format decides nothing.
      found.set(
        `${of}.${property.name}`,
        rules.replace('"format":"iri"', '"format":"uri"'),
      );
    }
  }
  return found;
}
