/** How one request is told from all others in the log, here and across systems. */

import { randomBytes } from "node:crypto";

/** A field as node:http gives it. */
type Field = string | readonly string[] | undefined;

// Another process has another prefix. Nothing rests on its being a secret.
const prefix = randomBytes(6).toString("base64url");
let count = 0;

/** The id of a request: the X-Request-Id that was sent, where it is 1 to 64 visible characters, else a new one. */
export function requestId(sent: Field): string {
  return typeof sent === "string" && /^[!-~]{1,64}$/.test(sent)
    ? sent
    : `${prefix}-${(++count).toString(36)}`;
}

// Version, trace id, parent id and flags; later versions may add to these, and
// there is no version ff (Trace Context section 3.2.2).
const traceparent =
  /^(?!ff)([\da-f]{2})-(?!0{32})([\da-f]{32})-(?!0{16})[\da-f]{16}-[\da-f]{2}(-.*)?$/;

/**
 * The trace id of a `traceparent` field, for the log; undefined where the field
 * is not valid (W3C Trace Context, https://www.w3.org/TR/trace-context/). We
 * call nobody, so there is no id of our own to hand on.
 */
export function parseTraceId(field: Field): string | undefined {
  if (typeof field !== "string") return undefined;
  const [, version, traceId, more] = traceparent.exec(field) ?? [];
  return version === "00" && more !== undefined ? undefined : traceId;
}
