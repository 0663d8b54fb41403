/**
 * Loads sample records into an empty store. They are validated by the same
 * rules as a POST, and committed in one transaction: one invalid record rolls
 * back all of them.
 */

import { collections } from "../collections.ts";
import { CommandError, recordsOf } from "../data-folder.ts";
import { ApiError } from "../http/errors.ts";
import type { Document, Store } from "../store/store.ts";
import type { Records } from "../api/records/records.ts";

/** A seed that cannot be loaded; the message names the record and the property. */
export class SeedError extends Error {
  override readonly name = "SeedError";
}

/**
 * Loads a seed, unless the store has or had records.
 *
 * @throws {CommandError} with nothing changed
 */
export async function seedEmptyStore(
  store: Store,
  text: string,
): Promise<void> {
  const all = new Map(
    collections.map(({ name }) => [name, recordsOf(store, name)]),
  );
  for (const { table } of all.values()) if (table.lastId > 0) return;
  try {
    await store.durable(loadSeed(store, text, all));
  } catch (error) {
    if (!(error instanceof SeedError)) throw error;
    throw new CommandError(`cannot load the seed: ${error.message}`);
  }
}

/**
 * Loads `{"zoos":[…],"animals":[…],…}`.
 *
 * @returns the sequence number of the transaction
 * @throws {SeedError} with nothing changed
 */
export function loadSeed(
  store: Store,
  text: string,
  collections: ReadonlyMap<string, Records>,
): number {
  const seed = parseSeed(text);
  for (const name in seed) {
    if (collections.has(name)) continue;
    const allowed = [...collections.keys()].join(", ");
    throw new SeedError(
      `the seed has "${name}", which is not a collection; allowed: ${allowed}`,
    );
  }
  return store.transact(0, (apply) => {
    for (const records of parentsFirst(collections)) {
      const { name } = records.collection;
      const bodies = seed[name] ?? [];
      if (!Array.isArray(bodies)) {
        throw new SeedError(`"${name}" in the seed is not an array`);
      }
      for (const [index, body] of bodies.entries()) {
        try {
          apply(records.putMutation(buildSeedRecord(records, body)));
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
          const { errors = [error] } = error;
          const reasons = errors.map(({ message }) => message).join(" ");
          throw new SeedError(`${name}[${index}] in the seed: ${reasons}`);
        }
      }
    }
  });
}

/** Builds a record, with the next id if the body has none; throws an ApiError if it is invalid. */
function buildSeedRecord(records: Records, body: unknown): Document {
  if (!isObject(body)) throw new ApiError(42200, "It is not an object.");
  const id = body["id"] ?? records.nextId();
  if (typeof id !== "number" || !Number.isSafeInteger(id) || id < 1) {
    throw new ApiError(42200, '"id" must be a whole number from 1 to 2^53-1.');
  }
  if (records.table.get(id)) {
    throw new ApiError(42200, `"id" ${id} is already in use.`);
  }
  return records.buildRecord(body, { valuesFromUrl: {}, id });
}

function parseSeed(text: string): Record<string, unknown> {
  try {
    const seed: unknown = JSON.parse(text);
    if (isObject(seed)) return seed;
  } catch (error) {
    throw new SeedError(`the seed is not valid JSON: ${error}`);
  }
  throw new SeedError("the seed is not a JSON object");
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Orders collections so that each comes after those it refers to. */
function parentsFirst(collections: ReadonlyMap<string, Records>): Records[] {
  const ordered: Records[] = [];
  const visited = new Set<string>();
  const visit = (name: string) => {
    const records = collections.get(name);
    if (records === undefined || visited.has(name)) return;
    visited.add(name);
    for (const { target } of records.collection.parents) visit(target.name);
    ordered.push(records);
  };
  for (const name of collections.keys()) visit(name);
  return ordered;
}
