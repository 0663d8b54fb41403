/**
 * Decides which responses scripts of other origins may read, and which requests
 * they may send: the CORS protocol of the Fetch standard
 * (https://fetch.spec.whatwg.org/#http-cors-protocol). It is on if
 * `CORS_ORIGINS` names origins.
 */

import type { Feature } from "../../api/feature.ts";
import type { RequestContext } from "../../api/request-context.ts";
import { listOf } from "../../api/settings/setting.ts";

/** The request fields that a script may set. A wildcard would not include Authorization. */
const allowedHeaders =
  "Accept, Authorization, Content-Type, Idempotency-Key, If-Match, " +
  "If-Modified-Since, If-None-Match, If-Unmodified-Since, Last-Event-ID, " +
  "Prefer, Traceparent, Tracestate, X-Request-Id";

/** The response fields that a script may read, besides the CORS-safelisted ones. */
const exposedHeaders =
  "Accept-Patch, Accept-Post, Accept-Query, Allow, Content-Location, ETag, " +
  "Last-Modified, Link, Location, Preference-Applied, RateLimit, " +
  "RateLimit-Policy, Retry-After, WWW-Authenticate, X-Request-Id, X-Total-Count";

/**
 * Returns the fields to add to a response: name, value, name, value, … Errors
 * need them too, or a script could not read them. No response allows
 * credentials: those are cookies and the like, whereas a script sends our
 * tokens itself.
 *
 * @param origins the origins whose scripts have access; `*` means any
 */
export function corsHeaders(
  origins: readonly string[],
  { method, headers, route }: Pick<
    RequestContext,
    "method" | "headers" | "route"
  >,
): string[] {
  const { origin } = headers;
  const fields: string[] = [];
  if (origins.includes("*")) {
    // The value is the same for all requests, so no Vary is needed.
    fields.push("Access-Control-Allow-Origin", "*");
  } else {
    fields.push("Vary", "Origin");
    if (origin === undefined || !origins.includes(origin)) return fields;
    fields.push("Access-Control-Allow-Origin", origin);
  }
  const preflight = method === "OPTIONS" && origin !== undefined &&
    headers["access-control-request-method"] !== undefined;
  if (!preflight) {
    fields.push("Access-Control-Expose-Headers", exposedHeaders);
  } else if (route) {
    // The browser compares the method and fields with these, so the server need
    // not.
    fields.push("Access-Control-Allow-Methods", route.allow);
    fields.push("Access-Control-Allow-Headers", allowedHeaders);
    fields.push("Access-Control-Max-Age", "7200"); // the most that browsers cache
  }
  return fields;
}

const settings = {
  /** Origins whose scripts may read responses; `*` means any. */
  CORS_ORIGINS: {
    description: "origins whose scripts may read responses, or *",
    expected:
      "* or origins such as https://example.com, separated by commas, without wildcards",
    default: undefined,
    parse: (value: string) =>
      listOf(value, (origin) => origin === "*" || isOrigin(origin)),
  },
};

/** Returns whether a text is an origin as browsers send it, without a wildcard: that would match none. */
function isOrigin(text: string): boolean {
  return URL.canParse(text) && new URL(text).origin === text &&
    !text.includes("*");
}

export const feature: Feature = {
  settings,
  open({ settings: { read } }) {
    const { CORS_ORIGINS: origins = [] } = read(settings);
    return {
      onResponse(request, { fields }) {
        fields.push(...corsHeaders(origins, request));
      },
    };
  },
};
