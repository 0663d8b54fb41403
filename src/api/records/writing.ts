/**
 * POST, PUT and PATCH. A change is first planned, without effect, and then
 * committed in one transaction with all its consequences.
 */

import { hashPassword } from "../../auth/passwords.ts";
import type { Document, Row } from "../../store/store.ts";
import { ownerOf } from "../declaration/declaration.ts";
import type { Values } from "../declaration/properties.ts";
import {
  type Body,
  enforceRules,
  validate,
} from "../declaration/validation.ts";
import type { Scope } from "../query/planner.ts";
import type { Outcome, RequestContext, Result } from "../request-context.ts";
import {
  collectionValidators,
  findForChange,
  isNotModified,
  type Records,
} from "./records.ts";

/** A change to one record. */
interface PlannedWrite {
  /** Undefined for a new record. */
  readonly row: Row | undefined;
  /** The same document as before if nothing changes. */
  readonly next: Document;
  readonly scope: Scope | undefined;
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
  return write(records, context, body, (hashes) => {
    const scope = prepareCreate(records, context);
    const next = records.buildRecord(body, {
      caller: context.caller,
      valuesFromUrl: scope?.conditions,
      hashes,
    });
    return { row: undefined, next, scope };
  });
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
  const scope = context.scope();
  isNotModified(context, () => collectionValidators(records, context, scope));
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
  const { collection, table, store } = records;
  return write(records, context, body, (hashes) => {
    const scope = context.scope();
    const row = findForChange(records, context, scope);
    const previous = row.document;
    const values = {
      ...validate(collection, body, {
        store,
        table,
        caller: context.caller,
        owner: ownerOf(collection, previous),
        previous,
        partial: context.method === "PATCH",
        only,
        valuesFromUrl: scope?.conditions,
      }),
      ...hashes,
    };
    const isChanged = Object.keys(values).some((name) =>
      values[name] !== previous[name]
    );
    if (!isChanged) return { row, next: previous, scope };
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
    return { row, next, scope };
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
  plan: (hashes: Values) => PlannedWrite,
): Outcome {
  const planned = plan({});
  const { secretName } = records.collection;
  if (secretName === undefined || !Object.hasOwn(body, secretName)) {
    return commitWrite(records, context, planned);
  }
  return context.afterWaiting(
    hashPassword(String(body[secretName]), context),
    (hash) => commitWrite(records, context, plan({ [secretName]: hash })),
  );
}

function commitWrite(
  records: Records,
  context: RequestContext,
  { row, next, scope }: PlannedWrite,
): Result {
  const { collection, representation, store } = records;
  const url = representation.url(next.id);
  // The server adds to what a PUT sends, so the response must not have the
  // validators of the result (RFC 9110 section 9.3.4).
  const headers = context.method === "PUT"
    ? ["Content-Location", url]
    : representation.validatorsOf(next);
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
  const mutations = [
    records.putMutation(next),
    ...collection.sideEffects?.(change, store) ?? [],
  ];
  return records.commit(context, { mutations, response, change });
}
