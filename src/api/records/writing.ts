/**
 * POST, PUT and PATCH. A change is first planned, without effect, and then
 * committed in one transaction with all its consequences.
 */

import type { Requester } from "../../admission.ts";
import { mayAccess } from "../../auth/access.ts";
import { hashPassword } from "../../auth/passwords.ts";
import type { Document, Row } from "../../store/store.ts";
import type { Values } from "../declaration/properties.ts";
import type { Body } from "../declaration/validation.ts";
import type {
  Outcome,
  RequestContext,
  Result,
  Scope,
} from "../request-context.ts";
import type { Records } from "./records.ts";

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
  const plan = (hashes?: Values) => {
    const scope = context.scope();
    const row = method === "POST" ? undefined : records.find(context, scope);
    context.shared.hooks.precondition?.(
      context,
      row ? { collection, document: row.document } : { collection, scope },
    );
    const next = records.buildRecord(body, {
      previous: row?.document,
      only,
      caller: context.caller,
      hashes,
      valuesFromUrl: scope?.conditions,
      partial: method === "PATCH",
    });
    const isOwn = only !== undefined; // the caller's own user
    return () => commitWrite(records, context, { row, next, scope, isOwn });
  };
  const commit = plan();
  const hashing = hashSecret(records, body, context);
  return hashing
    ? context.afterWaiting(hashing, (hashes) => plan(hashes)())
    : commit();
}

/** Commits a planned change; the row is undefined if the record is new. */
function commitWrite(
  records: Records,
  context: RequestContext,
  { row, next, scope, isOwn }: {
    readonly row: Row | undefined;
    readonly next: Document;
    readonly scope: Scope | undefined;
    readonly isOwn: boolean;
  },
): Result {
  const { collection, representation } = records;
  const url = representation.url(next.id);
  // The server adds to what a PUT sends, so the response must not have the
  // validators of the result (RFC 9110 section 9.3.4).
  const headers = context.method === "PUT"
    ? ["Content-Location", url]
    : context.shared.hooks
      .validators?.(context, { collection, document: next }) ?? [];
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
  return records.commit(context, {
    mutations: [records.putMutation(next)],
    response,
    change: { previous, next },
  });
}
