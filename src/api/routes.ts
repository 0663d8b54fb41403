/**
 * Every address of the API on one page: its methods, who may use them, what
 * parameters and what kind of body they take, and what they do.
 */

import { type Access, may } from "../auth/access.ts";
import type { TokenSigner } from "../auth/jwt.ts";
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
import { type Once, Tasks, tasks } from "./tasks.ts";
import { lockedForOwner, userRules, users } from "./users.ts";
import type { Body } from "./validation.ts";

/** One method of an address; `P` is what its parameters come to. */
export interface Operation<P = unknown> {
  readonly access: Access;
  /** Set where a sent token has no say: who signs in may have an old one. */
  readonly ignoresCredentials?: true;
  /** Understands the parameters; throws an ApiError where they do not fit. */
  readonly parse: (parameters: Parameters) => P;
  /** The media types that its body may have; undefined where it takes none. */
  readonly consumes?: readonly string[];
  /** The media types that it answers with; JSON, where it is left out. */
  readonly offers?: readonly string[];
  /** Set where the parameters are in the body, as a form. */
  readonly takesForm?: true;
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
  const { declarations, store, base, now, requireIfMatch } = options;
  const collections = deriveCollections(declarations, builtIn);
  const prefix = `${base.origin}${base.path}v1/`;
  const context = { store, collections, prefix, now, requireIfMatch };
  const records = (name: string) => {
    const collection = collections.get(name);
    if (collection === undefined) throw new Error(`No collection ${name}`);
    const rules = name === "users" ? userRules(store) : {};
    return new Records(collection, context, rules);
  };

  const router = new Router<Route>();
  const add = (path: string, route: Route) =>
    router.add(`${base.path}v1/${path}`, route);

  const names = declarations.map(({ name }) => name);
  const others = ["authorizations", "users", "tasks", "events"];
  const root = rootRoute(prefix, [...others, ...names]);
  router.add(base.path, root);
  if (base.path !== "/") router.add(base.path.slice(0, -1), root);
  add("", root);
  router.add(`${base.path}v1`, root);

  router.add(`${base.path}health`, healthRoute(store));

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
  add("authorizations/:id", ownedRoute(own, signingIn));
  add("tasks", tasksRoute(listed, working));
  add("tasks/:id", ownedRoute(listed, working));
  return { router, tasks: working };
}

/** What OPTIONS tells of the bodies of an address. */
interface Bodies {
  /** The JSON Schema of a record. */
  readonly schema?: JsonSchema;
  /** What a body may hold. */
  readonly writable?: readonly string[];
}

/** An address with these methods, and OPTIONS. */
function route(
  own: Readonly<Record<string, Operation>>,
  { schema = {}, writable = [] }: Bodies,
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
    access: "anyone",
    parse: none,
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
  return { operations, allow, fields };
}

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

/** The one parameter of a DELETE of a record that others can refer to. */
function cascade(parameters: Parameters): boolean {
  allowOnly(parameters, ["cascade"]);
  const value = parameters.get("cascade") ?? "false";
  if (value !== "true" && value !== "false") {
    throw badValue("cascade", value, "true or false");
  }
  return value === "true";
}

/** The root document: where everything is, so that a client needs no other address. */
function rootRoute(prefix: string, names: readonly string[]): Route {
  const addresses = names.map((name) => [`${name}_url`, prefix + name]);
  const body = JSON.stringify({
    current_user_url: `${prefix}user`,
    ...Object.fromEntries(addresses),
  });
  const get: Operation = {
    access: "anyone",
    parse: none,
    run: () => ({ status: 200, headers: [], body, seq: 0 }),
  };
  return route({ GET: get }, {});
}

/** For whoever watches: whether writes are taken, and what the start had to mend. */
function healthRoute(store: Store): Route {
  const get: Operation = {
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

/** What changes, to whoever listens. */
function eventsRoute(events: Events): Route {
  const get: Operation = {
    access: "viewer",
    offers: ["text/event-stream"],
    parse: none,
    run: (call) => events.open(call),
  };
  return route({ GET: get }, {});
}

function writableOf({ properties }: Collection): string[] {
  return properties.filter(({ readOnly }) => !readOnly).map(({ name }) => name);
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
  const { access } = collection;
  const get: Operation<ReturnType<typeof parseQuery>> = {
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
  };
  return route({ GET: get, QUERY: queryOf(get), POST: post }, {
    schema: recordSchema(collection),
    writable: writableOf(collection),
  });
}

function recordRoute(records: Records, through?: Relation): Route {
  const { collection } = records;
  const { access, children } = collection;
  const get: Operation<readonly string[] | undefined> = {
    access: access.read,
    parse: fieldsOf(collection),
    run: (call, fields) => records.read(call, fields, through),
  };
  const put: Operation = {
    access: access.write,
    parse: none,
    consumes: json,
    run: (call, _, body) => records.replace(call, body, through),
  };
  const patch: Operation = {
    access: access.write,
    parse: none,
    consumes: mergePatch,
    run: (call, _, body) => records.patch(call, body, { through }),
  };
  const remove: Operation<boolean | undefined> = {
    access: access.remove,
    parse: children.length > 0 ? cascade : none,
    run: (call, all) => records.remove(call, all ?? false, through),
  };
  return route({ GET: get, PUT: put, PATCH: patch, DELETE: remove }, {
    schema: recordSchema(collection),
    writable: writableOf(collection),
  });
}

/** The signed-in user's own record. */
function ownUserRoute(records: Records): Route {
  const own = (call: Call): Call => ({ ...call, ids: [call.caller?.id ?? 0] });
  const get: Operation<readonly string[] | undefined> = {
    access: "viewer",
    parse: fieldsOf(records.collection),
    run: (call, fields) => records.read(own(call), fields),
  };
  const patch: Operation = {
    access: "viewer",
    parse: none,
    consumes: mergePatch,
    run: (call, _, body) =>
      records.patch(own(call), body, { locked: lockedForOwner }),
  };
  return route({ GET: get, PATCH: patch }, {
    schema: recordSchema(records.collection),
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
  };
  const post: Operation = {
    access: "anyone",
    ignoresCredentials: true,
    parse: none,
    consumes: json,
    run: (_call, _, body) => signingIn.signIn(body),
  };
  return route({ GET: get, QUERY: queryOf(get), POST: post }, signingIn);
}

/** One record of those of which each sees the own. */
function ownedRoute(
  { collection }: Records,
  owned: Pick<Authorizations | Tasks, "read" | "remove">,
): Route {
  const get: Operation<readonly string[] | undefined> = {
    access: collection.access.read,
    parse: fieldsOf(collection),
    run: (call, fields) => owned.read(call, fields),
  };
  const remove: Operation = {
    access: collection.access.remove,
    parse: none,
    run: (call) => owned.remove(call),
  };
  return route({ GET: get, DELETE: remove }, {
    schema: recordSchema(collection),
  });
}

function tasksRoute({ collection }: Records, tasks: Tasks): Route {
  const get: Operation<ReturnType<typeof parseQuery>> = {
    access: collection.access.read,
    offers: jsonOrLines,
    parse: (parameters) => parseQuery(collection, parameters),
    run: (call, query) => tasks.list(call, query),
  };
  return route({ GET: get, QUERY: queryOf(get) }, {
    schema: recordSchema(collection),
  });
}
