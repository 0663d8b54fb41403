/** Requests generated from the operations of an OpenAPI document. */

import { Buffer } from "node:buffer";
import type { Random } from "../torture/random.ts";
import type { Operation, Parameter, Schema } from "./document.ts";
import { headPrefix } from "./responses.ts";
import type { Tokens } from "./sessions.ts";
import { brokenJson, oddId, validValue, wrongValue } from "./values.ts";

/** A request, ready to be sent. */
export interface Message {
  readonly id: string;
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  readonly bytes: Buffer;
  readonly hasBody: boolean;
  /** The collection to which a 201 or 202 adds a record. */
  readonly collection: string;
}

/** The parts of a request that are written into one. */
export interface MessageParts {
  readonly id: string;
  readonly method: string;
  readonly url: string;
  readonly token?: string | undefined;
  /** Name, value, name, value, … */
  readonly fields?: readonly string[] | undefined;
  readonly body?: string | undefined;
  readonly type?: string | undefined;
  /** Sends the body in chunks of this many bytes. */
  readonly chunkBytes?: number | undefined;
  readonly collection?: string;
}

/** Writes a request. */
export function message(parts: MessageParts): Message {
  const { id, method, url, token, body, type, fields = [] } = parts;
  let head = `${method} ${url} HTTP/1.1\r\nHost: localhost\r\n` +
    `X-Request-Id: ${id}\r\n`;
  if (token !== undefined) head += `Authorization: Bearer ${token}\r\n`;
  for (let at = 0; at < fields.length; at += 2) {
    head += `${fields[at]}: ${fields[at + 1]}\r\n`;
  }
  const hasBody = body !== undefined;
  const collection = parts.collection ?? "";
  const result = { id, method, url, hasBody, collection };
  if (body === undefined) {
    return { ...result, bytes: Buffer.from(`${head}\r\n`) };
  }
  if (type !== undefined) head += `Content-Type: ${type}\r\n`;
  const content = Buffer.from(body);
  const bytes = parts.chunkBytes === undefined
    ? [Buffer.from(`${head}Content-Length: ${content.length}\r\n\r\n`), content]
    : [
      Buffer.from(`${head}Transfer-Encoding: chunked\r\n\r\n`),
      ...chunksOf(content, parts.chunkBytes),
    ];
  return { ...result, bytes: Buffer.concat(bytes) };
}

function* chunksOf(content: Buffer, chunkBytes: number): Generator<Buffer> {
  for (let at = 0; at < content.length; at += chunkBytes) {
    const part = content.subarray(at, at + chunkBytes);
    yield Buffer.from(`${part.length.toString(16)}\r\n`);
    yield part;
    yield Buffer.from("\r\n");
  }
  yield Buffer.from("0\r\n\r\n");
}

/** The basic records, which no request deletes, have the ids from 2 to this one. An odd spelling of 1 reaches the first ones. */
export const lastBasicId = 4;

/** How many ETags a lane remembers. */
const maxTags = 500;

/** Generates requests; the same ones for the same random numbers and ids. */
export class MessageGenerator {
  readonly #random: Random;
  readonly #operations: readonly Operation[];
  /** Expensive operations, one in 1,000 requests. */
  readonly #rare: readonly Operation[];
  readonly #tokens: Readonly<Tokens>;
  readonly #prefix: string;
  #count = 0;
  /** Ids of records that these requests created, by collection. */
  readonly #ids = new Map<string, string[]>();
  /** The latest ETags by URL. */
  readonly #tags = new Map<string, string>();
  /** Requests that delete records of which there are too many. */
  readonly #deletions: Message[] = [];

  constructor(options: {
    readonly random: Random;
    readonly operations: readonly Operation[];
    readonly tokens: Readonly<Tokens>;
    /** The beginning of the id of every request. */
    readonly prefix: string;
  }) {
    const { random, operations, tokens, prefix } = options;
    this.#random = random;
    this.#operations = operations.filter((each) => !isRare(each));
    this.#rare = operations.filter(isRare);
    this.#tokens = tokens;
    this.#prefix = prefix;
  }

  /** Returns a request that is valid or nearly valid. */
  next(): Message {
    const deletion = this.#deletions.pop();
    if (deletion !== undefined) return deletion;
    const isRare = this.#random.chance(0.001);
    const operations = isRare ? this.#rare : this.#operations;
    const operation = this.#random.pick(operations);
    // Otherwise there would hardly be a record left.
    if (operation.method === "DELETE" && this.#random.chance(0.5)) {
      return this.next();
    }
    return this.#write(operation, this.#tokenFor(operation));
  }

  /**
   * Returns a request to mutate. A mutation must not reach the records of the
   * shadow model or end the sessions, so only animals may be written to.
   */
  nextToMutate(): Message {
    for (;;) {
      const operation = this.#random.pick(this.#operations);
      const { method, collection } = operation;
      if (method === "HEAD") continue; // a mutated HEAD cannot be distinguished from GET
      const isWrite = /^(?:PUT|PATCH|POST|DELETE)$/.test(method);
      if (isWrite && !/^(?:animals|zoos|employees)$/.test(collection)) continue;
      const token = isWrite && collection !== "animals"
        ? this.#tokens.viewer
        : this.#tokens.keeper;
      return this.#write(operation, token);
    }
  }

  /** Records what a request created. */
  created(collection: string, id: string): void {
    const ids = this.#ids.get(collection) ?? [];
    this.#ids.set(collection, ids);
    ids.push(id);
    if (ids.length <= 60) return;
    this.#deletions.push(message({
      id: this.#nextId("DELETE"),
      method: "DELETE",
      url: `/v1/${collection}/${ids.shift()}` +
        (collection === "zoos" ? "?cascade=true" : ""),
      token: this.#tokens.admin,
    }));
  }

  /** Records that a record was deleted; requests still name some of those. */
  deleted(collection: string, id: string): void {
    const ids = this.#ids.get(collection) ?? [];
    const at = ids.indexOf(id);
    if (at >= 0 && this.#random.chance(0.8)) ids.splice(at, 1);
  }

  /** Records the ETag of a URL. */
  tagged(url: string, etag: string): void {
    this.#tags.delete(url);
    this.#tags.set(url, etag);
    const [oldest = ""] = this.#tags.keys();
    if (this.#tags.size > maxTags) this.#tags.delete(oldest);
  }

  #nextId(method: string): string {
    const first = method === "HEAD" ? headPrefix : "f";
    return `${first}${this.#prefix}-${++this.#count}`;
  }

  #tokenFor({ method, collection }: Operation): string | undefined {
    const random = this.#random;
    if (random.chance(0.1)) {
      return random.chance(0.5) ? undefined : `x${this.#tokens.admin}`;
    }
    const { viewer, keeper, admin } = this.#tokens;
    if (/^(?:users|metrics)$/.test(collection) || method === "DELETE") {
      return admin;
    }
    return random.pick([viewer, keeper, keeper]);
  }

  #write(operation: Operation, token: string | undefined): Message {
    const random = this.#random;
    const { method, template, types, collection } = operation;
    const isLive = collection === "events" && method === "GET";
    const path = template.replace(
      /\{(\w+)\}/g,
      (_, name) => this.#pathId(name, operation),
    );
    const url = path + this.#query(operation);
    const fields = this.#fields(operation, this.#tags.get(url));
    const hasBody = types.length > 0 || random.chance(0.01);
    const type = this.#type(types);
    const sent = random.chance(0.99) || isLive ? method : "PROPFIND";
    return message({
      id: this.#nextId(sent),
      method: sent,
      url,
      token,
      fields,
      body: hasBody ? this.#body(operation, type) : undefined,
      type,
      chunkBytes: random.chance(0.2) ? 1 + random.below(300) : undefined,
      collection,
    });
  }

  /** Returns a media type; one in 300 is that of imports, because each leaves a task. */
  #type(types: readonly string[]): string {
    const random = this.#random;
    if (random.chance(0.02)) return random.pick(["a/b", "text", "", "*/*"]);
    const usual = types.filter((type) => !type.endsWith("ndjson"));
    const choices = random.chance(0.003) ? types : usual;
    return choices.length === 0 ? "application/json" : random.pick(choices);
  }

  #pathId(name: string, { method, collection }: Operation): string {
    const random = this.#random;
    if (random.chance(0.1)) return oddId(random);
    const parent = name.replace(/_id$/, "s");
    const ids = this.#ids.get(name === "id" ? collection : parent) ?? [];
    const isSafe = /^(?:GET|HEAD|QUERY|OPTIONS)$/.test(method);
    const hasBasicRecords = /^(?:zoos|animals|employees)$/.test(collection);
    if (name !== "id" || (isSafe && random.chance(0.3) && hasBasicRecords)) {
      return basicId(random);
    }
    return ids.length === 0 ? "9007199254740990" : random.pick(ids);
  }

  #query({ query, method }: Operation): string {
    const random = this.#random;
    const isUsed = query.length > 0 ? random.chance(0.6) : random.chance(0.02);
    return isUsed && method !== "QUERY" ? `?${this.#parameters(query)}` : "";
  }

  #parameters(parameters: readonly Parameter[]): string {
    const random = this.#random;
    const pairs: string[] = [];
    const names = new Set<string>();
    for (let count = 1 + random.below(4); count > 0; count--) {
      if (parameters.length === 0 || random.chance(0.03)) {
        pairs.push(random.pick(["x=1", "=", "&", "limit", "%zz=1", "a%00=b"]));
        continue;
      }
      const { name, schema } = random.pick(parameters);
      if (names.has(name) && random.chance(0.97)) continue; // it would be refused
      names.add(name);
      const value = random.chance(0.9)
        ? validValue(schema, random)
        : wrongValue(random);
      const text = textOf(value);
      // Other characters are not valid in HTTP: the mutations add them.
      const raw = text.replace(/[^!-~]|#/g, "");
      pairs.push(`${name}=${random.chance(0.03) ? raw : escape(text)}`);
    }
    return pairs.join("&");
  }

  #fields(
    { header, method, collection }: Operation,
    tag: string | undefined,
  ): string[] {
    const random = this.#random;
    const fields: string[] = [];
    if (random.chance(0.2)) {
      const isLarge = random.chance(0.05);
      const ndjson = collection === "events" ? "*/*" : "application/x-ndjson";
      fields.push(
        "Accept",
        isLarge && method === "GET" ? ndjson : random.pick(accepts),
      );
    }
    for (const { name } of header) {
      const isTag = tag !== undefined && /^If-(?:None-)?Match$/.test(name);
      if (name === "X-Request-Id" || random.chance(isTag ? 0.6 : 0.9)) continue;
      const values = isTag && random.chance(0.7) ? [tag] : fieldValues[name];
      fields.push(name, random.pick(values ?? ["x"]));
    }
    if (random.chance(0.02)) fields.push("Origin", "https://a.example");
    return fields;
  }

  #body(operation: Operation, type: string): string {
    const random = this.#random;
    if (operation.method === "QUERY") {
      return this.#parameters(this.#queryParameters(operation.template));
    }
    const text = this.#json(operation);
    if (type.endsWith("ndjson")) {
      return `${text}\n${this.#json(operation)}\n\n${text.slice(0, 9)}\n`;
    }
    return random.chance(0.95) ? text : brokenJson(text, random);
  }

  /** Returns the parameters of GET, which are those of QUERY. */
  #queryParameters(template: string): readonly Parameter[] {
    const get = this.#operations.find((each) =>
      each.method === "GET" && each.template === template
    );
    return get?.query ?? [];
  }

  #json({ properties, method }: Operation): string {
    const random = this.#random;
    const body: Record<string, unknown> = {};
    for (const { name, schema, required } of properties) {
      const chance = method === "PATCH" ? 0.4 : required ? 0.99 : 0.5;
      if (!random.chance(chance)) continue;
      body[name] = random.chance(0.97)
        ? this.#value(name, schema)
        : wrongValue(random);
    }
    if (random.chance(0.03)) body["extra"] = wrongValue(random);
    return JSON.stringify(body);
  }

  #value(name: string, schema: Schema): unknown {
    if (name === "zoo_id") {
      // A zoo that has animals is refused to be deleted.
      const own = this.#ids.get("zoos") ?? [];
      const isOwn = own.length > 0 && this.#random.chance(0.3);
      return Number(isOwn ? this.#random.pick(own) : basicId(this.#random));
    }
    return validValue(schema, this.#random);
  }
}

function basicId(random: Random): string {
  return String(2 + random.below(lastBasicId - 1));
}

/** Returns whether an operation ends sessions, signs in, occupies its connection, or has a long response. */
function isRare({ method, template }: Operation): boolean {
  return method === "POST" && template.endsWith("/authorizations") ||
    method === "PATCH" && template.endsWith("/user") ||
    method === "GET" && /events$|openapi\.json$/.test(template);
}

const accepts = [
  "application/json",
  "application/problem+json",
  "*/*",
  "image/png",
  "application/json;q=0",
  "application/*;q=0.5, text/plain",
  ",",
  "a/b;q=2",
];

const dates = [
  "Sun, 06 Nov 1994 08:49:37 GMT",
  "Sunday, 06-Nov-94 08:49:37 GMT",
  "Sun Nov  6 08:49:37 1994",
  "Fri, 01 Jan 2100 00:00:00 GMT",
  "yesterday",
];

const tags = ["*", '"x"', 'W/"x"', '"a", "b"', "x", '"', ""];

/** Values of the header fields that operations document. */
const fieldValues: Readonly<Record<string, readonly string[]>> = {
  "If-Match": tags,
  "If-None-Match": tags,
  "If-Modified-Since": dates,
  "If-Unmodified-Since": dates,
  "Prefer": ["return=minimal", "return=representation", "wait=1", '"'],
  "Idempotency-Key": ['"key-1"', '"key-2"', '"key-3"', "key", '""'],
  "Last-Event-ID": ["1", "0", "99999999", "x"],
};

/** Writes a value as a parameter has it. */
function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.map(textOf).join(",");
  return typeof value === "string" ? value : JSON.stringify(value);
}

function escape(text: string): string {
  return encodeURIComponent(Buffer.from(text).toString()); // without lone surrogates
}
