/**
 * DELETE. With `cascade` it also deletes the records that require the deleted
 * one, and empties the references of the others, in one transaction.
 */

import { Buffer } from "node:buffer";
import { type Actor, mayAccess } from "../../auth/access.ts";
import { ApiError } from "../../http/errors.ts";
import type { Document, Mutation, Row } from "../../store/store.ts";
import {
  type Collection,
  isVisible,
  ownerOf,
  readsAll,
} from "../declaration/declaration.ts";
import { checkRules } from "../declaration/validation.ts";
import type { RequestContext, Result } from "../request-context.ts";
import type { Records } from "./records.ts";

/** The most records that a deletion also deletes or changes: it delays other requests by some 10 ms. */
const maxCascade = 2000;

/** The most bytes of the records that a deletion changes, as they are written to the log. */
const maxChangedBytes = 4 << 20;

/** The changes of a deletion by the rows that they affect: the new document, undefined if it is deleted. */
export type Changes = Map<
  Row,
  { readonly of: Collection; readonly next: Document | undefined }
>;

/** The deletion would change too much at once. */
export class TooManyChanges extends ApiError {
  constructor(singular: string, what: string) {
    super(
      40900,
      `Deleting the ${singular} would also ${what}: delete or change some of them first.`,
    );
  }
}

/**
 * Deletes a record; with `cascade` also all records that require it, directly
 * or through others.
 *
 * @throws {ApiError} 40401, 41200, 42800; 40900 if other records refer to it,
 * or cannot be changed; 40300 if the caller may not delete or change them
 */
export function deleteRecord(
  records: Records,
  context: RequestContext,
  cascade: boolean,
): Result {
  const { collection } = records;
  const row = records.find(context, context.scope());
  const { document: previous } = row;
  const { precondition } = context.shared.hooks;
  precondition?.(context, { collection, document: previous }); // 412, 428
  const mutations = planDeletion(records, row, context.caller, cascade);
  return records.commit(context, {
    mutations,
    response: { status: 204, headers: [] },
    change: { previous, next: undefined },
  });
}

/**
 * Returns the mutations that delete a record and what goes with it.
 *
 * @throws {ApiError} 40900, 40300
 */
export function planDeletion(
  records: Records,
  row: Row,
  caller: Actor | undefined,
  cascade: boolean,
): Mutation[] {
  const { collection } = records;
  const changes: Changes = new Map([[row, {
    of: collection,
    next: undefined,
  }]]);
  if (cascade) {
    for (const _ of followReferences(records, changes)); // without a pause
    checkChanges(records, caller, changes);
  } else checkUnreferenced(records, caller, row.document);
  return mutationsOf(changes);
}

/** Returns the mutations of changes, the newest first: an index removes its last rows faster than its first. */
export function mutationsOf(changes: Changes): Mutation[] {
  return Array.from(
    changes,
    ([{ document }, { of, next }]): Mutation =>
      next ? ["put", of.name, next] : deletionOf(of, document),
  ).reverse();
}

/** Returns the mutation that deletes a record. */
export function deletionOf(of: Collection, previous: Document): Mutation {
  const { name } = of;
  const owner = ownerOf(of, previous);
  return owner === undefined
    ? ["del", name, previous.id]
    : ["del", name, previous.id, owner];
}

/**
 * Checks that no other record refers to one. Counts them from the index:
 * collecting them could take long.
 *
 * @throws {ApiError} 40900
 */
function checkUnreferenced(
  { collection, store }: Records,
  caller: Actor | undefined,
  document: Document,
): void {
  const { id } = document;
  const counts: string[] = [];
  for (const { source, property, segment } of collection.children) {
    const isOwn = source === collection && document[property] === id;
    const count = store.table(source.name).count(property, id) - Number(isOwn);
    if (count === 0) continue;
    const by = segment === source.name ? "" : ` (${segment})`;
    // The number of records that the caller may not read must not be revealed.
    const shown = readsAll(source, caller) ? `${count} ` : "";
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
 * required reference are deleted too. Yields after each of them.
 *
 * @throws {TooManyChanges}
 */
export function* followReferences(
  records: Records,
  changes: Changes,
  { maxRecords = maxCascade, maxBytes = maxChangedBytes } = {},
): Generator<undefined, void> {
  const { collection: { singular }, store } = records;
  let changedBytes = 0;
  for (const [{ document: { id } }, { of, next }] of changes) { // grows while it is iterated over
    const children = next ? [] : of.children;
    for (const { source, property, isRequired } of children) {
      for (const row of store.table(source.name).rowsWith(property, id)) {
        const known = changes.get(row);
        if (known && !known.next) continue;
        const previous = known?.next ?? row.document;
        const updated_at = records.timestamp(row.document["updated_at"]);
        const next = isRequired
          ? undefined
          : { ...previous, [property]: null, updated_at };
        changes.delete(row); // moves it to the end, so that it is visited again
        changes.set(row, { of: source, next });
        if (known === undefined && next !== undefined) {
          changedBytes += Buffer.byteLength(JSON.stringify(next));
        }
        const excess = changedBytes > maxBytes
          ? `change more than ${maxBytes >> 20} MiB of records`
          : changes.size > maxRecords + 1
          ? `delete or change more than ${maxRecords} records`
          : undefined;
        if (excess) throw new TooManyChanges(singular, excess);
        yield;
      }
    }
  }
}

/**
 * Checks that the caller may make all changes, and that no emptied reference
 * breaks a rule.
 *
 * @throws {ApiError} 40300, 40900
 */
export function checkChanges(
  { collection: { singular } }: Records,
  caller: Actor | undefined,
  changes: Changes,
): void {
  for (const [{ document }, { of, next }] of changes) {
    const { access, name, overseer = "" } = of;
    const isSeen = isVisible(of, document, caller);
    const role = isSeen ? access[next ? "write" : "delete"] : overseer;
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
    const [error] = next ? checkRules(of, next) : [];
    if (error === undefined) continue;
    throw new ApiError(
      40900,
      `Deleting the ${singular} would break a rule of the ${of.singular}${
        readsAll(of, caller) ? ` ${document.id}: ${error.message}` : "."
      }`,
    );
  }
}
