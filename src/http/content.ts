/**
 * The content of a request: whether its method asks for a representation, and
 * whether the media type of its body is supported (RFC 9110 section 8.3).
 */

import type { IncomingRequest } from "./connection.ts";
import { ApiError } from "./errors.ts";
import { parseMediaType } from "./headers.ts";

/**
 * Returns whether a method retrieves a representation: GET, HEAD or QUERY (RFC
 * 9110 section 9.2.1, RFC 10008). Their responses can be cached and revalidated.
 * OPTIONS is safe too, but retrieves nothing, so it does not count here.
 */
export function isReadMethod(method: string): boolean {
  return method === "GET" || method === "HEAD" || method === "QUERY";
}

/**
 * Checks the media type and coding of a body, and returns its type; undefined
 * if there is no body, which is reported when the body is parsed, and on a QUERY
 * without a type.
 *
 * @throws {ApiError} 41500 with the field that lists what is supported (RFC
 * 9110 section 15.5.16, RFC 5789 section 2.2); 40000 on a part of a body
 */
export function checkContentType(
  request: IncomingRequest,
  consumes: readonly string[],
): string | undefined {
  const { method, headers } = request;
  const { "content-encoding": coding = "identity", "content-type": field } =
    headers;
  if (headers["content-range"]) { // RFC 9110 section 14.5
    throw new ApiError(
      40000,
      "A Content-Range is not supported: send the complete body without it.",
    );
  }
  if (/[^ \t,]/.test(coding.replace(/\bidentity\b/gi, ""))) {
    throw new ApiError(
      41500,
      "The body must not have a Content-Encoding other than identity.",
      { headers: ["Accept-Encoding", "identity"] },
    );
  }
  const isReportedLater = !request.hasContent || method === "QUERY";
  if (field === undefined && isReportedLater) return undefined;
  const { type = "", parameters } = parseMediaType(field ?? "") ?? {};
  const charset = parameters?.get("charset") ?? "utf-8";
  if (consumes.includes(type) && charset === "utf-8") return type;
  const types = consumes.join(", ");
  throw new ApiError(
    41500,
    `The Content-Type must be ${consumes.join(" or ")}, in UTF-8.`,
    {
      headers: method === "POST"
        ? ["Accept-Post", types]
        : method === "PATCH"
        ? ["Accept-Patch", types]
        : [],
    },
  );
}
