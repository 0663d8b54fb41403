/**
 * DELETE. With `cascade` it also deletes the records that cannot be without the
 * deleted one, and empties the references of the others, in one transaction.
 */

import { mayAccess } from "../../auth/access.ts";
import { ApiError } from "../../http/errors.ts";
import type { Document, Mutation, Store } from "../../store/store.ts";
import {
  type Collection,
  isVisible,
  type RecordChange,
  seesAll,
} from "../declaration/declaration.ts";
import { checkRules } from "../declaration/validation.ts";
import type { RequestContext, Result } from "../request-context.ts";
import { findForChange, type Records } from "./records.ts";

/** The most records that a deletion also deletes or changes: other requests wait for some 10 ms. */
const maxCascade = 2000;

/** All changes of a deletion, by collection and id. */
type Changes = Map<Collection, Map<number, RecordChange>>;

/**
 * Deletes a record; with `cascade` also all records that require it, directly
 * or through others.
 *
 * @throws {ApiError} 40401, 41200, 42800; 40900 if others refer to it, or
 * cannot be changed; 40300 if the caller may not delete or change those
 */
export function deleteRecord(
  records: Records,
  context: RequestContext,
  cascade: boolean,
): Result {
  const { collection, options: { store } } = records;
  const scope = context.resolveScope?.(context);
  const { document: previous } = findForChange(records, context, scope);
  const change = { previous, next: undefined };
  const changes = new Map([[collection, new Map([[previous.id, change]])]]);
  if (cascade) {
    followReferences(records, changes, previous.id);
    checkChanges(records, context, changes);
  } else checkUnreferenced(records, context, previous);
  const mutations = mutationsOf(changes, store);
  const response = { status: 204, headers: [] };
  return records.commit(context, { mutations, response, change });
}

/**
 * Checks that no other record refers to one. Counts them from the index:
 * collecting them could take long.
 *
 * @throws {ApiError} 40900
 */
function checkUnreferenced(
  { collection, options: { store } }: Records,
  { caller }: RequestContext,
  document: Document,
): void {
  const { id } = document;
  const counts: string[] = [];
  for (const { source, property, segment } of collection.children) {
    const isOwn = source === collection && document[property] === id;
    const count = store.table(source.name).count(property, id) - Number(isOwn);
    if (count === 0) continue;
    const by = segment === source.name ? "" : ` (${segment})`;
    // How many others have is theirs to know.
    const shown = seesAll(source, caller) ? `${count} ` : "";
    const noun = shown && count === 1 ? source.singular : source.name;
    counts.push(shown + noun + by);
  }
  if (counts.length === 0) return;
  throw new ApiError(
    40900,
    `The ${collection.singular} ${id} still has ${
      counts.join(" and ")
    }: delete or change them first, or use ?cascade=true.`,
  );
}

/**
 * Adds the changes to all records that refer to a deleted one: those with a
 * required reference are deleted too.
 *
 * @throws {ApiError} 40900 if there are too many
 */
function followReferences(
  records: Records,
  changes: Changes,
  deletedId: number,
): void {
  const { collection, options: { store } } = records;
  let count = 0;
  const queue = [{ of: collection, id: deletedId }];
  for (const { of, id } of queue) { // grows while it is read
    for (const { source, property, isRequired } of of.children) {
      const table = store.table(source.name);
      checkCount(collection, table.count(property, id));
      const ofSource = changes.get(source) ?? new Map<number, RecordChange>();
      changes.set(source, ofSource);
      for (const { document: previous } of table.find(property, id)) {
        const known = ofSource.get(previous.id);
        if (known === undefined) checkCount(collection, ++count);
        else if (known.next === undefined) continue;
        if (isRequired) queue.push({ of: source, id: previous.id });
        const updated_at = records.timestamp(previous["updated_at"]);
        const next = isRequired
          ? undefined
          : { ...previous, ...known?.next, [property]: null, updated_at };
        ofSource.set(previous.id, { previous, next });
      }
    }
  }
}

function checkCount({ singular }: Collection, count: number): void {
  if (count <= maxCascade) return;
  throw new ApiError(
    40900,
    `Deleting the ${singular} would also delete or change more than ${maxCascade} records: delete some of them first.`,
  );
}

/**
 * Checks that the caller may make all changes, and that no emptied reference
 * breaks a rule.
 *
 * @throws {ApiError} 40300, 40900
 */
function checkChanges(
  { collection: { singular } }: Records,
  { caller }: RequestContext,
  changes: Changes,
): void {
  for (const [collection, ofCollection] of changes) {
    const { access, name, overseer } = collection;
    for (const { previous, next } of ofCollection.values()) {
      const isSeen = previous && isVisible(collection, previous, caller);
      const change = next ? "write" : "delete";
      const role = isSeen ? access[change] : overseer ?? "";
      if (!mayAccess(caller?.grants, role)) {
        throw new ApiError(
          40300,
          `Deleting the ${singular} would also ${
            next ? "change" : "delete"
          } ${name}${
            isSeen ? "" : " of other users"
          }, which requires the role ${role}.`,
        );
      }
      const [error] = next ? checkRules(collection, next) : [];
      if (error === undefined) continue;
      throw new ApiError(
        40900,
        `Deleting the ${singular} would break a rule of the ${collection.singular} ${next?.id}: ${error.message}`,
      );
    }
  }
}

/** Returns the mutations of all changes: those of records that stay come first. */
function mutationsOf(changes: Changes, store: Store): Mutation[] {
  const puts: Mutation[] = [];
  const deletes: Mutation[] = [];
  const others: Mutation[] = [];
  for (const [{ name, sideEffects }, ofCollection] of changes) {
    for (const [id, change] of ofCollection) {
      if (change.next) puts.push(["put", name, change.next]);
      else deletes.push(["del", name, id]);
      others.push(...sideEffects?.(change, store) ?? []);
    }
  }
  // The newest first: an index removes its last rows faster than its first.
  return [...puts, ...deletes.reverse(), ...others];
}
