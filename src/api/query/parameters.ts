/**
 * The parameters of a collection: which records, in what order, which page of
 * them, and which of their properties.
 */

import { ApiError } from "../../http/errors.ts";
import { excerpt } from "../../http/json.ts";
import { decodePercent, parseId } from "../../http/router.ts";
import { caseFold, compareValues } from "../../store/store.ts";
import type { Collection, NamedProperty } from "../declaration/declaration.ts";
import type { Json } from "../declaration/properties.ts";

/** Parameters in the order in which they were sent, decoded. */
export type Parameters = ReadonlyMap<string, string>;

/**
 * Takes a query apart. A plus sign is a plus sign: it means a space in HTML
 * forms only, not in addresses (RFC 3986 section 2.2).
 *
 * @throws {ApiError} 40000 on malformed percent-encoding, 40003 on a parameter
 * that is given twice
 */
export function parseParameters(query: string): Parameters {
  const parameters = new Map<string, string>();
  for (const pair of query === "" ? [] : query.split("&")) {
    if (pair === "") continue;
    const equals = pair.indexOf("=");
    const end = equals < 0 ? pair.length : equals;
    const name = decodePercent(pair.slice(0, end));
    if (parameters.has(name)) {
      throw new ApiError(
        40003,
        `The parameter "${excerpt(name)}" is given twice: give it once.`,
      );
    }
    parameters.set(name, decodePercent(pair.slice(end + 1)));
  }
  return parameters;
}

/**
 * Takes the text of a form apart (`application/x-www-form-urlencoded`, URL
 * Standard section 5): as a query, but a plus sign is a space.
 *
 * @throws {ApiError} as {@linkcode parseParameters}
 */
export function parseForm(text: string): Parameters {
  return parseParameters(text.replaceAll("+", "%20"));
}

/**
 * Refuses all parameters but the ones named.
 *
 * @throws {ApiError} 40003
 */
export function rejectUnknownParameters(
  parameters: Parameters,
  allowed: readonly string[],
): void {
  for (const name of parameters.keys()) {
    if (!allowed.includes(name)) {
      throw unknownParameter(
        name,
        allowed.length ? `allowed is ${allowed.join(", ")}` : "none is allowed",
      );
    }
  }
}

function unknownParameter(name: string, allowed: string): ApiError {
  return new ApiError(
    40003,
    `The parameter "${excerpt(name)}" is not known here: ${allowed}.`,
  );
}

/** A 40004 that names parameter, value and what is allowed. */
export function invalidValue(
  name: string,
  value: string,
  allowed: string,
): ApiError {
  return new ApiError(
    40004,
    `The parameter "${name}" must be ${allowed}, not "${excerpt(value)}".`,
  );
}

const operators = [
  "ne",
  "lt",
  "lte",
  "gt",
  "gte",
  "in",
  "contains",
  "starts",
] as const;
/** How a filter compares. */
export type Operator = "eq" | (typeof operators)[number];

/** One condition on one property. */
export interface Filter {
  readonly property: NamedProperty;
  readonly operator: Operator;
  /** The values to compare with: one, or those of `in`. */
  readonly values: readonly Json[];
  /** The values of `in`: a body can hold very many. */
  readonly valueSet?: ReadonlySet<Json>;
}

/** A collection's parameters, understood. */
export interface Query {
  readonly filters: readonly Filter[];
  readonly sortby: NamedProperty;
  readonly descending: boolean;
  readonly offset: number;
  readonly limit: number;
  readonly fields: readonly string[] | undefined;
  /** As they were sent, for the links to other pages. */
  readonly parameters: Parameters;
}

/**
 * Understands the parameters of a collection.
 *
 * @throws {ApiError} 40003 on one that the collection does not have, 40004 on a
 * value that does not fit
 */
export function parseQuery(
  collection: Collection,
  parameters: Parameters,
): Query {
  const { visibleProperties } = collection;
  const id = visibleProperties.get("id");
  if (id === undefined) throw new Error("A collection has no id");
  const query = {
    filters: [] as Filter[],
    sortby: id,
    descending: false,
    fields: undefined as readonly string[] | undefined,
    ...parsePage(parameters),
    parameters,
  };
  for (const [name, value] of parameters) {
    switch (name) {
      case "limit":
      case "offset":
      case "page":
      case "per_page":
        break;
      case "sortby": {
        const property = visibleProperties.get(value);
        if (property === undefined) {
          const allowed = `one of ${[...visibleProperties.keys()].join(", ")}`;
          throw invalidValue(name, value, allowed);
        }
        query.sortby = property;
        break;
      }
      case "order":
        if (value !== "asc" && value !== "desc") {
          throw invalidValue(name, value, "asc or desc");
        }
        query.descending = value === "desc";
        break;
      case "fields":
        query.fields = parseFields(collection, value);
        break;
      default:
        query.filters.push(parseFilter(collection, name, value));
    }
  }
  return query;
}

function parsePage(
  parameters: Parameters,
): { offset: number; limit: number } {
  const byPage = parameters.has("page") || parameters.has("per_page");
  if (byPage && (parameters.has("limit") || parameters.has("offset"))) {
    throw new ApiError(
      40003,
      'The parameters "page" and "per_page" are not allowed together with "limit" and "offset": use one pair.',
    );
  }
  const limitName = byPage ? "per_page" : "limit";
  const limit = parameters.get(limitName) ?? "20";
  const size = parseId(limit);
  if (size === undefined || size > 100) {
    throw invalidValue(limitName, limit, "a number from 1 to 100");
  }
  if (!byPage) {
    const text = parameters.get("offset") ?? "0";
    const offset = text === "0" ? 0 : parseId(text);
    if (offset === undefined) {
      throw invalidValue("offset", text, "a number from 0 up");
    }
    return { offset, limit: size };
  }
  const text = parameters.get("page") ?? "1";
  const page = parseId(text);
  if (page === undefined) {
    throw invalidValue("page", text, "a number from 1 up");
  }
  return { offset: (page - 1) * size, limit: size };
}

/** A query for all that match from its offset on, unless it names a limit itself. */
export function withoutLimit(query: Query): Query {
  const limits = ["limit", "page", "per_page"];
  return limits.some((name) => query.parameters.has(name))
    ? query
    : { ...query, limit: Infinity };
}

/**
 * Understands `fields`.
 *
 * @throws {ApiError} 40004 on a property that the collection does not have
 */
export function parseFields(collection: Collection, value: string): string[] {
  const known = [
    ...collection.visibleProperties.keys(),
    ...collection.urlProperties,
  ];
  const fields = value.split(",");
  const unknown = fields.find((field) => !known.includes(field));
  if (unknown !== undefined) {
    throw invalidValue("fields", value, `a comma list of ${known.join(", ")}`);
  }
  // In the record's own order, whatever the caller's.
  return known.filter((name) => name === "id" || fields.includes(name));
}

/** The operators that fit a property, beside `eq`. */
export function operatorsOf({ kind }: NamedProperty): readonly Operator[] {
  switch (kind) {
    case "string":
      return operators;
    case "boolean":
    case "enum":
    case "array":
      return ["ne", "in"];
    default:
      return ["ne", "lt", "lte", "gt", "gte", "in"];
  }
}

function parseFilter(
  collection: Collection,
  parameter: string,
  text: string,
): Filter {
  const colon = parameter.indexOf(":");
  const name = colon < 0 ? parameter : parameter.slice(0, colon);
  const property = collection.visibleProperties.get(name);
  if (property === undefined) {
    const filters = [...collection.visibleProperties.keys()].join(", ");
    throw unknownParameter(
      parameter,
      `allowed are limit, offset, page, per_page, sortby, order, fields, and as filters ${filters}`,
    );
  }
  const fitting = operatorsOf(property);
  const operator = colon < 0
    ? "eq"
    : fitting.find((known) => known === parameter.slice(colon + 1));
  if (operator === undefined) {
    throw unknownParameter(
      parameter,
      `the operators of "${name}" are ${fitting.join(", ")}`,
    );
  }
  const parse = (value: string) =>
    parseOperand(property, operator, { parameter, value });
  if (operator !== "in") return { property, operator, values: [parse(text)] };
  return {
    property,
    operator,
    values: [],
    valueSet: new Set(text.split(",").map(parse)),
  };
}

function parseOperand(
  property: NamedProperty,
  operator: Operator,
  { parameter, value }: { readonly parameter: string; readonly value: string },
): Json {
  const textual = operator === "contains" || operator === "starts";
  if (value === "null" && property.nullable && !textual) {
    if (operator === "eq" || operator === "ne" || operator === "in") {
      return null;
    }
    throw invalidValue(
      parameter,
      value,
      "a value: null is neither less nor more",
    );
  }
  const parsed = property.parse(value);
  if (parsed === undefined) {
    throw invalidValue(parameter, value, property.expected);
  }
  return textual ? caseFold(String(parsed)) : parsed;
}

/** Whether a record's value fulfils a filter. null is neither less nor more than anything, and holds no text. */
export function matches(
  value: Json,
  { operator, values, valueSet }: Filter,
): boolean {
  const [operand = null] = values;
  switch (operator) {
    case "eq":
      return value === operand;
    case "ne":
      return value !== operand;
    case "in":
      return valueSet?.has(value) ?? false;
    case "contains":
      return typeof value === "string" &&
        caseFold(value).includes(String(operand));
    case "starts":
      return typeof value === "string" &&
        caseFold(value).startsWith(String(operand));
  }
  if (value === null) return false;
  const order = compareValues(value, operand);
  switch (operator) {
    case "lt":
      return order < 0;
    case "lte":
      return order <= 0;
    case "gt":
      return order > 0;
    case "gte":
      return order >= 0;
  }
}

// Link fields are for machines that have limits of their own.
const maximumAddress = 8192; // bytes

/**
 * The header fields of a page: how many match, and where the other pages are
 * (RFC 8288), in the caller's own style of paging.
 *
 * @param address the collection's address as it was asked, without query
 */
export function pageHeaders(
  query: Query,
  total: number,
  address: string,
): string[] {
  const { offset, limit, parameters } = query;
  const headers = ["X-Total-Count", String(total)];
  if (total === 0) return headers;
  const byPage = parameters.has("page") || parameters.has("per_page");
  const name = byPage ? "page" : "offset";
  const [before, after] = pageAddress(query, { address, name });
  const last = Math.floor((total - 1) / limit) * limit;
  const number = (to: number) => byPage ? to / limit + 1 : to;
  const length = before.length + String(number(last)).length + after.length;
  if (length > maximumAddress) return headers; // of the longest of them
  const link = (rel: string, to: number) =>
    `<${before}${number(to)}${after}>; rel="${rel}"`;
  let links = link("first", 0);
  const previous = Math.min(Math.max(offset - limit, 0), last);
  if (offset > 0) links += `, ${link("prev", previous)}`;
  if (offset + limit < total) links += `, ${link("next", offset + limit)}`;
  headers.push("Link", `${links}, ${link("last", last)}`);
  return headers;
}

/** The address of any page of a query: what stands before and behind the number in it. */
function pageAddress(
  { parameters }: Query,
  { address, name }: { readonly address: string; readonly name: string },
): [before: string, after: string] {
  let before = `${address}?`;
  let after: string | undefined;
  for (const [each, value] of parameters) {
    if (each === name) after = "";
    else if (after !== undefined) after += `&${encode(each)}=${encode(value)}`;
    else before += `${encode(each)}=${encode(value)}&`;
  }
  return [`${before}${name}=`, after ?? ""];
}

/** Percent-encodes a parameter, but leaves readable what a query may hold as it is. */
function encode(text: string): string {
  if (/^[\w.:,/-]*$/.test(text)) return text;
  return encodeURIComponent(text)
    .replaceAll("%3A", ":")
    .replaceAll("%2C", ",")
    .replaceAll("%2F", "/");
}
