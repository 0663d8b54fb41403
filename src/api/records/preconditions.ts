/**
 * Preconditions of requests for records (RFC 9110 section 13): If-Match,
 * If-None-Match, If-Modified-Since and If-Unmodified-Since, compared with the
 * validators of a record or of its collection.
 */

import {
  evaluatePreconditions,
  hasPrecondition,
  isConditional,
} from "../../http/conditional.ts";
import { ApiError } from "../../http/errors.ts";
import type { Row } from "../../store/store.ts";
import type { RequestContext } from "../request-context.ts";
import type { Records } from "./records.ts";

/** A restored backup reuses sequence numbers, but never within the same process. */
const processStartTag = Date.now().toString(36);

/** Returns the ETag of a collection: weak, as all its pages share it (RFC 9110 section 8.8.1). */
export function collectionValidators(
  { table }: Records,
  { asNdjson }: RequestContext,
): readonly string[] {
  const state = `${processStartTag}-${table.lastSeq.toString(36)}`;
  return ["ETag", `W/"${state}${asNdjson ? "-lines" : ""}"`];
}

/**
 * Evaluates the preconditions of a request, if it has any.
 *
 * @param validators returns the header fields ETag and Last-Modified, as far as there are any
 * @throws {ApiError} 41200
 */
export function evaluateConditions(
  { options: { now } }: Records,
  { method, headers }: RequestContext,
  validators: () => readonly string[],
): "proceed" | "not-modified" {
  if (!isConditional(headers)) return "proceed";
  const [, etag, , modified] = validators();
  const lastModified = modified === undefined
    ? undefined
    : Date.parse(modified);
  const request = { method, headers, now: now() };
  const outcome = evaluatePreconditions(request, { etag, lastModified });
  if (outcome === "failed") throw new ApiError(41200);
  return outcome;
}

/**
 * Refuses the change of a record if a precondition fails, or if there is none
 * although the server requires one (RFC 6585 section 3).
 *
 * @throws {ApiError} 41200, 42800
 */
export function checkPreconditions(
  records: Records,
  context: RequestContext,
  row: Row,
): void {
  const { options: { now, requireIfMatch }, representation } = records;
  const { method, headers } = context;
  if (requireIfMatch && !hasPrecondition({ method, headers, now: now() })) {
    throw new ApiError(42800);
  }
  evaluateConditions(records, context, () => representation.validators(row));
}
