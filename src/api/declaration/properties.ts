/**
 * The vocabulary of declarations: a function for each kind of property. Each
 * kind defines in one place which values it allows, how a query parameter
 * spells them, and its JSON Schema; validation, filters, sort orders, OPTIONS
 * responses and the OpenAPI document all follow from it.
 */

import type { Json } from "../../store/store.ts";
import {
  checkBy,
  checkInteger,
  checkNumber,
  checkString,
  describeRange,
  emailAddress,
  type Failure,
  type NumberOptions,
  parseDate,
  parseInteger,
  parseNumber,
  parseTimestamp,
  type StringOptions,
  wrongType,
} from "./values.ts";

export type { Json };

/** Values by name, usually those of a record's properties. */
export type Values = Readonly<Record<string, Json>>;

/** A JSON Schema 2020-12 fragment. */
export type JsonSchema = Values;

/** An option of every property, which only `cli/declaration/` reads. */
export interface Former {
  /** Its name in earlier declarations. */
  readonly renamed?: string;
}

/** One property of a collection, and the type of its values. */
export interface Property<Value extends Json = Json> extends Former {
  readonly kind:
    | "string"
    | "number"
    | "boolean"
    | "date"
    | "timestamp"
    | "enum"
    | "secret";
  /** The allowed values, as a phrase that follows "must be". */
  readonly expected: string;
  readonly schema: JsonSchema;
  /** Returns why a value other than null is refused; undefined if it is allowed. */
  readonly check: (value: unknown) => Failure | undefined;
  /** Parses the text of a query parameter; returns undefined if it is not a value of this kind. */
  readonly parse: (text: string) => Value | undefined;
  readonly required: boolean;
  readonly nullable: boolean;
  /** The value of an optional property that is omitted. */
  readonly default: Json;
  /** If true, no two records may share a value, ignoring case. */
  readonly unique: boolean;
  /** The collection whose ids are the values. */
  readonly references: string | undefined;
  /** The last segment of the URL of the records that refer to one: by default the name of their collection. */
  readonly as?: string | undefined;
  /** If true, only the server sets it. */
  readonly readOnly: boolean;
}

/** The attributes of a required property of any kind. */
const required = {
  required: true,
  nullable: false,
  default: null,
  unique: false,
  references: undefined,
  readOnly: false,
};

/** Makes a property optional. Its default is `defaultValue`, in the form in which values are stored; without one it is null, and null is allowed. */
export function optional<
  Value extends Json,
  Default extends Value | null = null,
>(
  of: Property<Value>,
  defaultValue?: Default,
): Property<Value | Default> {
  const preset = (defaultValue && of.parse(String(defaultValue))) ?? null;
  const nullable = preset === null;
  return {
    ...of,
    required: false,
    nullable,
    default: preset,
    expected: nullable ? `${of.expected}, or null` : of.expected,
    schema: {
      ...of.schema,
      ...(nullable && allowNull(of.schema)),
      default: preset,
    },
  };
}

function allowNull({ type = "string", enum: values }: JsonSchema): JsonSchema {
  return {
    type: [type, "null"].flat(),
    ...(Array.isArray(values) && { enum: [...values, null] }),
  };
}

/** Allows no two records of the collection to have the same value, ignoring case. */
export function unique<Value extends Json>(
  of: Property<Value>,
): Property<Value> {
  return { ...of, unique: true };
}

/** Marks a property as set only by the server. */
export function readOnly(of: Property): Property {
  return {
    ...of,
    required: false,
    readOnly: true,
    schema: { ...of.schema, readOnly: true },
  };
}

/** Matches strings without control characters; the second one, those that also are not blank. */
const printable = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";
const notBlank =
  "^[^\\u0000-\\u001f\\u007f-\\u009f]*[^\\s\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$";

/** A string that is well-formed, without control characters, and not blank. */
export function string(options: Former & StringOptions): Property<string> {
  const { minLength = 1, maxLength, pattern, description } = options;
  return {
    ...required,
    kind: "string",
    expected: description ??
      `a string of ${minLength} to ${maxLength} characters` +
        (pattern ? ` that matches ${pattern}` : ""),
    schema: {
      type: "string",
      minLength,
      maxLength,
      pattern: pattern?.source ?? (minLength > 0 ? notBlank : printable),
    },
    check: (value) => checkString(value, options),
    parse: (text) => text,
  };
}

/** Any string at all, for values that are compared but never stored. */
export function anyString(): Property<string> {
  return {
    ...required,
    kind: "string",
    expected: "a string",
    schema: { type: "string" },
    check: (value) => typeof value === "string" ? undefined : wrongType(value),
    parse: (text) => text,
  };
}

/** One of a fixed set of strings. */
export function choice<const Options extends readonly (string | Former)[]>(
  ...options: Options
): Property<Extract<Options[number], string>>;
export function choice(
  ...all: readonly (string | Former)[]
): Property<string> {
  const values = all.filter((each) => typeof each === "string");
  const parse = (text: string) => values.find((value) => value === text);
  return {
    ...required,
    kind: "enum",
    expected: `one of ${values.map((value) => `"${value}"`).join(", ")}`,
    schema: { type: "string", enum: values },
    check: checkBy(parse, { code: "enum", reason: "is not allowed" }),
    parse,
  };
}

export function number(
  { renamed: _, ...options }: Former & NumberOptions = {},
): Property<number> {
  return {
    ...required,
    kind: "number",
    expected: `a number${describeRange(options)}`,
    schema: { type: "number", ...options },
    check: (value) => checkNumber(value, options),
    parse: parseNumber,
  };
}

/** An integer that a double holds exactly: between -(2^53-1) and 2^53-1. */
export function integer(
  { renamed: _, maximum = Number.MAX_SAFE_INTEGER, ...others }:
    & Former
    & NumberOptions = {},
): Property<number> {
  const bounds = { ...others, maximum };
  const safe = { minimum: Number.MIN_SAFE_INTEGER, ...bounds };
  return {
    ...number(bounds),
    expected: `an integer${describeRange(bounds)}`,
    schema: { type: "integer", ...bounds },
    check: (value) => checkInteger(value, safe),
    parse: parseInteger,
  };
}

/** The id of a record of another collection. The property's name must end in `_id`: `zoo_id` gives the record a `zoo_url`. */
export function reference(
  collection: string,
  { as }: Former & Pick<Property, "as"> = {},
): Property<number> {
  return {
    ...integer({ minimum: 1 }),
    expected: `the id of one of the ${collection}`,
    references: collection,
    as,
  };
}

/** The id of the record itself. */
export function recordId(): Property {
  return readOnly({ ...integer({ minimum: 1 }), expected: "an id" });
}

export function boolean(): Property<boolean> {
  return {
    ...required,
    kind: "boolean",
    expected: "true or false",
    schema: { type: "boolean" },
    check: (value) => typeof value === "boolean" ? undefined : wrongType(value),
    parse: (text) =>
      text === "true" ? true : text === "false" ? false : undefined,
  };
}

/** A valid calendar date, `YYYY-MM-DD` (RFC 3339 section 5.6, full-date). */
export function date(): Property<string> {
  return {
    ...required,
    kind: "date",
    expected: "a calendar date as YYYY-MM-DD",
    schema: { type: "string", format: "date" },
    check: checkBy(parseDate, {
      code: "format",
      reason: "is not a valid date",
    }),
    parse: parseDate,
  };
}

/** A point in time (RFC 3339 section 5.6, date-time). What a client sends is normalized to UTC with milliseconds, so that text order is time order. */
export function timestamp(): Property<string> {
  return {
    ...required,
    kind: "timestamp",
    expected: "a timestamp such as 2026-01-31T12:00:00Z",
    schema: { type: "string", format: "date-time" },
    check: checkBy(parseTimestamp, {
      code: "format",
      reason: "is not a valid timestamp",
    }),
    parse: parseTimestamp,
  };
}

/** An http or https URL of at most 2,000 characters. */
export function url(): Property<string> {
  return formatted(
    "http(s) URL",
    "uri",
    2000,
    (text) => /^https?:\/\/[^\s\\/][^\s\\]*$/i.test(text) && URL.canParse(text),
  );
}

/** An e-mail address of at most 254 characters (RFC 5321 section 4.5.3.1.3, minus the angle brackets). */
export function email(): Property<string> {
  return formatted(
    "e-mail address",
    "email",
    254,
    (text) => emailAddress.test(text),
  );
}

function formatted(
  noun: string,
  format: string,
  maxLength: number,
  isValid: (text: string) => boolean,
): Property<string> {
  const description = `an ${noun} of at most ${maxLength} characters`;
  const base = string({ maxLength, description });
  return {
    ...base,
    schema: { type: "string", format, maxLength },
    check: (value) =>
      base.check(value) ??
        (isValid(String(value))
          ? undefined
          : { code: "format", reason: `is not a valid ${noun}` }),
  };
}

/** Marks a property as appearing in no response; if it is stored, it is stored as a hash. */
export function writeOnly(of: Property): Property {
  return { ...of, kind: "secret", schema: { ...of.schema, writeOnly: true } };
}
