/** Finds the stored records that do not fit a declaration. A server needs this only if its declaration has changed. */

import type { FieldError } from "../../http/errors.ts";
import { errorText } from "../../store/error.ts";
import type { Document, Store } from "../../store/store.ts";
import { awaitingRecords } from "../own-tables.ts";
import {
  type Collection,
  ownerOf,
  ownerProperty,
  readValue,
} from "./declaration.ts";
import type { Json } from "./properties.ts";
import {
  checkRules,
  collectValues,
  fieldError,
  findFailure,
} from "./validation.ts";

/** The records that do not fit because of one property. */
export interface Misfit {
  /** The name of the property, such as `books.title`. */
  readonly name: string;
  readonly ids: Set<number>;
  /** The error of the first record. */
  readonly code: FieldError["code"];
  readonly message: string;
}

/** Validates all records; takes about a microsecond for each. A rule of those that an import has not completed yet is judged once it is. */
export function findMisfits(
  collections: readonly Collection[],
  store: Pick<Store, "table" | "tables">,
): Misfit[] {
  const found = new Map<string, Misfit>();
  let awaiting: ReturnType<typeof awaitingRecords> | undefined;
  for (const collection of collections) {
    for (const { document } of store.table(collection.name).frozen()) {
      const errors = validateStored(collection, document, store);
      for (const { field, code, message } of errors) {
        if (code === "rule") {
          awaiting ??= awaitingRecords(store);
          if (awaiting.has(`${collection.name}/${document.id}`)) continue;
        }
        const name = `${collection.name}.${field}`;
        const misfit = found.get(name) ??
          { name, ids: new Set(), code, message };
        misfit.ids.add(document.id);
        found.set(name, misfit);
      }
    }
  }
  return [...found.values()];
}

/**
 * Returns why a stored record does not fit its collection: the errors that a
 * body with its values would have, or that its check fails.
 */
function validateStored(
  collection: Collection,
  document: Document,
  store: Pick<Store, "table">,
): readonly FieldError[] {
  const body: Record<string, Json> = {};
  for (const property of collection.properties) {
    const value = readValue(document, property);
    // Of a secret, the hash is stored.
    if (value !== null && property.kind !== "secret") {
      body[property.name] = value;
    }
  }
  const owner = ownerOf(collection, document);
  const context = {
    store,
    table: store.table(collection.name),
    owner,
    previous: document,
  };
  const { errors } = collectValues(collection, body, context);
  const failure = findFailure(ownerProperty, owner ?? null, context);
  if (failure) errors.push(fieldError(ownerProperty.name, failure));
  if (errors.length > 0) return errors;
  try {
    return checkRules(collection, document);
  } catch (error) {
    return [{ field: "check", code: "rule", message: errorText(error) }];
  }
}

/** Describes records that do not fit, in one line. */
export function describeMisfit({ name, ids, message }: Misfit): string {
  const count = ids.size === 1 ? "1 record does" : `${ids.size} records do`;
  const first = [...ids].slice(0, 20).join(", ");
  const more = ids.size > 20 ? ", …" : "";
  return `${name}: ${count} not fit (id ${first}${more}): ${message}`;
}
