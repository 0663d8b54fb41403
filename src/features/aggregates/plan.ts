/** The parameters `aggregate` and `by`: which values are computed, of which groups. */

import {
  type Collection,
  collectionParameters,
  type NamedProperty,
  readValue,
} from "../../api/declaration/declaration.ts";
import { integer, type Json } from "../../api/declaration/properties.ts";
import {
  type Parameters,
  parseQuery,
  type Query,
} from "../../api/query/parameters.ts";
import { ApiError } from "../../http/errors.ts";
import { excerpt } from "../../http/json.ts";
import type { Document } from "../../store/store.ts";

/** A part of the key of a group: its name, such as `hour(taken_at)`. */
export interface GroupKey {
  readonly name: string;
  readonly read: (document: Document) => Json;
}

/** A value of a group: its name, such as `avg(value)`, and how it is computed. */
export interface Aggregate extends GroupKey {
  readonly how: (typeof functions)[number] | "count";
}

/** The parsed parameters of a request. */
export interface Plan {
  readonly aggregates: readonly Aggregate[];
  readonly keys: readonly GroupKey[];
  /** The records that are aggregated: all that match its filters. */
  readonly selected: Query;
  /** The page of groups, and their order. */
  readonly page: Query;
}

const functions = ["sum", "avg", "min", "max"] as const;

/** By unit: how much of a timestamp in UTC stays, and what follows it. */
const units: Readonly<Record<string, readonly [number, string]>> = {
  year: [4, "-01-01T00:00:00Z"],
  month: [7, "-01T00:00:00Z"],
  day: [10, "T00:00:00Z"],
  hour: [13, ":00:00Z"],
  minute: [16, ":00Z"],
};

/** The longest list of either parameter. */
const maxNames = 20;

/** Returns the names that `aggregate` may have, and those that `by` may have. */
export function namesOf({ visibleProperties }: Collection) {
  const all = [...visibleProperties.values()];
  return {
    aggregate: [
      "count",
      ...all.flatMap((each) =>
        functionsOf(each).map((how) => `${how}(${each.name})`)
      ),
    ],
    by: all.flatMap((each) => [
      each.name,
      ...unitsOf(each).map((unit) => `${unit}(${each.name})`),
    ]),
  };
}

function functionsOf({ kind, references }: NamedProperty): readonly string[] {
  if (references !== undefined) return [];
  if (kind === "number") return functions;
  return kind === "date" || kind === "timestamp" ? ["min", "max"] : [];
}

function unitsOf({ kind }: NamedProperty): readonly string[] {
  if (kind === "timestamp") return Object.keys(units);
  return kind === "date" ? ["year", "month", "day"] : [];
}

/**
 * Parses the parameters of a request that aggregates.
 *
 * @throws {ApiError} 40003 on an unknown parameter, 40004 on a name that is not
 * allowed
 */
export function parsePlan(
  collection: Collection,
  parameters: Parameters,
): Plan {
  for (const name of ["fields", "expand"]) {
    if (!parameters.has(name)) continue;
    throw new ApiError(
      40003,
      `The parameters "${name}" and "aggregate" cannot be combined.`,
    );
  }
  const allowed = namesOf(collection);
  const values = parseNames(parameters, "aggregate", allowed.aggregate);
  // A property may be called "count", but a group has the name only once.
  const others = allowed.by.filter((name) => !values.includes(name));
  const aggregates = values.map((name) => aggregateOf(collection, name));
  const keys = parseNames(parameters, "by", others)
    .map((name) => keyOf(collection, name));
  const filters = new Map(parameters);
  const page = new Map<string, string>();
  for (const [name, value] of parameters) {
    if (collectionParameters.includes(name)) page.set(name, value);
    else if (!["aggregate", "by"].includes(name)) continue;
    filters.delete(name);
  }
  const groups: Collection = {
    ...collection,
    visibleProperties: new Map(
      [...keys, ...aggregates].map((
        { name },
      ) => [name, { ...integer(), name, nullable: true }]),
    ),
    sort: keys.map(({ name }) => name),
  };
  return {
    aggregates,
    keys,
    selected: {
      // In the order of the ids, which takes no sorting.
      ...parseQuery({ ...collection, sort: [] }, filters),
      limit: Infinity,
    },
    page: { ...parseQuery(groups, page), parameters },
  };
}

function parseNames(
  parameters: Parameters,
  parameter: string,
  allowed: readonly string[],
): readonly string[] {
  const text = parameters.get(parameter);
  if (text === undefined) return [];
  const names = text.split(",");
  const isAllowed = names.length <= maxNames &&
    names.every((name) => allowed.includes(name)) &&
    new Set(names).size === names.length;
  if (isAllowed) return names;
  throw new ApiError(
    40004,
    `The parameter "${parameter}" must be up to ${maxNames} different ones of ${
      allowed.join(", ")
    }, separated by commas, not "${excerpt(text)}".`,
  );
}

/** Splits `avg(value)` into its parts. */
function partsOf(name: string): [how: string, of: string] {
  const [, how = "", of = name] = /^(\w+)\((\w+)\)$/.exec(name) ?? [];
  return [how, of];
}

function propertyOf({ visibleProperties }: Collection, name: string) {
  const property = visibleProperties.get(name);
  if (property === undefined) throw new Error(`no property ${name}`);
  return property;
}

function aggregateOf(collection: Collection, name: string): Aggregate {
  if (name === "count") return { name, how: "count", read: () => null };
  const [word, of] = partsOf(name);
  const property = propertyOf(collection, of);
  const how = functions.find((each) => each === word) ?? "sum";
  return { name, how, read: (document) => readValue(document, property) };
}

function keyOf(collection: Collection, name: string): GroupKey {
  const [unit, of] = partsOf(name);
  const property = propertyOf(collection, of);
  const [length, rest = ""] = units[unit] ?? [];
  const end = property.kind === "date" ? rest.replace(/T.*/, "") : rest;
  return {
    name,
    read(document) {
      const value = readValue(document, property);
      return length === undefined || typeof value !== "string"
        ? value
        : value.slice(0, length) + end;
    },
  };
}
