/**
 * Content negotiation and preferences as functions of header fields: the format of
 * a response (RFC 9110 section 12), the media type of a body (section 8.3), and
 * whether a response includes the record (RFC 7240).
 */

import type { IncomingRequest, Response } from "./connection.ts";
import { negotiate, parseReturnPreference } from "./accept.ts";
import { ApiError } from "./errors.ts";
import { parseMediaType } from "./headers.ts";
import { problemType } from "./problem.ts";

/**
 * Chooses the media type of a response (RFC 9110 section 12.5.1). A client that
 * accepts only problem+json wants that format for errors; successful responses
 * are plain JSON.
 *
 * @throws {ApiError} 40600
 */
export function chooseFormat(
  accept: string | undefined,
  produces: readonly string[] = ["application/json"],
): string {
  const format = negotiate(accept, produces);
  if (format !== undefined) return format;
  const excludesJson = /application\/(?:json|\*)|\*\/\*/i.test(accept ?? "");
  if (negotiate(accept, [problemType]) && !excludesJson) {
    return produces[0] ?? "";
  }
  throw new ApiError(
    40600,
    `None of the accepted formats is available: this URL has ${
      produces.join(" and ")
    }.`,
  );
}

/**
 * Checks the media type and coding of a body, and returns its type; undefined
 * if there is no body, which is reported when the body is parsed.
 *
 * @throws {ApiError} 41500 with the field that lists what is supported (RFC
 * 9110 section 15.5.16, RFC 5789 section 2.2); 40000 on a QUERY without a
 * type, and on a part of a body
 */
export function checkContentType(
  request: IncomingRequest,
  consumes: readonly string[],
): string | undefined {
  const { headers, method } = request;
  const { "content-encoding": coding = "identity", "content-type": field } =
    headers;
  if (headers["content-range"]) { // RFC 9110 section 14.5
    throw new ApiError(
      40000,
      "A Content-Range is not supported: send the complete body without it.",
    );
  }
  if (coding.toLowerCase() !== "identity") {
    throw new ApiError(
      41500,
      "The body must not have a Content-Encoding other than identity.",
      { headers: ["Accept-Encoding", "identity"] },
    );
  }
  if (field === undefined) {
    if (method === "QUERY") { // RFC 10008 section 2
      throw new ApiError(
        40000,
        `The request must have a Content-Type: ${consumes.join(" or ")}.`,
      );
    }
    if (!request.hasContent) return undefined;
  } else if (consumes.includes(field)) return field;
  const type = parseMediaType(field ?? "");
  const charset = type?.parameters.get("charset") ?? "utf-8";
  if (type && consumes.includes(type.type) && charset === "utf-8") {
    return type.type;
  }
  const name = method === "PATCH" ? "Accept-Patch" : "Accept-Post";
  throw new ApiError(
    41500,
    `The Content-Type must be ${consumes.join(" or ")}, in UTF-8.`,
    method === "PUT" || method === "QUERY" // Accept-Query is in every response
      ? {}
      : { headers: [name, consumes.join(", ")] },
  );
}

/**
 * Omits the record from a response if the client prefers that
 * (`return=minimal`, RFC 7240 section 4.2). A response that must not be stored
 * keeps its content: its token is shown only once.
 */
export function applyPreference(
  prefer: string,
  method: string,
  response: Response,
): Response {
  const { status, headers } = response;
  if (status !== 201 || headers.includes("no-store")) return response;
  const preference = parseReturnPreference(prefer);
  if (preference === undefined) return response;
  const fields = [...headers, "Preference-Applied", `return=${preference}`];
  return preference === "minimal"
    ? { status: method === "POST" ? 201 : 204, headers: fields }
    : { ...response, headers: fields };
}
