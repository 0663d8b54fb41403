/**
 * The query parameters of a collection: they select records (filters), their
 * order, one page of them, and the properties to show. Unknown parameters are
 * errors, because a mistyped filter must not return everything.
 */

import { ApiError } from "../../http/errors.ts";
import { excerpt } from "../../http/json.ts";
import { decodePercent } from "../../http/router.ts";
import { type Column, compareValues, foldText } from "../../store/store.ts";
import {
  type Collection,
  collectionParameters,
  type NamedProperty,
  readableNames,
} from "../declaration/declaration.ts";
import {
  integer,
  type Json,
  optional,
  type Property,
} from "../declaration/properties.ts";

const maxParameters = 100;

/** The most properties to sort by. */
const maxSortColumns = 8;

/** The most values of one `in`. */
const maxListedValues = 1000;

/** The names of parameters with several values, which may be joined by commas or sent one by one. */
const listNames = /^(?:sortby|order|fields|expand|by|aggregate|.*:in)$/s;

/** Decoded parameters in the order in which they were sent; several values are joined by commas. */
export type Parameters = ReadonlyMap<string, string>;

/**
 * Parses the query of a URL. A plus sign is a plus sign: only in HTML forms
 * does it mean a space (RFC 3986 section 2.2).
 *
 * @throws {ApiError} 40000 on malformed percent-encoding, 40003 on a repeated
 * parameter that is no list, or too many
 */
export function parseParameters(query: string): Parameters {
  const parameters = new Map<string, string>();
  const pairs = query.split("&", maxParameters + 1);
  if (pairs.length > maxParameters) {
    throw new ApiError(
      40003,
      `There are too many parameters: at most ${maxParameters} are allowed.`,
    );
  }
  for (const pair of pairs) {
    if (pair === "") continue;
    const [name = "", value = ""] = pair.split(/=(.*)/s)
      .map((part) => decodePercent(part));
    const earlier = parameters.get(name);
    if (earlier !== undefined && !listNames.test(name)) {
      throw new ApiError(
        40003,
        `The parameter "${excerpt(name)}" is repeated: send it once.`,
      );
    }
    parameters.set(name, earlier === undefined ? value : `${earlier},${value}`);
  }
  return parameters;
}

/**
 * Rejects all parameters but the allowed ones, by default none.
 *
 * @throws {ApiError} 40003
 */
export function rejectUnknownParameters(
  parameters: Parameters,
  allowed: readonly string[] = [],
): void {
  for (const name of parameters.keys()) {
    if (!allowed.includes(name)) {
      throw unknownParameter(
        name,
        `allowed: ${allowed.join(", ") || "none"}`,
      );
    }
  }
}

function unknownParameter(name: string, allowed: string): ApiError {
  return new ApiError(
    40003,
    `The parameter "${excerpt(name)}" is unknown; ${allowed}.`,
  );
}

/** Returns an error for a parameter whose value is not allowed; `allowed` is a phrase that follows "must be". */
function invalidValue(
  name: string,
  value: string,
  allowed: string,
): ApiError {
  return new ApiError(
    40004,
    `The parameter "${name}" must be ${allowed}, not "${excerpt(value)}".`,
  );
}

const comparisons = ["ne", "lt", "lte", "gt", "gte", "in"] as const;
const operators = [...comparisons, "contains", "starts"] as const;

/** The comparison that a filter makes. */
type Operator = "eq" | (typeof operators)[number];

/** One condition on one property. */
export interface Filter {
  readonly property: Pick<
    NamedProperty,
    "name" | "default" | "unique" | "references"
  >;
  readonly operator: Operator;
  /** The value to compare with; null for `in`. */
  readonly value: Json;
  /** The values of `in`: a set because a body can contain very many. */
  readonly valueSet?: ReadonlySet<Json>;
}

/** A property to sort by. null comes last in either direction. */
interface SortColumn extends Column {
  readonly nullable: boolean;
}

/** The parsed parameters of a collection. */
export interface Query {
  readonly filters: readonly Filter[];
  /** The columns to sort by, of which the last is always the id. */
  readonly sort: readonly SortColumn[];
  readonly offset: number;
  readonly limit: number;
  /** True if the caller pages by `page` and `per_page`, not by `limit` and `offset`. */
  readonly isPaged: boolean;
  readonly fields: readonly string[] | undefined;
  /** The parameters as they were sent, for the links to other pages. */
  readonly parameters: Parameters;
}

/**
 * Parses and validates the parameters of a collection.
 *
 * @throws {ApiError} 40003 on an unknown parameter, 40004 on a value that is
 * not allowed
 */
export function parseQuery(
  collection: Collection,
  parameters: Parameters,
  others: readonly string[] = collectionParameters,
): Query {
  const sort = parseSort(collection, parameters);
  const filters: Filter[] = [];
  for (const [name, text] of parameters) {
    if (others.includes(name)) continue;
    filters.push(parseFilter(collection, name, text, others));
  }
  return {
    filters,
    sort,
    fields: parseFields(collection, parameters),
    ...parsePage(parameters),
    parameters,
  };
}

/**
 * Parses the parameters `sortby` and `order`. Ties are broken by id, in the
 * direction of the last property.
 */
function parseSort(
  { visibleProperties, sort = [] }: Collection,
  parameters: Parameters,
): SortColumn[] {
  const sortby = parameters.get("sortby");
  const names = sortby === undefined
    ? sort
    : parseList("sortby", sortby, [...visibleProperties.keys()]);
  if (
    sortby !== undefined &&
    (names.length > maxSortColumns || new Set(names).size < names.length)
  ) {
    const allowed = `a list of at most ${maxSortColumns} different properties`;
    throw invalidValue("sortby", sortby, allowed);
  }
  const words = parseList(
    "order",
    parameters.get("order") ?? "asc",
    sortOrders,
  );
  if (words.length > 1 && words.length !== names.length) {
    const allowed = 'one word, or one for each property of "sortby"';
    throw invalidValue("order", words.join(), allowed);
  }
  const all = [...names, "id"]; // no two records share an id
  return all.slice(0, all.indexOf("id") + 1).map((name, at) => {
    const { default: value = null, nullable = false } =
      visibleProperties.get(name) ?? {};
    const descending = (words[at] ?? words.at(-1)) === "desc";
    return { name, default: value, nullable, descending };
  });
}

/**
 * Parses a list of names.
 *
 * @throws {ApiError} 40004 on one that is not allowed
 */
function parseList(
  parameter: string,
  text: string,
  allowed: readonly string[],
): readonly string[] {
  const names = text.split(",");
  if (names.every((name) => allowed.includes(name))) return names;
  throw invalidValue(
    parameter,
    text,
    `one or more of ${allowed.join(", ")}, separated by commas`,
  );
}

export const sortOrders: readonly string[] = ["asc", "desc"];
export const pageSize = optional(integer({ minimum: 1, maximum: 100 }), 20);
export const pageNumber = optional(integer({ minimum: 1 }), 1);
export const pageOffset = optional(integer({ minimum: 0 }), 0);

function parsePage(parameters: Parameters) {
  const isPaged = parameters.has("page") || parameters.has("per_page");
  if (isPaged && (parameters.has("limit") || parameters.has("offset"))) {
    throw new ApiError(
      40003,
      'The parameters "page" and "per_page" cannot be combined with "limit" and "offset": use one pair.',
    );
  }
  const limit = Number(
    readParameter(parameters, isPaged ? "per_page" : "limit", pageSize),
  );
  const offset = isPaged
    ? (Number(readParameter(parameters, "page", pageNumber)) - 1) * limit
    : Number(readParameter(parameters, "offset", pageOffset));
  return { limit, offset, isPaged };
}

/**
 * Returns the value of a parameter, or the default of its property.
 *
 * @throws {ApiError} 40004
 */
export function readParameter(
  parameters: Parameters,
  name: string,
  property: Property,
): Json | undefined {
  const text = parameters.get(name);
  const value = text === undefined ? property.default : property.parse(text);
  if (property.check(value) === undefined) return value;
  throw invalidValue(name, String(text), property.expected);
}

/**
 * Parses the parameter `fields`; returns the names in the record's own order.
 *
 * @throws {ApiError} 40004 on an unknown property
 */
export function parseFields(
  collection: Collection,
  parameters: Parameters,
): readonly string[] | undefined {
  const value = parameters.get("fields");
  if (value === undefined) return undefined;
  const names = readableNames(collection);
  const fields = parseList("fields", value, names);
  return names.filter((name) => name === "id" || fields.includes(name));
}

/** Returns the operators that fit a property, besides `eq`. */
export function operatorsOf({ kind }: NamedProperty): readonly Operator[] {
  switch (kind) {
    case "string":
      return operators;
    case "boolean":
    case "enum":
      return ["ne", "in"];
    default:
      return comparisons;
  }
}

function parseFilter(
  collection: Collection,
  parameter: string,
  text: string,
  others: readonly string[],
): Filter {
  const [name = "", word] = parameter.split(/:(.*)/s);
  const property = collection.visibleProperties.get(name);
  if (property === undefined) {
    const allowed = [...others, ...collection.visibleProperties.keys()];
    throw unknownParameter(parameter, `allowed: ${allowed.join(", ")}`);
  }
  const allowed = operatorsOf(property);
  const operator = word === undefined
    ? "eq"
    : allowed.find((each) => each === word);
  if (operator === undefined) {
    throw unknownParameter(parameter, `operators: ${allowed.join(", ")}`);
  }
  const isSearch = operator === "contains" || operator === "starts";
  const parse = (value: string): Json => {
    if (value === "null" && property.nullable && !isSearch) {
      if (["eq", "ne", "in"].includes(operator)) return null;
      throw invalidValue(parameter, value, "a value other than null");
    }
    const operand = property.parse(value);
    if (operand === undefined) {
      throw invalidValue(parameter, value, property.expected);
    }
    return isSearch ? foldText(String(operand)) : operand;
  };
  if (operator !== "in") return { property, operator, value: parse(text) };
  const values = text.split(",", maxListedValues + 1);
  if (values.length > maxListedValues) {
    const allowed = `a list of at most ${maxListedValues} values`;
    throw invalidValue(parameter, text, allowed);
  }
  const valueSet = new Set(values.map(parse));
  return { property, operator, value: null, valueSet };
}

/** Returns whether a record's value satisfies a filter. null never satisfies a comparison or a text search. */
export function matches(
  value: Json,
  { operator, value: operand, valueSet }: Filter,
): boolean {
  switch (operator) {
    case "eq":
      return value === operand;
    case "ne":
      return value !== operand;
    case "in":
      return valueSet?.has(value) ?? false;
  }
  if (value === null) return false;
  switch (operator) {
    case "contains":
      return foldText(String(value)).includes(String(operand));
    case "starts":
      return foldText(String(value)).startsWith(String(operand));
  }
  const order = compareValues(value, operand);
  if (order === 0) return operator.endsWith("e"); // lte, gte
  return order < 0 === operator.startsWith("l");
}

/** The longest URL in a Link field, in characters; clients have limits of their own. */
const maxLinkLength = 8192;

/**
 * Returns the header fields of a page: the number of matching records, and
 * links to the other pages (RFC 8288), with the pair of parameters that the
 * caller used.
 *
 * @param url the URL of the collection as it was requested, without query
 */
export function pageHeaders(
  query: Query,
  total: number,
  url: string,
): string[] {
  const { offset, limit, isPaged, parameters } = query;
  const headers = ["X-Total-Count", String(total)];
  if (total === 0 || limit === Infinity) return headers;
  const name = isPaged ? "page" : "offset";
  let others = "";
  for (const [each, value] of parameters) {
    if (each !== name) others += `${encode(each)}=${encode(value)}&`;
  }
  const last = Math.floor((total - 1) / limit) * limit;
  const previous = offset < total ? Math.max(offset - limit, 0) : last;
  const urlOf = (to: number) =>
    `${url}?${others}${name}=${isPaged ? to / limit + 1 : to}`;
  if (urlOf(last).length > maxLinkLength) return headers;
  const link = (rel: string, to: number) => `<${urlOf(to)}>; rel="${rel}"`;
  let links = link("first", 0);
  if (offset > 0) links += `, ${link("prev", previous)}`;
  if (offset + limit < total) links += `, ${link("next", offset + limit)}`;
  headers.push("Link", `${links}, ${link("last", last)}`);
  return headers;
}

/** Percent-encodes a parameter, except for characters that a query may contain as they are. */
function encode(text: string): string {
  if (/^[\w.:,/-]*$/.test(text)) return text;
  return encodeURIComponent(text)
    .replace(/%(?:2C|2F|3A)/g, decodeURIComponent);
}
