/**
 * POST, PUT and PATCH. A change is first planned, without effect, and then
 * committed in one transaction with all its consequences.
 */

import type { Requester } from "../../admission.ts";
import { type Actor, mayAccess } from "../../auth/access.ts";
import { hashPassword } from "../../auth/passwords.ts";
import type { Document, Row } from "../../store/store.ts";
import { ownerOf } from "../declaration/declaration.ts";
import type { Values } from "../declaration/properties.ts";
import {
  type Body,
  enforceRules,
  validate,
} from "../declaration/validation.ts";
import type {
  Outcome,
  RequestContext,
  Result,
  Scope,
} from "../request-context.ts";
import type { Records } from "./records.ts";

/**
 * Returns the document that a write stores: a new one or, given the row of a
 * record, its next one, which is the same if nothing changes.
 *
 * @throws {ApiError} 42200
 */
export function planWrite(
  records: Records,
  body: Body,
  { row, hashes, ...options }: {
    /** Undefined if the record is new. */
    readonly row: Row | undefined;
    /** The only properties that the caller may change. */
    readonly only?: readonly string[] | undefined;
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
  const updated_at = records.timestamp(previous["updated_at"]);
  const next = { ...previous, ...values, updated_at }; // undeclared properties stay stored
  enforceRules(collection, next);
  return next;
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
 * Creates a record (POST), replaces one (PUT) or changes some of its properties
 * (PATCH, RFC 7396): plans the change and commits it. Passwords are hashed in
 * between, which takes long: meanwhile the caller may have been signed out or
 * have lost the role, and the record may have changed. So afterwards the caller
 * is authenticated again and the change is planned again. The first plan refuses
 * invalid requests before they cost a hash.
 *
 * @param only the only properties that the caller may change
 * @throws {ApiError} 40401, 41200, 42200, 42800, 409xx
 */
export function writeRecord(
  records: Records,
  context: RequestContext,
  body: Body,
  only?: readonly string[],
): Outcome {
  const { collection } = records;
  const { method } = context;
  const plan = (hashes?: Values): PlannedWrite => {
    const scope = context.scope();
    const row = method === "POST" ? undefined : records.find(context, scope);
    context.checkPreconditions(
      row ? { collection, document: row.document } : { collection, scope },
    );
    const next = planWrite(records, body, {
      row,
      only,
      caller: context.caller,
      hashes,
      valuesFromUrl: scope?.conditions,
      partial: method === "PATCH",
    });
    return { row, next, scope, isOwn: only !== undefined };
  };
  const planned = plan();
  const hashing = hashSecret(records, body, context);
  if (hashing === undefined) return commitWrite(records, context, planned);
  return context.afterWaiting(
    hashing,
    (hashes) => commitWrite(records, context, plan(hashes)),
  );
}

/** A change that is to be committed; the row is undefined if the record is new. */
interface PlannedWrite {
  readonly row: Row | undefined;
  readonly next: Document;
  readonly scope: Scope | undefined;
  /** True if it is the caller's own user. */
  readonly isOwn: boolean;
}

function commitWrite(
  records: Records,
  context: RequestContext,
  { row, next, scope, isOwn }: PlannedWrite,
): Result {
  const { collection, representation } = records;
  const url = representation.url(next.id);
  // The server adds to what a PUT sends, so the response must not have the
  // validators of the result (RFC 9110 section 9.3.4).
  const headers = context.method === "PUT"
    ? ["Content-Location", url]
    : context.validators({ collection, document: next });
  // A record shows more than its change, and not everybody may read it.
  const isShown = !row || isOwn ||
    mayAccess(context.caller?.grants, collection.access.read);
  const response = isShown
    ? {
      status: 201,
      headers: row ? headers : ["Location", url, ...headers],
      // The text is not cached: it would take memory though it may never be read.
      body: representation.asStandalone(
        representation.serialize(next),
        scope?.url,
      ),
    }
    : { status: 204, headers: [] };
  const previous = row?.document;
  if (row && next === previous) return { ...response, seq: row.seq };
  const change = { previous, next };
  const mutations = [records.putMutation(next)];
  return records.commit(context, { mutations, response, change });
}
