/**
 * What scripts of other origins may do with our answers: the CORS protocol of
 * the Fetch standard (https://fetch.spec.whatwg.org/#http-cors-protocol).
 */

/** The fields of a request that a script may set. The wildcard would not do, as it does not stand for Authorization. */
const allowed = [
  "Accept",
  "Authorization",
  "Content-Type",
  "Idempotency-Key",
  "If-Match",
  "If-Modified-Since",
  "If-None-Match",
  "If-Unmodified-Since",
  "Last-Event-ID",
  "Prefer",
  "Traceparent",
  "Tracestate",
  "X-Request-Id",
].join(", ");

/** The fields of an answer that a script may read, besides those that every script may. */
const exposed = [
  "Accept-Patch",
  "Accept-Post",
  "Accept-Query",
  "Allow",
  "Content-Location",
  "ETag",
  "Last-Modified",
  "Link",
  "Location",
  "Preference-Applied",
  "Retry-After",
  "WWW-Authenticate",
  "X-Request-Id",
  "X-Total-Count",
].join(", ");

/** What the CORS fields of an answer depend on. */
export interface CorsRequest {
  readonly method: string;
  /** Names in lower case, as node:http gives them. */
  readonly headers: {
    readonly origin?: string | undefined;
    readonly "access-control-request-method"?: string | undefined;
  };
  /** The methods of the address, as in Allow; undefined for an unknown address. */
  readonly allow?: string | undefined;
}

/**
 * The fields to add to an answer, to an error too, or a script could not read
 * it: name, value, name, value, … None of them allows credentials: those are
 * cookies and the like, while our tokens are sent by the script itself.
 *
 * @param origins the origins whose scripts may; `*` among them is any
 */
export function corsHeaders(
  origins: readonly string[],
  { method, headers, allow }: CorsRequest,
): string[] {
  if (origins.length === 0) return [];
  const { origin } = headers;
  const fields: string[] = [];
  if (origins.includes("*")) {
    // The same for everybody, who sent no Origin too: so it needs no Vary.
    fields.push("Access-Control-Allow-Origin", "*");
  } else {
    fields.push("Vary", "Origin");
    if (origin === undefined || !origins.includes(origin)) return fields;
    fields.push("Access-Control-Allow-Origin", origin);
  }
  const preflight = method === "OPTIONS" && origin !== undefined &&
    headers["access-control-request-method"] !== undefined;
  if (!preflight) {
    fields.push("Access-Control-Expose-Headers", exposed);
  } else if (allow !== undefined) {
    // The browser compares with what it asked for, so that need not be read.
    fields.push("Access-Control-Allow-Methods", allow);
    fields.push("Access-Control-Allow-Headers", allowed);
    fields.push("Access-Control-Max-Age", "7200"); // what browsers keep
  }
  return fields;
}
