/**
 * Checks the header of a request for what node:http accepts, although two
 * servers could interpret it differently, or this server does not support it.
 */

import { isIPv6 } from "node:net";
import type { IncomingRequest } from "../../http/connection.ts";
import { ApiError } from "../../http/errors.ts";

/** The most header fields of a request. */
const maxFields = 64;

/** The fields that may be sent only once. node:http uses the first one. */
const singleFields = [
  "Host",
  "Authorization",
  "Content-Type",
  "Content-Length",
  "Idempotency-Key",
  "If-Modified-Since",
  "If-Unmodified-Since",
];

/**
 * Checks the header of a request.
 *
 * @throws {ApiError} 40000, 41700, 43100, 50100
 */
export function checkMessage(request: IncomingRequest): void {
  const { httpVersion, rawHeaders, headers, url = "" } = request;
  if (!httpVersion.startsWith("1.")) { // RFC 9110 section 2.5
    throw new ApiError(
      40000,
      `This server supports HTTP/1.1, not HTTP/${httpVersion}.`,
    );
  }
  if (rawHeaders.length > 2 * maxFields) throw new ApiError(43100);
  // Most requests repeat no field at all.
  if (rawHeaders.length > 2 * Object.keys(headers).length) {
    const { headersDistinct } = request;
    const repeated = singleFields.find((name) =>
      headersDistinct[name.toLowerCase()]?.[1] !== undefined
    );
    if (repeated) {
      throw new ApiError(
        40000,
        `The field ${repeated} is repeated: send it once.`,
      );
    }
  }
  const { host, expect, "transfer-encoding": coding } = headers;
  const hasHost = host === undefined // RFC 9112 section 3.2
    ? httpVersion === "1.0"
    : isAuthority(host);
  if (!hasHost) {
    throw new ApiError(
      40000,
      "A request must have a Host field: a host name or IP address, with or without a port.",
    );
  }
  const [, authority] = /^https?:\/\/([^/?#]*)/i.exec(url) ?? []; // RFC 9112 section 3.2.2
  if (authority !== undefined && !isAuthority(authority)) {
    throw new ApiError(
      40000,
      "The request target must be a path, or a URL with a host name or IP address, with or without a port.",
    );
  }
  const isHttp10 = httpVersion === "1.0";
  const isChunked = coding?.toLowerCase() === "chunked";
  if (coding !== undefined && (isHttp10 || !isChunked)) { // RFC 9112 section 6.1
    throw new ApiError(
      isHttp10 || coding === "" ? 40000 : 50100,
      "The only supported Transfer-Encoding is chunked, in HTTP/1.1.",
    );
  }
  // An Expect field of an HTTP/1.0 client is ignored (RFC 9110 section 10.1.1).
  const isExpected = expect === undefined || httpVersion === "1.0" ||
    expect.toLowerCase() === "100-continue";
  if (!isExpected) throw new ApiError(41700);
}

/** Returns whether a text is a host name or IP address, with or without a port (RFC 3986 section 3.2). */
function isAuthority(text: string): boolean {
  const isForm = /^(?:(?:[\w.~-]|%[\da-f]{2})+|\[[\da-f:.]+\])(?::\d{0,5})?$/i
    .test(text);
  const isName = !text.startsWith("[");
  return isForm && (isName || isIPv6(text.slice(1, text.indexOf("]"))));
}
