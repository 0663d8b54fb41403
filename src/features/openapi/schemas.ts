/**
 * What is sent and what is answered as JSON Schema 2020-12, for the OpenAPI
 * document. A schema with a title becomes a component of that name there.
 */

import type {
  Collection,
  NamedProperty,
} from "../../api/declaration/declaration.ts";
import type { Json, JsonSchema } from "../../api/declaration/properties.ts";
import { type Operator, operatorsOf } from "../../api/query/parameters.ts";
import { recordSchema } from "../../api/representation.ts";

type Schemas = Readonly<Record<string, JsonSchema>>;

const text: JsonSchema = { type: "string" };
const address: JsonSchema = { type: "string", format: "uri-reference" };

/** An object with these properties. */
export function objectSchema(
  title: string,
  properties: Schemas,
  required: readonly string[] = Object.keys(properties),
): JsonSchema {
  return { title, type: "object", properties, required };
}

const link = objectSchema("link", {
  rel: text,
  href: address,
  title: text,
  type: text,
});

/** Some of a record's properties, as `fields` asks for them; its id is always there. */
export function partSchema(collection: Collection): JsonSchema {
  const { singular, visibleProperties, urlProperties } = collection;
  const shown = new Set([...visibleProperties.keys(), ...urlProperties]);
  const properties = pick(propertiesOf(collection), shown);
  return objectSchema(`${singular} part`, { ...properties, link }, ["id"]);
}

/** A whole record. */
export function wholeSchema(collection: Collection): JsonSchema {
  const { singular, visibleProperties, urlProperties } = collection;
  return {
    title: singular,
    allOf: [partSchema(collection)],
    required: [...visibleProperties.keys(), ...urlProperties],
  };
}

/** The body of a PATCH; `only` are the properties that it may change, or all. */
export function patchSchema(
  collection: Collection,
  only?: readonly string[],
): JsonSchema {
  const { singular, properties } = collection;
  const schemas = { ...propertiesOf(collection) };
  for (const property of properties) {
    const { name } = property;
    if (only?.includes(name) === false) delete schemas[name];
    else {
      const description = describeProperty(property);
      schemas[name] = { ...schemas[name], description };
    }
  }
  return {
    title: `${singular} patch${only ? ` of ${only.join(" ")}` : ""}`,
    type: "object",
    properties: schemas,
    additionalProperties: false,
  };
}

/** The body of a POST or PUT, in which some required properties may be left out. */
export function newSchema(
  collection: Collection,
  without: readonly (string | undefined)[] = [],
): JsonSchema {
  const names = collection.properties
    .filter(({ required }) => required).map(({ name }) => name);
  const less = names.filter((name) => without.includes(name));
  return {
    title: [collection.singular, "new", ...less.map((name) => `but ${name}`)]
      .join(" "),
    allOf: [patchSchema(collection)],
    required: names.filter((name) => !less.includes(name)),
  };
}

/** In words what is allowed, and what a new record gets where it is left out. */
function describeProperty(
  { expected, required, readOnly, default: otherwise }: NamedProperty,
): string {
  return required || readOnly
    ? expected
    : `${expected}; by default ${JSON.stringify(otherwise)}`;
}

/** All properties. Without defaults, which would be taken for what a PATCH fills in. */
function propertiesOf(collection: Collection): Schemas {
  const schemas = recordSchema(collection)["properties"];
  return Object.fromEntries(
    // An object of schemas, as it was made.
    Object.entries(schemas as Schemas).map(([name, schema]) => {
      const { default: _, ...rest } = schema;
      return [name, rest];
    }),
  );
}

function pick(from: Schemas, names: ReadonlySet<string>): Schemas {
  return Object.fromEntries(
    Object.entries(from).filter(([name]) => names.has(name)),
  );
}

/** The parameter `fields`. */
export function fieldsParameter(
  { visibleProperties, urlProperties }: Collection,
): JsonSchema {
  return {
    name: "fields",
    description: "Only these properties, and id",
    schema: list(words([...visibleProperties.keys(), ...urlProperties])),
  };
}

/** The parameters of a collection: paging, order, `fields` and filters. */
export function queryParameters(collection: Collection): JsonSchema[] {
  const readable = [...collection.visibleProperties.values()];
  const names = readable.map(({ name }) => name);
  const byPage = "; not together with limit or offset";
  const own = {
    limit: ["How many at most", count(1, 20, 100)],
    offset: ["How many to pass over", count(0, 0)],
    page: [`Which page${byPage}`, count(1, 1)],
    per_page: [`How many on a page${byPage}`, count(1, 20, 100)],
    sortby: ["What decides the order, before the id; null is last", {
      ...words(names),
      default: "id",
    }],
    order: ["Which way", { ...words(["asc", "desc"]), default: "asc" }],
  } as const;
  return [
    ...Object.entries(own).map(([name, [description, schema]]) => ({
      name,
      description,
      schema,
    })),
    fieldsParameter(collection),
    ...readable.flatMap(filterParameters),
  ];
}

const meanings: Readonly<Record<Operator, string>> = {
  eq: "is",
  ne: "is not",
  lt: "is less than",
  lte: "is at most",
  gt: "is more than",
  gte: "is at least",
  in: "is one of",
  contains: "contains, without case,",
  starts: "starts, without case, with",
};

/** The filters by one property. */
function filterParameters(property: NamedProperty): JsonSchema[] {
  const { name, kind, nullable } = property;
  const value = operandSchema(property);
  const orNull = nullable && kind !== "string"
    ? { anyOf: [value, { const: "null" }] }
    : value;
  const all = ["eq", ...operatorsOf(property)] as const;
  return all.map((operator) => ({
    name: operator === "eq" ? name : `${name}:${operator}`,
    description: `Those whose ${name} ${meanings[operator]} this`,
    schema: operator === "in"
      ? list(orNull)
      : operator === "eq" || operator === "ne"
      ? orNull
      : value,
  }));
}

/** What a property can be compared with: also what it cannot be, if it is of its type. */
function operandSchema({ kind, schema }: NamedProperty): JsonSchema {
  const [type = "string"] = [schema["type"]].flat();
  const { format = null, enum: values } = schema;
  if (Array.isArray(values)) return words(values.filter((each) => each));
  return kind === "date" || kind === "timestamp" ? { type, format } : { type };
}

function words(values: readonly Json[]): JsonSchema {
  return { type: "string", enum: values };
}

/** In an address: with commas between. */
function list(items: JsonSchema): JsonSchema {
  return { type: "array", items, minItems: 1 };
}

function count(minimum: number, otherwise: number, maximum?: number) {
  return {
    type: "integer",
    minimum,
    ...(maximum && { maximum }),
    default: otherwise,
  };
}
