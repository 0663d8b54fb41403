/**
 * The vocabulary of declarations: a function for each kind of property. Each
 * kind defines in one place which values it allows, how a query parameter
 * spells them, and its JSON Schema; validation, filters, sort orders, OPTIONS
 * responses and the OpenAPI document all follow from it.
 */

import type { FieldError } from "../../http/errors.ts";
import { foldText, type Json } from "../../store/store.ts";

export type { Json };

/** Values by name, usually those of a record's properties. */
export type Values = Readonly<Record<string, Json>>;

/** A JSON Schema 2020-12 fragment. */
export type JsonSchema = Values;

/** The reason why a value is refused: the code of a field error, and a phrase that follows the property's name. */
export interface Failure {
  readonly code: FieldError["code"];
  readonly reason: string;
}

/** One property of a collection. */
export interface Property {
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
  /** Also what a form shows: the description in the words of the declaration, and of which collection a reference is. */
  readonly schema: JsonSchema;
  /** Returns why a value other than null is refused; undefined if it is allowed. */
  readonly check: (value: unknown) => Failure | undefined;
  /** Parses the text of a query parameter; returns undefined if it is not a value of this kind. */
  readonly parse: (text: string) => Json | undefined;
  readonly required: boolean;
  readonly nullable: boolean;
  /** The value of an optional property that is omitted. */
  readonly default: Json;
  /** If true, no two records may share a value, comparing texts as {@linkcode foldText} does. */
  readonly unique: boolean;
  /** The collection whose ids are the values. */
  readonly references: string | undefined;
  /** True if a record without a value does not show it as null. */
  readonly omitsNull?: true;
  /** The last segment of the URL of the records that refer to one: by default the name of their collection. */
  readonly as?: string | undefined;
  /** If true, only the server sets it. */
  readonly readOnly: boolean;
  /** Its name in earlier declarations, which `cli/declaration/` reads and adds. */
  readonly renamed?: string;
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
export function optional(of: Property, defaultValue?: Json): Property {
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

/** Allows no two records of the collection to have the same value: texts differ if more than their case, the form of their characters and the space around them does. */
export function unique(of: Property): Property {
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

export function failWith(code: Failure["code"], reason: string): Failure {
  return { code, reason };
}

/** Returns the failure of a value of the wrong JSON type. */
function wrongType(value: unknown): Failure {
  const type = value === null
    ? "null"
    : Array.isArray(value)
    ? "an array"
    : typeof value === "object"
    ? "an object"
    : `a ${typeof value}`;
  return failWith("type", `is ${type}`);
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

/** The limits of a string; lengths count Unicode code points. */
interface StringOptions {
  /** 1 by default. */
  readonly minLength?: number;
  readonly maxLength: number;
  readonly pattern?: RegExp;
  /** The allowed strings, as a phrase that follows "must be". */
  readonly description?: string;
}

/** The control characters: all, and those other than tabs and line feeds. */
const controls = String.raw`\u0000-\u001f\u007f-\u009f`;
const controlsInText = String.raw`\u0000-\u0008\u000b-\u001f\u007f-\u009f`;

/** Returns a pattern of strings without these characters and, from length 1, not blank. */
function without(characters: string, minLength: number): string {
  const any = `[^${characters}]*`;
  return minLength > 0 ? `^${any}[^\\s${controls}]${any}$` : `^${any}$`;
}

/** A string that is well-formed, without control characters, and not blank. */
export function string(options: StringOptions): Property {
  return characters(options, controls);
}

/** A string that may have several lines: it also allows tabs and line feeds. */
export function text(options: StringOptions): Property {
  const base = characters(options, controlsInText);
  return { ...base, schema: { ...base.schema, format: "multiline" } };
}

function characters(
  { minLength = 1, maxLength, pattern, description }: StringOptions,
  refused: string,
): Property {
  const control = new RegExp(`[${refused}]`);
  const base = anyString();
  return {
    ...base,
    expected: description ??
      `a string of ${minLength} to ${maxLength} characters` +
        (pattern ? ` that matches ${pattern}` : ""),
    schema: {
      type: "string",
      minLength,
      maxLength,
      pattern: pattern?.source ?? without(refused, minLength),
      ...(description && { description }),
    },
    check(value) {
      if (typeof value !== "string") return base.check(value);
      if (!value.isWellFormed()) {
        return failWith("format", "contains an unpaired surrogate");
      }
      if (control.test(value)) {
        return failWith("format", "contains a control character");
      }
      if (minLength > 0 && foldText(value) === "") {
        return failWith("length", "is blank");
      }
      // Of a character beyond U+FFFF, only one half counts.
      const { length } = value.replace(/[\uD800-\uDBFF]/g, "");
      if (length < minLength || length > maxLength) {
        return failWith("length", `has ${length} characters`);
      }
      return pattern?.test(value) === false
        ? failWith("format", "does not match the required format")
        : undefined;
    },
  };
}

/** A string of which `parse` knows the form: it returns undefined for any other. */
function parsed(
  kind: Property["kind"],
  { expected, schema, failure, parse }:
    & Pick<Property, "expected" | "schema" | "parse">
    & { readonly failure: Failure },
): Property {
  return {
    ...required,
    kind,
    expected,
    schema: { type: "string", ...schema },
    check(value) {
      if (typeof value !== "string") return wrongType(value);
      return parse(value) === undefined ? failure : undefined;
    },
    parse,
  };
}

/** One of a fixed set of strings. */
export function choice(...values: readonly string[]): Property {
  return parsed("enum", {
    expected: `one of ${values.map((value) => `"${value}"`).join(", ")}`,
    schema: { enum: values },
    failure: failWith("enum", "is not allowed"),
    parse: (text) => values.find((value) => value === text),
  });
}

/** A valid calendar date, `YYYY-MM-DD` (RFC 3339 section 5.6, full-date). */
export function date(): Property {
  return parsed("date", {
    expected: "a calendar date as YYYY-MM-DD",
    schema: { format: "date" },
    failure: failWith("format", "is not a valid date"),
    parse: parseDate,
  });
}

function parseDate(text: string): string | undefined {
  if (!/^\d{4}-\d\d-\d\d$/.test(text)) return undefined;
  // For Date, 30 February is a day in March, and 2026-13-01 is invalid.
  const day = new Date(`${text}T00:00:00Z`).getUTCDate();
  return day === Number(text.slice(8)) ? text : undefined;
}

/** A point in time (RFC 3339 section 5.6, date-time). What a client sends is normalized to UTC with milliseconds, so that text order is time order. */
export function timestamp(): Property {
  return parsed("timestamp", {
    expected: "a timestamp such as 2026-01-31T12:00:00Z",
    schema: { format: "date-time" },
    failure: failWith("format", "is not a valid timestamp"),
    parse: parseTimestamp,
  });
}

const timestampForm =
  /^(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/i;

function parseTimestamp(text: string): string | undefined {
  const [, date = ""] = timestampForm.exec(text) ?? [];
  if (parseDate(date) === undefined) return undefined;
  const utc = new Date(text.toUpperCase()).toISOString();
  // Years with a sign and six digits would not sort as text.
  return /^\d{4}-/.test(utc) ? utc : undefined;
}

/** An http or https URL of at most 2,000 characters; an IRI (RFC 3987), as people copy it: `https://de.example/wiki/Löwe`. */
export function url(): Property {
  return formatted(
    "http(s) URL",
    { format: "iri", maxLength: 2000 },
    (text) => /^https?:\/\/[^\s\\/][^\s\\]*$/i.test(text) && URL.canParse(text),
  );
}

/** A dot-atom, an at sign and a domain name of two labels or more (RFC 5321 section 4.1.2, without quoted local parts and address literals). */
export const emailAddress =
  /^(?=.{1,64}@)[\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*@(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/i;

/** An e-mail address of at most 254 characters (RFC 5321 section 4.5.3.1.3, minus the angle brackets). */
export function email(): Property {
  return formatted(
    "e-mail address",
    { format: "email", maxLength: 254 },
    (text) => emailAddress.test(text),
  );
}

function formatted(
  noun: string,
  schema: { readonly format: string; readonly maxLength: number },
  isValid: (text: string) => boolean,
): Property {
  const { maxLength } = schema;
  const description = `an ${noun} of at most ${maxLength} characters`;
  const base = string({ maxLength, description });
  const failure: Failure = failWith("format", `is not a valid ${noun}`);
  return {
    ...base,
    schema: { type: "string", ...schema, description },
    check: (value) =>
      base.check(value) ?? (isValid(String(value)) ? undefined : failure),
  };
}

export function boolean(): Property {
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

/** The bounds of a number, by the keywords of JSON Schema. */
type NumberOptions = {
  readonly [bound in "minimum" | "exclusiveMinimum" | "maximum"]?: number;
};

export function number(bounds: NumberOptions = {}): Property {
  const {
    minimum = -Infinity,
    exclusiveMinimum = -Infinity,
    maximum = Infinity,
  } = bounds;
  return {
    ...required,
    kind: "number",
    expected: `a number${describeRange(bounds)}`,
    schema: { type: "number", ...bounds },
    check(value) {
      if (typeof value !== "number") return wrongType(value);
      // JSON.parse returns Infinity for 1e400.
      if (!Number.isFinite(value)) {
        return failWith("range", "is too large for a double");
      }
      return value < minimum || value <= exclusiveMinimum || value > maximum
        ? failWith("range", `is ${value}`)
        : undefined;
    },
    parse(text) {
      const form = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
      const value = form.test(text) ? Number(text) : NaN;
      return Number.isFinite(value) ? value : undefined;
    },
  };
}

/** An integer that a double holds exactly: between -(2^53-1) and 2^53-1. */
export function integer(
  { maximum = Number.MAX_SAFE_INTEGER, ...others }: NumberOptions = {},
): Property {
  const bounds = { ...others, maximum };
  const base = number({ minimum: Number.MIN_SAFE_INTEGER, ...bounds });
  return {
    ...base,
    expected: `an integer${describeRange(bounds)}`,
    schema: { type: "integer", ...bounds },
    check: (value) =>
      Number.isFinite(value) && !Number.isInteger(value)
        ? failWith("type", "is not a whole number")
        : base.check(value),
    parse: parseInteger,
  };
}

/** Returns undefined if a text is not an integer in its usual form. */
function parseInteger(text: string): number | undefined {
  const value = /^(?:0|-?[1-9]\d{0,15})$/.test(text) ? Number(text) : NaN;
  return Number.isSafeInteger(value) ? value : undefined;
}

/** Describes bounds as a phrase that follows "a number". */
function describeRange(
  { minimum, exclusiveMinimum, maximum }: NumberOptions,
): string {
  const limit = maximum === Number.MAX_SAFE_INTEGER ? "2^53-1" : maximum;
  return [
    minimum === undefined ? "" : ` from ${minimum}`,
    exclusiveMinimum === undefined ? "" : ` above ${exclusiveMinimum}`,
    limit === undefined ? "" : ` up to ${limit}`,
  ].join("");
}

/** The id of a record of another collection. The property's name must end in `_id`: `zoo_id` gives the record a `zoo_url`. */
export function reference(
  collection: string,
  { as }: Pick<Property, "as"> = {},
): Property {
  const id = integer({ minimum: 1 });
  return {
    ...id,
    expected: `the id of one of the ${collection}`,
    schema: {
      ...id.schema,
      "x-collection": collection,
      ...(as && { "x-as": as }),
    },
    references: collection,
    as,
  };
}

/** The id of the record itself. */
export function recordId(): Property {
  return readOnly({ ...integer({ minimum: 1 }), expected: "an id" });
}

/** Marks a property as appearing in no response; if it is stored, it is stored as a hash. */
export function writeOnly(of: Property): Property {
  return { ...of, kind: "secret", schema: { ...of.schema, writeOnly: true } };
}
