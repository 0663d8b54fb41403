/**
 * Every URL of the API with its methods, on one page. Who may use a method, its
 * parameters and its body are in operations.ts; the URLs of optional features
 * are in their own folders.
 */

import type { Operation, Resource, Route, RouteParts } from "./operation.ts";
import type { Document, Json, TableDeclaration } from "../store/store.ts";
import {
  authorizations,
  isPast,
  signIn,
  signInForm,
} from "./accounts/authorizations.ts";
import { users } from "./accounts/users.ts";
import {
  type Collection,
  deriveCollections,
  ownerProperty,
  toIndexKey,
} from "./declaration/declaration.ts";
import type { ApiDeclaration } from "./declaration/api.ts";
import { declarationTable } from "./declaration/remembered.ts";
import type { Api, Feature } from "./feature.ts";
import type { ApiOptions } from "./options.ts";
import { buildRoute, collectionMethods, recordMethods } from "./operations.ts";
import { Records } from "./records/records.ts";
import type { Result } from "./request-context.ts";

/** Returns the tables that the declarations and features need, with their indexes. */
export function tablesOf(
  declaration: ApiDeclaration,
  features: readonly Partial<Feature>[],
): TableDeclaration[] {
  const tables = Array.from(
    collectionsOf(declaration, features).values(),
    (each) => ({ name: each.name, indexes: indexesOf(each) }),
  );
  return [
    ...tables,
    { name: declarationTable },
    ...features.flatMap(({ tables = [] }) => tables),
  ];
}

/**
 * Returns the hash indexes of a collection: one for each property that is
 * looked up, and for each group of properties that is unique together.
 */
function indexesOf(
  { properties, visibleProperties, unique = [], owner, indexed = [] }:
    Collection,
) {
  const names = properties
    .filter(({ unique, references }) => unique || references)
    .map(({ name }) => name)
    .concat(owner ?? [], indexed);
  const read = (document: Document, name: string): Json =>
    document[name] ?? visibleProperties.get(name)?.default ?? null;
  return Object.fromEntries(
    [...names.map((name) => [name]), ...unique].map((group) => [
      group.join(),
      (document: Document) =>
        toIndexKey(group.map((name) => read(document, name))),
    ]),
  );
}

/** Returns the declared collections and those of the server itself. */
export function collectionsOf(
  { roles, collections }: ApiDeclaration,
  features: readonly Partial<Feature>[] = [],
  prefix?: string,
): Map<string, Collection> {
  const owned = { owner: ownerProperty.name, overseer: roles.highest };
  return deriveCollections([
    ...collections.map((each) => each.private ? { ...each, ...owned } : each),
    users(roles),
    authorizations(roles),
    // Several features may have the same.
    ...features.flatMap(({ collections }) => collections?.(roles) ?? []),
  ], prefix);
}

/** Builds all routes, and opens the features. */
export function buildRoutes(
  options: ApiOptions,
  features: readonly Feature[],
) {
  const { declaration, base } = options;
  const prefix = `${base.origin}${base.path}v1/`;
  const collections = collectionsOf(declaration, features, prefix);
  const routes = new Map<string, Route>();
  const parts = new Map<string, RouteParts>();
  const urls: Record<string, string> = {};
  const add = (path: string, route: RouteParts, name?: string) => {
    const pattern = path.startsWith("/") ? path : `${base.path}v1/${path}`;
    parts.set(pattern, route);
    if (name !== undefined) urls[name] = base.origin + pattern;
  };
  const all = new Map(Array.from(
    collections,
    ([name, each]) => [name, new Records(each, options)],
  ));
  const records = (name: string) => {
    const found = all.get(name);
    if (found === undefined) throw new Error(`No collection ${name}`);
    return found;
  };
  const served = [...declaration.collections.map(({ name }) => name), "users"]
    .map(records);
  const api: Api = {
    ...options,
    collections,
    records,
    served,
    routes,
    urls,
    add,
  };
  addOwnUser(api);
  addAuthorizations(api);
  addHealth(api);
  const hooks = features.flatMap((feature) => feature.open(api) ?? []);
  for (const each of served) addCollection(each, api);
  addRoot(api);
  for (const [pattern, route] of parts) {
    const methods = hooks.reduce(
      (methods, { extend }) => extend?.(methods) ?? methods,
      route.methods,
    );
    routes.set(pattern, buildRoute({ ...route, methods }));
  }
  return { routes, hooks };
}

/** Adds `/animals`, `/animals/:id`, and the same below each collection that it refers to. */
function addCollection(records: Records, { add }: Api): void {
  const { collection: described } = records;
  const { name, parents } = described;
  for (const parent of [undefined, ...parents]) {
    const path = parent ? `${parent.target.name}/:id/${parent.segment}` : name;
    const resource = { records, parent };
    const list = { methods: collectionMethods(resource), described };
    add(path, list, parent ? undefined : `${name}_url`);
    add(`${path}/:id`, { methods: recordMethods(resource), described });
  }
}

/** Adds `/user`: the caller's own record. */
function addOwnUser({ add, records, declaration: { roles } }: Api): void {
  const resource: Resource = {
    records: records("users"),
    only: ["password"],
    scopeOf: ({ caller }) => ({ conditions: { id: caller?.id ?? 0 } }),
  };
  const access = roles.lowest;
  const { GET, PATCH } = recordMethods(resource);
  const methods = { GET: { ...GET, access }, PATCH: { ...PATCH, access } };
  const described = resource.records.collection;
  add("user", { methods, described }, "current_user_url");
}

/** Adds `/authorizations` and `/authorizations/:id`: the caller's sign-ins that have not expired. */
function addAuthorizations(api: Api): void {
  const { add, now } = api;
  const records = api.records("authorizations");
  const resource: Resource = {
    records,
    scopeOf: (context) => ({
      conditions: {},
      ...records.scopeOf(context),
      where: ({ expires_at }) => !isPast(expires_at, now()),
    }),
  };
  const { GET: list } = collectionMethods(resource);
  const POST: Operation = {
    access: "anyone",
    ignoresCredentials: true,
    consumes: ["application/json"],
    maxBodyBytes: 8 * 1024,
    run: (context, _, body) => signIn(context, body, api, records),
  };
  const methods = { GET: list, POST };
  add(
    "authorizations",
    { methods, described: signInForm },
    "authorizations_url",
  );
  const { GET, DELETE } = recordMethods(resource);
  const described = records.collection;
  add("authorizations/:id", { methods: { GET, DELETE }, described });
}

/** Adds the root document, with and without its trailing slash. */
function addRoot({ add, base: { path }, urls }: Api): void {
  const body = JSON.stringify(urls);
  const GET: Operation = {
    access: "anyone",
    docs: { isConstant: true },
    run: () => ({ status: 200, headers: [], body, seq: 0 }),
  };
  const root = { methods: { GET } };
  for (const each of [path, path.replace(/(?<=.)\/$/, ""), `${path}v1`, ""]) {
    add(each, root);
  }
}

/** Adds `/health`: whether writes are accepted, and what had to be repaired at startup. The feature reserves replaces it. */
function addHealth({ add, base, store }: Api): void {
  const GET: Operation = {
    access: "anyone",
    run: () => {
      const { isWritable, notices } = store;
      return healthOf(isWritable, notices.length > 0 ? { notices } : {});
    },
  };
  add(`${base.path}health`, { methods: { GET } });
}

/** Returns the response for monitoring, with what else is known. */
export function healthOf(isWritable: boolean, known: object): Result {
  const status = isWritable ? "ok" : "read-only";
  return {
    status: isWritable ? 200 : 503,
    headers: ["Cache-Control", "no-store"],
    body: JSON.stringify({ status, ...known }),
    seq: 0,
  };
}
