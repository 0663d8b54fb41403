/**
 * The parts of the OpenAPI document that are used in several places, each
 * written once and referred to from there.
 */

import type { Json, JsonSchema } from "../../api/declaration/properties.ts";

/** A response object, with its header fields by name alone. */
export interface ResponseParts {
  readonly description: string;
  readonly headers: readonly string[];
  readonly content?: JsonSchema;
}

/** What is used in several places: each is in the document once, under a name of its own. */
export class Components {
  readonly #kinds = new Map<string, Map<string, JsonSchema>>();

  /** A reference to what is put under a name; to a name with a number where that is taken. */
  #add(kind: string, name: string, value: JsonSchema): JsonSchema {
    const parts = this.#kinds.get(kind) ?? new Map<string, JsonSchema>();
    this.#kinds.set(kind, parts);
    const text = JSON.stringify(value);
    let key = name;
    for (let count = 2;; count++) {
      const found = parts.get(key);
      if (found === undefined || JSON.stringify(found) === text) break;
      key = `${name}-${count}`;
    }
    parts.set(key, value);
    return { $ref: `#/components/${kind}/${key}` };
  }

  /** A schema, in which those that have a title are references. */
  schema(schema: JsonSchema): JsonSchema {
    const { title, ...rest } = schema;
    const parts = Object.entries(typeof title === "string" ? rest : schema)
      .map(([keyword, value]) => [keyword, this.#nested(value)]);
    const inner: JsonSchema = Object.fromEntries(parts);
    return typeof title === "string"
      ? this.#add("schemas", pascalCase(title), inner)
      : inner;
  }

  #nested(value: Json): Json {
    if (Array.isArray(value)) return value.map((each) => this.#nested(each));
    return isObject(value) ? this.schema(value) : value;
  }

  /** A parameter; a list is one value with commas. */
  parameter(parameter: JsonSchema): JsonSchema {
    const { name, schema } = parameter;
    const isList = isObject(schema) && schema["type"] === "array";
    const style = isList ? { style: "form", explode: false } : {};
    const key = String(name).replace(":", ".");
    return this.#add("parameters", key, { ...parameter, ...style });
  }

  response(name: string, { headers, ...response }: ResponseParts): JsonSchema {
    const fields = [...new Set([...headers, ...commonFields])]
      .map((name) => [name, this.#add("headers", name, headerField(name))]);
    const { content } = response;
    return this.#add("responses", pascalCase(name), {
      ...response,
      ...(content && { content: this.schema(content) }),
      headers: Object.fromEntries(fields),
    });
  }

  toJson(): Record<string, JsonSchema> {
    return Object.fromEntries(
      Array.from(this.#kinds, ([kind, parts]) => [
        kind,
        Object.fromEntries(parts),
      ]),
    );
  }
}

/** Whether a JSON value is an object. */
export function isObject(value: Json | undefined): value is JsonSchema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** `zoo part` as `ZooPart`. */
export function pascalCase(text: string): string {
  return text.replace(/(?:^|\W+|_)(\w)/g, (_, first) => first.toUpperCase());
}

/** What every answer may have. */
const commonFields = [
  "X-Request-Id",
  "Vary",
  "Cache-Control",
  "Preference-Applied",
  "Accept-Query",
];

const fieldMeanings: Readonly<Record<string, string>> = {
  "Accept-Encoding": "What a body may be encoded with",
  "Accept-Patch": "The media types of a PATCH (RFC 5789)",
  "Accept-Post": "The media types of a POST",
  "Accept-Query": "The media types of a QUERY (RFC 10008)",
  "Allow": "The methods of the address",
  "Cache-Control": "May it be kept? (RFC 9111)",
  "Content-Location": "Where the record is that was put",
  "ETag": "The version, for If-Match and If-None-Match",
  "Last-Modified": "The time of the last change",
  "Link": "The first, previous, next and last page (RFC 8288)",
  "Location": "Where the new resource is",
  "Preference-Applied": "What Prefer asked for and got (RFC 7240)",
  "Retry-After": "After how many seconds to try again",
  "Vary": "What the answer depends on",
  "WWW-Authenticate": "How to say who you are (RFC 6750)",
  "X-Accel-Buffering": "For proxies: not to hold events back",
  "X-Request-Id": "The name of the request in the log",
  "X-Total-Count": "How many records match in all",
};

function headerField(name: string): JsonSchema {
  const isNumber = name === "X-Total-Count" || name === "Retry-After";
  return {
    description: fieldMeanings[name] ?? name,
    ...(name === "X-Request-Id" && { required: true }),
    schema: { type: isNumber ? "integer" : "string" },
  };
}
