/**
 * The key by which a repeated request is known as the same one
 * (draft-ietf-httpapi-idempotency-key-header). The draft has a quoted string;
 * most clients send a bare one: here all that is sent is the key.
 */

import { ApiError } from "../../http/errors.ts";

/**
 * Reads the Idempotency-Key field.
 *
 * @param values of each such field of the request: node:http joins them in
 * `headers`, where two could be taken for one, but not in `headersDistinct`
 * @throws {ApiError} 40000 where there are two, or it is no key
 */
export function parseIdempotencyKey(
  values: readonly string[] | undefined,
): string | undefined {
  if (values === undefined) return undefined;
  const [key = ""] = values;
  if (values.length === 1 && /^[!-~]{1,255}$/.test(key)) return key;
  throw new ApiError(
    40000,
    "The Idempotency-Key field must be given once, with 1 to 255 visible ASCII characters.",
  );
}
