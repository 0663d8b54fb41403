/**
 * The paths of the document, in an order in which the examples can be sent:
 * first what creates records, those that others refer to before the others,
 * then the records, the other way round, because they are deleted. And the names
 * of the operations.
 */

import type { Api } from "../../api/feature.ts";
import type { Collection } from "../../api/declaration/declaration.ts";
import type { Route } from "../../api/operation.ts";
import { pascalCase } from "./components.ts";
import type { DocumentedOperation } from "./operations.ts";

/** A path of the document. */
export interface Place {
  readonly path: string;
  readonly route: Route;
  /** The example of the id at its end: of a record that the document's own examples have created. */
  readonly id: number;
}

/** Returns the paths in their order. */
export function placesOf(api: Api): Place[] {
  const found: Omit<Place, "id">[] = [];
  for (const [pattern, route] of api.routes) {
    const relative = pattern.slice(api.base.path.length - 1);
    // Of URLs that differ only by a trailing slash, one is described.
    const isVariant = !pattern.startsWith(api.base.path) ||
      /.\/$/.test(relative);
    if (isVariant || tagOf(route) === "") continue;
    found.push({ path: nameIds(relative, api), route });
  }
  const ranked = found.map((place) => ({ ...place, rank: rankOf(place, api) }))
    .sort((one, other) => one.rank - other.rank);
  const counts = new Map<string, number>();
  const created = new Map<string, number>();
  for (const { path, route } of ranked) {
    const { collection } = route.operations.get("POST")?.resource?.records ??
      {};
    if (!collection || isAction(route)) continue;
    const first = collection.name === "users" ? 1 : 0; // one is there before
    const count = (counts.get(collection.name) ?? first) + 1;
    counts.set(collection.name, count);
    created.set(`${path}/{id}`, count);
  }
  return ranked.map(({ path, route }) => {
    const isSignIn = path.endsWith("/authorizations/{id}");
    return { path, route, id: created.get(path) ?? (isSignIn ? 2 : 1) };
  });
}

/** Returns the heading of a URL; empty if it is not described. */
export function tagOf({ described, operations }: Route): string {
  return operations.get("GET")?.docs?.tag ?? described?.name ?? "server";
}

/** Names the ids of a pattern: `/zoos/{zoo_id}/animals/{id}` for `/zoos/:id/animals/:id`. */
function nameIds(pattern: string, { collections }: Api): string {
  return pattern.replace(/([^/]+)\/:id(?=(\/)?)/g, (_, name, more) => {
    const singular = collections.get(name)?.singular ?? name;
    const id = more ? `${singular.replaceAll(" ", "_")}_id` : "id";
    return `${name}/{${id}}`;
  });
}

function isAction({ operations }: Route): boolean {
  return [...operations.values()].some(({ docs }) => docs?.verb);
}

/** Returns where a path belongs in the order. */
function rankOf(
  { path, route }: Omit<Place, "id">,
  { collections, declaration }: Api,
): number {
  const segments = path.replace(/^\/(?:v1\/)?/, "").split("/");
  const [first = ""] = segments;
  const depth = requiredBy(collections, collections.get(first)).size;
  const isRecord = path.endsWith("{id}");
  const isNested = segments.length > 2;
  if (first === "authorizations") return 900 + segments.length;
  if (first === "user") return 800;
  if (isAction(route)) return 600;
  if (!collections.has(first)) return 0;
  const isDeclared = first === "users" ||
    declaration.collections.some(({ name }) => name === first);
  if (!isDeclared) return 700 + segments.length;
  if (isRecord) return isNested ? 300 : 500 - depth;
  return isNested ? 200 : 100 + depth;
}

/** Returns a collection and those that its records require. */
function requiredBy(
  collections: ReadonlyMap<string, Collection>,
  collection: Collection | undefined,
): ReadonlySet<Collection> {
  const found = new Set(collection && [collection]);
  for (const { parents } of found) { // grows while it is iterated over
    for (const { target, isRequired } of parents) {
      const parent = collections.get(target.name);
      if (isRequired && parent) found.add(parent);
    }
  }
  return found;
}

const verbs: Readonly<Record<string, string>> = {
  POST: "create",
  PUT: "replace",
  PATCH: "update",
};

/** Names a function for an operation: `updateZooAnimal` for PATCH of `/v1/zoos/{zoo_id}/animals/{id}`. */
export function nameOperation(operation: DocumentedOperation): string {
  const { api: { collections }, method, path, resource, list } = operation;
  const { ignoresCredentials } = operation;
  const verb = method === "QUERY" ? undefined : operation.verb;
  if (ignoresCredentials) return "signIn";
  if (method === "OPTIONS") return "getOptions";
  const segments = path.replace(/^\/(?:v1\/)?/, "").split("/");
  if (verb) segments.pop();
  const isOne = method === "POST" && !verb;
  const words = segments.map((segment, at) => {
    if (segment.startsWith("{")) return "";
    const isOfOne = segments[at + 1]?.startsWith("{") ||
      isOne && at === segments.length - 1;
    const { singular } = collections.get(segment) ?? {};
    return isOfOne && singular ? singular : segment;
  });
  const name = pascalCase(words.filter((word) => word).join(" ")) || "Root";
  const own = resource?.only || (resource && !list && path.endsWith("/user"));
  const action = verb ?? (list && method === "GET" ? "list" : verbs[method]) ??
    method.toLowerCase();
  return action + (own ? `Own${name}` : name);
}
