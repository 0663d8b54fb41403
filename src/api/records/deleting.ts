/** DELETE: removes a record, with `?cascade=true` also all records that refer to it. */

import { mayAccess } from "../../auth/access.ts";
import { ApiError } from "../../http/errors.ts";
import type { Mutation } from "../../store/store.ts";
import type { Collection } from "../declaration/declaration.ts";
import type { RequestContext, Result } from "../request-context.ts";
import { checkPreconditions } from "./preconditions.ts";
import type { Records } from "./records.ts";

/**
 * Deletes a record; with `cascade` also all records that refer to it, directly
 * or through others, in one transaction.
 *
 * @throws {ApiError} 40401, 41200, 42800; 40900 if others refer to it; 40300
 * if the caller may not delete those
 */
export function deleteRecord(
  records: Records,
  context: RequestContext,
  cascade: boolean,
): Result {
  const row = records.find(context, context.resolveScope?.(context));
  checkPreconditions(records, context, row);
  const previous = row.document;
  const { id } = previous;
  if (!cascade) checkUnreferenced(records, id);
  const mutations = cascade ? deleteDependents(records, context, id) : [];
  mutations.push(
    ["del", records.collection.name, id],
    ...records.sideEffects({ previous, next: undefined }),
  );
  const response = { status: 204, headers: [], body: undefined };
  return records.commit(context, { mutations, response });
}

/**
 * Checks that no record refers to one. Counts them from the index: collecting
 * them could take long.
 *
 * @throws {ApiError} 40900
 */
function checkUnreferenced(
  { collection, options: { store } }: Records,
  id: number,
): void {
  const counts: string[] = [];
  for (const { source, property } of collection.children) {
    const count = store.table(source.name).count(property, id);
    if (count === 0) continue;
    counts.push(`${count} ${count === 1 ? source.singular : source.name}`);
  }
  if (counts.length === 0) return;
  throw new ApiError(
    40900,
    `The ${collection.singular} ${id} still has ${
      counts.join(" and ")
    }: delete them first, or all together with ?cascade=true.`,
  );
}

/**
 * Returns the mutations that delete all records which refer to one.
 *
 * @throws {ApiError} 40300
 */
function deleteDependents(
  records: Records,
  { caller }: RequestContext,
  id: number,
): Mutation[] {
  const mutations: Mutation[] = [];
  for (const [{ name, access }, ids] of findDependents(records, id)) {
    if (!mayAccess(caller?.role, access.delete)) {
      throw new ApiError(
        40300,
        `Deleting the ${records.collection.singular} would also delete ${name}, which requires the role ${access.delete}.`,
      );
    }
    for (const id of ids) mutations.push(["del", name, id]);
  }
  return mutations;
}

/** Finds the ids of all records that refer to one, directly or through others, by collection. */
function findDependents(
  { collection, options: { store } }: Records,
  id: number,
): Map<Collection, Set<number>> {
  const found = new Map<Collection, Set<number>>();
  const open: { readonly of: Collection; readonly id: number }[] = [
    { of: collection, id },
  ];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    for (const { source, property } of next.of.children) {
      const rows = store.table(source.name).find(property, next.id);
      const ids = found.get(source) ?? new Set<number>();
      for (const { document } of rows) {
        if (ids.has(document.id)) continue;
        ids.add(document.id);
        if (source.children.length > 0) {
          open.push({ of: source, id: document.id });
        }
      }
      if (ids.size > 0) found.set(source, ids);
    }
  }
  return found;
}
