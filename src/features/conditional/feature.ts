/**
 * Conditional requests (RFC 9110 section 13): responses have validators, a
 * client that has the current representation is sent a 304, and a change that
 * would overwrite one that its client has not seen is refused with 412. With
 * `REQUIRE_IF_MATCH`, a change without a precondition is refused too (RFC 6585
 * section 3).
 */

import { withDocs } from "../../api/docs.ts";
import type { Feature } from "../../api/feature.ts";
import type { Collection } from "../../api/declaration/declaration.ts";
import { oneOf } from "../../api/switch-setting.ts";
import { ApiError } from "../../http/errors.ts";
import { evaluatePreconditions, hasPrecondition } from "./preconditions.ts";
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
      extend: (methods) =>
        withDocs(methods, ({ resource, docs }, method) => ({
          conditional: resource !== undefined ||
            docs?.responses?.[200]?.headers?.includes("ETag") === true,
          requiresPrecondition: isRequired && resource !== undefined &&
            canOverwrite(method, resource.records.collection),
        })),
      validators,
      precondition(request, subject) {
        if (
          isRequired && "document" in subject &&
          canOverwrite(request.method, subject.collection) &&
          !hasPrecondition(request)
        ) throw new ApiError(42800);
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

/** Returns whether a method can overwrite the change of somebody else. Signing out and canceling cannot. */
function canOverwrite(method: string, of: Collection): boolean {
  return ["PUT", "PATCH", "DELETE"].includes(method) &&
    (of.private || of.owner === undefined);
}
