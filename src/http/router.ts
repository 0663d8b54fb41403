/**
 * Finds the route of a request: each segment of its path is a fixed word or an
 * id. The router does not know how a route responds.
 */

import { ApiError } from "./errors.ts";

/** The longest request target. */
const maxUrlBytes = 8 * 1024;

/**
 * Parses a request target in origin-form or absolute-form (RFC 9112 sections 3.2.1
 * and 3.2.2) into its path and its query without the `?`, both still
 * percent-encoded. The authority is dropped: nothing depends on the host name that the
 * client used.
 *
 * @throws {ApiError} 41400 if it is too long, 40000 if it has neither form
 */
export function parseTarget(target: string) {
  if (target.length > maxUrlBytes) throw new ApiError(41400);
  // A complete URL may lack the slash after its authority.
  const rest = target.replace(/^https?:\/\/[^/?#]+\/?/i, "/");
  const [, path, query = ""] = /^(\/[^?#]*)(?:\?([^#]*))?$/.exec(rest) ?? [];
  if (path !== undefined) return { path, query };
  throw new ApiError(
    40000,
    "The request target must be a path that begins with a slash, without a fragment.",
  );
}

/**
 * Decodes percent-encoding (RFC 3986 section 2.1) of UTF-8 text.
 *
 * @throws {ApiError} 40000 if it is malformed
 */
export function decodePercent(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new ApiError(
      40000,
      "The percent-encoding is not that of UTF-8: each % must be followed by two hexadecimal digits.",
    );
  }
}

/** A segment that can be an id: a positive decimal number without leading zeros. */
const anyId = /\/[1-9]\d{0,15}(?=\/|$)/g;

/**
 * Finds the route of a path, and the ids in the path; returns undefined if there
 * is none.
 *
 * @param routes by pattern, in which a segment `:id` stands for any id
 * @param base the beginning of every path with an id; a number within it is a
 * fixed word
 * @throws {ApiError} 40000 on malformed percent-encoding
 */
export function findRoute<Route>(
  routes: ReadonlyMap<string, Route>,
  path: string,
  base = "/",
) {
  const ids: number[] = [];
  const pattern = normalize(path).replace(anyId, (segment, at) => {
    const id = Number(segment.slice(1));
    if (at < base.length - 1 || !Number.isSafeInteger(id)) return segment;
    ids.push(id);
    return "/:id";
  });
  const route = routes.get(pattern);
  return route && { route, ids };
}

/** Spells each segment of a path as patterns do: `%61` as `a`, and a literal `:id` as `%3Aid`. */
function normalize(path: string): string {
  if (/^[\w/.~-]*$/.test(path)) return path;
  return path.split("/")
    .map((segment) => encodeURIComponent(decodePercent(segment))).join("/");
}
