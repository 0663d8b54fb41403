/**
 * The description of each kind of operation in the OpenAPI document: its summary,
 * parameters, body, successful responses and the errors particular to it.
 */

import type { Operation, OperationDocs } from "../../api/operation.ts";
import { signInForm } from "../../api/accounts/authorizations.ts";
import { password } from "../../api/accounts/users.ts";
import { mayAccess } from "../../auth/access.ts";
import type { Api } from "../../api/feature.ts";
import {
  type Collection,
  withArticle,
} from "../../api/declaration/declaration.ts";
import type { JsonSchema } from "../../api/declaration/properties.ts";
import { valueExample } from "./examples.ts";
import {
  completeSchema,
  createSchema,
  fieldsParameter,
  filterParameters,
  listSchema,
  objectSchema,
  parameter,
  partialSchema,
  patchSchema,
  queryParameters,
  text,
} from "./schemas.ts";

/** An operation with everything that the document says about it. */
export interface DocumentedOperation extends Operation, OperationDocs {
  readonly api: Api;
  readonly method: string;
  readonly path: string;
  readonly summary: string;
  readonly responses: NonNullable<OperationDocs["responses"]>;
}

/** Adds to an operation the description that follows from its kind; its own `docs` take precedence. */
export function documentOperation(
  operation: Operation,
  place: Pick<DocumentedOperation, "api" | "method" | "path">,
): DocumentedOperation {
  const { docs = {} } = operation;
  const derive = kinds[kindOf(operation, place)];
  const derived = derive?.(subjectOf(operation, place.api)) ?? { summary: "" };
  const named = `${place.method.replace("HEAD", "GET")} ${place.path}`;
  const own = named === "GET /" || named === "GET /v1"
    ? rootDocs(place.api)
    : ownDocs[named];
  return {
    ...place,
    ...derived,
    ...operation,
    ...docs,
    summary: docs.summary ?? own?.summary ?? derived.summary,
    parameters: [
      ...(derived.parameters ?? []).filter((each) =>
        !docs.verb || hasNoOperator(each)
      ),
      ...docs.parameters ?? [],
    ],
    responses: docs.verb && docs.responses
      ? docs.responses
      : { ...derived.responses, ...own?.responses, ...docs.responses },
  };
}

/** Returns false for the filters that only lists are described with, so that the document stays short. */
function hasNoOperator({ name }: JsonSchema): boolean {
  return !String(name).includes(":");
}

const names = { type: "array", items: text };

/** A number of bytes. */
const size = { type: "integer" };

const health = {
  schema: objectSchema("health", {
    status: { type: "string", enum: ["ok", "memory-full", "read-only"] },
    memory: objectSchema("memory", { used: size, limit: size }),
    notices: names,
  }, ["status"]),
};

/** The descriptions of operations of the server itself that do not follow from their kind. */
const ownDocs: Readonly<
  Record<
    string,
    Pick<OperationDocs, "responses"> & { readonly summary: string }
  >
> = {
  "GET /health": {
    summary: "Whether writes are accepted",
    responses: { 200: health, 503: health },
  },
  "GET /v1/user": { summary: "Your own record" },
  "PATCH /v1/user": { summary: "Change your password" },
  "GET /v1/authorizations": { summary: "Where you are signed in" },
  "QUERY /v1/authorizations": { summary: "Where you are signed in" },
  "GET /v1/authorizations/{id}": { summary: "One of your authorizations" },
  "DELETE /v1/authorizations/{id}": { summary: "Sign out" },
};

function rootDocs({ urls }: Api): (typeof ownDocs)[string] {
  const names = Object.keys(urls);
  const schema = objectSchema(
    "root",
    Object.fromEntries(
      names.map((name) => [name, { type: "string", format: "uri-reference" }]),
    ),
    names,
  );
  return {
    summary: "The URLs of all resources",
    responses: { 200: { schema, headers: ["ETag"] } },
  };
}

/** Returns the kind of an operation, usually its method; "" if nothing can be derived. */
function kindOf(
  { resource, list, ignoresCredentials }: Operation,
  { method, path }: Pick<DocumentedOperation, "method" | "path">,
): string {
  if (ignoresCredentials) return "sign in";
  if (resource === undefined && method !== "OPTIONS") return "";
  if (method === "DELETE" && !path.endsWith("}")) return "DELETE several";
  return list ? "list" : method.replace("HEAD", "GET");
}

/** That of the first user, with the password of the example of `PATCH /user`. */
const firstSignIn = {
  username: "admin",
  password: valueExample({ ...password, name: "password" }, 1) ?? "",
};

const signIn = { ...signInForm, singular: "sign in" };

/** Returns the records that an operation is about. */
function subjectOf(
  { resource, docs }: Operation,
  { declaration: { roles }, collections }: Api,
) {
  const { parent, records, only } = resource ?? {};
  const collection: Collection = records?.collection ?? signIn;
  const { read, write } = collection.access;
  const isShown = only || mayAccess(roles.grantsOf(write), read);
  const by = parent?.segment === collection.name
    ? ""
    : `, by ${parent?.property}`;
  return {
    collection,
    listed: docs?.listed ?? collection,
    /** What signing in creates. */
    authorization: collections.get("authorizations") ?? collection,
    /** ` of a zoo`, if the URL contains the zoo's id; with the property if the reference has a name of its own. */
    ofParent: parent ? ` of ${withArticle(parent.target.singular)}${by}` : "",
    /** The property whose value is that id. */
    parentProperty: parent?.property,
    /** The status 409, if the collection has rules that a change can violate. */
    conflicts: collection.sideEffects ? [409] : [],
    /** The response to a change by somebody who may not read the record. */
    unseen: isShown ? {} : { 204: {} },
    only,
  };
}

const validators = ["ETag", "Last-Modified"];

const kinds: Readonly<
  Record<
    string,
    (about: ReturnType<typeof subjectOf>) => OperationDocs & {
      readonly summary: string;
    }
  >
> = {
  list: ({ collection, listed, ofParent }) => ({
    summary: `A page of the ${collection.name}${ofParent}`,
    // Of a part of a collection, ids and times without
    // operators, so that the document stays short.
    parameters: queryParameters(listed).filter((each) =>
      !ofParent || hasNoOperator(each) ||
      !/^(?:id|\w+_(?:at|id)):/.test(String(each.name))
    ),
    responses: {
      200: {
        schema: listSchema(listed),
        headers: ["ETag", "X-Total-Count", "Link"],
      },
    },
  }),
  POST: ({ collection, ofParent, parentProperty }) => ({
    summary: `Create a new ${collection.singular}${ofParent}`,
    body: createSchema(collection, [parentProperty]),
    responses: {
      201: { record: collection, headers: ["Location", ...validators] },
    },
  }),
  GET: ({ collection, ofParent }) => ({
    summary: `One ${collection.singular}${ofParent}`,
    parameters: [fieldsParameter(collection)],
    responses: {
      200: {
        schema: partialSchema(collection),
        headers: validators,
      },
    },
  }),
  PUT: ({ collection, ofParent, parentProperty, conflicts, unseen }) => ({
    summary: `Replace ${withArticle(collection.singular)}${ofParent}`,
    body: createSchema(collection, [parentProperty, collection.secretName]),
    errors: conflicts,
    responses: {
      ...unseen,
      201: { record: collection, headers: ["Content-Location"] },
    },
  }),
  PATCH: ({ collection, ofParent, only, conflicts, unseen }) => ({
    summary: `Change ${withArticle(collection.singular)}${ofParent}`,
    body: patchSchema(collection, only),
    errors: only ? [] : conflicts,
    responses: {
      ...unseen,
      201: { record: collection, headers: validators },
    },
  }),
  DELETE: ({ collection: { singular, children }, ofParent, conflicts }) => ({
    summary: `Delete ${withArticle(singular)}${ofParent}`,
    // Deleting the records that refer to it can require a higher role.
    ...(children.length > 0
      ? { parameters: [cascade], errors: [403, 409] }
      : { errors: conflicts }),
    responses: { 204: {} },
  }),
  "DELETE several": ({ collection, ofParent }) => ({
    summary: "",
    parameters: [
      // Those of a part of the collection are the same.
      ...(ofParent ? [] : [...collection.visibleProperties.values()])
        .flatMap(filterParameters).filter(hasNoOperator),
      ...(collection.children.length > 0 ? [cascade] : []),
    ],
    responses: {},
  }),
  "sign in": ({ collection, authorization }) => {
    const schema = {
      title: "signed in",
      allOf: [authorization, collection].map(completeSchema),
    };
    return {
      summary: "Sign in",
      body: { ...createSchema(collection), examples: [firstSignIn] },
      responses: { 201: { schema, headers: ["Location", "Cache-Control"] } },
    };
  },
  OPTIONS: () => ({
    summary: "The methods and properties that the caller may use",
    responses: {
      200: {
        schema: objectSchema("capabilities", {
          methods: names,
          writable: names,
          schema: { type: "object" },
        }),
        headers: ["Allow", "Accept-Post", "Accept-Patch"],
      },
    },
  }),
};

const cascade = parameter(
  "cascade",
  "Whether to also delete the records that require it, and empty the other references to it",
  { type: "boolean", default: false },
);
