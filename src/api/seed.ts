/**
 * Sample records for an empty store: checked by the same rules as any POST, and
 * all of them one transaction, which a bad one of them takes back.
 */

import { ApiError } from "../http/errors.ts";
import type { Store } from "../store/store.ts";
import type { Records } from "./records/records.ts";

/** A seed that cannot be loaded; the message names record and property. */
export class SeedError extends Error {
  override readonly name = "SeedError";
}

/**
 * Takes `{"zoos":[…],"animals":[…],…}` into a store. Those without an `id` get
 * the next one.
 *
 * @param all the records of all collections, by name
 * @returns the sequence of the transaction
 * @throws {SeedError} with nothing changed
 */
export function loadSeed(
  store: Store,
  text: string,
  all: ReadonlyMap<string, Records>,
): number {
  const seed = parse(text);
  const unknown = Object.keys(seed).find((name) => !all.has(name));
  if (unknown !== undefined) {
    const allowed = [...all.keys()].join(", ");
    throw new SeedError(
      `the seed has "${unknown}", which is no collection; allowed are ${allowed}`,
    );
  }
  return store.transact(0, (apply) => {
    for (const records of parentsFirst(all)) {
      const { name } = records.collection;
      const bodies = seed[name] ?? [];
      if (!Array.isArray(bodies)) {
        throw new SeedError(`"${name}" in the seed is not an array`);
      }
      for (const [index, body] of bodies.entries()) {
        const wrong = (reason: string) =>
          new SeedError(`${name}[${index}] in the seed${reason}`);
        if (!isObject(body)) throw wrong(" is not an object");
        const id = body["id"] ?? records.nextId();
        if (typeof id !== "number" || !Number.isSafeInteger(id) || id < 1) {
          throw wrong(`: "id" must be a whole number from 1 to 2^53-1`);
        }
        if (records.table.get(id)) throw wrong(`: "id" ${id} is taken`);
        try {
          apply(
            records.putMutation(
              records.buildRecord(body, { valuesFromUrl: {}, id }),
            ),
          );
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
          const messages = error.errors?.map(({ message }) => message) ?? [];
          throw wrong(`: ${messages.join(" ")}`);
        }
      }
    }
  });
}

function parse(text: string): Record<string, unknown> {
  let seed: unknown;
  try {
    seed = JSON.parse(text);
  } catch (error) {
    throw new SeedError(`the seed is not valid JSON: ${error}`);
  }
  if (isObject(seed)) return seed;
  throw new SeedError("the seed is not a JSON object");
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** All collections, each behind those that it refers to. */
function parentsFirst(all: ReadonlyMap<string, Records>): Set<Records> {
  const ordered = new Set<Records>();
  const visit = (name: string, path: readonly string[]) => {
    const records = all.get(name);
    if (records === undefined || path.includes(name)) return;
    const below = [...path, name];
    for (const { target } of records.collection.parents) {
      visit(target.name, below);
    }
    ordered.add(records);
  };
  for (const name of all.keys()) visit(name, []);
  return ordered;
}
