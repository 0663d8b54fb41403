/**
 * The OpenAPI 3.1 document (https://spec.openapis.org/oas/v3.1.1). It is made
 * of the routes themselves: what follows from the way in which a request is
 * decided (app.ts) is derived here, all else stands beside each operation.
 */

import { mayAccess } from "../../auth/access.ts";
import { errorMessages, fieldErrorCodes } from "../../http/errors.ts";
import { isReadMethod } from "../../http/methods.ts";
import {
  Components,
  isObject,
  pascalCase,
  type ResponseParts,
} from "./components.ts";
import type { Json, JsonSchema } from "../../api/declaration/properties.ts";
import { signInForm, tokenSchemas } from "../../api/accounts/authorizations.ts";
import {
  type Collection,
  deriveCollection,
} from "../../api/declaration/declaration.ts";
import {
  type Operation,
  type OperationDocs,
  type OperationKind,
  type Route,
  textRoute,
} from "../../api/operations.ts";
import type { Feature } from "../../api/feature.ts";
import {
  fieldsParameter,
  newSchema,
  objectSchema,
  partSchema,
  patchSchema,
  queryParameters,
  wholeSchema,
} from "./schemas.ts";

/** An operation with all that is told of it. */
interface Documented extends Omit<Operation, "parse" | "run"> {
  readonly summary: string;
  readonly parameters?: readonly JsonSchema[];
  readonly body?: JsonSchema;
  readonly answers: NonNullable<OperationDocs["responses"]>;
  readonly errors?: readonly number[];
  readonly conditional?: true;
}

type Success = Documented["answers"][number];

/** What the document is made of. */
export interface OpenApiOptions {
  /** By pattern. */
  readonly routes: ReadonlyMap<string, {
    readonly tag: string;
    readonly operations: ReadonlyMap<string, Operation>;
  }>;
  readonly collections: ReadonlyMap<string, Collection>;
  readonly base: { readonly origin: string; readonly path: string };
  readonly requireIfMatch: boolean;
}

const introduction =
  `Errors are JSON, or RFC 9457's where Accept asks for \`application/problem+json\`. \
Besides what is listed, every address answers 405 with Allow to a method that it lacks, and 501 to one that no address has. \
A slash too many at the end is answered with 308. \
Where CORS is switched on, answers have the fields of the Fetch standard too. \
QUERY (RFC 10008) is under \`x-query\`, as OpenAPI 3.1 has no place for it: what is there is what OpenAPI 3.2 has under \`query\`.`;

/** Describes all routes. */
export function openApi(
  { routes, collections, base, requireIfMatch }: OpenApiOptions,
): JsonSchema {
  const components = new Components();
  const paths: Record<string, JsonSchema> = {};
  const tags = new Set<string>();
  for (const [pattern, { tag, operations }] of routes) {
    const own = pattern.startsWith(base.path);
    const relative = own ? pattern.slice(base.path.length - 1) : pattern;
    // Of addresses that are the same but for a slash, one is enough.
    if (!/^\/.*[^/]$|^\/$/.test(relative)) continue;
    tags.add(tag);
    const { path, ids } = nameIds(relative, collections);
    const described: Record<string, JsonSchema> = {};
    for (const [method, each] of operations) {
      const operation = tell(each, collections);
      const place = { tag, path, components, requireIfMatch };
      const key = method === "QUERY" ? "x-query" : method.toLowerCase();
      described[key] = describe(method, operation, place);
      if (method === "GET") {
        const summary = `${operation.summary}: the header alone`;
        described["head"] = describe("HEAD", { ...operation, summary }, place);
      }
    }
    paths[path] = {
      ...(!own && { servers: [{ url: base.origin || "/" }] }),
      parameters: [
        ...ids.map((name) => components.parameter(idParameter(name))),
        components.parameter(fieldParameter("X-Request-Id")),
      ],
      ...described,
    };
  }
  return {
    openapi: "3.1.1",
    info: {
      title: "zoo-api",
      version: "1",
      description: introduction,
      license: { name: "None granted", identifier: "NONE" },
    },
    servers: [{ url: (base.origin + base.path).replace(/(?<=.)\/$/, "") }],
    tags: Array.from(tags, (name) => ({
      name,
      description: collections.has(name)
        ? `The ${name} and what can be done with them.`
        : `The ${name} of this API.`,
    })),
    paths,
    components: {
      ...components.toJson(),
      securitySchemes: {
        bearer: {
          type: "http",
          scheme: "bearer",
          bearerFormat: "JWT",
          description: "A token of POST /v1/authorizations (RFC 6750).",
        },
      },
    },
  };
}

const validators = ["ETag", "Last-Modified"];
const names = { type: "array", items: { type: "string" } };

/** All that is told of an operation: what follows from its kind, then its own. */
function tell(
  operation: Operation,
  collections: OpenApiOptions["collections"],
): Documented {
  const { kind, summary, docs = {} } = operation;
  const all = kind ? kinds[kind](operation, collections) : { summary: "" };
  return {
    ...operation,
    ...all,
    ...docs,
    summary: summary ?? all.summary,
    answers: { ...all.responses, ...withSchemas(docs.responses) },
  };
}

/** Responses whose record is described by its schema. */
function withSchemas(
  responses: OperationDocs["responses"] = {},
): Documented["answers"] {
  return Object.fromEntries(
    Object.entries(responses).map(([status, { record, ...response }]) => [
      status,
      record ? { ...response, schema: wholeSchema(record) } : response,
    ]),
  );
}

type Tell = (
  operation: Operation,
  collections: OpenApiOptions["collections"],
) => OperationDocs & { readonly summary: string };

/** What is told of what is done with the records of a view. */
function ofView(
  tell: (
    collection: Collection,
    more: {
      readonly of: string;
      /** What need not be sent, as the path says it. */
      readonly given: string | undefined;
      readonly secrets: readonly string[];
      readonly conflicts: readonly number[];
      readonly only: readonly string[] | undefined;
    },
  ) => OperationDocs & { readonly summary: string },
): Tell {
  return ({ resource, writableOnly }) => {
    if (resource === undefined) throw new Error("An operation has no view");
    const { parent, records: { collection, hasRules } } = resource;
    const secrets = collection.properties
      .filter(({ kind }) => kind === "secret").map(({ name }) => name);
    const told = tell(collection, {
      of: parent ? ` of a ${parent.target.singular}` : "",
      given: parent?.property,
      secrets,
      conflicts: hasRules ? [409] : [],
      only: writableOnly,
    });
    return { conditional: true, ...told };
  };
}

const kinds: Readonly<Record<OperationKind, Tell>> = {
  list: ofView((collection, { of }) => ({
    summary: `The ${collection.name}${of}, a page of them`,
    parameters: queryParameters(collection),
    errors: [503], // too much to look for at once
    responses: {
      200: {
        schema: { type: "array", items: partSchema(collection) },
        headers: ["ETag", "X-Total-Count", "Link"],
      },
    },
  })),
  create: ofView((collection, { of, given }) => ({
    summary: `Make a new ${collection.singular}${of}`,
    body: newSchema(collection, [given]),
    responses: {
      201: {
        schema: wholeSchema(collection),
        headers: ["Location", ...validators],
      },
    },
  })),
  read: ofView((collection, { of }) => ({
    summary: `One ${collection.singular}${of}`,
    parameters: [fieldsParameter(collection)],
    responses: { 200: { schema: partSchema(collection), headers: validators } },
  })),
  replace: ofView((collection, { of, given, secrets, conflicts }) => ({
    summary: `Replace a ${collection.singular}${of}`,
    body: newSchema(collection, [given, ...secrets]),
    errors: conflicts,
    responses: {
      201: { schema: wholeSchema(collection), headers: ["Content-Location"] },
    },
  })),
  change: ofView((collection, { of, only, conflicts }) => ({
    summary: `Change a ${collection.singular}${of}`,
    body: patchSchema(collection, only),
    errors: only ? [] : conflicts,
    responses: {
      201: { schema: wholeSchema(collection), headers: validators },
    },
  })),
  remove: ofView(({ singular, children }, { of, conflicts }) => {
    const isParent = children.length > 0;
    return {
      summary: `Delete a ${singular}${of}`,
      ...(isParent && { parameters: [cascadeParameter] }),
      // What goes along may take a higher role.
      errors: isParent ? [403, 409] : conflicts,
      responses: { 204: {} },
    };
  }),
  "sign in": (_, collections) => {
    const form = deriveCollection(signInForm);
    const made = collections.get(signInForm.name) ?? form;
    const token = objectSchema("token", tokenSchemas);
    const schema = { title: "signed in", allOf: [wholeSchema(made), token] };
    return {
      summary: "Sign in",
      body: newSchema({ ...form, singular: "sign in" }),
      responses: { 201: { schema, headers: ["Location", "Cache-Control"] } },
    };
  },
  options: () => ({
    summary: "What can be done here, and by whom",
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

const cascadeParameter = {
  name: "cascade",
  description: "Whether to delete all that refers to it too",
  schema: { type: "boolean", default: false },
};

/** Where an operation is described. */
interface Place {
  readonly tag: string;
  readonly path: string;
  readonly components: Components;
  readonly requireIfMatch: boolean;
}

function describe(
  method: string,
  operation: Documented,
  { tag, path, components, requireIfMatch }: Place,
): JsonSchema {
  const { access, summary, ignoresCredentials, queryInForm } = operation;
  const responses: Record<string, JsonSchema> = {};
  const answers = {
    ...derivedAnswers(method, operation),
    ...operation.answers,
  };
  for (const [status, answer] of Object.entries(answers)) {
    const response = success(Number(status), operation, answer);
    const name = `${nameSchema(answer.schema)} ${status}`;
    responses[status] = components.response(name, response);
  }
  for (const status of errorsOf(method, path, operation)) {
    if (status in responses || (status === 428 && !requireIfMatch)) continue;
    responses[status] = components.response(`error ${status}`, failure(status));
  }
  const own = (operation.parameters ?? []).map((parameter) =>
    components.parameter({ ...parameter, in: "query" })
  );
  const fields = fieldsOf(method, operation)
    .map((name) => components.parameter(fieldParameter(name)));
  const bearer = { bearer: [] };
  return {
    operationId: nameOperation(method, path),
    tags: [tag],
    summary,
    ...(access !== "anyone" && { description: `Takes the role ${access}.` }),
    security: ignoresCredentials
      ? []
      : access === "anyone"
      ? [{}, bearer]
      : [bearer],
    parameters: queryInForm ? fields : [...own, ...fields],
    ...requestBody(operation, components),
    responses,
  };
}

/** Whether its answer can do without the record (RFC 7240 section 4.2): not where that is shown only once. */
function takesPrefer(method: string, { answers }: Documented): boolean {
  const made = answers[201];
  return !isReadMethod(method) && made !== undefined &&
    !made.headers?.includes("Cache-Control");
}

/** The fields of a request that an operation looks at. */
function fieldsOf(
  method: string,
  operation: Documented,
): RequestField[] {
  const fields: RequestField[] = [];
  if (operation.conditional) {
    fields.push("If-Match", "If-None-Match", "If-Unmodified-Since");
    if (isReadMethod(method)) fields.push("If-Modified-Since");
  }
  if (takesPrefer(method, operation)) fields.push("Prefer");
  if (operation.produces?.includes("text/event-stream")) {
    fields.push("Last-Event-ID");
  }
  if (method === "POST" && !operation.ignoresCredentials) {
    fields.push("Idempotency-Key");
  }
  return fields;
}

/** What is answered where the request has preconditions or preferences. */
function derivedAnswers(
  method: string,
  operation: Documented,
): Record<number, Success> {
  const validators = ["ETag", "Last-Modified"];
  if (isReadMethod(method)) {
    return operation.conditional ? { 304: { headers: validators } } : {};
  }
  if (method === "POST" || !takesPrefer(method, operation)) return {};
  return { 204: { headers: operation.answers[201]?.headers ?? [] } };
}

/** The statuses of the errors that follow from the way in which a request is decided. */
function errorsOf(
  method: string,
  path: string,
  operation: Documented,
): number[] {
  const { access, consumes, conditional, ignoresCredentials } = operation;
  const writes = !isReadMethod(method) && method !== "OPTIONS";
  const hasId = path.includes("{");
  const cases: [number, unknown][] = [
    [400, true],
    [401, true],
    [403, !mayAccess("viewer", access)],
    [404, hasId],
    [406, isReadMethod(method)],
    [408, consumes],
    [409, method === "POST" && !ignoresCredentials], // Idempotency-Key
    [410, hasId && isReadMethod(method)],
    [412, conditional],
    [413, consumes],
    [415, consumes],
    [422, consumes && !isReadMethod(method)],
    [428, conditional && writes && method !== "POST"],
    [431, true],
    [500, true],
    [503, writes],
  ];
  const derived = cases.filter(([, applies]) => applies).map(([code]) => code);
  return [...new Set([...derived, ...operation.errors ?? []])].sort();
}

function success(
  status: number,
  { produces = ["application/json"] }: Documented,
  { schema, headers = [] }: Success,
): ResponseParts {
  const content = schema && Object.fromEntries(
    produces.map((offer) => {
      const type = offer.replace(/;.*/, "");
      return [type, { schema: contentOf(type, schema) }];
    }),
  );
  return {
    description: successes[status] ?? "As the summary says.",
    headers,
    ...(content && { content }),
  };
}

function failure(status: number): ResponseParts {
  const codes = Object.entries(errorMessages)
    .filter(([code]) => code.startsWith(String(status)))
    .map(([code, meaning]) => `${code}: ${meaning}`);
  return {
    description: codes.join(" "),
    headers: failureFields[status] ?? [],
    content: {
      "application/json": { schema: errorSchema },
      "application/problem+json": { schema: problemSchema },
    },
  };
}

/** What is JSON has the schema of a body; of a stream, no schema tells its lines. */
function contentOf(type: string, schema: JsonSchema): JsonSchema {
  return /[/+]json$/.test(type) ? schema : { type: "string" };
}

function requestBody(
  { consumes = [], queryInForm, body = {} }: Documented,
  components: Components,
): JsonSchema {
  if (consumes.length === 0) return {};
  const form = { type: "object", description: "The parameters of GET." };
  const schema = components.schema(queryInForm ? form : body);
  const content = Object.fromEntries(
    consumes.map((type) => [type, {
      schema: queryInForm ? schema : contentOf(type, schema),
    }]),
  );
  return { requestBody: { required: true, content } };
}

/** What an answer is called by its schema. */
function nameSchema(schema: Json | undefined): string {
  if (!isObject(schema)) return "answer";
  const { title = "answer", items } = schema;
  return items ? `${nameSchema(items)} list` : String(title);
}

/** Gives the ids of a pattern names: `/zoos/:id/animals/:id` has `zoo_id` and `id`. */
function nameIds(
  pattern: string,
  collections: OpenApiOptions["collections"],
): { readonly path: string; readonly ids: readonly string[] } {
  const ids: string[] = [];
  const path = pattern.replace(/([^/]+)\/:id(?=(\/)?)/g, (_, of, more) => {
    const singular = collections.get(of)?.singular ?? of;
    const name = more ? `${singular.replaceAll(" ", "_")}_id` : "id";
    ids.push(name);
    return `${of}/{${name}}`;
  });
  return { path, ids };
}

/** A name for a function: GET of `/v1/zoos/{id}` is `getZoosById`. */
function nameOperation(method: string, path: string): string {
  const words = path.replace(/^\/v1\//, "").split("/")
    .filter((word) => /^[^{]/.test(word));
  const name = pascalCase(words.join("-")) || "Root";
  return method.toLowerCase() + name + (path.endsWith("}") ? "ById" : "");
}

function idParameter(name: string): JsonSchema {
  const maximum = Number.MAX_SAFE_INTEGER;
  const schema = { type: "integer", minimum: 1, maximum };
  return { name, in: "path", required: true, schema };
}

const condition = "A precondition (RFC 9110 section 13.1)";

/** The fields of a request that are looked at, beside those that OpenAPI has other places for. */
const requestFields = {
  "If-Match": condition,
  "If-None-Match": condition,
  "If-Modified-Since": condition,
  "If-Unmodified-Since": condition,
  "Prefer": "`return=minimal` to do without the record (RFC 7240)",
  "Idempotency-Key": "Sent again within a day: the first answer again",
  "Last-Event-ID": "The last event that came: go on behind it",
  "X-Request-Id": "What the request is called in the log",
} as const;

type RequestField = keyof typeof requestFields;

function fieldParameter(name: RequestField): JsonSchema {
  const description = requestFields[name];
  return { name, in: "header", description, schema: text };
}

const failureFields: Readonly<Record<number, readonly string[]>> = {
  401: ["WWW-Authenticate"],
  415: ["Accept-Post", "Accept-Patch", "Accept-Encoding"],
  503: ["Retry-After"],
};

const successes: Readonly<Record<number, string>> = {
  200: "What was asked for.",
  201: "The record as it is now; no content where Prefer asked for that.",
  202: "Begun.",
  204: "Done.",
  304: "It is what you have already.",
  503: "Not well.",
};

const text = { type: "string" };
const explained = { message: text, documentation_url: text };
const fieldErrors = {
  type: "array",
  items: objectSchema("field error", {
    field: text,
    code: { type: "string", enum: fieldErrorCodes },
    message: text,
  }),
};
const errorSchema = objectSchema("error", {
  error: text,
  errorCode: { type: "integer" },
  errorMsg: text,
  ...explained,
  errors: fieldErrors,
}, ["error", "errorCode", "errorMsg"]);
const problemSchema = objectSchema("problem", {
  type: text,
  title: text,
  status: { type: "integer" },
  detail: text,
  instance: text,
  errorCode: { type: "integer" },
  documentation_url: text,
  errors: fieldErrors,
}, ["type", "title", "status", "detail", "errorCode"]);

/** What this API is described by, without a person to ask (RFC 9727; its form is RFC 9264's). */
function catalogRoute({ origin, path }: OpenApiOptions["base"]): Route {
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

/** What a program needs that knows nothing but the host. */
export const feature: Feature = {
  open({ add, routes, collections, base, requireIfMatch }) {
    add("/.well-known/api-catalog", catalogRoute(base));
    const described = { routes, collections, base, requireIfMatch };
    const route = textRoute({
      summary: "This document",
      schema: { type: "object" },
      make: () => JSON.stringify(openApi(described)),
    });
    add("openapi.json", route, "openapi_url");
  },
};
