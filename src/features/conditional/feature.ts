/**
 * Conditional requests (RFC 9110 section 13): responses have validators, a
 * client that has the current representation is sent a 304, and a change that
 * would overwrite one that its client has not seen is refused with 412. With
 * `REQUIRE_IF_MATCH`, a change without a precondition is refused too (RFC 6585
 * section 3).
 */

import type { Operation, Resource } from "../../api/operation.ts";
import { hash } from "node:crypto";
import { withDocs } from "../../api/docs.ts";
import type { Feature } from "../../api/feature.ts";
import type { Collection } from "../../api/declaration/declaration.ts";
import type {
  Outcome,
  RequestContext,
  Result,
} from "../../api/request-context.ts";
import { oneOf } from "../../api/settings/switch.ts";
import { ApiError } from "../../http/errors.ts";
import {
  type ConditionalRequest,
  evaluatePreconditions,
  type GetValidators,
  hasPrecondition,
} from "./preconditions.ts";
import { createValidators } from "./validators.ts";

const settings = {
  /** True if a change of a record must have a precondition. */
  REQUIRE_IF_MATCH: {
    description: "1: a change must have a precondition such as If-Match",
    ...oneOf("0", "1"),
  },
};

export const feature: Feature = {
  settings,
  open(api) {
    const { REQUIRE_IF_MATCH: isRequired } = api.settings.read(settings);
    const validators = createValidators(api);
    return {
      extend({ GET, ...others }) {
        const isConstant = GET?.docs?.isConstant === true;
        const read = isConstant
          ? withDigest(GET)
          : GET?.resource
          ? withPreconditions(GET, GET.resource, validators)
          : GET;
        const methods = { ...(read && { GET: read }), ...others };
        return withDocs(methods, ({ resource }, method) => ({
          conditional: resource !== undefined || isConstant,
          requiresPrecondition: isRequired && resource !== undefined &&
            canOverwrite(method, resource.records.collection),
        }));
      },
      validators,
      precondition(request, subject) {
        if (
          isRequired && "document" in subject &&
          canOverwrite(request.method, subject.collection) &&
          !hasPrecondition(request)
        ) throw new ApiError(42800);
        isNotModified(request, () => validators(request, subject));
      },
    };
  },
};

/**
 * Returns whether the client has the current representation.
 *
 * @throws {ApiError} 41200 if a precondition fails
 */
function isNotModified(
  request: ConditionalRequest,
  validators: GetValidators,
): boolean {
  const outcome = evaluatePreconditions(request, validators);
  if (outcome === "failed") {
    const isWeak = /^\s*W\//.test(request.headers["if-match"] ?? "");
    throw new ApiError(
      41200,
      isWeak
        ? "If-Match never holds for a weak tag (W/…): send the tag of the record as it is without expand, and not compressed by a proxy."
        : undefined,
    );
  }
  return outcome === "not-modified";
}

/**
 * Adds validators to the responses to the GET of records, and responds with 304
 * if the client has the current representation. The validators are never newer
 * than a list that takes long to find.
 */
function withPreconditions(
  GET: Operation,
  { records }: Resource,
  validators: ReturnType<typeof createValidators>,
): Operation {
  const { collection, store, table } = records;
  const { list } = GET;
  const unlessCurrent = (
    context: RequestContext,
    read: () => Outcome,
  ): Outcome => {
    const scope = context.scope();
    const row = list ? undefined : records.find(context, scope);
    const subject = row
      ? { collection, document: row.document }
      : { collection, scope };
    const current = validators(context, subject);
    if (isNotModified(context, () => current)) {
      const seq = row?.seq ?? Math.max(table.lastSeq, scope?.seq ?? 0);
      return { status: 304, headers: current, seq };
    }
    // The state that they describe must be durable too, although the list may be older.
    const { seq: seen } = store;
    const add = (result: Result): Result => (
      { ...result, headers: [...current, ...result.headers] }
    );
    const result = read();
    return result instanceof Promise
      ? result.then(add)
        .then((added) => ({ ...added, seq: Math.max(added.seq, seen) }))
      : add(result);
  };
  return {
    ...GET,
    ...(list && {
      list: (context, parsed, show) =>
        unlessCurrent(context, () => list(context, parsed, show)),
    }),
    run: (context, parsed, body) =>
      unlessCurrent(context, () => GET.run(context, parsed, body)),
  };
}

/** Adds a validator to a response that stays the same while the server runs. */
function withDigest(GET: Operation): Operation {
  let etag: string | undefined;
  return {
    ...GET,
    run(context, parsed, body) {
      const validate = (result: Result): Result => {
        etag ??= `"${
          hash("sha256", result.body ?? "", "base64url").slice(0, 16)
        }"`;
        const validators = ["ETag", etag];
        const headers = [...result.headers, ...validators];
        return isNotModified(context, () => validators)
          ? { status: 304, headers, seq: 0 }
          : { ...result, headers };
      };
      const result = GET.run(context, parsed, body);
      return result instanceof Promise
        ? result.then(validate)
        : validate(result);
    },
  };
}

/** Returns whether a method can overwrite the change of somebody else. Signing out and canceling cannot. */
function canOverwrite(method: string, of: Collection): boolean {
  return ["PUT", "PATCH", "DELETE"].includes(method) &&
    (of.private || of.owner === undefined);
}
