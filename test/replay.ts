/**
 * Validates responses against the OpenAPI document of the server that sent them:
 * the status, media type, header fields, and the body by its JSON Schema.
 */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import http from "node:http";

/** A reference in an OpenAPI document, resolved where its target is used. */
export interface Referable {
  readonly $ref?: string;
}

/** The keywords of JSON Schema 2020-12 that our documents use. */
export interface Schema extends Referable {
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly allOf?: readonly Schema[];
  readonly anyOf?: readonly Schema[];
  readonly minItems?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly format?: string;
  readonly readOnly?: boolean;
  readonly writeOnly?: boolean;
  readonly description?: string;
  readonly examples?: readonly unknown[];
}

type Content = Readonly<
  Record<string, { readonly schema: Schema; readonly example?: unknown }>
>;

/** A parameter or a header field. */
interface Field extends Referable {
  readonly required?: boolean;
  readonly schema: Schema;
}

export interface DocumentedParameter extends Field {
  readonly name: string;
  readonly in: string;
  readonly example?: unknown;
}

export interface DocumentedResponse extends Referable {
  readonly content?: Content;
  readonly headers?: Readonly<Record<string, Field>>;
}

export interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly parameters: readonly Referable[];
  readonly requestBody?: { readonly content: Content };
  readonly responses: Readonly<Record<string, DocumentedResponse>>;
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
}

/** The operations of a URL, by the method in lower case. */
export type PathItem = Readonly<Record<string, Operation>>;

/** The parts of an OpenAPI document that tests use. */
export interface OpenApiDocument {
  readonly info: { readonly title: string; readonly description: string };
  readonly servers: readonly { readonly url: string }[];
  readonly paths: Readonly<Record<string, PathItem>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly parameters: Readonly<Record<string, Field>>;
    readonly responses: Readonly<Record<string, DocumentedResponse>>;
    readonly headers: Readonly<Record<string, Field>>;
  };
}

/** A response, with the method and URL of its request. */
export interface Exchange {
  readonly method: string;
  readonly address: URL;
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

// Fields for the connection or the browser.
const exempt =
  /^(?:connection|date|content-length|content-type|keep-alive|transfer-encoding|x-content-type-options|strict-transport-security|access-control-.*)$/;

/** The documents of servers by their keys. */
const documents = new Map<string, Promise<OpenApiDocument | null>>();

/** The keys of servers by their origins. */
const keys = new Map<string, string>();

/**
 * Records that a server has started. Servers with the same key have the same
 * document, so it is fetched only once: generating it takes as long as a start.
 */
export function noteServer(origin: string, key = origin): void {
  keys.set(origin, key);
  documents.delete(origin); // an earlier server may have had its port
}

/** Forgets a server that has ended: another one, with no document, may get its port. */
export function forgetServer(origin: string): void {
  keys.delete(origin);
  documents.delete(origin);
}

/** Fetches the document of a server, below any base path of our tests; null without that feature. */
async function fetchDocument(
  origin: string,
): Promise<OpenApiDocument | null> {
  for (const path of ["/v1/", "/api/v1/", "/deep/api/v1/"]) {
    const { status, text } = await get(`${origin}${path}openapi.json`);
    if (status !== 404) return JSON.parse(text);
  }
  return null;
}

/** Sends a GET request; fetch would have to be loaded in each file of tests. */
async function get(
  url: string,
): Promise<{ readonly status: number; readonly text: string }> {
  const [response] = await once(http.get(url, { agent: false }), "response");
  let text = "";
  for await (const part of response.setEncoding("utf8")) text += part;
  return { status: response.statusCode, text };
}

/** Throws if a response does not match the document of its server. */
export async function checkDocumented(exchange: Exchange): Promise<void> {
  const { origin } = exchange.address;
  const key = keys.get(origin) ?? origin;
  const pending = documents.get(key) ?? fetchDocument(origin);
  documents.set(key, pending);
  const document = await pending.catch(() => undefined);
  if (document === null) return;
  if (document === undefined) { // the server has ended, or is not ours
    documents.delete(key);
    return;
  }
  try {
    checkResponse(document, exchange);
  } catch (error) {
    const { method, address, status, text } = exchange;
    const what = `${method} ${address.pathname}${address.search} ${status}`;
    const reason = error instanceof Error ? error.message : error;
    throw new Error(`Not as documented: ${what}: ${reason}\n${text}`);
  }
}

/** Throws if a response does not match a document. */
export function checkResponse(
  document: OpenApiDocument,
  exchange: Exchange,
): void {
  const { method, address, status, headers, text } = exchange;
  // A batch is described in words: each of its elements is a record.
  if (method === "POST" && status === 201 && text.startsWith("[")) {
    for (const each of JSON.parse(text).slice(0, 3)) {
      checkResponse(document, { ...exchange, text: JSON.stringify(each) });
    }
    return;
  }
  // So are aggregates, which are no records.
  const mayAggregate = address.searchParams.has("aggregate") ||
    method === "QUERY";
  if (mayAggregate && status === 200 && /^\[\{(?!"id":)/.test(text)) return;
  const schemas = schemasOf(document);
  // A number that no id can be makes a URL that there is not.
  const isPossible = (address.pathname.match(/\d+/g) ?? [])
    .every((id) => Number(id) <= Number.MAX_SAFE_INTEGER);
  const item = isPossible
    ? findPath(document, decode(address.pathname))
    : undefined;
  const operation = item && operationOf(document, item, method);
  const type = headers.get("content-type")?.replace(/;.*/, "");
  // The scripts and the style sheet of the page are left out of the document.
  if (/\/page\/[\w.]+$/.test(address.pathname)) return;
  if (operation === undefined) {
    // An unknown URL, a redirect, or an unsupported method.
    const expected = item ? [401, 405, 501, 400] : [401, 308, 404, 400, 501];
    if (method === "OPTIONS" && address.pathname === "*") return;
    assert.ok(expected.includes(status), "the operation is not documented");
    return;
  }
  const isImport = method === "POST" && status === 202;
  const reference = operation.responses[status] ??
    generalError(operation, method, status) ??
    (isImport ? namesNdjson(operation) && importResponse(document) : undefined);
  assert.ok(reference, "the status is not documented");
  const { content, headers: fields = {} } = schemas.resolve(reference);
  const common = commonFields(document);
  assert.ok(common.has("x-request-id") && headers.has("x-request-id"));
  for (const [name, value] of headers) {
    if (exempt.test(name) || common.has(name)) continue;
    const [, field] = Object.entries(fields)
      .find(([key]) => key.toLowerCase() === name) ?? [];
    assert.ok(field, `the field ${name}: ${value} is not documented`);
    const { schema } = schemas.resolve(field);
    const sent = schema.type === "integer" ? Number(value) : value;
    schemas.check(schema, sent, name);
  }
  for (const [name, field] of Object.entries(fields)) {
    const { required } = schemas.resolve(field);
    assert.ok(!required || headers.has(name), `the field ${name} is missing`);
  }
  if (method === "HEAD" || text === "") {
    const minimal = headers.get("preference-applied")?.includes("minimal");
    const none = type === "application/x-ndjson"; // an empty body is valid NDJSON
    assert.ok(
      method === "HEAD" || !content || minimal || none,
      "a body is missing",
    );
    assert.equal(text, "");
    return;
  }
  assert.ok(content, "there is a body");
  const { schema } = content[type ?? ""] ??
    describedInWords(document, operation, type) ?? {};
  assert.ok(type && schema, `the type ${type} is not documented`);
  const body = /[/+]json$/.test(type) ? JSON.parse(text) : text;
  const part = address.searchParams.has("fields") || method === "QUERY";
  schemas.check(schema, body, "body", !part);
}

/** Returns the header fields that the introduction says every response can have. */
function commonFields({ info }: OpenApiDocument): ReadonlySet<string> {
  const lines = info.description.match(/^- .*?:/gm) ?? [];
  const names = lines.flatMap((line) => line.match(/(?<=`)[\w-]+(?=`)/g) ?? []);
  return new Set(names.map((name) => name.toLowerCase()));
}

/** Returns the response to an error that all operations can have, or all of a kind. */
function generalError(
  { requestBody, responses }: Operation,
  method: string,
  status: number,
): DocumentedResponse | undefined {
  const statuses = [429, 431, 500, 503];
  if (/^(?:GET|HEAD|QUERY)$/.test(method)) statuses.push(406);
  if (requestBody) statuses.push(408, 413, 415);
  return statuses.includes(status) ? responses["default"] : undefined;
}

/** Returns the operation of a method: HEAD is GET without content, OPTIONS the same everywhere, and the name and body of QUERY are `x-query`. */
function operationOf(
  { paths }: OpenApiDocument,
  item: PathItem,
  method: string,
): Operation | undefined {
  if (method === "HEAD") return item["get"];
  if (method === "OPTIONS") return paths["/v1"]?.["options"];
  if (method !== "QUERY") return item[method.toLowerCase()];
  const { get, "x-query": query } = item;
  if (!get || !query) return undefined;
  return {
    ...get,
    ...query,
  };
}

/** Returns whether the description of an operation says that it has NDJSON too. */
function namesNdjson({ description = "" }: Operation): boolean {
  return description.includes("`application/x-ndjson`");
}

/** The response to an import, which has an operation of its own. */
function importResponse({ paths }: OpenApiDocument) {
  const [, item] = Object.entries(paths)
    .find(([path]) => path.endsWith("/import")) ?? [];
  return item?.["post"]?.responses["202"];
}

const text = { type: "string" } as const;

/** Problem details, of which the document's introduction names the members. */
const problem: Schema = {
  type: "object",
  properties: {
    type: text,
    title: text,
    status: { type: "integer" },
    detail: text,
    errorCode: { type: "integer" },
    documentation_url: text,
    errors: {
      type: "array",
      items: { $ref: "#/components/schemas/FieldError" },
    },
  },
  required: ["type", "title", "status", "detail", "errorCode"],
};

/** Returns the content of the types that the document has only in words. */
function describedInWords(
  { info }: OpenApiDocument,
  operation: Operation,
  type = "",
): Content[string] | undefined {
  const hasProblems = info.description.includes("`application/problem+json`");
  if (type === "application/problem+json" && hasProblems) {
    return { schema: problem };
  }
  return type === "application/x-ndjson" && namesNdjson(operation)
    ? { schema: text }
    : undefined;
}

/** Decodes the percent-encoding of a path, except that of slashes. */
function decode(path: string): string {
  try {
    const segments = path.split("/").map(decodeURIComponent);
    return segments.map((each) => each.replaceAll("/", "%2F")).join("/");
  } catch {
    return path;
  }
}

/** The path items of each document, with the patterns of their URLs. */
const patterns = new WeakMap<
  OpenApiDocument,
  readonly (readonly [RegExp, PathItem])[]
>();

function findPath(
  document: OpenApiDocument,
  path: string,
): PathItem | undefined {
  const compiled = patterns.get(document) ?? patternsOf(document);
  patterns.set(document, compiled);
  const plain = path.replace(/^(.*\/v1)\/$/, "$1");
  // The root document is served with and without its trailing slash.
  const found = compiled.find(([pattern]) => pattern.test(plain)) ??
    compiled.find(([pattern]) => pattern.test(`${plain}/`));
  return found?.[1];
}

function patternsOf(
  { paths, servers: [server] }: OpenApiDocument,
): [RegExp, PathItem][] {
  const { url = "" } = server ?? {};
  const base = url.startsWith("/") ? url : new URL(url).pathname;
  const root = base.replace(/\/$/, "");
  return Object.entries(paths).map(([template, item]) => {
    const pattern = (root + template).replaceAll(".", "\\.")
      .replace(/\{\w+\}/g, "[1-9]\\d{0,15}");
    return [new RegExp(`^${pattern}$`), item];
  });
}

const schemasByDocument = new WeakMap<OpenApiDocument, Schemas>();

function schemasOf(document: OpenApiDocument): Schemas {
  const schemas = schemasByDocument.get(document) ?? new Schemas(document);
  schemasByDocument.set(document, schemas);
  return schemas;
}

/**
 * The schemas of a document. An unknown keyword is an error. Stricter than JSON
 * Schema in one respect: an object may only have declared properties.
 */
class Schemas {
  readonly #document: OpenApiDocument;
  readonly #names = new WeakMap<Schema, ReadonlySet<string>>();

  constructor(document: OpenApiDocument) {
    this.#document = document;
  }

  /** Resolves a reference. */
  resolve<Kind extends Referable>(value: Kind): Kind {
    if (value.$ref === undefined) return value;
    let found: unknown = this.#document;
    for (const key of value.$ref.slice(2).split("/")) {
      found = isObject(found) ? found[key] : undefined;
    }
    assert.ok(isObject(found), `${value.$ref} leads nowhere`);
    return this.resolve(found as Referable as Kind);
  }

  /** Throws if a value does not match; with `whole`, records must be complete. */
  check(schema: Schema, value: unknown, where: string, whole = false): void {
    this.#checkNames(schema, value, where);
    this.#checkKeywords(schema, value, where, whole);
  }

  #checkKeywords(
    schema: Schema,
    value: unknown,
    where: string,
    whole: boolean,
  ): void {
    const { $ref, allOf = [], anyOf, items } = schema;
    const { properties = {}, required = [] } = schema;
    for (const keyword of Object.keys(schema)) {
      const isKnown = keyword in keywords || structural.has(keyword) ||
        annotations.has(keyword);
      if (!isKnown) assert.fail(`unknown keyword ${keyword}`);
      const fits = keywords[keyword]?.(value, schema) ?? true;
      if (!fits) {
        assert.fail(`${where} fails ${keyword}: ${JSON.stringify(schema)}`);
      }
    }
    if ($ref !== undefined) {
      // A partial record stands for the complete one if no fields were
      // selected.
      const name = $ref.replace(/.*\/|Part$/g, "");
      const record = this.#document.components.schemas[name];
      const found = this.resolve(schema);
      const target = whole && record && !found.allOf ? record : found;
      const isList = whole && name.endsWith("List");
      this.#checkKeywords(target, value, where, isList);
    }
    for (const each of allOf) this.#checkKeywords(each, value, where, false);
    if (anyOf) {
      const fits = anyOf.some((each) => this.#fits(each, value, where, whole));
      if (!fits) {
        assert.fail(`${where} fails anyOf: ${JSON.stringify(schema)}`);
      }
    }
    for (const name of required) {
      const isThere = isObject(value) && Object.hasOwn(value, name);
      assert.ok(isThere, `${where} fails required ${name}`);
    }
    for (const [name, each] of Object.entries(properties)) {
      if (!isObject(value) || !Object.hasOwn(value, name)) continue;
      this.check(each, value[name], `${where}.${name}`);
    }
    if (items === undefined || !Array.isArray(value)) return;
    for (const each of value) this.check(items, each, `${where}[]`, whole);
  }

  #fits(...args: Parameters<Schemas["check"]>): boolean {
    try {
      this.check(...args);
      return true;
    } catch {
      return false;
    }
  }

  #checkNames(schema: Schema, value: unknown, where: string): void {
    if (!isObject(value)) return;
    const names = this.#namesOf(schema);
    if (names.size === 0) return;
    for (const name of Object.keys(value)) {
      assert.ok(names.has(name), `${where}.${name} is not documented`);
    }
  }

  /** Returns the names of all properties of a schema. */
  #namesOf(schema: Schema): ReadonlySet<string> {
    const known = this.#names.get(schema);
    if (known) return known;
    const { properties = {}, allOf = [] } = this.resolve(schema);
    const names = new Set([
      ...Object.keys(properties),
      ...allOf.flatMap((each) => [...this.#namesOf(each)]),
    ]);
    this.#names.set(schema, names);
    return names;
  }
}

/** Keywords that name other schemas or properties. */
const structural = new Set([
  "$ref",
  "allOf",
  "anyOf",
  "properties",
  "required",
  "items",
]);

const annotations = new Set([
  "examples",
  "title",
  "description",
  "default",
  "readOnly",
  "writeOnly",
]);

/** The keywords of schemas; each function returns whether a value satisfies one. */
const keywords: Readonly<
  Record<string, (value: unknown, schema: Schema) => boolean>
> = {
  type: (value, { type = [] }) =>
    [type].flat().some((each) => isOfType(value, each)),
  enum: (value, schema) => schema.enum?.includes(value) === true,
  const: (value, schema) => value === schema.const,
  minItems: (value, { minItems = 0 }) =>
    !Array.isArray(value) || value.length >= minItems,
  minimum: (value, { minimum = -Infinity }) =>
    typeof value !== "number" || value >= minimum,
  maximum: (value, { maximum = Infinity }) =>
    typeof value !== "number" || value <= maximum,
  exclusiveMinimum: (value, { exclusiveMinimum = -Infinity }) =>
    typeof value !== "number" || value > exclusiveMinimum,
  minLength: (value, { minLength = 0 }) =>
    typeof value !== "string" || [...value].length >= minLength,
  maxLength: (value, { maxLength = Infinity }) =>
    typeof value !== "string" || [...value].length <= maxLength,
  pattern: (value, { pattern = "" }) =>
    typeof value !== "string" || new RegExp(pattern, "u").test(value),
  format: (value, { format = "" }) =>
    typeof value !== "string" || formats[format]?.(value) === true,
};

const formats: Readonly<Record<string, (text: string) => boolean>> = {
  "date": (text) => /^\d{4}-\d\d-\d\d$/.test(text),
  "date-time": (text) => new Date(text).toISOString() === text,
  "email": (text) => /^\S+@\S+$/.test(text),
  "iri": (text) => URL.canParse(text),
  "multiline": () => true,
  "uri-reference": (text) => URL.canParse(text, "http://localhost"),
};

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isOfType(value: unknown, type: string): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return isObject(value);
    case "integer":
      return Number.isInteger(value);
    default: {
      const found: string = typeof value;
      return found === type;
    }
  }
}
