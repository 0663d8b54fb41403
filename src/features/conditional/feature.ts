/**
 * Conditional requests (RFC 9110 section 13): responses have validators, a
 * client that has the current representation is sent a 304, and a change that
 * would overwrite one that its client has not seen is refused with 412. With
 * `REQUIRE_IF_MATCH`, a change without a precondition is refused too (RFC 6585
 * section 3).
 */

import { withDocs } from "../../api/docs.ts";
import type { Feature } from "../../api/feature.ts";
import type { RequestContext, Subject } from "../../api/request-context.ts";
import { ApiError } from "../../http/errors.ts";
import { evaluatePreconditions, hasPrecondition } from "./preconditions.ts";
import { createValidators } from "./validators.ts";

export const feature: Feature = {
  open(api) {
    const { REQUIRE_IF_MATCH: isRequired = false } = api.settings;
    const validators = createValidators(api);
    return {
      extend: (methods) =>
        withDocs(methods, ({ resource, docs }) => ({
          conditional: resource !== undefined ||
            docs?.responses?.[200]?.headers?.includes("ETag") === true,
        })),
      validators,
      precondition(request, subject) {
        if (isRequired && mustHavePrecondition(request, subject)) {
          if (!hasPrecondition(request)) throw new ApiError(42800);
        }
        const outcome = evaluatePreconditions(
          request,
          () => validators(request, subject),
        );
        if (outcome === "failed") throw new ApiError(41200);
        return outcome === "not-modified";
      },
    };
  },
};

/** Returns whether a request changes a record. Signing out and canceling cannot overwrite anybody's change. */
function mustHavePrecondition(
  { method }: RequestContext,
  subject: Subject,
): boolean {
  if (!("document" in subject)) return false;
  const { collection } = subject;
  return ["PUT", "PATCH", "DELETE"].includes(method) &&
    (collection.private || collection.owner === undefined);
}
