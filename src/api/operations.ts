/**
 * Operations: each is one method of one URL. The functions here build those
 * that every collection has; the particulars of a URL are passed as options.
 */

import { type Access, mayAccess } from "../auth/access.ts";
import { isReadMethod } from "../http/content.ts";
import { type Collection, type Reference } from "./declaration/declaration.ts";
import { boolean, optional } from "./declaration/properties.ts";
import type { OperationDocs } from "./docs.ts";
import type { Body } from "./declaration/validation.ts";
import {
  type Parameters,
  parseFields,
  parseQuery,
  type Query,
  readParameter,
  rejectUnknownParameters,
} from "./query/parameters.ts";
import type { Scope } from "./query/select.ts";
import { listRecords, readRecord, type ShowList } from "./records/reading.ts";
import type { Records } from "./records/records.ts";
import { deleteRecord } from "./records/deleting.ts";
import { writeRecord } from "./records/writing.ts";
import type { Outcome, RequestContext } from "./request-context.ts";
import { recordSchema } from "./representation.ts";

/** One method of a URL; `P` is the type of its parsed parameters. */
export interface Operation<P = unknown> {
  readonly access: Access;
  readonly ignoresCredentials?: true;
  /** The media types of a request body; undefined if there is no body. */
  readonly consumes?: readonly string[];
  /** The largest body that is read into memory; {@linkcode defaultMaxBodyBytes} by default. */
  readonly maxBodyBytes?: number;
  /** The media types of a successful response, the preferred one first; JSON by default. */
  readonly produces?: readonly string[];
  /** The records that it is about. */
  readonly resource?: Resource;
  /** What a description of the API says about it. */
  readonly docs?: OperationDocs;
  /** Parses the parameters; throws an ApiError if they are not valid. By default, none are allowed. */
  readonly parse?: (parameters: Parameters) => P;
  /**
   * Receives the body itself, such as one that is not JSON; returns undefined
   * if it leaves that to the server.
   */
  readonly receive?: (
    context: RequestContext,
    body: {
      /** Its media type; undefined if there is no body. */
      readonly type: string | undefined;
      /** The parameters of the URL. */
      readonly sent: Parameters;
    },
  ) => Outcome | undefined;
  /** If it reads a list: runs it, and shows the rows in another format. */
  list?(context: RequestContext, parsed: P, show: ShowList): Outcome;
  /** Runs the operation. Declared as a method, so that every `Operation<P>` is assignable to `Operation`. */
  run(context: RequestContext, parsed: P, body: Body): Outcome;
}

/** The methods of a URL, without OPTIONS. */
export type Methods = Readonly<Record<string, Operation>>;

/** The parts that a URL is built from. */
export interface RouteParts {
  readonly methods: Methods;
  /** Declares what a body may hold. */
  readonly described?: Collection | undefined;
}

/** One URL. */
export interface Route extends Pick<RouteParts, "described"> {
  /** By method; HEAD is served by GET. */
  readonly operations: ReadonlyMap<string, Operation>;
  /** All methods, for Allow (RFC 9110 section 10.2.1). */
  readonly allow: string;
}

/** Records of a collection as one URL serves them. */
export interface Resource {
  readonly records: Records;
  /** The only properties that PATCH may change. */
  readonly only?: readonly string[];
  /** The reference to the record in the path, such as `zoo_id` in `/zoos/7/animals`. */
  readonly parent?: Reference | undefined;
  /** Limits the records, if not as {@linkcode Records.scopeOf} does. */
  readonly scopeOf?: (context: RequestContext) => Scope;
}

/** The largest body that is read into memory, unless its operation sets another limit. */
export const defaultMaxBodyBytes = 64 * 1024;

const json = ["application/json"];
const mergePatch = ["application/merge-patch+json", "application/json"];
const cascade = optional(boolean(), false);

/** Builds a URL with its methods and OPTIONS. */
export function buildRoute({ methods, described }: RouteParts): Route {
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
  return { operations, allow, described };
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
  const { records } = resource;
  const { collection } = records;
  const GET: Operation<Query> = {
    resource,
    access: collection.access.read,
    parse: (parameters) => parseQuery(collection, parameters),
    list: (...request) => listRecords(records, ...request),
    run: (context, query) => listRecords(records, context, query),
  };
  return { GET, POST: writeMethod(resource, json) };
}

/** A method whose body is a record, or some of its properties. */
function writeMethod(
  resource: Resource,
  consumes: readonly string[],
): Operation {
  const { records, only } = resource;
  const { access, properties } = records.collection;
  const characters = properties.reduce(
    (sum, { schema: { maxLength = 0 } }) => sum + Number(maxLength),
    0,
  );
  return {
    resource,
    access: access.write,
    consumes,
    // Four bytes for each character that its strings may have, or more.
    maxBodyBytes: Math.max(defaultMaxBodyBytes, 4 * characters),
    run: (context, _, body) => writeRecord(records, context, body, only),
  };
}

/**
 * The methods of a record. PATCH is a JSON Merge Patch (RFC 7396). DELETE of a
 * record that others can refer to has the parameter `cascade`.
 */
export function recordMethods(
  resource: Resource,
): Record<"GET" | "PUT" | "PATCH" | "DELETE", Operation> {
  const { records } = resource;
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
  const PUT = writeMethod(resource, json);
  return { GET, PUT, PATCH: writeMethod(resource, mergePatch), DELETE };
}
