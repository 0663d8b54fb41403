/**
 * The `components` of the OpenAPI document: parts that several operations share
 * appear in it once, and each operation refers to them.
 */

import { isDeepStrictEqual } from "node:util";
import type { JsonSchema } from "../../api/declaration/properties.ts";
import { schemaExample } from "./examples.ts";

/** A response object whose header fields are given by their names. */
export interface ResponseParts {
  readonly description: string;
  readonly headers: readonly string[];
  readonly content?: JsonSchema | undefined;
}

/** Collects the shared parts of one document. */
export class Components {
  /** The parts by kind, such as `schemas`, and by name. */
  readonly parts: Record<string, Record<string, JsonSchema>> = {};
  readonly #operationIds = new Set<string>();
  readonly #recordNames = new Set<string>();
  readonly #shared = new Map<string, JsonSchema>();

  /**
   * Returns the name of an operation, with a number if another one has the
   * name: `/zoo_parts` and `/zoo/:id/parts` could have the same.
   */
  operationId(name: string): string {
    let id = name;
    for (let n = 2; this.#operationIds.has(id); n++) id = name + n;
    this.#operationIds.add(id);
    return id;
  }

  /**
   * Reserves the name of the schema of records, for references to it: PriceList
   * is a price list if there is one, and the list of the prices PriceList-2.
   * The title of the schema is this name, which begins with a capital.
   */
  reserveName(singular: string): string {
    const name = this.#nameOf(singular);
    this.#recordNames.add(name);
    return name;
  }

  /** Returns the name of the schema with a title, which no records have unless it is theirs. */
  #nameOf(title: string): string {
    if (this.#recordNames.has(title)) return title;
    let name = pascalCase(title);
    while (this.#recordNames.has(name)) name += "-2";
    return name;
  }

  /** Adds a part and returns a reference to it; if a different part has the name, the new part is `name-2`. */
  add(kind: string, name: string, part: JsonSchema): JsonSchema {
    const parts = this.parts[kind] ??= {};
    let key = name;
    for (let n = 2; !isDeepStrictEqual(parts[key] ?? part, part); n++) {
      key = `${name}-${n}`;
    }
    parts[key] = part;
    return { $ref: `#/components/${kind}/${key}` };
  }

  /** Returns the part of a key, which is described only once: that takes a third of the time, as all operations have the same errors and header fields. */
  shared(key: string, describe: () => JsonSchema): JsonSchema {
    const part = this.#shared.get(key) ?? describe();
    this.#shared.set(key, part);
    return part;
  }

  /** Returns a copy of a schema in which each one with a title is a reference. */
  schema(schema: object): JsonSchema {
    const copies = Object.entries(schema).map(([keyword, value]) => {
      const isSchema = Object(value) === value && !dataKeywords.has(keyword);
      if (!isSchema) return [keyword, value];
      return [
        keyword,
        Array.isArray(value)
          ? value.map((each) => this.#copy(each))
          : this.schema(value),
      ];
    });
    const { title, ...part } = Object.fromEntries(copies);
    if (typeof title !== "string") return Object.fromEntries(copies);
    const resolve = (name: string) =>
      this.parts["schemas"]?.[name.replace(/.*\//, "")] ?? {};
    part.examples ??= [schemaExample(part, resolve)];
    return this.add("schemas", this.#nameOf(title), part);
  }

  #copy(value: unknown): unknown {
    return Object(value) === value ? this.schema(Object(value)) : value;
  }

  /**
   * Returns the text of a document with these components, in which a parameter or
   * response is in its place wherever that makes the document shorter.
   */
  complete(document: JsonSchema): string {
    const text = JSON.stringify({ ...document, components: this.parts });
    const counts = new Map<string, number>();
    for (const [reference] of text.matchAll(anyReference)) {
      counts.set(reference, (counts.get(reference) ?? 0) + 1);
    }
    const inPlace = new Map<string, string>();
    for (const kind of ["parameters", "responses"]) {
      for (const [key, value] of Object.entries(this.parts[kind] ?? {})) {
        const reference = `{"$ref":"#/components/${kind}/${key}"}`;
        const part = JSON.stringify(value);
        const uses = counts.get(reference) ?? 0;
        const shared = uses * reference.length + `"${key}":${part},`.length;
        if (uses * part.length > shared) continue;
        inPlace.set(reference, part);
        delete this.parts[kind]?.[key];
      }
    }
    return JSON.stringify({ ...document, components: this.parts })
      .replace(
        anyReference,
        (reference) => inPlace.get(reference) ?? reference,
      );
  }

  parameters(parameters: readonly JsonSchema[]): JsonSchema[] {
    return parameters.map((parameter) =>
      this.add(
        "parameters",
        String(parameter["name"]).replace(":", "."),
        parameter,
      )
    );
  }

  response(name: string, { headers, ...response }: ResponseParts): JsonSchema {
    const fields = headers.map((name) => [
      name,
      this.shared(name, () => this.add("headers", name, headerField(name))),
    ]);
    return this.add("responses", pascalCase(name), {
      ...this.schema(response),
      ...(fields.length > 0 && { headers: Object.fromEntries(fields) }),
    });
  }
}

/** Matches references to components; within a string, the quotes are escaped. */
const anyReference = /\{"\$ref":"#\/components\/[^"]+"\}/g;

/** The keywords whose values are not schemas. */
const dataKeywords = new Set(["default", "enum", "example", "examples"]);

/** Turns `zoo part` into `ZooPart`. */
export function pascalCase(text: string): string {
  return text.replace(/(?:^|\W+|_)(\w)/g, (_, first) => first.toUpperCase());
}

/** The header fields that every response may have, as a list in Markdown: once, not in each response. */
export const commonFields = [
  "- `X-Request-Id`: the id of the request in the server's log, always",
  "- `Vary`, `Cache-Control`: RFC 9110, RFC 9111",
  "- `Preference-Applied`: the preferences of Prefer that were applied (RFC 7240)",
  "- `Accept-Query`: the media types that QUERY accepts (RFC 10008)",
  "- `RateLimit`: how many requests the client has left, and for how many seconds",
  "- `RateLimit-Policy`: how many requests a client may send in how much time",
].join("\n");

/** The fields that RFC 9110 does not describe. */
const fieldDescriptions: Readonly<Record<string, string>> = {
  "Accept-Patch": "The media types that PATCH accepts (RFC 5789)",
  "Accept-Post": "The media types that POST accepts",
  "Link": "The first, previous, next and last page (RFC 8288)",
  "X-Accel-Buffering": "Tells a proxy not to buffer events",
  "X-Total-Count": "The number of records that match, on all pages",
};

function headerField(name: string): JsonSchema {
  const isNumber = name === "X-Total-Count" || name === "Retry-After";
  return {
    description: fieldDescriptions[name] ?? `See RFC 9110, ${name}`,
    schema: { type: isNumber ? "integer" : "string" },
  };
}
