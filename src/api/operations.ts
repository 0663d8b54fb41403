/**
 * Operations: one method of one URL each. The functions here build those that
 * every collection has; what is special to a URL is passed as options.
 */

import { createHash } from "node:crypto";
import { type Access, mayAccess } from "../auth/access.ts";
import { evaluatePreconditions } from "../http/conditional.ts";
import { ApiError } from "../http/errors.ts";
import type { Document } from "../store/store.ts";
import type { Collection, Reference } from "./declaration/declaration.ts";
import type { JsonSchema } from "./declaration/properties.ts";
import type { Body } from "./declaration/validation.ts";
import {
  invalidValue,
  type Parameters,
  parseFields,
  parseQuery,
  type Query,
  rejectUnknownParameters,
} from "./query/parameters.ts";
import type { Scope } from "./query/planner.ts";
import { listRecords, readRecord } from "./records/reading.ts";
import type { Records } from "./records/records.ts";
import { changeRecord, createRecord, deleteRecord } from "./records/writing.ts";
import type {
  RequestContext,
  ResolveScope,
  Result,
  RunOnce,
} from "./request-context.ts";
import { ndjsonType, recordSchema } from "./representation.ts";

/** The kinds of operation from which a description follows. */
export type OperationKind =
  | "list"
  | "create"
  | "read"
  | "replace"
  | "change"
  | "remove"
  | "sign in"
  | "options";

/** One method of a URL; `P` is the type of its parsed parameters. */
export interface Operation<P = unknown> {
  readonly access: Access;
  /** Set if a program on the same machine needs no role. */
  readonly publicFromLoopback?: true;
  readonly ignoresCredentials?: true;
  /** The media types of a request body; without them there is none. */
  readonly consumes?: readonly string[];
  /** Set if the body is a form that holds the parameters (QUERY). */
  readonly queryInForm?: true;
  /** The media types of a success, the preferred one first; JSON by default. */
  readonly produces?: readonly string[];
  /** A short description, if none follows from the kind. */
  readonly summary?: string | undefined;
  /** For descriptions: the kind, and the resource it belongs to. */
  readonly kind?: OperationKind;
  readonly resource?: Resource;
  /** The only properties that a PATCH may change. */
  readonly writableOnly?: readonly string[] | undefined;
  readonly docs?: OperationDocs;
  /** Parses the parameters; throws an ApiError if they are not valid. */
  readonly parse: (parameters: Parameters) => P;
  /** Set if the body can hold a password. */
  readonly secret?: boolean;
  /** Accepts an NDJSON body of any length. */
  readonly importNdjson?: (
    context: RequestContext,
    body: AsyncIterable<Uint8Array>,
    runOnce: RunOnce,
  ) => Promise<Result>;
  /** Carries the operation out. A method, so that an operation of any `P` is an operation. */
  run(context: RequestContext, parsed: P, body: Body): Result | Promise<Result>;
}

/** The description of an operation, as far as it does not follow from its kind. */
export interface OperationDocs {
  /** Parameters of the query or, in a form, of the body. */
  readonly parameters?: readonly JsonSchema[];
  /** The schema of a JSON body. */
  readonly body?: JsonSchema;
  /** The successful responses by status: the schema of the content and the header fields. */
  readonly responses?: Readonly<
    Record<number, {
      readonly schema?: JsonSchema;
      /** In place of a schema: a whole record of this collection. */
      readonly record?: Collection;
      readonly headers?: readonly string[];
    }>
  >;
  /** The statuses of errors that do not follow from the rest. */
  readonly errors?: readonly number[];
  /** Set if preconditions are evaluated. */
  readonly conditional?: true;
}

/** One URL. */
export interface Route {
  /** Limits the records of the collection to those of this URL; undefined: all of them. */
  readonly scope: ResolveScope | undefined;
  /** By method; HEAD is served by GET. */
  readonly operations: ReadonlyMap<string, Operation>;
  /** All methods, for Allow (RFC 9110 section 10.2.1). */
  readonly allow: string;
  /** Header fields of every response to GET and HEAD. */
  readonly fields: readonly string[];
  /** The heading in the OpenAPI document. */
  readonly tag: string;
}

/** Records of a collection as one URL serves them. */
export interface Resource {
  readonly records: Records;
  /** Limits them; all of the collection by default. */
  readonly scope?: ResolveScope;
  /** The reference that the scope follows, such as `zoo_id` in `/zoos/7/animals`. */
  readonly parent?: Reference;
}

/** What all methods of a URL share. */
interface ResourceInfo {
  readonly scope?: ResolveScope | undefined;
  readonly tag?: string;
  /** The JSON Schema of a record. */
  readonly schema?: JsonSchema;
  /** The names that a body may hold. */
  readonly writable?: readonly string[];
}

/** What one URL does differently from the others of its kind. */
interface OperationOptions {
  readonly access?: Access;
  readonly summary?: string;
}

const json = ["application/json"];
const jsonOrNdjson = [...json, ndjsonType];
const mergePatch = ["application/merge-patch+json", "application/json"];
const form = ["application/x-www-form-urlencoded"];

/** Returns a URL with these methods, and OPTIONS. */
export function route(
  methods: Readonly<Record<string, Operation>>,
  { scope, tag = "server", schema = {}, writable = [] }: ResourceInfo = {},
): Route {
  const accept = queryField(methods["QUERY"]);
  const options = optionsOperation(methods, { schema, writable, accept });
  return {
    scope,
    operations: new Map(Object.entries({ ...methods, OPTIONS: options })),
    allow: methodNames(Object.keys(methods)).join(", "),
    fields: accept,
    tag,
  };
}

/** The field Accept-Query (RFC 10008 section 3). */
function queryField(query: Operation | undefined): string[] {
  return query?.consumes ? ["Accept-Query", query.consumes.join(", ")] : [];
}

function optionsOperation(
  methods: Readonly<Record<string, Operation>>,
  { schema, writable, accept }: {
    readonly schema: JsonSchema;
    readonly writable: readonly string[];
    readonly accept: readonly string[];
  },
): Operation {
  const headers = ["Allow", methodNames(Object.keys(methods)).join(", ")];
  const { POST: post, PATCH: patch } = methods;
  // RFC 5789 section 3.1, and its counterpart for POST.
  if (post?.consumes) headers.push("Accept-Post", post.consumes.join(", "));
  if (patch?.consumes) headers.push("Accept-Patch", patch.consumes.join(", "));
  headers.push(...accept);
  return {
    kind: "options",
    access: "anyone",
    parse: () => {}, // a browser's preflight repeats those of its request
    run: ({ caller }) => {
      const allowed = Object.entries(methods)
        .filter(([, { access }]) => mayAccess(caller?.role, access));
      const writes = allowed.some(([, { consumes, queryInForm }]) =>
        consumes && !queryInForm
      );
      const body = JSON.stringify({
        methods: methodNames(allowed.map(([method]) => method)),
        writable: writes ? writable : [],
        schema,
      });
      return { status: 200, headers, body, seq: 0 };
    },
  };
}

/** Adds HEAD to GET, and OPTIONS to all. */
function methodNames(methods: readonly string[]): string[] {
  return methods
    .flatMap((method) => method === "GET" ? ["GET", "HEAD"] : [method])
    .concat("OPTIONS");
}

/** Returns the URL of a resource, with some methods. */
export function resourceRoute(
  { records: { collection }, scope }: Resource,
  methods: Readonly<Record<string, Operation>>,
  { schema = recordSchema(collection), writable }: Pick<
    ResourceInfo,
    "schema" | "writable"
  > = {},
): Route {
  const { name: tag, properties } = collection;
  const names = properties.filter(({ readOnly }) => !readOnly)
    .map(({ name }) => name);
  return route(methods, { tag, schema, writable: writable ?? names, scope });
}

/** Limits a collection to the records in which a property holds the caller's id. */
export function ownedByCaller(
  property: string,
  where?: (document: Document) => boolean,
): ResolveScope {
  return ({ caller }): Scope => ({
    property,
    value: caller?.id ?? 0,
    ...(where && { where }),
  });
}

/** GET of a collection, and QUERY: the safe method with a body (RFC 10008), which holds the same parameters. */
export function listOperations(
  resource: Resource,
  { summary }: OperationOptions = {},
): { readonly GET: Operation<Query>; readonly QUERY: Operation<Query> } {
  const { records } = resource;
  const { collection } = records;
  const get: Operation<Query> = {
    kind: "list",
    resource,
    summary,
    access: collection.access.read,
    produces: jsonOrNdjson,
    parse: (parameters) => parseQuery(collection, parameters),
    run: (context, query) => listRecords(records, context, query),
  };
  return { GET: get, QUERY: { ...get, consumes: form, queryInForm: true } };
}

/** POST of a collection. */
export function createOperation(resource: Resource): Operation {
  const { records } = resource;
  const { access, properties } = records.collection;
  return {
    kind: "create",
    resource,
    access: access.write,
    consumes: json,
    parse: noParameters,
    secret: properties.some(({ kind }) => kind === "secret"),
    run: (context, _, body) => createRecord(records, context, body),
  };
}

/** GET of a record. */
export function readOperation(
  resource: Resource,
  { summary, access }: OperationOptions = {},
): Operation<readonly string[] | undefined> {
  const { records } = resource;
  const { collection } = records;
  return {
    kind: "read",
    resource,
    summary,
    access: access ?? collection.access.read,
    parse: (parameters) => {
      rejectUnknownParameters(parameters, ["fields"]);
      const fields = parameters.get("fields");
      return fields === undefined ? undefined : parseFields(collection, fields);
    },
    run: (context, fields) => readRecord(records, context, fields),
  };
}

/** PUT of a record. */
export function replaceOperation(resource: Resource): Operation {
  const { records } = resource;
  return {
    kind: "replace",
    resource,
    access: records.collection.access.write,
    consumes: json,
    parse: noParameters,
    run: (context, _, body) =>
      changeRecord(records, context, { body, partial: false }),
  };
}

/**
 * PATCH of a record (RFC 7396).
 *
 * @param options.only the properties that may be changed; all by default
 */
export function patchOperation(
  resource: Resource,
  { summary, access, only }: OperationOptions & {
    readonly only?: readonly string[];
  } = {},
): Operation {
  const { records } = resource;
  const { collection } = records;
  const locked = only && collection.properties.map(({ name }) => name)
    .filter((name) => !only.includes(name));
  return {
    kind: "change",
    resource,
    summary,
    writableOnly: only,
    access: access ?? collection.access.write,
    consumes: mergePatch,
    parse: noParameters,
    run: (context, _, body) =>
      changeRecord(records, context, { body, partial: true, locked }),
  };
}

/** DELETE of a record; one that others can refer to has the parameter `cascade`. */
export function deleteOperation(
  resource: Resource,
  { summary, run }: OperationOptions & {
    readonly run?: (context: RequestContext) => Result;
  } = {},
): Operation<boolean | undefined> {
  const { records } = resource;
  const { access, children } = records.collection;
  return {
    kind: "remove",
    resource,
    summary,
    access: access.delete,
    parse: children.length > 0 ? parseCascade : noParameters,
    run: run ??
      ((context, cascade) => deleteRecord(records, context, cascade ?? false)),
  };
}

function parseCascade(parameters: Parameters): boolean {
  rejectUnknownParameters(parameters, ["cascade"]);
  const value = parameters.get("cascade") ?? "false";
  if (value !== "true" && value !== "false") {
    throw invalidValue("cascade", value, "true or false");
  }
  return value === "true";
}

/** Parses the parameters of an operation that has none. */
export function noParameters(parameters: Parameters): undefined {
  rejectUnknownParameters(parameters, []);
}

/** Returns the URL of a text that stays the same while the server runs. */
export function textRoute({ make, summary, schema, type, headers = [] }: {
  readonly make: () => string;
  readonly summary: string;
  readonly schema: JsonSchema;
  /** The media type, with its parameters; JSON by default. */
  readonly type?: string;
  readonly headers?: readonly string[];
}): Route {
  let cached: { readonly body: string; readonly etag: string } | undefined;
  const names = headers.filter((_, index) => index % 2 === 0);
  const get: Operation = {
    summary,
    access: "anyone",
    parse: noParameters,
    docs: {
      conditional: true,
      responses: { 200: { schema, headers: ["ETag", ...names] } },
    },
    ...(type !== undefined && { produces: [type] }),
    run: (context) => {
      const { body, etag } = cached ??= withEntityTag(make());
      const outcome = evaluatePreconditions({ ...context, now: 0 }, { etag });
      if (outcome === "failed") throw new ApiError(41200);
      const fields = ["ETag", etag];
      return outcome === "not-modified"
        ? { status: 304, headers: fields, body: undefined, seq: 0 }
        : { status: 200, headers: [...fields, ...headers], body, type, seq: 0 };
    },
  };
  return route({ GET: get });
}

function withEntityTag(body: string): { body: string; etag: string } {
  const hash = createHash("sha256").update(body).digest("base64url");
  return { body, etag: `"${hash.slice(0, 16)}"` };
}
