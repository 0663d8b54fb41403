/**
 * POST, PUT and PATCH. A change is first planned, without effect, and then
 * committed in one transaction with all its consequences.
 */

import type { Requester } from "../../admission.ts";
import type { Actor } from "../../auth/access.ts";
import { hashPassword } from "../../auth/passwords.ts";
import type { Document, Mutation, Row } from "../../store/store.ts";
import { ownerOf, type RecordChange } from "../declaration/declaration.ts";
import type { Values } from "../declaration/properties.ts";
import {
  type Body,
  enforceRules,
  validate,
} from "../declaration/validation.ts";
import type { Scope } from "../query/select.ts";
import type { Outcome, RequestContext, Result } from "../request-context.ts";
import { findForChange, type Records } from "./records.ts";

/** The record to write; its row is undefined if it is new. */
interface Target {
  readonly row: Row | undefined;
  /** The only properties that the caller may change. */
  readonly only?: readonly string[] | undefined;
}

/**
 * Returns the document that a write stores: a new one or, given the row of a
 * record, its next one, which is the same if nothing changes.
 *
 * @throws {ApiError} 42200
 */
export function planWrite(
  records: Records,
  body: Body,
  { row, hashes, ...options }: Target & {
    readonly caller: Actor | undefined;
    readonly hashes: Values | undefined;
    readonly valuesFromUrl?: Values | undefined;
    /** True if properties that the body lacks stay as they are. */
    readonly partial: boolean;
  },
): Document {
  if (row === undefined) {
    return records.buildRecord(body, { ...options, hashes });
  }
  const { collection, table, store } = records;
  const previous = row.document;
  const owner = ownerOf(collection, previous);
  const context = { ...options, store, table, owner, previous };
  const values = { ...validate(collection, body, context), ...hashes };
  const isChanged = Object.keys(values).some((name) =>
    values[name] !== previous[name]
  );
  if (!isChanged) return previous;
  const { id, created_at = null, updated_at, ...others } = previous;
  const next: Document = {
    id,
    ...values, // in the declared order, which representation.ts relies on
    ...others, // undeclared properties stay stored
    ...values,
    created_at,
    updated_at: records.timestamp(updated_at),
  };
  enforceRules(collection, next);
  return next;
}

/** Returns the mutations of a change, with all its consequences. */
export function mutationsOf(
  records: Records,
  change: RecordChange & { readonly next: Document },
): readonly Mutation[] {
  const { collection, store } = records;
  return [
    records.putMutation(change.next),
    ...collection.sideEffects?.(change, store) ?? [],
  ];
}

/** Hashes the password in a body; returns undefined if there is none. */
export function hashSecret(
  { collection: { secretName } }: Records,
  body: Body,
  requester: Requester,
): Promise<Values> | undefined {
  if (secretName === undefined || !Object.hasOwn(body, secretName)) {
    return undefined;
  }
  return hashPassword(String(body[secretName]), requester)
    .then((hash) => ({ [secretName]: hash }));
}

/**
 * Creates a record.
 *
 * @throws {ApiError} 40401, 41200, 42200
 */
export function createRecord(
  records: Records,
  context: RequestContext,
  body: Body,
): Outcome {
  const find = () => ({
    scope: prepareCreate(records, context),
    row: undefined,
  });
  return write(records, context, body, find);
}

/**
 * Checks that records can be created now, and returns the scope of the URL.
 *
 * @throws {ApiError} 40401, 41200
 */
export function prepareCreate(
  records: Records,
  context: RequestContext,
): Scope | undefined {
  const { collection } = records;
  const scope = context.scope();
  context.checkPreconditions({ collection, scope });
  return scope;
}

/**
 * Replaces a record, or changes some of its properties (PATCH, RFC 7396).
 *
 * @param only the only properties that the caller may change
 * @throws {ApiError} 40401, 41200, 42200, 42800, 409xx
 */
export function changeRecord(
  records: Records,
  context: RequestContext,
  body: Body,
  only?: readonly string[],
): Outcome {
  return write(records, context, body, () => {
    const scope = context.scope();
    return { scope, row: findForChange(records, context, scope), only };
  });
}

/**
 * Plans a change and commits it. Passwords are hashed in between, which takes
 * long: meanwhile the caller may have been signed out or have lost the role,
 * and the record may have changed. So afterwards the caller is authenticated
 * again and the change is planned again. The first plan refuses invalid
 * requests before they cost a hash.
 */
function write(
  records: Records,
  context: RequestContext,
  body: Body,
  find: () => Target & { readonly scope: Scope | undefined },
): Outcome {
  const plan = (hashes?: Values) => {
    const { scope, ...target } = find();
    const next = planWrite(records, body, {
      ...target,
      caller: context.caller,
      hashes,
      valuesFromUrl: scope?.conditions,
      partial: context.method === "PATCH",
    });
    return { row: target.row, next, scope };
  };
  const planned = plan();
  const hashing = hashSecret(records, body, context);
  if (hashing === undefined) return commitWrite(records, context, planned);
  return context.afterWaiting(
    hashing,
    (hashes) => commitWrite(records, context, plan(hashes)),
  );
}

function commitWrite(
  records: Records,
  context: RequestContext,
  { row, next, scope }: {
    readonly row: Row | undefined;
    readonly next: Document;
    readonly scope: Scope | undefined;
  },
): Result {
  const { collection, representation } = records;
  const url = representation.url(next.id);
  // The server adds to what a PUT sends, so the response must not have the
  // validators of the result (RFC 9110 section 9.3.4).
  const headers = context.method === "PUT"
    ? ["Content-Location", url]
    : context.validators({ collection, document: next });
  const response = {
    status: 201,
    headers: row ? headers : ["Location", url, ...headers],
    // The text is not cached: it would take memory though it may never be read.
    body: representation.asStandalone(
      representation.serialize(next),
      scope?.url,
    ),
  };
  const previous = row?.document;
  if (row && next === previous) return { ...response, seq: row.seq };
  const change = { previous, next };
  const mutations = mutationsOf(records, change);
  return records.commit(context, { mutations, response, change });
}
