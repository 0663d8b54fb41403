/** Request methods: those that this server implements, and those that only read. */

import { ApiError } from "./errors.ts";

/** The methods that at least one URL of this server supports. */
export const implementedMethods: readonly string[] = [
  "GET",
  "HEAD",
  "QUERY",
  "OPTIONS",
  "POST",
  "PUT",
  "PATCH",
  "DELETE",
];

/**
 * Returns whether a method retrieves a representation: GET, HEAD or QUERY (RFC
 * 9110 section 9.2.1, RFC 10008). Their responses can be cached and revalidated.
 * OPTIONS is safe too, but retrieves nothing, so it does not count here.
 */
export function isReadMethod(method: string): boolean {
  return method === "GET" || method === "HEAD" || method === "QUERY";
}

/** Creates the 501 error for a method that no URL supports (RFC 9110 section 15.6.2). */
export function notImplemented(method: string): ApiError {
  const name = method.slice(0, 40);
  const supported = implementedMethods.join(", ");
  return new ApiError(
    50100,
    `The method ${name} is not implemented; supported methods: ${supported}.`,
  );
}
