/**
 * Operations: each is one method of one URL. The functions here build those
 * that every collection has; the particulars of a URL are passed as options.
 */

import { Buffer } from "node:buffer";
import { hash } from "node:crypto";
import { type Access, mayAccess } from "../auth/access.ts";
import {
  type IncomingRequest,
  maxWriteBytes,
  type OutgoingResponse,
} from "../http/connection.ts";
import { isReadMethod } from "../http/content.ts";
import {
  type Collection,
  readableNames,
  type Reference,
} from "./declaration/declaration.ts";
import {
  boolean,
  type JsonSchema,
  optional,
} from "./declaration/properties.ts";
import type { Body } from "./declaration/validation.ts";
import {
  type Parameters,
  parseFields,
  parseQuery,
  type Query,
  readParameter,
  rejectUnknownParameters,
} from "./query/parameters.ts";
import { type ListFormat, listRecords, readRecord } from "./records/reading.ts";
import type { Records } from "./records/records.ts";
import { deleteRecord } from "./records/deleting.ts";
import { changeRecord, createRecord } from "./records/writing.ts";
import type {
  Outcome,
  RequestContext,
  ResolveScope,
  Result,
} from "./request-context.ts";
import { recordSchema } from "./representation.ts";

/** One method of a URL; `P` is the type of its parsed parameters. */
export interface Operation<P = unknown> {
  readonly access: Access;
  /** Returns whether a request needs no role, whatever `access` says. */
  readonly isPublicFor?: ((request: IncomingRequest) => boolean) | undefined;
  readonly ignoresCredentials?: true;
  /** The media types of a request body; undefined if there is no body. */
  readonly consumes?: readonly string[];
  /** The largest body that is read into memory; {@linkcode defaultMaxBodyBytes} by default. */
  readonly maxBodyBytes?: number;
  /** The media types of a successful response, the preferred one first; JSON by default. */
  readonly produces?: readonly string[];
  /** A short description, if none follows from the method. */
  readonly summary?: string | undefined;
  /** The records that it is about. */
  readonly resource?: Resource;
  readonly docs?: OperationDocs;
  /** Parses the parameters; throws an ApiError if they are not valid. By default, none are allowed. */
  readonly parse?: (parameters: Parameters) => P;
  /** Receives the body itself, such as one that is not JSON; returns undefined if it leaves that to the server. */
  readonly receive?: (
    context: RequestContext,
    body: ReceivedBody,
  ) => Outcome | undefined;
  /** If it reads a list: runs it, and shows the list in another format. */
  list?(context: RequestContext, parsed: P, format: ListFormat): Outcome;
  /** Runs the operation. Declared as a method, so that every `Operation<P>` is assignable to `Operation`. */
  run(context: RequestContext, parsed: P, body: Body): Outcome;
}

/** A body before it is received. */
export interface ReceivedBody {
  /** Its media type; undefined if there is no body. */
  readonly type: string | undefined;
  /** The parameters of the URL. */
  readonly sent: Parameters;
  /** The source of a body of any length. */
  readonly response: OutgoingResponse;
  /** Reads a body that fits in memory. */
  readonly read: () => Promise<Uint8Array>;
}

/** The parts of an operation's description that do not follow from its method. */
export interface OperationDocs {
  /** What the summary does not say, as sentences. */
  readonly description?: string;
  /** The name of what it does, if that is the last segment of its URL. */
  readonly verb?: string;
  /** Parameters of the query or, in a form, of the body. */
  readonly parameters?: readonly JsonSchema[];
  /** The schema of a JSON body. */
  readonly body?: JsonSchema;
  /** The successful responses by status: the schema of the content and the header fields. */
  readonly responses?: Readonly<
    Record<number, {
      readonly schema?: JsonSchema;
      /** Instead of a schema: a complete record of this collection. */
      readonly record?: Collection;
      readonly headers?: readonly string[];
    }>
  >;
  /** The statuses of errors that cannot be derived from the rest. */
  readonly errors?: readonly number[];
  /** Set by features: if preconditions are evaluated or required, and if a client may prefer other formats. */
  readonly conditional?: boolean;
  readonly requiresPrecondition?: boolean;
  readonly negotiable?: boolean;
}

/** The methods of a URL, without OPTIONS. */
export type Methods = Readonly<Record<string, Operation>>;

/** The parts that a URL is built from. */
export interface RouteParts {
  readonly methods: Methods;
  /** Declares what a body may hold. */
  readonly described: Collection | undefined;
  /** The heading in the OpenAPI document; empty if it is left out there. */
  readonly tag: string;
}

/** One URL. */
export interface Route extends Pick<RouteParts, "tag"> {
  /** By method; HEAD is served by GET. */
  readonly operations: ReadonlyMap<string, Operation>;
  /** All methods, for Allow (RFC 9110 section 10.2.1). */
  readonly allow: string;
}

/** Records of a collection as one URL serves them. */
export interface Resource {
  readonly records: Records;
  /** The collection as lists show it, if lists leave some properties out. */
  readonly listed?: Collection;
  /** Limits the records; by default they are all of the collection. */
  readonly scope?: ResolveScope | undefined;
  /** A short description of GET and QUERY of the list, if none follows from the method. */
  readonly summary?: string;
  /** The only properties that PATCH may change. */
  readonly only?: readonly string[];
  /** The reference that the scope follows, such as `zoo_id` in `/zoos/7/animals`. */
  readonly parent?: Reference;
}

/** The largest body that is read into memory, unless its operation sets another limit. */
export const defaultMaxBodyBytes = 64 * 1024;

const json = ["application/json"];
const mergePatch = ["application/merge-patch+json", "application/json"];
const cascade = optional(boolean(), false);

/** Returns the parts of a URL with these methods. */
export function route(
  methods: Methods,
  described?: Collection,
  tag = described?.name ?? "server",
): RouteParts {
  return { methods, described, tag };
}

/** Builds a URL with its methods and OPTIONS. */
export function buildRoute({ methods, described, tag }: RouteParts): Route {
  const { POST, PATCH } = methods;
  const { properties = [] } = described ?? {};
  const only = PATCH?.resource?.only;
  const schema = described ? recordSchema(described, only) : {};
  const writable = only ??
    properties.filter(({ readOnly }) => !readOnly).map(({ name }) => name);
  const allow = methodNames(Object.keys(methods)).join(", ");
  const headers = [
    "Allow",
    allow,
    ...bodyTypes("Accept-Post", POST),
    ...bodyTypes("Accept-Patch", PATCH),
  ];
  const OPTIONS: Operation = {
    access: "anyone",
    parse: () => {}, // a preflight has the parameters of the actual request
    run: ({ caller }) => {
      const allowed = Object.entries(methods)
        .filter(([, { access }]) => mayAccess(caller?.grants, access));
      const body = JSON.stringify({
        methods: methodNames(allowed.map(([method]) => method)),
        writable: allowed.some(([method, { consumes }]) =>
            consumes && !isReadMethod(method)
          )
          ? writable
          : [],
        schema,
      });
      return { status: 200, headers, body, seq: 0 };
    },
  };
  const operations = new Map(Object.entries({ ...methods, OPTIONS }));
  return { operations, allow, tag };
}

/**
 * Returns the header field with the media types of a method's body: RFC 5789
 * section 3.1, and its counterpart for POST.
 */
function bodyTypes(name: string, operation: Operation | undefined): string[] {
  return operation?.consumes ? [name, operation.consumes.join(", ")] : [];
}

/** Adds HEAD to GET, and OPTIONS to all. */
function methodNames(methods: readonly string[]): string[] {
  return methods
    .flatMap((method) => method === "GET" ? ["GET", "HEAD"] : [method])
    .concat("OPTIONS");
}

/** The methods of a collection. */
export function collectionMethods(
  resource: Resource,
): Record<"GET" | "POST", Operation> {
  const { records, listed, summary } = resource;
  const { collection } = records;
  const { access } = collection;
  const fields = listed && readableNames(listed);
  const GET: Operation<Query> = {
    resource,
    summary,
    access: access.read,
    parse: (parameters) => parseQuery(listed ?? collection, parameters, fields),
    list: (...request) => listRecords(records, ...request),
    run: (context, query) => listRecords(records, context, query),
  };
  return {
    GET,
    POST: {
      resource,
      access: access.write,
      consumes: json,
      maxBodyBytes: maxRecordBytes(collection),
      run: (context, _, body) => createRecord(records, context, body),
    },
  };
}

/** Returns the size limit of a body that holds a record: four bytes for each character that its strings may have, or more. */
function maxRecordBytes({ properties }: Collection): number {
  const characters = properties.reduce(
    (sum, { schema: { maxLength = 0 } }) => sum + Number(maxLength),
    0,
  );
  return Math.max(defaultMaxBodyBytes, 4 * characters);
}

/**
 * The methods of a record. PATCH is a JSON Merge Patch (RFC 7396). DELETE of a
 * record that others can refer to has the parameter `cascade`.
 */
export function recordMethods(
  resource: Resource,
): Record<"GET" | "PUT" | "PATCH" | "DELETE", Operation> {
  const { records, only } = resource;
  const { collection } = records;
  const { access, children } = collection;
  const GET: Operation<ReturnType<typeof parseFields>> = {
    resource,
    access: access.read,
    parse: (parameters) => {
      rejectUnknownParameters(parameters, ["fields"]);
      return parseFields(collection, parameters);
    },
    run: (context, fields) => readRecord(records, context, fields),
  };
  const PUT: Operation = {
    resource,
    access: access.write,
    consumes: json,
    maxBodyBytes: maxRecordBytes(collection),
    run: (context, _, body) => changeRecord(records, context, body, only),
  };
  const DELETE: Operation<boolean> = {
    resource,
    access: access.delete,
    parse: (parameters) => {
      rejectUnknownParameters(
        parameters,
        children.length > 0 ? ["cascade"] : [],
      );
      return readParameter(parameters, "cascade", cascade) === true;
    },
    run: (context, cascade) => deleteRecord(records, context, cascade),
  };
  return { GET, PUT, PATCH: { ...PUT, consumes: mergePatch }, DELETE };
}

/**
 * Returns the route of a text, JSON by default, that stays the same while the
 * server runs; it is created at the first request.
 */
export function textRoute({ make, summary, schema, type }: {
  readonly make: () => string | Promise<string>;
  readonly summary: string;
  readonly schema: JsonSchema;
  readonly type?: string;
}): RouteParts {
  let cached:
    | Promise<{ digest: string; body: string | Uint8Array }>
    | undefined;
  return route({
    GET: {
      summary,
      ...(type && { produces: [type] }),
      access: "anyone",
      docs: { responses: { 200: { schema, headers: ["ETag"] } } },
      run: (context) => {
        cached ??= Promise.resolve(make()).then((text) => ({
          digest: hash("sha256", text, "base64url").slice(0, 16),
          // Encoded once for all, it takes no memory while a client reads it.
          body: text.length > maxWriteBytes ? Buffer.from(text) : text,
        }));
        return context.afterWaiting(cached, ({ digest, body }): Result => {
          const headers = context.validators({ digest });
          return context.checkPreconditions({ digest })
            ? { status: 304, headers, seq: 0 }
            : { status: 200, headers, body, type, seq: 0 };
        });
      },
    },
  });
}
