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
import type { Log, Store, TableDeclaration } from "../store/store.ts";
import { Authorizations, authorizations } from "./authorizations.ts";
import {
  type Collection,
  type Declaration,
  deriveCollections,
  foldText,
  type Relation,
} from "./declaration.ts";
import { type Documented, openApi, type OpenApiOptions } from "./openapi.ts";
import { type Measured, type Metrics, metricsType } from "./metrics.ts";
import type { JsonSchema } from "./properties.ts";
import {
  allowOnly,
  badValue,
  type Parameters,
  parseFields,
  parseQuery,
} from "./query.ts";
import { Events } from "./events.ts";
import { answersTable } from "./idempotency.ts";
import { type Call, Records, type Result } from "./records.ts";
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
import { type Once, Tasks, tasks } from "./tasks.ts";
import { lockedForOwner, userRules, users } from "./users.ts";
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
/** Collections in which each sees the own records. */
const ownedBy = new Set([authorizations.name, tasks.name]);
const builtIn = [users, authorizations, tasks];

/** The tables that the declarations need, with the properties that are looked up by value. */
export function tablesFor(
  declarations: readonly Declaration[],
): TableDeclaration[] {
  const collections = deriveCollections(declarations, builtIn);
  const tables = [...collections.values()].map(({ name, properties }) => ({
    name,
    indexes: Object.fromEntries(
      properties
        .filter(({ unique, references }) => unique || references)
        .map(({ name }) => name)
        .concat(ownedBy.has(name) ? ["user_id"] : [])
        .map((property) => [property, foldText]),
    ),
  }));
  return [...tables, answersTable];
}

/** Builds the tree of all addresses, and what works in the background of them. */
export function buildRoutes(
  options: RouteOptions,
): { readonly router: Router<Route>; readonly tasks: Tasks } {
  const { declarations, store, base, now, requireIfMatch, metrics } = options;
  const collections = deriveCollections(declarations, builtIn);
  const prefix = `${base.origin}${base.path}v1/`;
  const context = { store, collections, prefix, now, requireIfMatch };
  const records = (name: string) => {
    const collection = collections.get(name);
    if (collection === undefined) throw new Error(`No collection ${name}`);
    const rules = name === "users" ? userRules(store) : {};
    // Signing out and cancelling overwrite nobody's change.
    const free = name === authorizations.name || name === tasks.name;
    const own = { ...context, requireIfMatch: requireIfMatch && !free };
    return new Records(collection, own, rules);
  };

  const router = new Router<Route>();
  const add = (path: string, route: Route) =>
    router.add(`${base.path}v1/${path}`, route);

  const names = declarations.map(({ name }) => name);
  const root = rootRoute(prefix, {
    current_user_url: "user",
    authorizations_url: "authorizations",
    users_url: "users",
    tasks_url: "tasks",
    events_url: "events",
    ...Object.fromEntries(names.map((name) => [`${name}_url`, name])),
    openapi_url: "openapi.json",
  });
  router.add(base.path, root);
  if (base.path !== "/") router.add(base.path.slice(0, -1), root);
  add("", root);
  router.add(`${base.path}v1`, root);

  router.add(`${base.path}health`, healthRoute(store));
  const { routes } = router;
  const measured = { store, routes, collections: [...collections.keys()] };
  router.add(`${base.path}metrics`, metricsRoute(metrics, measured));
  router.add("/.well-known/api-catalog", catalogRoute(base));

  const served = [...declarations, users].map(({ name }) => records(name));
  const importable = new Map(
    served.filter(({ collection }) => names.includes(collection.name))
      .map((own) => [own.collection.name, own]),
  );
  const listed = records(tasks.name);
  const working = new Tasks({ ...options, records: listed, importable });
  for (const own of served) {
    const { name } = own.collection;
    const taken = importable.has(name) ? working : undefined;
    add(name, collectionRoute(own, { tasks: taken }));
    add(`${name}/:id`, recordRoute(own));
    const seen = new Set<Collection>();
    for (const parent of own.collection.parents) {
      if (seen.has(parent.to)) continue;
      seen.add(parent.to);
      add(
        `${parent.to.name}/:id/${name}`,
        collectionRoute(own, { tasks: taken, through: parent }),
      );
      add(`${parent.to.name}/:id/${name}/:id`, recordRoute(own, parent));
    }
  }
  add("events", eventsRoute(new Events(store, served)));
  add("user", ownUserRoute(records("users")));
  const own = records("authorizations");
  const signingIn = new Authorizations(own, options);
  add("authorizations", authorizationsRoute(own, signingIn));
  add(
    "authorizations/:id",
    ownedRoute(own, signingIn, {
      read: "One of your authorizations",
      remove: "Sign out",
    }),
  );
  add("tasks", tasksRoute(listed, working));
  add(
    "tasks/:id",
    ownedRoute(listed, working, {
      read: "One of your tasks",
      remove: "End a task: what is in stays in",
    }),
  );
  add("openapi.json", openApiRoute({ ...options, collections, routes }));
  return { router, tasks: working };
}

/** What belongs to an address as a whole. */
interface Subject {
  readonly tag?: string;
  /** The JSON Schema of a record. */
  readonly schema?: JsonSchema;
  /** What a body may hold. */
  readonly writable?: readonly string[];
}

/** An address with these methods, and OPTIONS. */
function route(
  own: Readonly<Record<string, Operation>>,
  { tag = "server", schema = {}, writable = [] }: Subject,
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
  return { operations, allow, fields, tag };
}

const names = { type: "array", items: { type: "string" } };
const capabilities = objectSchema("capabilities", {
  methods: names,
  writable: names,
  schema: { type: "object" },
});
const acceptFields = ["Accept-Post", "Accept-Patch"];

/** The safe method with a body (RFC 10008): GET with its parameters there. */
function queryOf<P>(get: Operation<P>): Operation<P> {
  return { ...get, consumes: form, takesForm: true };
}

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
function staticText(
  make: () => string,
  { type, headers = [] }: {
    /** The media type, with its parameters; JSON, where it is left out. */
    readonly type?: string;
    readonly headers?: readonly string[];
  } = {},
): Pick<Operation, "access" | "parse" | "conditional" | "run"> {
  let made: { readonly body: string; readonly etag: string } | undefined;
  return {
    access: "anyone",
    parse: none,
    conditional: true,
    run: (request) => {
      const { body, etag } = made ??= withTag(make());
      const conditions = { ...request, now: 0 };
      const outcome = evaluatePreconditions(conditions, { etag });
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
}

function withTag(body: string): { body: string; etag: string } {
  const hash = createHash("sha256").update(body).digest("base64url");
  return { body, etag: `"${hash.slice(0, 16)}"` };
}

/** The root document: where everything is, so that a client needs no other address. */
function rootRoute(
  prefix: string,
  addresses: Readonly<Record<string, string>>,
): Route {
  const entries = Object.entries(addresses);
  const whole = entries.map(([name, address]) => [name, prefix + address]);
  const names = Object.keys(addresses);
  const get: Operation = {
    ...staticText(() => JSON.stringify(Object.fromEntries(whole))),
    summary: "Where everything is",
    answers: {
      200: { schema: addressesSchema("root", names), headers: ["ETag"] },
    },
  };
  return route({ GET: get }, {});
}

/** What this API is described by, without a person to ask (RFC 9727; its form is RFC 9264's). */
function catalogRoute({ origin, path }: RouteOptions["base"]): Route {
  const root = origin + path;
  const own = "/.well-known/api-catalog";
  const target = (address: string) => [
    { href: root + address, type: "application/json" },
  ];
  const linkset = [
    { anchor: origin + own, item: [{ href: root }] },
    {
      anchor: root,
      "service-desc": target("v1/openapi.json"),
      status: target("health"),
    },
  ];
  const produced = "application/linkset+json";
  const profile = "https://www.rfc-editor.org/info/rfc9727";
  const type = `${produced}; profile="${profile}"`;
  const get: Operation = {
    ...staticText(() => JSON.stringify({ linkset }), {
      type,
      headers: ["Link", `<${origin}${own}>; rel="api-catalog"`],
    }),
    summary: "What this API is described by (RFC 9727)",
    offers: [type],
    answers: {
      200: {
        schema: objectSchema("linkset", {
          linkset: { type: "array", items: { type: "object" } },
        }),
        headers: ["ETag", "Link"],
      },
    },
  };
  return route({ GET: get }, {});
}

/** All this for programs: https://spec.openapis.org/oas/v3.1.1 */
function openApiRoute(options: OpenApiOptions): Route {
  const get: Operation = {
    ...staticText(() => JSON.stringify(openApi(options))),
    summary: "This document",
    answers: { 200: { schema: { type: "object" }, headers: ["ETag"] } },
  };
  return route({ GET: get }, {});
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
  return route({ GET: get }, {});
}

/** For monitoring; see metrics.ts. */
function metricsRoute(metrics: Metrics, measured: Measured): Route {
  const get: Operation = {
    summary: "Figures for Prometheus, for a program on this machine too",
    access: "admin",
    freeOnThisMachine: true,
    parse: none,
    run: () => ({
      status: 200,
      headers: ["Cache-Control", "no-store"],
      body: metrics.write(measured),
      type: metricsType,
      seq: 0,
    }),
    offers: [metricsType],
    answers: { 200: { schema: { type: "string" } } },
  };
  return route({ GET: get }, {});
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

function writableOf({ properties }: Collection): string[] {
  return properties.filter(({ readOnly }) => !readOnly).map(({ name }) => name);
}

/** What a record that is sent back lacks, as it was not in the answer. */
function secretsOf({ properties }: Collection): string[] {
  return properties.filter(({ kind }) => kind === "secret")
    .map(({ name }) => name);
}

const validators = ["ETag", "Last-Modified"];

/** What is told of a page of records. */
function listing(
  collection: Collection,
): Pick<Operation, "parameters" | "answers" | "conditional" | "errors"> {
  return {
    parameters: queryParameters(collection),
    conditional: true,
    errors: [503], // too much to look for at once
    answers: {
      200: {
        schema: { type: "array", items: partSchema(collection) },
        headers: ["ETag", "X-Total-Count", "Link"],
      },
    },
  };
}

/** What is told of one record that is read. */
function reading(
  collection: Collection,
): Pick<Operation, "parameters" | "answers" | "conditional"> {
  return {
    parameters: [fieldsParameter(collection)],
    conditional: true,
    answers: { 200: { schema: partSchema(collection), headers: validators } },
  };
}

function collectionRoute(
  records: Records,
  { tasks, through }: {
    /** Set where records can be imported. */
    readonly tasks: Tasks | undefined;
    readonly through?: Relation;
  },
): Route {
  const { collection } = records;
  const { access, name, singular } = collection;
  const of = through ? ` of a ${through.to.singular}` : "";
  const get: Operation<ReturnType<typeof parseQuery>> = {
    summary: `The ${name}${of}, a page of them`,
    ...listing(collection),
    access: access.read,
    offers: jsonOrLines,
    parse: (parameters) => parseQuery(collection, parameters),
    run: (call, query) => records.list(call, query, through),
  };
  const post: Operation = {
    access: access.write,
    parse: none,
    consumes: tasks ? jsonOrLines : json,
    secret: collection.properties.some(({ kind }) => kind === "secret"),
    run: (call, _, body) => records.create(call, body, through),
    ...(tasks && {
      takeLines: (call, body, once) =>
        tasks.receive(call, body, { records, through, once }),
    }),
    summary: `Make a new ${singular}${of}`,
    body: newSchema(collection, [through?.property]),
    conditional: true,
    answers: {
      201: {
        schema: wholeSchema(collection),
        headers: ["Location", ...validators],
      },
      ...(tasks && { 202: tasks.answered }),
    },
  };
  return route({ GET: get, QUERY: queryOf(get), POST: post }, {
    tag: name,
    schema: recordSchema(collection),
    writable: writableOf(collection),
  });
}

function recordRoute(records: Records, through?: Relation): Route {
  const { collection } = records;
  const { access, children, name, singular } = collection;
  const of = through ? ` of a ${through.to.singular}` : "";
  const conflicts = records.hasRules ? [409] : [];
  const get: Operation<readonly string[] | undefined> = {
    summary: `One ${singular}${of}`,
    ...reading(collection),
    access: access.read,
    parse: fieldsOf(collection),
    run: (call, fields) => records.read(call, fields, through),
  };
  const put: Operation = {
    access: access.write,
    parse: none,
    consumes: json,
    run: (call, _, body) => records.replace(call, body, through),
    summary: `Replace a ${singular}${of}`,
    body: newSchema(collection, [through?.property, ...secretsOf(collection)]),
    conditional: true,
    answers: {
      201: { schema: wholeSchema(collection), headers: ["Content-Location"] },
    },
    errors: conflicts,
  };
  const patch: Operation = {
    access: access.write,
    parse: none,
    consumes: mergePatch,
    run: (call, _, body) => records.patch(call, body, { through }),
    summary: `Change a ${singular}${of}`,
    body: patchSchema(collection),
    conditional: true,
    answers: { 201: { schema: wholeSchema(collection), headers: validators } },
    errors: conflicts,
  };
  const remove: Operation<boolean | undefined> = {
    access: access.remove,
    parse: children.length > 0 ? cascade : none,
    run: (call, all) => records.remove(call, all ?? false, through),
    summary: `Delete a ${singular}${of}`,
    parameters: children.length > 0 ? [cascadeParameter] : [],
    conditional: true,
    answers: { 204: {} },
    // What goes along may take a higher role.
    errors: children.length > 0 ? [403, 409] : conflicts,
  };
  return route({ GET: get, PUT: put, PATCH: patch, DELETE: remove }, {
    tag: name,
    schema: recordSchema(collection),
    writable: writableOf(collection),
  });
}

/** The signed-in user's own record. */
function ownUserRoute(records: Records): Route {
  const own = (call: Call): Call => ({ ...call, ids: [call.caller?.id ?? 0] });
  const { collection } = records;
  const get: Operation<readonly string[] | undefined> = {
    summary: "Your own record",
    ...reading(collection),
    access: "viewer",
    parse: fieldsOf(collection),
    run: (call, fields) => records.read(own(call), fields),
  };
  const patch: Operation = {
    access: "viewer",
    parse: none,
    consumes: mergePatch,
    run: (call, _, body) =>
      records.patch(own(call), body, { locked: lockedForOwner }),
    summary: "Change your password",
    body: patchSchema(collection, ["password"]),
    conditional: true,
    answers: { 201: { schema: wholeSchema(collection), headers: validators } },
  };
  return route({ GET: get, PATCH: patch }, {
    tag: collection.name,
    schema: recordSchema(collection),
    writable: ["password"],
  });
}

function authorizationsRoute(
  { collection }: Records,
  signingIn: Authorizations,
): Route {
  const get: Operation<ReturnType<typeof parseQuery>> = {
    access: "viewer",
    offers: jsonOrLines,
    parse: (parameters) => parseQuery(collection, parameters),
    run: (call, query) => signingIn.list(call, query),
    summary: "Where you are signed in",
    ...listing(collection),
  };
  const post: Operation = {
    access: "anyone",
    ignoresCredentials: true,
    parse: none,
    consumes: json,
    run: (call, _, body) => signingIn.signIn(call, body),
    summary: "Sign in",
    body: signingIn.sent,
    answers: {
      201: {
        schema: signingIn.answered,
        headers: ["Location", "Cache-Control"],
      },
    },
  };
  const { name: tag } = collection;
  const { schema, writable } = signingIn;
  return route({ GET: get, QUERY: queryOf(get), POST: post }, {
    tag,
    schema,
    writable,
  });
}

/** One record of those of which each sees the own. */
function ownedRoute(
  { collection }: Records,
  owned: Pick<Authorizations | Tasks, "read" | "remove">,
  words: { readonly read: string; readonly remove: string },
): Route {
  const get: Operation<readonly string[] | undefined> = {
    access: collection.access.read,
    parse: fieldsOf(collection),
    run: (call, fields) => owned.read(call, fields),
    summary: words.read,
    ...reading(collection),
  };
  const remove: Operation = {
    access: collection.access.remove,
    parse: none,
    run: (call) => owned.remove(call),
    summary: words.remove,
    conditional: true,
    answers: { 204: {} },
  };
  return route({ GET: get, DELETE: remove }, {
    tag: collection.name,
    schema: recordSchema(collection),
  });
}

function tasksRoute({ collection }: Records, tasks: Tasks): Route {
  const get: Operation<ReturnType<typeof parseQuery>> = {
    access: collection.access.read,
    offers: jsonOrLines,
    parse: (parameters) => parseQuery(collection, parameters),
    run: (call, query) => tasks.list(call, query),
    summary: "Your tasks, of an admin all",
    ...listing(collection),
  };
  return route({ GET: get, QUERY: queryOf(get) }, {
    tag: collection.name,
    schema: recordSchema(collection),
  });
}
