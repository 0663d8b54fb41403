/** The operations of an OpenAPI document, as far as they are needed to generate requests. */

/** A JSON Schema, with the keywords that matter here. */
export interface Schema {
  readonly $ref?: string;
  readonly allOf?: readonly Schema[];
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly format?: string;
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly exclusiveMinimum?: number;
  readonly maximum?: number;
  readonly items?: Schema;
  readonly readOnly?: boolean;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
}

interface Reference {
  readonly $ref?: string;
}

/** A parameter of the path, the query or the header section. */
export interface Parameter extends Reference {
  readonly in: "path" | "query" | "header";
  readonly name: string;
  readonly schema: Schema;
}

interface Content {
  readonly content: Readonly<Record<string, { readonly schema: Schema }>>;
}

interface PathItem {
  readonly parameters?: readonly Parameter[];
  readonly servers?: unknown;
  readonly [method: string]: unknown;
}

interface DocumentedOperation {
  readonly description?: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: Content;
}

/** An OpenAPI document. */
export interface OpenApi {
  readonly servers: readonly { readonly url: string }[];
  readonly paths: Readonly<Record<string, PathItem>>;
  readonly components: unknown;
}

/** One method of one URL. */
export interface Operation {
  readonly method: string;
  /** The path, such as `/v1/zoos/{zoo_id}/animals/{id}`. */
  readonly template: string;
  /** The collection that the path names last: `animals`. */
  readonly collection: string;
  readonly query: readonly Parameter[];
  readonly header: readonly Parameter[];
  /** The media types of the body; none if it has none. */
  readonly types: readonly string[];
  /** The properties of a JSON body. */
  readonly properties: readonly Property[];
}

/** A property of a JSON body. */
export interface Property {
  readonly name: string;
  readonly schema: Schema;
  readonly required: boolean;
}

const methods: Readonly<Record<string, string>> = {
  get: "GET",
  head: "HEAD",
  options: "OPTIONS",
  "x-query": "QUERY",
  post: "POST",
  put: "PUT",
  patch: "PATCH",
  delete: "DELETE",
};

/** The URLs of operations that collections have too, by media type. */
const repeated = /\/(?:import|export)$/;

const ndjson = "application/x-ndjson";

/** Returns all operations of a document. HEAD is GET, OPTIONS is the same everywhere, and of QUERY only the body is described. */
export function operationsOf(document: OpenApi): Operation[] {
  const { options } = document.paths["/v1"] ?? {};
  return Object.entries(document.paths).flatMap(([template, item]) =>
    Object.entries(methods).flatMap(([key, method]) => {
      const all: PathItem = { ...item, options, head: item["get"] };
      const documented = all[key] as DocumentedOperation | undefined;
      if (documented === undefined || repeated.test(template)) return [];
      // By filters it would delete users who send requests, and records of the model.
      if (method === "DELETE" && !template.endsWith("}")) return [];
      const parameters = [
        ...item.parameters ?? [],
        ...documented.parameters ?? [],
      ].map((each) => resolve(document, each));
      const content = documented.requestBody?.content ?? {};
      const [first] = Object.values(content);
      const names = template.split("/").filter((name) => !/^\{|^$/.test(name));
      return [{
        method,
        template,
        collection: names.at(-1) ?? "",
        query: parameters.filter((each) => each.in === "query"),
        header: parameters.filter((each) => each.in === "header"),
        types: documented.description?.includes(`\`${ndjson}\` is imported`)
          ? [...Object.keys(content), ndjson]
          : Object.keys(content),
        properties: first ? propertiesOf(document, first.schema) : [],
      }];
    })
  );
}

function resolve<Value extends Reference>(
  document: OpenApi,
  value: Value,
): Value {
  if (value.$ref === undefined) return value;
  const found = value.$ref.slice(2).split("/").reduce(
    (at: unknown, key) => (at as Record<string, unknown>)[key],
    document,
  );
  return resolve(document, found as Value);
}

/** Returns the properties that a client may send. */
function propertiesOf(document: OpenApi, schema: Schema): Property[] {
  const { properties = {}, required = [], allOf = [] } = resolve(
    document,
    schema,
  );
  const found = new Map<string, Property>();
  for (const part of allOf) {
    for (const each of propertiesOf(document, part)) found.set(each.name, each);
  }
  for (const [name, each] of Object.entries(properties)) {
    const resolved = resolve(document, each);
    if (!resolved.readOnly) {
      found.set(name, { name, schema: resolved, required: false });
    }
  }
  for (const name of required) {
    const property = found.get(name);
    if (property) found.set(name, { ...property, required: true });
  }
  return [...found.values()];
}
