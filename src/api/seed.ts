/**
 * Sample records for an empty store: checked by the same rules as any POST, all
 * of them before the first is written, and written in one transaction.
 */

import { ApiError } from "../http/errors.ts";
import type { Document, Operation, Store } from "../store/store.ts";
import { makeTables, obtain, type Tables } from "../store/table.ts";
import {
  type Collection,
  type Declaration,
  deriveCollections,
  foldText,
} from "./declaration.ts";
import type { Json } from "./properties.ts";
import { tablesFor } from "./routes.ts";
import { validate } from "./validation.ts";

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

/**
 * Reads `{"zoos":[…],"animals":[…],…}` and returns the transaction that makes
 * these records. Those without an `id` get the next one.
 *
 * @param at the time of creation, RFC 3339
 * @throws {SeedError}
 */
export function planSeed(
  text: string,
  declarations: readonly Declaration[],
  at: string,
): Operation[] {
  const seed = parse(text);
  const collections = deriveCollections(declarations);
  const unknown = Object.keys(seed).find((name) => !collections.has(name));
  if (unknown !== undefined) {
    throw new SeedError(
      `the seed has "${unknown}", which is no collection; allowed are ${
        [...collections.keys()].join(", ")
      }`,
    );
  }
  // A stage on which the records are put up, so that each finds those before.
  const stage = makeTables(tablesFor(declarations));
  const operations: Operation[] = [];
  for (const collection of parentsFirst(collections)) {
    const records = seed[collection.name] ?? [];
    if (!Array.isArray(records)) {
      throw new SeedError(`"${collection.name}" in the seed is not an array`);
    }
    for (const [index, record] of records.entries()) {
      const place = `${collection.name}[${index}] in the seed`;
      const document = toDocument(collection, record, { stage, place, at });
      obtain(stage, collection.name).put(document, 0);
      operations.push(["put", collection.name, document]);
    }
  }
  return operations;
}

function parse(text: string): Record<string, unknown> {
  let seed: unknown;
  try {
    seed = JSON.parse(text);
  } catch (error) {
    throw new SeedError(`the seed is not valid JSON: ${error}`);
  }
  if (typeof seed !== "object" || seed === null || Array.isArray(seed)) {
    throw new SeedError("the seed is not a JSON object");
  }
  return { ...seed };
}

/** All collections, each behind those that it refers to. */
function parentsFirst(
  collections: ReadonlyMap<string, Collection>,
): Set<Collection> {
  const ordered = new Set<Collection>();
  const visit = (collection: Collection, path: readonly Collection[]) => {
    if (path.includes(collection)) return;
    for (const { to } of collection.parents) visit(to, [...path, collection]);
    ordered.add(collection);
  };
  for (const collection of collections.values()) visit(collection, []);
  return ordered;
}

function toDocument(
  collection: Collection,
  record: unknown,
  { stage, place, at }: {
    readonly stage: Tables;
    readonly place: string;
    readonly at: string;
  },
): Document {
  if (typeof record !== "object" || record === null || Array.isArray(record)) {
    throw new SeedError(`${place} is not an object`);
  }
  const table = obtain(stage, collection.name);
  const body: Record<string, unknown> = { ...record };
  const id = body["id"] ?? table.lastId + 1;
  if (typeof id !== "number" || !Number.isSafeInteger(id) || id < 1) {
    throw new SeedError(
      `${place}: "id" must be a whole number from 1 to 2^53-1`,
    );
  }
  if (table.get(id)) throw new SeedError(`${place}: "id" ${id} is taken`);
  let values: Record<string, Json>;
  try {
    values = validate(collection, body, {
      previous: undefined,
      partial: false,
      given: {},
      exists: (name, id) => obtain(stage, name).get(id) !== undefined,
      taken: ({ name }, value) => {
        const key = foldText(value);
        return key !== null && table.count(name, key) > 0;
      },
    });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const messages = error.errors?.map(({ message }) => message) ?? [];
    throw new SeedError(`${place}: ${messages.join(" ")}`);
  }
  return { id, ...values, created_at: at, updated_at: at };
}
