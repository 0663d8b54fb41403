/** References whose record does not exist. The rules never let one arise, but damage can. */

import type { Json, Table } from "../../store/store.ts";
import type { Collection } from "./declaration.ts";

/** A property of a stored record that names a record that does not exist. */
export interface DanglingReference {
  readonly collection: string;
  readonly id: number;
  readonly property: string;
  readonly value: Json;
}

/** Yields the references that lead nowhere. */
export function* danglingReferences(
  tables: Pick<ReadonlyMap<string, Table>, "get">,
  collections: Iterable<Pick<Collection, "name" | "parents">>,
): Generator<DanglingReference> {
  for (const { name: collection, parents } of collections) {
    const rows = parents.length === 0 ? [] : tables.get(collection)?.rows();
    for (const { document } of rows ?? []) {
      for (const { property, target } of parents) {
        const { id, [property]: value = null } = document;
        const isThere = tables.get(target.name)?.get(Number(value));
        if (value !== null && !isThere) {
          yield { collection, id, property, value };
        }
      }
    }
  }
}
