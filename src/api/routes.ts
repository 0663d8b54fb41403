/**
 * Every address of the API on one page: its methods, who may use them, what
 * parameters and what kind of body they take, and what they do.
 */

import { createHash } from "node:crypto";
import { may } from "../auth/access.ts";
import type { TokenSigner } from "../auth/jwt.ts";
import { evaluatePreconditions } from "../http/conditional.ts";
import { ApiError } from "../http/errors.ts";
import { Router } from "../http/router.ts";
import type {
  Document,
  Log,
  Store,
  TableDeclaration,
} from "../store/store.ts";
import { Authorizations, authorizations, isPast } from "./authorizations.ts";
import {
  type Collection,
  type Declaration,
  deriveCollections,
  foldText,
  type Relation,
} from "./declaration.ts";
import { type Documented, openApi } from "./openapi.ts";
import { type Metrics, metricsType } from "./metrics.ts";
import type { JsonSchema } from "./properties.ts";
import {
  allowOnly,
  badValue,
  type Parameters,
  parseFields,
  parseQuery,
  type Query,
} from "./query.ts";
import { Events } from "./events.ts";
import { answersTable } from "./idempotency.ts";
import {
  type Call,
  Records,
  type Result,
  type ScopeOf,
} from "./records.ts";
import { linesType, recordSchema } from "./representation.ts";
import {
  addressesSchema,
  fieldsParameter,
  newSchema,
  objectSchema,
  partSchema,
  patchSchema,
  queryParameters,
  wholeSchema,
} from "./schemas.ts";
import type { Scope } from "./selection.ts";
import { type Once, Tasks, tasks } from "./tasks.ts";
import { userRules, users } from "./users.ts";
import type { Body } from "./validation.ts";

/** One method of an address, with what is told of it; `P` is what its parameters come to. */
export interface Operation<P = unknown> extends Documented {
  /** Understands the parameters; throws an ApiError where they do not fit. */
  readonly parse: (parameters: Parameters) => P;
  /** Set where a password can be in the body. */
  readonly secret?: boolean;
  /** Takes a body of lines, of any length. */
  readonly takeLines?: (
    call: Call,
    body: AsyncIterable<Uint8Array>,
    once: Once,
  ) => Promise<Result>;
  /** Carries it out. A method, so that an operation of any `P` is an operation. */
  run(call: Call, parsed: P, body: Body): Result | Promise<Result>;
}

/** One address. */
export interface Route {
  /** Which records it stands for; undefined: all of its collection. */
  readonly scope: ScopeOf | undefined;
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
  /** Whether a change of a record must have a precondition. */
  readonly requireIfMatch: boolean;
  readonly log: Log;
  readonly metrics: Metrics;
}

const json = ["application/json"];
const jsonOrLines = [...json, linesType];
const mergePatch = ["application/merge-patch+json", "application/json"];
const form = ["application/x-www-form-urlencoded"];
const builtIn = [users, authorizations, tasks];

/** The tables that the declarations need, with the properties that are looked up by value. */
export function tablesFor(
  declarations: readonly Declaration[],
): TableDeclaration[] {
  const collections = deriveCollections(declarations, builtIn);
  const tables = Array.from(collections.values(), ({ name, properties }) => ({
    name,
    indexes: Object.fromEntries(
      properties
        .filter(({ unique, references }) => unique || references)
        .map(({ name }) => name)
        .concat(isOwned(name) ? [owner] : [])
        .map((property) => [property, foldText]),
    ),
  }));
  return [...tables, answersTable];
}

/** The property with the id of the user whose record it is. */
const owner = "user_id";

/** Whether each sees the own records of a collection. */
function isOwned(name: string): boolean {
  return name === authorizations.name || name === tasks.name;
}

/** Builds the tree of all addresses, and what works in the background of them. */
export function buildRoutes(
  options: RouteOptions,
): { readonly router: Router<Route>; readonly tasks: Tasks } {
  const { declarations, store, base, now, requireIfMatch, metrics } = options;
  const collections = deriveCollections(declarations, builtIn);
  const prefix = `${base.origin}${base.path}v1/`;
  const context = { store, collections, prefix, now };
  const records = (name: string) => {
    const collection = collections.get(name);
    if (collection === undefined) throw new Error(`No collection ${name}`);
    const rules = name === users.name ? userRules(store) : {};
    // Signing out and cancelling overwrite nobody's change.
    const strict = requireIfMatch && !isOwned(name);
    const own = { ...context, requireIfMatch: strict };
    return new Records(collection, own, rules);
  };
  const router = new Router<Route>();
  const { routes } = router;
  const add = (path: string, route: Route) =>
    router.add(`${base.path}v1/${path}`, route);

  const names = declarations.map(({ name }) => name);
  const addresses = Object.fromEntries([
    ["current_user_url", "user"],
    ...["authorizations", "users", "tasks", "events", ...names]
      .map((name) => [`${name}_url`, name]),
    ["openapi_url", "openapi.json"],
  ].map(([name, path]) => [name, `${prefix}${path}`]));
  const root = textRoute({
    summary: "Where everything is",
    schema: addressesSchema("root", Object.keys(addresses)),
    make: () => JSON.stringify(addresses),
  });
  router.add(base.path, root);
  if (base.path !== "/") router.add(base.path.slice(0, -1), root);
  add("", root);
  router.add(`${base.path}v1`, root);
  router.add(`${base.path}health`, healthRoute(store));
  const measured = { store, routes, collections: [...collections.keys()] };
  const figures = () => metrics.write(measured);
  router.add(`${base.path}metrics`, metricsRoute(figures));
  router.add("/.well-known/api-catalog", catalogRoute(base));

  const served = [...declarations, users].map(({ name }) => records(name));
  const importable = new Map(
    served.filter(({ collection }) => names.includes(collection.name))
      .map((own) => [own.collection.name, own]),
  );
  const working = new Tasks({
    ...options,
    records: records(tasks.name),
    importable,
  });
  const addAll = (path: string, view: View) => {
    const { name } = view.records.collection;
    const POST = postOf(view, importable.has(name) ? working : undefined);
    add(path, routeOf(view, { ...listOf(view), POST }));
    const DELETE = deleteOf(view);
    const methods = { GET: getOf(view), PUT: putOf(view), PATCH: patchOf(view) };
    add(`${path}/:id`, routeOf(view, { ...methods, DELETE }));
  };
  for (const own of served) {
    const { name, parents } = own.collection;
    addAll(name, { records: own });
    const seen = new Set<Collection>();
    for (const through of parents) {
      const { to } = through;
      if (seen.has(to)) continue;
      seen.add(to);
      const view = { records: own, through, scope: own.within(through) };
      addAll(`${to.name}/:id/${name}`, view);
    }
  }
  add("events", eventsRoute(new Events(store, served)));

  const mine = { records: records(users.name), scope: ownBy("id") };
  const viewer = { access: "viewer" } as const;
  add(
    "user",
    routeOf(mine, {
      GET: { ...getOf(mine), ...viewer, summary: "Your own record" },
      PATCH: {
        ...patchOf(mine, ["password"]),
        ...viewer,
        summary: "Change your password",
      },
    }, { writable: ["password"] }),
  );

  const signIns = {
    records: records(authorizations.name),
    scope: ownBy(owner, ({ expires_at }) => !isPast(expires_at, now())),
  };
  const signingIn = new Authorizations(signIns.records, options);
  const { schema, writable } = signingIn;
  add(
    "authorizations",
    routeOf(signIns, {
      ...listOf(signIns, "Where you are signed in"),
      POST: signInOf(signingIn),
    }, { schema, writable }),
  );
  add(
    "authorizations/:id",
    routeOf(signIns, {
      GET: { ...getOf(signIns), summary: "One of your authorizations" },
      DELETE: { ...deleteOf(signIns), summary: "Sign out" },
    }),
  );

  const ownTasks = ownBy(owner);
  const begun = {
    records: records(tasks.name),
    scope: (call: Call) =>
      call.caller?.role === "admin" ? undefined : ownTasks(call),
  };
  add("tasks", routeOf(begun, listOf(begun, "Your tasks, of an admin all")));
  add(
    "tasks/:id",
    routeOf(begun, {
      GET: { ...getOf(begun), summary: "One of your tasks" },
      DELETE: {
        ...deleteOf(begun),
        summary: "End a task: what is in stays in",
        run: (call) => working.remove(call),
      },
    }),
  );
  const described = { routes, collections, base, requireIfMatch };
  add(
    "openapi.json",
    textRoute({
      summary: "This document",
      schema: { type: "object" },
      make: () => JSON.stringify(openApi(described)),
    }),
  );
  return { router, tasks: working };
}

/** What belongs to an address as a whole. */
interface Subject {
  readonly scope?: ScopeOf;
  readonly tag?: string;
  /** The JSON Schema of a record. */
  readonly schema?: JsonSchema;
  /** What a body may hold. */
  readonly writable?: readonly string[];
}

/** An address with these methods, and OPTIONS. */
function route(
  own: Readonly<Record<string, Operation>>,
  { scope, tag = "server", schema = {}, writable = [] }: Subject = {},
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
    summary: "What can be done here, and by whom",
    access: "anyone",
    parse: () => {}, // a browser asks with those of what it wants to do
    answers: {
      200: { schema: capabilities, headers: ["Allow", ...acceptFields] },
    },
    run: ({ caller }) => {
      const allowed = methods.filter(([, { access }]) =>
        may(caller?.role, access)
      );
      const writes = allowed.some(([, { consumes, takesForm }]) =>
        consumes && !takesForm
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

const names = { type: "array", items: { type: "string" } };
const capabilities = objectSchema("capabilities", {
  methods: names,
  writable: names,
  schema: { type: "object" },
});
const acceptFields = ["Accept-Post", "Accept-Patch"];

/** Who has GET has HEAD, and all have OPTIONS. */
function methodsOf(methods: readonly (readonly [string, unknown])[]): string[] {
  return methods
    .flatMap(([method]) => method === "GET" ? ["GET", "HEAD"] : [method])
    .concat("OPTIONS");
}

/** Parameters where there are none. */
function none(parameters: Parameters): undefined {
  allowOnly(parameters, []);
}

/** The one parameter of a GET of a record: which of its properties. */
function fieldsOf(
  collection: Collection,
): (parameters: Parameters) => readonly string[] | undefined {
  return (parameters) => {
    allowOnly(parameters, ["fields"]);
    const fields = parameters.get("fields");
    return fields === undefined ? undefined : parseFields(collection, fields);
  };
}

const cascadeParameter = {
  name: "cascade",
  description: "Whether to delete all that refers to it too",
  schema: { type: "boolean", default: false },
};

/** The one parameter of a DELETE of a record that others can refer to. */
function cascade(parameters: Parameters): boolean {
  allowOnly(parameters, ["cascade"]);
  const value = parameters.get("cascade") ?? "false";
  if (value !== "true" && value !== "false") {
    throw badValue("cascade", value, "true or false");
  }
  return value === "true";
}

/** A GET of a text that stays the same while the server runs. */
function textRoute({ make, summary, schema, type, headers = [] }: {
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
    parse: none,
    conditional: true,
    answers: { 200: { schema, headers: ["ETag", ...names] } },
    ...(type !== undefined && { offers: [type] }),
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

/** What this API is described by, without a person to ask (RFC 9727; its form is RFC 9264's). */
function catalogRoute({ origin, path }: RouteOptions["base"]): Route {
  const root = origin + path;
  const own = `${origin}/.well-known/api-catalog`;
  const target = (address: string) => [
    { href: root + address, type: "application/json" },
  ];
  const description = target("v1/openapi.json");
  const linkset = [
    { anchor: own, item: [{ href: root }] },
    { anchor: root, "service-desc": description, status: target("health") },
  ];
  const profile = "https://www.rfc-editor.org/info/rfc9727";
  return textRoute({
    summary: "What this API is described by (RFC 9727)",
    schema: objectSchema("linkset", {
      linkset: { type: "array", items: { type: "object" } },
    }),
    type: `application/linkset+json; profile="${profile}"`,
    headers: ["Link", `<${own}>; rel="api-catalog"`],
    make: () => JSON.stringify({ linkset }),
  });
}

/** For whoever watches: whether writes are taken, and what the start had to mend. */
function healthRoute(store: Store): Route {
  const schema = objectSchema("health", {
    status: { type: "string", enum: ["ok", "read-only"] },
    notices: { type: "array", items: { type: "string" } },
  }, ["status"]);
  const get: Operation = {
    summary: "Whether writes are taken",
    answers: { 200: { schema }, 503: { schema } },
    access: "anyone",
    parse: none,
    run: () => {
      const { writable, full } = store;
      const notices = full
        ? [...store.notices, "The disk is full: only deletes are taken."]
        : store.notices;
      const body = JSON.stringify({
        status: writable ? "ok" : "read-only",
        ...(notices.length > 0 && { notices }),
      });
      const headers = ["Cache-Control", "no-store"];
      return { status: writable ? 200 : 503, headers, body, seq: 0 };
    },
  };
  return route({ GET: get });
}

/** For monitoring; see metrics.ts. */
function metricsRoute(figures: () => string): Route {
  const get: Operation = {
    summary: "Figures for Prometheus, for a program on this machine too",
    access: "admin",
    freeOnThisMachine: true,
    parse: none,
    run: () => ({
      status: 200,
      headers: ["Cache-Control", "no-store"],
      body: figures(),
      type: metricsType,
      seq: 0,
    }),
    offers: [metricsType],
    answers: { 200: { schema: { type: "string" } } },
  };
  return route({ GET: get });
}

/** What changes, to whoever listens. */
function eventsRoute(events: Events): Route {
  const get: Operation = {
    summary: "What changes, from now or from the last event on",
    access: "viewer",
    offers: ["text/event-stream"],
    parse: none,
    answers: {
      200: { schema: { type: "string" }, headers: ["X-Accel-Buffering"] },
    },
    run: (call) => events.open(call),
  };
  return route({ GET: get }, { tag: "events" });
}

/** How an address shows the records of a collection. */
interface View {
  readonly records: Records;
  /** Which of them; all, where it is left out. */
  readonly scope?: ScopeOf;
  /** What the scope follows from, where that is another record. */
  readonly through?: Relation;
}

/** Those in which a property has the caller's id. */
function ownBy(
  property: string,
  where?: (document: Document) => boolean,
): (call: Call) => Scope {
  const further = where ? { where } : {};
  return ({ caller }) => ({ property, value: caller?.id ?? 0, ...further });
}

/** Some methods of a view. */
function routeOf(
  { records: { collection }, scope }: View,
  methods: Readonly<Record<string, Operation>>,
  told: Subject = {},
): Route {
  const { name: tag, properties } = collection;
  const writable = properties.filter(({ readOnly }) => !readOnly)
    .map(({ name }) => name);
  const schema = recordSchema(collection);
  const own = scope === undefined ? {} : { scope };
  return route(methods, { tag, schema, writable, ...own, ...told });
}

/** ` of a zoo`, for summaries. */
function ofParent({ through }: View): string {
  return through ? ` of a ${through.to.singular}` : "";
}

const validators = ["ETag", "Last-Modified"];

function listOf(view: View, summary?: string): { GET: Operation<Query>; QUERY: Operation<Query> } {
  const { records } = view;
  const { collection } = records;
  const get: Operation<Query> = {
    summary: summary ??
      `The ${collection.name}${ofParent(view)}, a page of them`,
    access: collection.access.read,
    offers: jsonOrLines,
    parameters: queryParameters(collection),
    conditional: true,
    errors: [503], // too much to look for at once
    answers: {
      200: {
        schema: { type: "array", items: partSchema(collection) },
        headers: ["ETag", "X-Total-Count", "Link"],
      },
    },
    parse: (parameters) => parseQuery(collection, parameters),
    run: (call, query) => records.list(call, query),
  };
  // The safe method with a body (RFC 10008): GET with its parameters there.
  return { GET: get, QUERY: { ...get, consumes: form, takesForm: true } };
}

function postOf(view: View, tasks: Tasks | undefined): Operation {
  const { records, through } = view;
  const { collection } = records;
  const made = {
    schema: wholeSchema(collection),
    headers: ["Location", ...validators],
  };
  return {
    summary: `Make a new ${collection.singular}${ofParent(view)}`,
    access: collection.access.write,
    consumes: tasks ? jsonOrLines : json,
    body: newSchema(collection, [through?.property]),
    conditional: true,
    answers: { 201: made, ...(tasks && { 202: tasks.answered }) },
    parse: none,
    secret: secretsOf(collection).length > 0,
    run: (call, _, body) => records.create(call, body),
    ...(tasks && {
      takeLines: (call, body, once) =>
        tasks.receive(call, body, { records, once }),
    }),
  };
}

function getOf(view: View): Operation<readonly string[] | undefined> {
  const { records } = view;
  const { collection } = records;
  return {
    summary: `One ${collection.singular}${ofParent(view)}`,
    access: collection.access.read,
    parameters: [fieldsParameter(collection)],
    conditional: true,
    answers: { 200: { schema: partSchema(collection), headers: validators } },
    parse: fieldsOf(collection),
    run: (call, fields) => records.read(call, fields),
  };
}

function putOf(view: View): Operation {
  const { records, through } = view;
  const { collection } = records;
  const without = [through?.property, ...secretsOf(collection)];
  return {
    summary: `Replace a ${collection.singular}${ofParent(view)}`,
    access: collection.access.write,
    consumes: json,
    body: newSchema(collection, without),
    conditional: true,
    answers: {
      201: { schema: wholeSchema(collection), headers: ["Content-Location"] },
    },
    errors: conflictsOf(records),
    parse: none,
    run: (call, _, body) => records.change(call, body, { partial: false }),
  };
}

/** @param only what may be changed; all, where it is left out */
function patchOf(view: View, only?: readonly string[]): Operation {
  const { records } = view;
  const { collection } = records;
  const locked = only && collection.properties.map(({ name }) => name)
    .filter((name) => !only.includes(name));
  return {
    summary: `Change a ${collection.singular}${ofParent(view)}`,
    access: collection.access.write,
    consumes: mergePatch,
    body: patchSchema(collection, only),
    conditional: true,
    answers: { 201: { schema: wholeSchema(collection), headers: validators } },
    errors: only ? [] : conflictsOf(records),
    parse: none,
    run: (call, _, body) =>
      records.change(call, body, { partial: true, locked }),
  };
}

function deleteOf(view: View): Operation<boolean | undefined> {
  const { records } = view;
  const { collection } = records;
  const { access, children, singular } = collection;
  const isParent = children.length > 0;
  return {
    summary: `Delete a ${singular}${ofParent(view)}`,
    access: access.remove,
    ...(isParent && { parameters: [cascadeParameter] }),
    conditional: true,
    answers: { 204: {} },
    // What goes along may take a higher role.
    errors: isParent ? [403, 409] : conflictsOf(records),
    parse: isParent ? cascade : none,
    run: (call, all) => records.remove(call, all ?? false),
  };
}

/** The errors of a change that the rules of a collection bring. */
function conflictsOf({ hasRules }: Records): number[] {
  return hasRules ? [409] : [];
}

/** What a record that is sent back lacks, as it was not in the answer. */
function secretsOf({ properties }: Collection): string[] {
  return properties.filter(({ kind }) => kind === "secret")
    .map(({ name }) => name);
}

function signInOf(signingIn: Authorizations): Operation {
  return {
    summary: "Sign in",
    access: "anyone",
    ignoresCredentials: true,
    consumes: json,
    body: signingIn.sent,
    answers: {
      201: {
        schema: signingIn.answered,
        headers: ["Location", "Cache-Control"],
      },
    },
    parse: none,
    run: (call, _, body) => signingIn.signIn(call, body),
  };
}
