/**
 * Loads sample records into an empty store. They are validated by the same
 * rules as a POST, and committed in one transaction: one invalid record rolls
 * back all of them.
 */

import { Buffer } from "node:buffer";
import { ApiError } from "../http/errors.ts";
import { isObject, parseJsonObject } from "../http/json.ts";
import type { Document, Store } from "../store/store.ts";
import type { ApiDeclaration } from "./declaration/api.ts";
import { localOperator, recordsOf } from "./operator.ts";
import { ownerOfImported } from "./records/imported.ts";
import type { Records } from "./records/records.ts";

/**
 * Loads a seed, unless the store has or had records.
 *
 * @returns the sequence number that must be durable
 * @throws {ApiError} with nothing changed
 */
export function seedEmptyStore(
  store: Store,
  declaration: ApiDeclaration,
  text: string,
): { readonly seq: number } {
  const { collections } = declaration;
  return collections.some(({ name }) => store.table(name).lastId > 0)
    ? { seq: store.seq }
    : loadSeed(store, declaration, text);
}

/**
 * Loads `{"zoos":[…],"animals":[…],…}`.
 *
 * @returns the sequence number of the transaction
 * @throws {ApiError} that names the record and the property, with nothing changed
 */
export function loadSeed(
  store: Store,
  declaration: ApiDeclaration,
  text: string,
): { readonly seq: number } {
  const all = new Map(
    declaration.collections
      .map(({ name }) => [name, recordsOf(store, declaration, name)]),
  );
  const seed = parseJsonObject(Buffer.from(text), "seed", Infinity);
  for (const name in seed) {
    if (all.has(name)) continue;
    const allowed = [...all.keys()].join(", ");
    throw new ApiError(
      42200,
      `the seed has "${name}", which is not a collection; allowed: ${allowed}`,
    );
  }
  const seq = store.transact(0, (apply) => {
    for (const records of parentsFirst(all)) {
      const { name } = records.collection;
      const bodies = seed[name] ?? [];
      if (!Array.isArray(bodies)) {
        throw new ApiError(42200, `"${name}" in the seed is not an array`);
      }
      for (const [index, body] of bodies.entries()) {
        try {
          apply(records.putMutation(buildSeedRecord(records, body)));
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
          const { errors = [error] } = error;
          const reasons = errors.map(({ message }) => message).join(" ");
          throw new ApiError(
            42200,
            `${name}[${index}] in the seed: ${reasons}`,
          );
        }
      }
    }
  });
  return { seq };
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
  return records.buildRecord(body, {
    caller: localOperator,
    owner: ownerOfImported(records, body, localOperator),
    imported: { id },
  });
}

/**
 * Sorts collections so that each comes after those that it refers to or, if
 * that is impossible, after those that it must refer to.
 */
function parentsFirst(collections: ReadonlyMap<string, Records>): Records[] {
  const left = new Map(collections);
  const isWaiting = ({ collection }: Records, isOptionalToo: boolean) =>
    collection.parents.some(({ target, isRequired }) =>
      (isRequired || isOptionalToo) && target.name !== collection.name &&
      left.has(target.name)
    );
  const ordered: Records[] = [];
  while (left.size > 0) {
    const waiting = [...left.values()];
    const next = waiting.find((each) => !isWaiting(each, true)) ??
      waiting.find((each) => !isWaiting(each, false));
    if (next === undefined) break; // never happens: required references form no cycle
    left.delete(next.collection.name);
    ordered.push(next);
  }
  return ordered;
}
