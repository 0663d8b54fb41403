/** The records of a store for what has no server: a seed, and the commands. */

import type { Store } from "../../store/store.ts";
import type { ApiDeclaration } from "../declaration/api.ts";
import {
  type Declaration,
  deriveCollection,
} from "../declaration/declaration.ts";
import { collectionsOf } from "../routes.ts";
import { Records } from "./records.ts";

/**
 * Returns the records of a collection, given its name or a declaration without
 * references, with the same rules as over HTTP.
 */
export function recordsOf(
  store: Store,
  declaration: ApiDeclaration,
  of: string | Declaration,
): Records {
  const collection = typeof of === "string"
    ? collectionsOf(declaration).get(of)
    : deriveCollection(of);
  if (collection === undefined) throw new Error(`No collection ${of}`);
  const options = { store, now: Date.now };
  return new Records(collection, options);
}
