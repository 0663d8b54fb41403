/**
 * Sample records for an empty store: checked by the same rules as any POST, all
 * of them before the first is written, and written in one transaction.
 */

import type { Operation, Store } from "../store/store.ts";
import type { Collection, Declaration } from "./declaration.ts";
import { Stage } from "./imports.ts";
import type { Records } from "./records.ts";

/** A seed that cannot be loaded; the message names record and property. */
export class SeedError extends Error {
  override readonly name = "SeedError";
}

/** Whether no declared collection ever gave an id. */
export function isEmpty(
  store: Store,
  declarations: readonly Declaration[],
): boolean {
  return declarations.every(({ name }) => store.table(name).lastId === 0);
}
