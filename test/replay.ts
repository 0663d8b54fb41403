/**
 * Validates responses against the OpenAPI document of the server that sent them:
 * the status, media type, header fields, and the body by its JSON Schema.
 */

import { strict as assert } from "node:assert";

/** Any JSON object. */
// deno-lint-ignore no-explicit-any -- a test looks into any document
type Json = any;

/** A response, with the method and URL of its request. */
export interface Exchange {
  readonly method: string;
  readonly address: URL;
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

// Fields that are meant for the connection or the browser.
const exempt =
  /^(?:connection|date|content-length|content-type|keep-alive|transfer-encoding|x-content-type-options|strict-transport-security|access-control-.*)$/;

/** The documents of servers by their keys. */
const documents = new Map<string, Promise<Json>>();

/** The keys of servers by their origins. */
const keys = new Map<string, string>();

/**
 * Notes that a server has started. Servers with the same key have the same
 * document, so it is fetched once: to generate it takes as long as a start.
 */
export function noteServer(origin: string, key = origin): void {
  keys.set(origin, key);
  documents.delete(origin); // an earlier server may have had its port
}

/** Fetches the document of a server, below any base path of our tests; null without that feature. */
async function fetchDocument(origin: string): Promise<Json> {
  for (const path of ["/v1/", "/api/v1/", "/deep/api/v1/"]) {
    const document = await fetch(`${origin}${path}openapi.json`);
    const text = await document.text();
    if (document.status !== 404) return JSON.parse(text);
  }
  return null;
}

/** Throws if a response is not as the document of its server describes it. */
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

/** Throws if a response is not as a document describes it. */
export function checkResponse(document: Json, exchange: Exchange): void {
  const { method, address, status, headers, text } = exchange;
  const schemas = new Schemas(document);
  const item = findPath(document, decode(address.pathname));
  const key = method === "QUERY" ? "x-query" : method.toLowerCase();
  const operation = item?.[key];
  const type = headers.get("content-type")?.replace(/;.*/, "");
  if (operation === undefined) {
    // An unknown URL, a redirect, or an unsupported method.
    const expected = item ? [401, 405, 501, 400] : [401, 308, 404, 400, 501];
    if (method === "OPTIONS" && address.pathname === "*") return;
    assert.ok(expected.includes(status), "the operation is not documented");
    return;
  }
  const reference = operation.responses[status];
  assert.ok(reference, "the status is not documented");
  const { content, headers: fields } = schemas.resolve(reference);
  for (const [name, value] of headers) {
    if (exempt.test(name)) continue;
    const found = Object.keys(fields).find((key) => key.toLowerCase() === name);
    assert.ok(found, `the field ${name}: ${value} is not documented`);
    const { schema } = schemas.resolve(fields[found]);
    const sent = schema.type === "integer" ? Number(value) : value;
    schemas.check(schema, sent, name);
  }
  for (const [name, field] of Object.entries<Json>(fields)) {
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
  assert.ok(type && content[type], `the type ${type} is not documented`);
  const { schema } = content[type];
  const body = /[/+]json$/.test(type) ? JSON.parse(text) : text;
  const part = address.searchParams.has("fields") || method === "QUERY";
  schemas.check(schema, body, "body", !part);
}

/** Decodes the percent-encoding of a path, but for slashes. */
function decode(path: string): string {
  try {
    const segments = path.split("/").map(decodeURIComponent);
    return segments.map((each) => each.replaceAll("/", "%2F")).join("/");
  } catch {
    return path;
  }
}

/** The path items of each document, with the patterns of their URLs. */
const patterns = new WeakMap<Json, readonly (readonly [RegExp, Json])[]>();

function findPath(document: Json, path: string): Json {
  const compiled = patterns.get(document) ?? patternsOf(document);
  patterns.set(document, compiled);
  const plain = path.replace(/^(.*\/v1)\/$/, "$1");
  // The root document is served with and without its last slash.
  const found = compiled.find(([pattern]) => pattern.test(plain)) ??
    compiled.find(([pattern]) => pattern.test(`${plain}/`));
  return found?.[1];
}

function patternsOf(
  { paths, servers: [{ url }] }: Json,
): [RegExp, Json][] {
  const base = url.startsWith("/") ? url : new URL(url).pathname;
  const root = base.replace(/\/$/, "");
  return Object.entries<Json>(paths).map(([template, item]) => {
    const pattern = (root + template).replaceAll(".", "\\.")
      .replace(/\{\w+\}/g, "[1-9]\\d{0,15}");
    return [new RegExp(`^${pattern}$`), item];
  });
}

const annotations = new Set([
  "title",
  "description",
  "default",
  "readOnly",
  "writeOnly",
]);

/**
 * The keywords of JSON Schema 2020-12 that our documents use; any other one
 * fails. Stricter in one respect: an object has only properties that are named.
 */
class Schemas {
  readonly #document: Json;

  constructor(document: Json) {
    this.#document = document;
  }

  /** Resolves a reference. */
  resolve(value: Json): Json {
    if (typeof value.$ref !== "string") return value;
    const segments = value.$ref.slice(2).split("/");
    const found = segments.reduce(
      (at: Json, key: string) => at?.[key],
      this.#document,
    );
    assert.ok(found, `${value.$ref} leads nowhere`);
    return this.resolve(found);
  }

  /** Throws if a value does not match; with `whole`, records must be complete. */
  check(schema: Json, value: Json, where: string, whole = false): void {
    this.#checkNames(schema, value, where);
    this.#checkKeywords(schema, value, where, whole);
  }

  #checkKeywords(
    schema: Json,
    value: Json,
    where: string,
    whole = false,
  ): void {
    const fail = (keyword: string) =>
      assert.fail(`${where} fails ${keyword}: ${JSON.stringify(schema)}`);
    for (const [keyword, operand] of Object.entries<Json>(schema)) {
      switch (keyword) {
        case "$ref": {
          // A part stands for the whole record where no fields were chosen.
          const name = operand.replace(/.*\/|Part$/g, "");
          const record = this.#document.components.schemas[name];
          const target = whole && record ? record : this.resolve(schema);
          this.#checkKeywords(
            target,
            value,
            where,
            whole && name.endsWith("List"),
          );
          break;
        }
        case "allOf":
          for (const each of operand) {
            this.#checkKeywords(each, value, where);
          }
          break;
        case "anyOf": {
          const fits = (each: Json) => {
            try {
              this.check(each, value, where, whole);
              return true;
            } catch {
              return false;
            }
          };
          if (!operand.some(fits)) fail(keyword);
          break;
        }
        case "type":
          if (![operand].flat().some((type) => isOfType(value, type))) {
            fail(keyword);
          }
          break;
        case "enum":
          if (!operand.includes(value)) fail(keyword);
          break;
        case "const":
          if (operand !== value) fail(keyword);
          break;
        case "properties":
          for (const [name, each] of Object.entries<Json>(operand)) {
            if (!isOfType(value, "object") || !Object.hasOwn(value, name)) {
              continue;
            }
            this.check(each, value[name], `${where}.${name}`);
          }
          break;
        case "required":
          for (const name of operand) {
            if (!Object.hasOwn(value, name)) fail(`${keyword} ${name}`);
          }
          break;
        case "items":
          for (const each of Array.isArray(value) ? value : []) {
            this.check(operand, each, `${where}[]`, whole);
          }
          break;
        case "minItems":
          if (Array.isArray(value) && value.length < operand) fail(keyword);
          break;
        case "minimum":
          if (typeof value === "number" && value < operand) fail(keyword);
          break;
        case "maximum":
          if (typeof value === "number" && value > operand) fail(keyword);
          break;
        case "exclusiveMinimum":
          if (typeof value === "number" && value <= operand) fail(keyword);
          break;
        case "minLength":
          if (isOfType(value, "string") && [...value].length < operand) {
            fail(keyword);
          }
          break;
        case "maxLength":
          if (isOfType(value, "string") && [...value].length > operand) {
            fail(keyword);
          }
          break;
        case "pattern":
          if (
            typeof value === "string" && !new RegExp(operand, "u").test(value)
          ) {
            fail(keyword);
          }
          break;
        case "format":
          if (typeof value === "string" && !formats[operand]?.(value)) {
            fail(`${keyword} ${operand}`);
          }
          break;
        default:
          assert.ok(annotations.has(keyword), `unknown keyword ${keyword}`);
      }
    }
  }

  #checkNames(schema: Json, value: Json, where: string): void {
    const names = this.#namesOf(schema);
    if (names.size === 0 || !isOfType(value, "object")) return;
    for (const name of Object.keys(value)) {
      assert.ok(names.has(name), `${where}.${name} is not documented`);
    }
  }

  /** Returns the names of all properties of a schema. */
  #namesOf(schema: Json): Set<string> {
    const { properties = {}, allOf = [] } = this.resolve(schema);
    return new Set([
      ...Object.keys(properties),
      ...allOf.flatMap((each: Json) => [...this.#namesOf(each)]),
    ]);
  }
}

const formats: Readonly<Record<string, (text: string) => boolean>> = {
  "date": (text) => /^\d{4}-\d\d-\d\d$/.test(text),
  "date-time": (text) => new Date(text).toISOString() === text,
  "email": (text) => /^\S+@\S+$/.test(text),
  "uri": (text) => URL.canParse(text),
  "uri-reference": (text) => URL.canParse(text, "http://localhost"),
};

function isOfType(value: Json, type: string): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null &&
        !Array.isArray(value);
    case "integer":
      return Number.isInteger(value);
    default: {
      const found: string = typeof value;
      return found === type;
    }
  }
}
