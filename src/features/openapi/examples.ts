/**
 * Examples of records and bodies, derived from the declaration. Those of one
 * collection that are sent to different URLs differ, so that they do not collide
 * where a property is unique. A value of which no example can be found, because
 * of its pattern, leaves the whole record without one; so does a rule of the
 * declaration that no attempt satisfies.
 */

import {
  type Collection,
  type NamedProperty,
  ownerProperty,
} from "../../api/declaration/declaration.ts";
import type {
  Json,
  JsonSchema,
  Values,
} from "../../api/declaration/properties.ts";
import { Representation } from "../../api/representation.ts";
import { sampleOfPattern } from "./pattern.ts";

/** Returns the body of a POST; undefined if none can be found. A body with another number has other values. */
export function bodyExample(
  { properties, check = () => {} }: Collection,
  n: number,
): Values | undefined {
  const writable = properties.filter(({ readOnly }) => !readOnly);
  const required = writable.filter((each) => each.required);
  const tries = [writable, required]
    .flatMap((given) => slopes.map((slope) => ({ given, slope })));
  for (const { given, slope } of tries) {
    const first = slope < 0 ? given.length - 1 : 0;
    const values = given.map((each, at) => [
      each.name,
      valueExample(each, n + first + slope * at),
    ]);
    if (values.some(([, value]) => value === undefined)) continue;
    const body: Values = Object.fromEntries(values);
    const defaults = Object.fromEntries(
      properties.map((each) => [each.name, each.default]),
    );
    const times = { created_at: time, updated_at: time };
    const record = { ...defaults, ...body, id: 1, ...times };
    try {
      const mistakes = Object.values(check(record) ?? {});
      if (mistakes.every((each) => each === undefined)) return body;
    } catch {
      // The rule of a declaration may be wrong; the rest is still described.
    }
  }
  return undefined;
}

/** Whether the dates, times and numbers of a body are equal, ascend or descend: a rule may demand any of it. */
const slopes = [0, 1, -1];

/** Returns a record as the server represents it. */
export function recordExample(collection: Collection): Values | undefined {
  const body = bodyExample(collection, 1);
  if (body === undefined) return undefined;
  const { properties, owner } = collection;
  const set = properties.filter(({ readOnly }) => readOnly)
    .map((each) => [each.name, valueExample(each, 1) ?? null]);
  const document = {
    ...Object.fromEntries(set),
    ...body,
    ...(owner === ownerProperty.name && { [owner]: 1 }),
    id: 1,
    created_at: time,
    updated_at: time,
  };
  return JSON.parse(new Representation(collection).serialize(document));
}

const time = "2026-01-31T12:00:00.000Z";

/** Returns a value that the property allows; undefined if none can be found. */
export function valueExample(
  property: NamedProperty,
  n: number,
): Json | undefined {
  const candidates = [...candidatesOf(property, n)];
  return property.readOnly
    ? candidates[0]
    : candidates.find((each) => property.check(each) === undefined) ??
      (property.nullable ? null : undefined);
}

/** Yields values that the property may allow. */
function* candidatesOf(
  { name, schema, references, nullable }: NamedProperty,
  n: number,
): Generator<Json> {
  // The first record of the other collection, unless it may be created later.
  if (references) return yield nullable ? null : 1;
  if (Array.isArray(schema["enum"])) return yield* schema["enum"];
  const { maxLength = Infinity, pattern } = schema;
  const least = Number(schema["minLength"] ?? 0);
  const { format, minimum, exclusiveMinimum, maximum = Infinity } = schema;
  const [type] = [schema["type"]].flat();
  switch (format ?? type) {
    case "boolean":
      return yield true;
    case "array":
      return yield [];
    case "integer":
    case "number": {
      const most = Number(maximum);
      const low = Number(minimum ?? exclusiveMinimum ?? Math.min(0, most));
      return yield* [low + n, most - (most - low) / (n + 1), low, most];
    }
    case "date":
      return yield new Date(Date.UTC(2026, 0, n)).toISOString().slice(0, 10);
    case "date-time":
      return yield new Date(Date.parse(time) + (n - 1) * 60_000).toISOString();
    case "email":
      return yield `${name.replaceAll("_", ".")}${n}@example.com`;
    case "iri":
      return yield `https://example.com/${n}`;
  }
  const noun = name.replaceAll("_", " ");
  const text = noun.charAt(0).toUpperCase() + noun.slice(1);
  const numbered = n === 1 ? text : `${text} ${n}`;
  const long = numbered.length < least
    ? `${numbered} example`.padEnd(least, ".")
    : numbered;
  if (long.length <= Number(maxLength)) yield long;
  yield `${name}${n}`;
  yield String(n).padEnd(Math.max(1, least), "0");
  if (typeof pattern !== "string") return;
  yield sampleOfPattern(pattern, n);
}

/** Returns an example of a schema, from those of its parts. */
export function schemaExample(
  schema: JsonSchema,
  resolve: (reference: string) => JsonSchema,
): Json {
  const { $ref, examples, enum: values, properties, items, allOf } = schema;
  if (typeof $ref === "string") return schemaExample(resolve($ref), resolve);
  const [given] = [examples ?? values ?? []].flat();
  if (given !== undefined) return given;
  const exampleOf = (part: unknown) => schemaExample(Object(part), resolve);
  if (Array.isArray(allOf)) return Object.assign({}, ...allOf.map(exampleOf));
  const [type] = [schema["type"]].flat();
  switch (type) {
    case "object":
      return Object.fromEntries(
        Object.entries(Object(properties))
          .map(([name, part]) => [name, exampleOf(part)]),
      );
    case "array":
      return [exampleOf(items)];
    case "boolean":
      return true;
    case "integer":
    case "number":
      return Number(schema["minimum"] ?? 1);
  }
  return schema["format"] === "uri-reference" ? "/v1" : "text";
}
