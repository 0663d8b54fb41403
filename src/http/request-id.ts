/** Identifies a request in the log: by its own id, and by the trace that it is part of. */

import { randomBytes } from "node:crypto";

/** A header field as in node:http. */
type Field = string | readonly string[] | undefined;

// Each process has its own prefix. It need not be secret.
const prefix = randomBytes(6).toString("base64url");
let count = 0;

/** Returns the X-Request-Id of a request if it is 1 to 64 visible characters, and a new id otherwise. */
export function requestId(sent: Field): string {
  return typeof sent === "string" && /^[!-~]{1,64}$/.test(sent)
    ? sent
    : `${prefix}-${(++count).toString(36)}`;
}

// Version, trace id, parent id and flags. Later versions may append fields, and
// version ff is invalid (Trace Context section 3.2.2).
const traceparent =
  /^(?!ff)([\da-f]{2})-(?!0{32})([\da-f]{32})-(?!0{16})[\da-f]{16}-[\da-f]{2}(-.*)?$/;

/**
 * Returns the trace id of a `traceparent` field; undefined if the field is not valid
 * (W3C Trace Context, https://www.w3.org/TR/trace-context/). It is only logged: we
 * call no other service that would need a `traceparent`.
 */
export function parseTraceId(field: Field): string | undefined {
  if (typeof field !== "string") return undefined;
  const [, version, traceId, more] = traceparent.exec(field) ?? [];
  return version === "00" && more !== undefined ? undefined : traceId;
}
