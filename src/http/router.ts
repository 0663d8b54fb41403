/**
 * From the target of a request to a route. Addresses are trees of segments; a
 * segment is a fixed word or an id. What a route does is not known here.
 */

import { ApiError } from "./errors.ts";

/** A request target: the path, as sent, and the query behind its `?`, as sent. */
export interface Target {
  readonly path: string;
  readonly query: string;
}

/**
 * Takes a request target apart: origin-form and absolute-form (RFC 9112
 * sections 3.2.1 and 3.2.2). The authority is dropped: nothing here depends on
 * what a client says that we are called.
 *
 * @throws {ApiError} 40000 where it has neither form
 */
export function parseTarget(target: string): Target {
  const absolute = target.startsWith("/")
    ? null
    : /^https?:\/\/[^/?#]+/i.exec(target);
  let rest = absolute ? target.slice(absolute[0].length) : target;
  if (absolute && !rest.startsWith("/")) rest = `/${rest}`;
  if (!rest.startsWith("/") || rest.includes("#")) {
    throw new ApiError(
      40000,
      "The request target must be a path that begins with a slash, without a fragment.",
    );
  }
  const mark = rest.indexOf("?");
  return mark < 0
    ? { path: rest, query: "" }
    : { path: rest.slice(0, mark), query: rest.slice(mark + 1) };
}

/**
 * Decodes percent-encoding (RFC 3986 section 2.1) of UTF-8 text.
 *
 * @throws {ApiError} 40000 where it is malformed
 */
export function decodePercent(text: string): string {
  if (!text.includes("%")) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    throw new ApiError(
      40000,
      "The address holds a percent sign that is not followed by two hexadecimal digits, or that does not spell UTF-8.",
    );
  }
}

/** An id as it stands in addresses and parameters: decimal, positive, no leading zero, at most 2^53-1; else undefined. */
export function parseId(text: string): number | undefined {
  if (!/^[1-9]\d{0,15}$/.test(text)) return undefined;
  const id = Number(text);
  return Number.isSafeInteger(id) ? id : undefined;
}

/** What {@linkcode Router.find} found: a route with the ids of its path, or the same address without its trailing slash. */
export type Found<Route> =
  | { readonly route: Route; readonly ids: readonly number[] }
  | { readonly redirect: string };

interface Node<Route> {
  route?: Route;
  id?: Node<Route>;
  readonly words: Map<string, Node<Route>>;
}

/** The tree of all addresses. */
export class Router<Route> {
  /** All routes by their patterns, in the order in which they were added. */
  readonly routes = new Map<string, Route>();
  readonly #root: Node<Route> = { words: new Map() };

  /** Adds a route; `:id` in the pattern stands for an id. */
  add(pattern: string, route: Route): void {
    let node = this.#root;
    for (const segment of pattern.slice(1).split("/")) {
      let next = segment === ":id" ? node.id : node.words.get(segment);
      if (next === undefined) {
        next = { words: new Map() };
        if (segment === ":id") node.id = next;
        else node.words.set(segment, next);
      }
      node = next;
    }
    node.route = route;
    this.routes.set(pattern, route);
  }

  /**
   * Finds the route of a path. A known address with one slash too many at its
   * end gives a redirect; an unknown one gives undefined.
   *
   * @throws {ApiError} 40000 on malformed percent-encoding
   */
  find(path: string): Found<Route> | undefined {
    const found = this.#walk(path);
    if (found !== undefined || !path.endsWith("/")) return found;
    const shorter = path.slice(0, -1);
    return this.#walk(shorter) && { redirect: shorter };
  }

  #walk(path: string): Found<Route> | undefined {
    const ids: number[] = [];
    let node: Node<Route> | undefined = this.#root;
    for (let from = 1; from <= path.length;) {
      const slash = path.indexOf("/", from);
      const to = slash < 0 ? path.length : slash;
      const segment = decodePercent(path.slice(from, to));
      const word: Node<Route> | undefined = node?.words.get(segment);
      if (word !== undefined) {
        node = word;
      } else {
        const id: number | undefined = node?.id && parseId(segment);
        if (id !== undefined) ids.push(id);
        node = id === undefined ? undefined : node?.id;
      }
      from = to + 1;
    }
    return node?.route && { route: node.route, ids };
  }
}
