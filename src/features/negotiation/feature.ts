/**
 * Formats that clients may ask for beyond JSON: errors as `application/problem+json`
 * (RFC 9457), responses without the record (Prefer, RFC 7240), and the
 * parameters of a list in a body (QUERY, RFC 10008).
 */

import type { Feature } from "../../api/feature.ts";
import type { RequestContext } from "../../api/request-context.ts";
import { withDocs } from "../../api/docs.ts";
import { negotiate } from "../../http/negotiate.ts";
import type { Response } from "../../http/connection.ts";
import { isReadMethod } from "../../http/content.ts";
import { applyPreference } from "./prefer.ts";
import { prefersProblemJson, problemType, toProblem } from "./problem.ts";
import { formType, queryOf } from "./query.ts";

export const feature: Feature = {
  open: () => ({
    extend({ GET, ...others }) {
      const QUERY = GET && queryOf(GET);
      const methods = {
        ...(GET && { GET }),
        ...(QUERY && { QUERY }),
        ...others,
      };
      return withDocs(methods, () => ({ negotiable: true }));
    },
    format,
    onResponse({ method, route }, { fields }) {
      const isOptions = method === "OPTIONS";
      if (!isReadMethod(method)) fields.push("Vary", "Prefer");
      if (!isReadMethod(method) && !isOptions) return;
      if (route?.operations.has("QUERY")) fields.push("Accept-Query", formType);
    },
  }),
};

function format(
  request: RequestContext,
  response: Response,
): Response | undefined {
  const { method, headers: { accept, prefer } } = request;
  if (response.status >= 400) {
    return prefersProblemJson(accept) ? toProblem(response) : undefined;
  }
  if (isReadMethod(method)) {
    return wantsOnlyProblems(request) ? response : undefined;
  }
  return typeof prefer === "string"
    ? applyPreference(prefer, method, response)
    : undefined;
}

/** Returns whether a client accepts problem+json, but no format of the URL: it wants that for errors, and successful responses are plain JSON. */
function wantsOnlyProblems(
  { method, route, headers: { accept } }: RequestContext,
): boolean {
  if (!accept || /application\/(?:json|\*)|\*\/\*/i.test(accept)) return false;
  const { produces = [] } =
    route?.operations.get(method === "HEAD" ? "GET" : method) ?? {};
  return negotiate(accept, produces) === undefined &&
    negotiate(accept, [problemType]) !== undefined;
}
