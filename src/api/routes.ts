/**
 * Every address of the API on one page: its methods, who may use them, what
 * parameters and what kind of body they take, and what they do.
 */

import { createHash } from "node:crypto";
import { type Access, mayAccess } from "../auth/access.ts";
import type { TokenSigner } from "../auth/jwt.ts";
import { evaluatePreconditions } from "../http/conditional.ts";
import { ApiError } from "../http/errors.ts";
import { Router } from "../http/router.ts";
import type {
  Document,
  Logger,
  Store,
  TableDeclaration,
} from "../store/store.ts";
import type { Feature, FeatureHooks } from "./feature.ts";
import {
  Authorizations,
  authorizations,
  isPast,
} from "./accounts/authorizations.ts";
import {
  type Collection,
  type Declaration,
  deriveCollections,
  type Reference,
  toIndexKey,
} from "./declaration/declaration.ts";
import type { JsonSchema } from "./declaration/properties.ts";
import {
  invalidValue,
  type Parameters,
  parseFields,
  parseQuery,
  type Query,
  rejectUnknownParameters,
} from "./query/parameters.ts";
import { Records } from "./records/records.ts";
import type {
  RequestContext,
  ResolveScope,
  Result,
  RunOnce,
} from "./request-context.ts";
import { ndjsonType, recordSchema } from "./representation.ts";
import type { Scope } from "./query/planner.ts";
import { userRules, users } from "./accounts/users.ts";
import type { Body } from "./declaration/validation.ts";

/** What an operation does with the records of a view, where it is none of its own. */
export type OperationKind =
  | "list"
  | "create"
  | "read"
  | "replace"
  | "change"
  | "remove"
  | "sign in"
  | "options";

/** One method of an address; `P` is what its parameters come to. */
export interface Operation<P = unknown> {
  readonly access: Access;
  /** Set where a program on the same machine needs no role. */
  readonly publicFromLoopback?: true;
  readonly ignoresCredentials?: true;
  /** The media types of a body. */
  readonly consumes?: readonly string[];
  readonly queryInForm?: true;
  /** The media types of a success, the preferred one first; JSON, where it is left out. */
  readonly produces?: readonly string[];
  /** What it does, in a few words, where that does not follow from the kind. */
  readonly summary?: string;
  /** For descriptions: what follows from these, and what else there is to tell. */
  readonly kind?: OperationKind;
  readonly resource?: Resource;
  /** What alone may be changed. */
  readonly writableOnly?: readonly string[] | undefined;
  readonly docs?: OperationDocs;
  /** Understands the parameters; throws an ApiError where they do not fit. */
  readonly parse: (parameters: Parameters) => P;
  /** Set where a password can be in the body. */
  readonly secret?: boolean;
  /** Takes a body of lines, of any length. */
  readonly importNdjson?: (
    call: RequestContext,
    body: AsyncIterable<Uint8Array>,
    once: RunOnce,
  ) => Promise<Result>;
  /** Carries it out. A method, so that an operation of any `P` is an operation. */
  run(call: RequestContext, parsed: P, body: Body): Result | Promise<Result>;
}

/** What is told of an operation. */
export interface OperationDocs {
  /** What it takes in the address or, as a form, in the body. */
  readonly parameters?: readonly JsonSchema[];
  /** What a JSON body may hold. */
  readonly body?: JsonSchema;
  /** By status, what is no error: its schema, if it has content, and its own header fields. */
  readonly responses?: Readonly<
    Record<number, {
      readonly schema?: JsonSchema;
      /** In the place of a schema: a whole record of this collection. */
      readonly record?: Collection;
      readonly headers?: readonly string[];
    }>
  >;
  /** The statuses of errors that do not follow from the rest. */
  readonly errors?: readonly number[];
  /** Whether it looks at preconditions. */
  readonly conditional?: true;
}

/** One address. */
export interface Route {
  /** Which records it stands for; undefined: all of its collection. */
  readonly scope: ResolveScope | undefined;
  /** By method; HEAD is served by GET. */
  readonly operations: ReadonlyMap<string, Operation>;
  /** All methods, for Allow (RFC 9110 section 10.2.1). */
  readonly allow: string;
  /** Fields of every answer to GET and HEAD. */
  readonly fields: readonly string[];
  /** What the OpenAPI document puts it under. */
  readonly tag: string;
}

/** What the routes are made of. */
export interface RouteOptions {
  readonly declarations: readonly Declaration[];
  readonly store: Store;
  readonly signer: TokenSigner;
  /** Where the API lives: an origin or nothing, then a path that ends in a slash. */
  readonly base: { readonly origin: string; readonly path: string };
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Logger;
  /** Whether a change of a record must have a precondition. */
  readonly requireIfMatch: boolean;
}

const json = ["application/json"];
const jsonOrLines = [...json, ndjsonType];
const mergePatch = ["application/merge-patch+json", "application/json"];
const form = ["application/x-www-form-urlencoded"];
const builtIn = [users, authorizations];

/** The tables that the declarations need, with the properties that are looked up by value. */
export function tablesOf(
  declarations: readonly Declaration[],
  features: readonly Pick<Feature, "collections" | "tables">[],
): TableDeclaration[] {
  const collections = deriveCollections(declarations, builtInOf(features));
  const tables = Array.from(
    collections.values(),
    ({ name, properties, owner }) => ({
      name,
      indexes: Object.fromEntries(
        properties
          .filter(({ unique, references }) => unique || references)
          .map(({ name }) => name)
          .concat(owner ?? [])
          .map((property) => [property, toIndexKey]),
      ),
    }),
  );
  return [...tables, ...features.flatMap(({ tables = [] }) => tables)];
}

function builtInOf(
  features: readonly Pick<Feature, "collections">[],
): Declaration[] {
  return [
    ...builtIn,
    ...features.flatMap(({ collections = [] }) => collections),
  ];
}

/** Builds the tree of all addresses, and opens the features. */
export function buildRoutes(
  options: RouteOptions,
  features: readonly Feature[],
): { readonly router: Router<Route>; readonly open: readonly FeatureHooks[] } {
  const { declarations, store, base, now, requireIfMatch } = options;
  const collections = deriveCollections(declarations, builtInOf(features));
  const prefix = `${base.origin}${base.path}v1/`;
  const context = { store, collections, prefix, now };
  const records = (name: string) => {
    const collection = collections.get(name);
    if (collection === undefined) throw new Error(`No collection ${name}`);
    const rules = name === users.name ? userRules(store) : {};
    // Signing out and cancelling overwrite nobody's change.
    const strict = requireIfMatch && collection.owner === undefined;
    const own = { ...context, requireIfMatch: strict };
    return new Records(collection, own, rules);
  };
  const router = new Router<Route>();
  const { routes } = router;
  const addresses: Record<string, string> = {};
  const add = (path: string, route: Route, name?: string) => {
    const whole = path.startsWith("/") ? path : `${base.path}v1/${path}`;
    router.add(whole, route);
    if (name !== undefined) addresses[name] = prefix + path;
  };
  const names = declarations.map(({ name }) => name);
  const served = [...names, users.name].map((name) => records(name));
  const api = { ...options, collections, records, served, routes, add };
  const open = features.flatMap((feature) => feature.open(api) ?? []);

  add(`${base.path}health`, healthRoute(store));
  const addAll = (path: string, view: Resource, name?: string) => {
    const POST = open.reduce(
      (post, { extendCreate }) => extendCreate?.(post, view.records) ?? post,
      createOperation(view),
    );
    add(path, resourceRoute(view, { ...listOperations(view), POST }), name);
    const DELETE = deleteOperation(view);
    const methods = {
      GET: readOperation(view),
      PUT: replaceOperation(view),
      PATCH: patchOperation(view),
    };
    add(`${path}/:id`, resourceRoute(view, { ...methods, DELETE }));
  };
  for (const own of served) {
    const { name, parents } = own.collection;
    addAll(name, { records: own }, `${name}_url`);
    const seen = new Set<Collection>();
    for (const parent of parents) {
      const { target } = parent;
      if (seen.has(target)) continue;
      seen.add(target);
      const view = { records: own, parent, scope: own.within(parent) };
      addAll(`${target.name}/:id/${name}`, view);
    }
  }

  const mine = { records: records(users.name), scope: ownedByCaller("id") };
  const viewer = { access: "viewer" } as const;
  add(
    "user",
    resourceRoute(mine, {
      GET: { ...readOperation(mine), ...viewer, summary: "Your own record" },
      PATCH: {
        ...patchOperation(mine, ["password"]),
        ...viewer,
        summary: "Change your password",
      },
    }, { writable: ["password"] }),
    "current_user_url",
  );

  const signIns = {
    records: records(authorizations.name),
    scope: ownedByCaller(
      "user_id",
      ({ expires_at }) => !isPast(expires_at, now()),
    ),
  };
  const signingIn = new Authorizations(signIns.records, options);
  const { schema, writable } = signingIn;
  add(
    "authorizations",
    resourceRoute(signIns, {
      ...listOperations(signIns, "Where you are signed in"),
      POST: signInOperation(signingIn),
    }, { schema, writable }),
    "authorizations_url",
  );
  add(
    "authorizations/:id",
    resourceRoute(signIns, {
      GET: { ...readOperation(signIns), summary: "One of your authorizations" },
      DELETE: { ...deleteOperation(signIns), summary: "Sign out" },
    }),
  );

  const root = textRoute({
    summary: "Where everything is",
    schema: {
      title: "root",
      type: "object",
      properties: Object.fromEntries(
        Object.keys(addresses).map((name) => [name, address]),
      ),
      required: Object.keys(addresses),
    },
    make: () => JSON.stringify(addresses),
  });
  const { path } = base;
  for (const each of [path, path.replace(/(?<=.)\/$/, ""), `${path}v1`, ""]) {
    add(each, root);
  }
  return { router, open };
}

const address = { type: "string", format: "uri-reference" };

/** What belongs to an address as a whole. */
interface ResourceInfo {
  readonly scope?: ResolveScope;
  readonly tag?: string;
  /** The JSON Schema of a record. */
  readonly schema?: JsonSchema;
  /** What a body may hold. */
  readonly writable?: readonly string[];
}

/** An address with these methods, and OPTIONS. */
export function route(
  own: Readonly<Record<string, Operation>>,
  { scope, tag = "server", schema = {}, writable = [] }: ResourceInfo = {},
): Route {
  const methods = Object.entries(own);
  const allow = methodsOf(methods).join(", ");
  const headers = ["Allow", allow];
  const { POST: post, PATCH: patch, QUERY: query } = own;
  const fields = query?.consumes // RFC 10008 section 3
    ? ["Accept-Query", query.consumes.join(", ")]
    : [];
  // RFC 5789 section 3.1, and its like for POST.
  if (post?.consumes) headers.push("Accept-Post", post.consumes.join(", "));
  if (patch?.consumes) headers.push("Accept-Patch", patch.consumes.join(", "));
  const options: Operation = {
    kind: "options",
    access: "anyone",
    parse: () => {}, // a browser asks with those of what it wants to do
    run: ({ caller }) => {
      const allowed = methods.filter(([, { access }]) =>
        mayAccess(caller?.role, access)
      );
      const writes = allowed.some(([, { consumes, queryInForm }]) =>
        consumes && !queryInForm
      );
      const body = JSON.stringify({
        methods: methodsOf(allowed),
        writable: writes ? writable : [],
        schema,
      });
      return { status: 200, headers: [...headers, ...fields], body, seq: 0 };
    },
  };
  const operations = new Map([...methods, ["OPTIONS", options] as const]);
  return { scope, operations, allow, fields, tag };
}

/** Who has GET has HEAD, and all have OPTIONS. */
function methodsOf(methods: readonly (readonly [string, unknown])[]): string[] {
  return methods
    .flatMap(([method]) => method === "GET" ? ["GET", "HEAD"] : [method])
    .concat("OPTIONS");
}

/** Parameters where there are none. */
export function noParameters(parameters: Parameters): undefined {
  rejectUnknownParameters(parameters, []);
}

/** The one parameter of a GET of a record: which of its properties. */
function fieldsParser(
  collection: Collection,
): (parameters: Parameters) => readonly string[] | undefined {
  return (parameters) => {
    rejectUnknownParameters(parameters, ["fields"]);
    const fields = parameters.get("fields");
    return fields === undefined ? undefined : parseFields(collection, fields);
  };
}

/** The one parameter of a DELETE of a record that others can refer to. */
function parseCascade(parameters: Parameters): boolean {
  rejectUnknownParameters(parameters, ["cascade"]);
  const value = parameters.get("cascade") ?? "false";
  if (value !== "true" && value !== "false") {
    throw invalidValue("cascade", value, "true or false");
  }
  return value === "true";
}

/** A GET of a text that stays the same while the server runs. */
export function textRoute({ make, summary, schema, type, headers = [] }: {
  readonly make: () => string;
  readonly summary: string;
  readonly schema: JsonSchema;
  /** The media type, with its parameters; JSON, where it is left out. */
  readonly type?: string;
  readonly headers?: readonly string[];
}): Route {
  let made: { readonly body: string; readonly etag: string } | undefined;
  const names = headers.filter((_, at) => at % 2 === 0);
  const get: Operation = {
    summary,
    access: "anyone",
    parse: noParameters,
    docs: {
      conditional: true,
      responses: { 200: { schema, headers: ["ETag", ...names] } },
    },
    ...(type !== undefined && { produces: [type] }),
    run: (request) => {
      const { body, etag } = made ??= withTag(make());
      const outcome = evaluatePreconditions({ ...request, now: 0 }, { etag });
      if (outcome === "failed") throw new ApiError(41200);
      return outcome === "not-modified"
        ? { status: 304, headers: ["ETag", etag], body: undefined, seq: 0 }
        : {
          status: 200,
          headers: ["ETag", etag, ...headers],
          body,
          type,
          seq: 0,
        };
    },
  };
  return route({ GET: get });
}

function withTag(body: string): { body: string; etag: string } {
  const hash = createHash("sha256").update(body).digest("base64url");
  return { body, etag: `"${hash.slice(0, 16)}"` };
}

/** For whoever watches: whether writes are taken, and what the start had to mend. */
function healthRoute(store: Store): Route {
  const schema = {
    title: "health",
    type: "object",
    properties: {
      status: { type: "string", enum: ["ok", "read-only"] },
      notices: { type: "array", items: { type: "string" } },
    },
    required: ["status"],
  };
  const get: Operation = {
    summary: "Whether writes are taken",
    docs: { responses: { 200: { schema }, 503: { schema } } },
    access: "anyone",
    parse: noParameters,
    run: () => {
      const { isWritable, isDiskFull } = store;
      const notices = isDiskFull
        ? [...store.notices, "The disk is full: only deletes are taken."]
        : store.notices;
      const body = JSON.stringify({
        status: isWritable ? "ok" : "read-only",
        ...(notices.length > 0 && { notices }),
      });
      const headers = ["Cache-Control", "no-store"];
      return { status: isWritable ? 200 : 503, headers, body, seq: 0 };
    },
  };
  return route({ GET: get });
}

/** How an address shows the records of a collection. */
export interface Resource {
  readonly records: Records;
  /** Which of them; all, where it is left out. */
  readonly scope?: ResolveScope;
  /** What the scope follows from, where that is another record. */
  readonly parent?: Reference;
}

/** Those in which a property has the caller's id. */
export function ownedByCaller(
  property: string,
  where?: (document: Document) => boolean,
): (call: RequestContext) => Scope {
  const further = where ? { where } : {};
  return ({ caller }) => ({ property, value: caller?.id ?? 0, ...further });
}

/** Some methods of a view. */
export function resourceRoute(
  { records: { collection }, scope }: Resource,
  methods: Readonly<Record<string, Operation>>,
  told: ResourceInfo = {},
): Route {
  const { name: tag, properties } = collection;
  const writable = properties.filter(({ readOnly }) => !readOnly)
    .map(({ name }) => name);
  const schema = recordSchema(collection);
  const own = scope === undefined ? {} : { scope };
  return route(methods, { tag, schema, writable, ...own, ...told });
}

export function listOperations(
  view: Resource,
  summary?: string,
): { readonly GET: Operation<Query>; readonly QUERY: Operation<Query> } {
  const { records } = view;
  const { collection } = records;
  const get: Operation<Query> = {
    kind: "list",
    resource: view,
    ...(summary && { summary }),
    access: collection.access.read,
    produces: jsonOrLines,
    parse: (parameters) => parseQuery(collection, parameters),
    run: (call, query) => records.list(call, query),
  };
  // The safe method with a body (RFC 10008): GET with its parameters there.
  return { GET: get, QUERY: { ...get, consumes: form, queryInForm: true } };
}

function createOperation(view: Resource): Operation {
  const { records } = view;
  const { access, properties } = records.collection;
  return {
    kind: "create",
    resource: view,
    access: access.write,
    consumes: json,
    parse: noParameters,
    secret: properties.some(({ kind }) => kind === "secret"),
    run: (call, _, body) => records.create(call, body),
  };
}

export function readOperation(
  view: Resource,
): Operation<readonly string[] | undefined> {
  const { records } = view;
  return {
    kind: "read",
    resource: view,
    access: records.collection.access.read,
    parse: fieldsParser(records.collection),
    run: (call, fields) => records.read(call, fields),
  };
}

function replaceOperation(view: Resource): Operation {
  const { records } = view;
  return {
    kind: "replace",
    resource: view,
    access: records.collection.access.write,
    consumes: json,
    parse: noParameters,
    run: (call, _, body) => records.change(call, body, { partial: false }),
  };
}

/** @param only what may be changed; all, where it is left out */
function patchOperation(view: Resource, only?: readonly string[]): Operation {
  const { records } = view;
  const { access, properties } = records.collection;
  const locked = only && properties.map(({ name }) => name)
    .filter((name) => !only.includes(name));
  return {
    kind: "change",
    resource: view,
    writableOnly: only,
    access: access.write,
    consumes: mergePatch,
    parse: noParameters,
    run: (call, _, body) =>
      records.change(call, body, { partial: true, locked }),
  };
}

export function deleteOperation(
  view: Resource,
): Operation<boolean | undefined> {
  const { records } = view;
  const { access, children } = records.collection;
  return {
    kind: "remove",
    resource: view,
    access: access.delete,
    parse: children.length > 0 ? parseCascade : noParameters,
    run: (call, all) => records.delete(call, all ?? false),
  };
}

function signInOperation(signingIn: Authorizations): Operation {
  return {
    kind: "sign in",
    access: "anyone",
    ignoresCredentials: true,
    consumes: json,
    parse: noParameters,
    run: (call, _, body) => signingIn.signIn(call, body),
  };
}
