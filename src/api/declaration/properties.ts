/**
 * The vocabulary of declarations: a function for each kind of property. Each
 * kind says in one place which values it allows, how a query parameter spells
 * one, and its JSON Schema; validation, filters, sort orders, OPTIONS responses
 * and the OpenAPI document all follow from it.
 */

import type { Json } from "../../store/store.ts";
import {
  checkBy,
  checkInteger,
  checkNumber,
  checkString,
  describeRange,
  type Failure,
  isEmailAddress,
  isHttpUrl,
  type NumberOptions,
  parseBoolean,
  parseDate,
  parseInteger,
  parseNumber,
  parseTimestamp,
  type StringOptions,
  wrongType,
} from "./values.ts";

export type { Json };

/** A JSON Schema 2020-12 fragment. */
export type JsonSchema = { readonly [keyword: string]: Json };

/** One property of a collection. */
export interface Property {
  readonly kind:
    | "string"
    | "number"
    | "integer"
    | "id"
    | "boolean"
    | "date"
    | "timestamp"
    | "enum"
    | "array"
    | "secret";
  /** The allowed values, as a phrase that follows "must be". */
  readonly expected: string;
  readonly schema: JsonSchema;
  /** Returns why a value other than null is refused; undefined if it is allowed. */
  readonly check: (value: unknown) => Failure | undefined;
  /** Parses the text of a query parameter; returns undefined if it is not a value of this kind. */
  readonly parse: (text: string) => Json | undefined;
  readonly required: boolean;
  readonly nullable: boolean;
  /** The value of an optional property that is left out. */
  readonly default: Json;
  /** If true, no two records may share a value, ignoring case. */
  readonly unique: boolean;
  /** The collection whose ids are the values. */
  readonly references: string | undefined;
  /** If true, only the server sets it. */
  readonly readOnly: boolean;
}

/** A property that every body must have, before it is known what kind it is. */
const required = {
  required: true,
  nullable: false,
  default: null,
  unique: false,
  references: undefined,
  readOnly: false,
};

/** Makes a property optional. Its default is `defaultValue`; without one it is null, and null is allowed. */
export function optional(
  of: Property,
  defaultValue: Json = null,
): Property {
  const nullable = defaultValue === null;
  return {
    ...of,
    required: false,
    nullable,
    default: defaultValue,
    expected: nullable ? `${of.expected}, or null` : of.expected,
    schema: {
      ...of.schema,
      ...(nullable && allowNull(of.schema)),
      default: defaultValue,
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
export function unique(of: Property): Property {
  return { ...of, unique: true };
}

/** Makes a property one that only the server sets. */
export function readOnly(of: Property): Property {
  return {
    ...of,
    required: false,
    readOnly: true,
    schema: { ...of.schema, readOnly: true },
  };
}

/** Matches strings without control characters; the second one, those that are not blank either. */
const printable = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";
const notBlank =
  "^[^\\u0000-\\u001f\\u007f-\\u009f]*[^\\s\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$";

/** A string that is well-formed, without control characters, and not blank. */
export function string(options: StringOptions): Property {
  const { minLength = 1, maxLength, pattern, description } = options;
  return {
    ...required,
    kind: "string",
    expected: description ??
      `a string of ${minLength} to ${maxLength} characters`,
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
export function anyString(): Property {
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
export function choice(
  ...values: readonly string[]
): Property {
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

export function number(options: NumberOptions = {}): Property {
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
export function integer(options: NumberOptions = {}): Property {
  const { maximum = Number.MAX_SAFE_INTEGER } = options;
  const bounds = { ...options, maximum };
  return {
    ...required,
    kind: "integer",
    expected: `an integer${describeRange(bounds)}`,
    schema: { type: "integer", ...bounds },
    check: (value) => checkInteger(value, bounds),
    parse: parseInteger,
  };
}

/** The id of a record of another collection. The property's name must end in `_id`: `zoo_id` gives the record a `zoo_url`. */
export function reference(collection: string): Property {
  return {
    ...integer({ minimum: 1 }),
    kind: "id",
    expected: `the id of one of the ${collection}`,
    references: collection,
  };
}

/** The id of the record itself. */
export function recordId(): Property {
  return readOnly({
    ...integer({ minimum: 1 }),
    kind: "id",
    expected: "an id",
  });
}

export function boolean(): Property {
  return {
    ...required,
    kind: "boolean",
    expected: "true or false",
    schema: { type: "boolean" },
    check: (value) => typeof value === "boolean" ? undefined : wrongType(value),
    parse: parseBoolean,
  };
}

/** A valid calendar date, `YYYY-MM-DD` (RFC 3339 section 5.6, full-date). */
export function date(): Property {
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

/** A point in time (RFC 3339 section 5.6, date-time). A parameter is normalized to UTC with milliseconds, so that text order is time order. */
export function timestamp(): Property {
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
export function url(): Property {
  return formatted("http(s) URL", {
    format: "uri",
    maxLength: 2000,
    isValid: isHttpUrl,
  });
}

/** An e-mail address of at most 254 characters (RFC 5321 section 4.5.3.1.3, minus the angle brackets). */
export function email(): Property {
  return formatted("e-mail address", {
    format: "email",
    maxLength: 254,
    isValid: isEmailAddress,
  });
}

function formatted(
  noun: string,
  { format, maxLength, isValid }: {
    readonly format: string;
    readonly maxLength: number;
    readonly isValid: (text: string) => boolean;
  },
): Property {
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

/** Makes a property one that appears in no response; if it is stored, then as a hash. */
export function writeOnly(of: Property): Property {
  return { ...of, kind: "secret", schema: { ...of.schema, writeOnly: true } };
}

/** An array that only the server sets; no parameter can compare with it. */
export function array(items: JsonSchema): Property {
  return {
    ...required,
    kind: "array",
    expected: "left out",
    schema: { type: "array", items },
    check: (value) => Array.isArray(value) ? undefined : wrongType(value),
    parse: () => undefined,
  };
}
