/**
 * The operations that every collection has: each is one method of one URL,
 * whose particulars are passed as its resource.
 */

import type { Operation, Resource, Route, RouteParts } from "./operation.ts";
import { mayAccess } from "../auth/access.ts";
import { defaultMaxBodyBytes } from "../http/body.ts";
import { isReadMethod } from "../http/content.ts";
import type { Collection } from "./declaration/declaration.ts";
import { boolean, optional } from "./declaration/properties.ts";
import {
  parseFields,
  parseQuery,
  type Query,
  readParameter,
  rejectUnknownParameters,
} from "./query/parameters.ts";
import { listRecords, readRecord } from "./records/reading.ts";
import { deleteRecord } from "./records/deleting.ts";
import { writeRecord } from "./records/writing.ts";
import { recordSchema } from "./representation.ts";

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

/** Returns the most bytes of a record that is sent: four for each character that its strings may have, or more. */
export function maxRecordBytes({ properties }: Collection): number {
  const characters = properties.reduce(
    (sum, { schema: { maxLength = 0 } }) => sum + Number(maxLength),
    0,
  );
  return Math.max(defaultMaxBodyBytes, 4 * characters);
}

/** A method whose body is a record, or some of its properties. */
function writeMethod(
  resource: Resource,
  consumes: readonly string[],
): Operation {
  const { records, only } = resource;
  const { collection } = records;
  return {
    resource,
    access: collection.access.write,
    consumes,
    maxBodyBytes: maxRecordBytes(collection),
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
