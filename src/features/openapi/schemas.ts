/**
 * Request bodies, records and query parameters as JSON Schema 2020-12, for the
 * OpenAPI document. A schema with a title becomes a component of that name.
 */

import {
  type Collection,
  type NamedProperty,
  readableNames,
} from "../../api/declaration/declaration.ts";
import {
  integer,
  type Json,
  type JsonSchema,
  type Values,
} from "../../api/declaration/properties.ts";
import {
  operatorsOf,
  pageNumber,
  pageOffset,
  pageSize,
  sortOrders,
} from "../../api/query/parameters.ts";
import { recordSchema } from "../../api/representation.ts";
import { bodyExample, recordExample } from "./examples.ts";

type Schemas = Readonly<Record<string, JsonSchema>>;

export const text: JsonSchema = { type: "string" };
const url: JsonSchema = { type: "string", format: "uri-reference" };

/** Returns the schema of an object; all properties are required by default. */
export function objectSchema(
  title: string,
  properties: Schemas,
  required: readonly string[] = Object.keys(properties),
): JsonSchema {
  return { title, type: "object", properties, required };
}

const link = objectSchema("link", {
  rel: text,
  href: url,
  title: text,
  type: text,
});

/** The collections whose records can be shown with those that they refer to. */
export const expandable = new WeakSet<Collection>();

/** The names of the schemas of records. */
export const recordNames = new WeakMap<Collection, string>();

/** Returns a record as an example, if there is one. */
function recordExamples(collection: Collection): JsonSchema {
  return examples(recordExample(collection));
}

/** Returns the schema of a record limited by `fields`; it always has its id. */
export function partialSchema(collection: Collection): JsonSchema {
  const schemas = propertySchemas(collection);
  const own = Object.fromEntries(
    readableNames(collection).map((name) => [name, schemas[name]]),
  );
  const references = expandable.has(collection) ? collection.parents : [];
  const expanded = references.map(({ property, target }) => {
    const $ref = `#/components/schemas/${recordNames.get(target)}`;
    return [property.replace(/_id$/, ""), {
      anyOf: [{ $ref }, { type: "null" }],
    }];
  });
  const added = Object.fromEntries(expanded);
  // Properties of its own come first, and hide what has the same name.
  const properties = { ...own, ...added, ...own, link };
  return {
    ...objectSchema(`${collection.singular} part`, properties, ["id"]),
    ...recordExamples(collection),
  };
}

/** Returns the schema of a page of records. */
export function listSchema(collection: Collection): JsonSchema {
  const example = recordExample(collection);
  return {
    title: `${collection.singular} list`,
    type: "array",
    items: partialSchema(collection),
    ...examples(example && [example]),
  };
}

/** Returns the keyword with an example; with none if none was found. */
function examples(example: Json | undefined): JsonSchema {
  return { examples: example ? [example] : [] };
}

/** Returns the values of some names. */
function pick(
  values: Values | undefined,
  isPicked: (name: string) => boolean,
): Values | undefined {
  return values && Object.fromEntries(
    Object.entries(values).filter(([name]) => isPicked(name)),
  );
}

/** Returns the schema of a record with all its properties. */
export function completeSchema(collection: Collection): JsonSchema {
  return {
    title: recordNames.get(collection) ?? collection.singular,
    allOf: [partialSchema(collection)],
    required: readableNames(collection).filter((name) =>
      !collection.visibleProperties.get(name)?.omitsNull
    ),
    ...recordExamples(collection),
  };
}

/** Returns the schema of a PATCH body, which may change all properties or only the given ones. */
export function patchSchema(
  collection: Collection,
  only?: readonly string[],
): JsonSchema {
  const { singular, properties, parents } = collection;
  const schemas = propertySchemas(collection);
  for (const { name, expected, required, readOnly, ...more } of properties) {
    const description = required || readOnly
      ? expected
      : `${expected}; by default ${JSON.stringify(more.default)}`;
    if (only?.includes(name) === false) delete schemas[name];
    else schemas[name] = { ...schemas[name], description };
  }
  const references = parents.map(({ property }) => property);
  // A number that no body of a POST has; without references, which would move the record.
  const values = bodyExample(collection, only ? 1 : parents.length + 2);
  return {
    title: `${singular} patch${only ? ` of ${only.join(" ")}` : ""}`,
    type: "object",
    properties: schemas,
    additionalProperties: false,
    ...examples(
      pick(
        values,
        (name) => only?.includes(name) ?? !references.includes(name),
      ),
    ),
  };
}

/** Returns the schema of a POST or PUT body, in which the properties of `without` are not required. */
export function createSchema(
  collection: Collection,
  without: readonly (string | undefined)[] = [],
): JsonSchema {
  const names = collection.properties
    .filter(({ required }) => required).map(({ name }) => name);
  const suffixes = collection.properties
    .filter(({ name }) => without.includes(name))
    .map(({ name }) => `but ${name}`);
  const parent = collection.parents
    .findIndex(({ property }) => without.includes(property));
  const values = bodyExample(collection, parent + 2);
  return {
    title: [collection.singular, "new", ...suffixes].join(" "),
    allOf: [patchSchema(collection)],
    required: names.filter((name) => !without.includes(name)),
    ...examples(pick(values, (name) => !without.includes(name))),
  };
}

/** Returns the schemas of all properties, without defaults, because a client could assume that PATCH applies them. */
function propertySchemas(collection: Collection): Record<string, JsonSchema> {
  const { properties, visibleProperties } = collection;
  const schemas = recordSchema(collection)["properties"] as Schemas;
  const descriptions = new Map(
    [...properties, ...visibleProperties.values()]
      .map(({ name, expected }) => [name, expected]),
  );
  return Object.fromEntries(
    Object.entries(schemas).map(([name, each]) => {
      const { default: _, "x-collection": __, "x-as": ___, ...schema } = each;
      const description = descriptions.get(name);
      return [name, { ...schema, ...(description && { description }) }];
    }),
  );
}

/** The parameter `fields`. */
export function fieldsParameter(collection: Collection): JsonSchema {
  return parameter(
    "fields",
    "The properties to return, besides id",
    list(oneOf(readableNames(collection))),
  );
}

/** Returns the parameters of a collection: paging, sorting, `fields` and filters. */
export function queryParameters(collection: Collection): JsonSchema[] {
  const visible = [...collection.visibleProperties.values()];
  const names = visible.map(({ name }) => name);
  return [
    parameter("limit", `The size of the page${byOffset}`, pageSize.schema),
    parameter("offset", `How many to skip${byOffset}`, pageOffset.schema),
    parameter("page", `The number of the page${byPage}`, pageNumber.schema),
    parameter("per_page", `The size of the page${byPage}`, pageSize.schema),
    parameter("sortby", "The properties to sort by, then id; null is last", {
      ...list(oneOf(names)),
      uniqueItems: true,
      default: collection.sort ?? ["id"],
    }),
    parameter("order", "The direction of all of them, or of each", {
      ...list(oneOf(sortOrders)),
      default: ["asc"],
    }),
    fieldsParameter(collection),
    ...visible.flatMap(filterParameters),
  ];
}

const byOffset = "; not together with page or per_page";
const byPage = "; not together with limit or offset";

/** Describes a query parameter; the values of an array are sent one by one, or joined by commas. */
export function parameter(
  name: string,
  description: string,
  schema: JsonSchema,
): JsonSchema {
  return { name, in: "query", description, schema };
}

/** Returns the filters by one property. */
export function filterParameters(property: NamedProperty): JsonSchema[] {
  const { name, kind, nullable } = property;
  const operand = operandSchema(property);
  const orNull = nullable && kind !== "string"
    ? { anyOf: [operand, { const: "null" }] }
    : operand;
  const all = ["eq", ...operatorsOf(property)] as const;
  return all.map((operator) => ({
    name: operator === "eq" ? name : `${name}:${operator}`,
    in: "query",
    schema: operator === "in"
      ? list(orNull)
      : operator === "eq" || operator === "ne"
      ? orNull
      : operand,
  }));
}

/** Returns the schema of a filter's value: any value of the right JSON type, even one that the property itself would reject. */
function operandSchema({ kind, schema }: NamedProperty): JsonSchema {
  const [type = "string"] = [schema["type"]].flat();
  const { format = null, enum: values } = schema;
  if (Array.isArray(values)) return oneOf(values.filter((each) => each));
  if (type === "integer") return anyInteger;
  return kind === "date" || kind === "timestamp" ? { type, format } : { type };
}

const anyInteger = integer({ minimum: Number.MIN_SAFE_INTEGER }).schema;

function oneOf(values: readonly Json[]): JsonSchema {
  return { type: "string", enum: values };
}

function list(items: JsonSchema): JsonSchema {
  return { type: "array", items, minItems: 1 };
}
