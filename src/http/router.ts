/**
 * Finds the route of a request. URLs form a tree of path segments, each of them a
 * fixed word or an id. The router knows nothing of how a route responds.
 */

import { ApiError } from "./errors.ts";

/** A request target: its path, and its query without the `?`, both still percent-encoded. */
export interface Target {
  readonly path: string;
  readonly query: string;
}

/** Returns whether a text is a host name or IP address, with or without a port (RFC 3986 section 3.2). */
export function isAuthority(text: string): boolean {
  return /^(?:[\w.~%-]+|\[[\da-f:.]+\])(?::\d{0,5})?$/i.test(text);
}

/**
 * Parses a request target in origin-form or absolute-form (RFC 9112 sections 3.2.1
 * and 3.2.2). The authority is dropped: nothing depends on the host name that the
 * client used.
 *
 * @throws {ApiError} 40000 if it has neither form
 */
export function parseTarget(target: string): Target {
  let rest = target;
  if (!target.startsWith("/")) {
    const [, authority = "", path = ""] =
      /^https?:\/\/([^/?#]*)\/?(.*)$/i.exec(target) ?? [];
    rest = isAuthority(authority) ? `/${path}` : "";
  }
  if (!rest.startsWith("/") || rest.includes("#")) {
    throw new ApiError(
      40000,
      "The request target must be a path that begins with a slash, without a fragment.",
    );
  }
  const queryMark = rest.indexOf("?");
  return queryMark < 0
    ? { path: rest, query: "" }
    : { path: rest.slice(0, queryMark), query: rest.slice(queryMark + 1) };
}

/**
 * Decodes percent-encoding (RFC 3986 section 2.1) of UTF-8 text.
 *
 * @throws {ApiError} 40000 if it is malformed
 */
export function decodePercent(text: string): string {
  if (!text.includes("%")) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    throw new ApiError(
      40000,
      "The URL is not valid percent-encoded UTF-8: each % must be followed by two hexadecimal digits.",
    );
  }
}

/** Parses an id in a URL: a positive decimal number up to 2^53-1 without leading zeros; returns undefined for any other text. */
export function parseId(text: string): number | undefined {
  if (!/^[1-9]\d{0,15}$/.test(text)) return undefined;
  const id = Number(text);
  return Number.isSafeInteger(id) ? id : undefined;
}

/** A route with the ids in the path, or the path without its trailing slash. */
export type RouteMatch<Route> =
  | { readonly route: Route; readonly ids: readonly number[] }
  | { readonly redirect: string };

/** The key of the child that stands for an id. No segment of a URL equals it. */
const anyId = Symbol("id");

/** A node in the tree of segments. */
interface Node<Route> {
  route?: Route;
  readonly children: Map<string | typeof anyId, Node<Route>>;
}

/** Finds routes by path. */
export class Router<Route> {
  /** All routes by pattern, in the order in which they were added. */
  readonly routes = new Map<string, Route>();
  readonly #root: Node<Route> = { children: new Map() };

  /** Adds a route. A segment `:id` of the pattern matches every id. */
  add(pattern: string, route: Route): void {
    let node = this.#root;
    for (const segment of pattern.slice(1).split("/")) {
      const key = segment === ":id" ? anyId : segment;
      const child = node.children.get(key) ?? { children: new Map() };
      node.children.set(key, child);
      node = child;
    }
    node.route = route;
    this.routes.set(pattern, route);
  }

  /**
   * Finds the route of a path; returns undefined if there is none. A known path
   * with an additional slash at its end is a redirect.
   *
   * @throws {ApiError} 40000 on malformed percent-encoding
   */
  find(path: string): RouteMatch<Route> | undefined {
    const match = this.#walk(path);
    if (match !== undefined || !path.endsWith("/")) return match;
    const redirect = path.slice(0, -1);
    return this.#walk(redirect) && { redirect };
  }

  #walk(path: string): RouteMatch<Route> | undefined {
    const ids: number[] = [];
    let node: Node<Route> | undefined = this.#root;
    for (let from = 1; from <= path.length;) {
      const slash = path.indexOf("/", from);
      const to = slash < 0 ? path.length : slash;
      const segment = decodePercent(path.slice(from, to));
      let child: Node<Route> | undefined = node?.children.get(segment);
      if (child === undefined) {
        const id = parseId(segment);
        if (id !== undefined) {
          ids.push(id);
          child = node?.children.get(anyId);
        }
      }
      node = child;
      from = to + 1;
    }
    return node?.route && { route: node.route, ids };
  }
}
