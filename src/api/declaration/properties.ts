/**
 * The kinds of property that a declaration can use. Each kind says, in one
 * place, what values it allows, how a parameter spells one, and its JSON
 * Schema; validation, filters, sort orders, OPTIONS answers and record types
 * all follow from it.
 */

import type { FieldError } from "../../http/errors.ts";
import { parseId } from "../../http/router.ts";
import type { Json } from "../../store/store.ts";

export type { Json };

/** A JSON Schema 2020-12 fragment. */
export type JsonSchema = { readonly [keyword: string]: Json };

/** Why a value is refused: the code of a field error and what is wrong with the value. */
export interface Failure {
  readonly code: FieldError["code"];
  readonly reason: string;
}

/** One property of a collection; `T` is the type of its values. */
export interface Property<T extends Json = Json> {
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
  /** What is allowed, in words that follow "must be". */
  readonly expected: string;
  readonly schema: JsonSchema;
  /** What is wrong with a value other than null; undefined where it is allowed. */
  readonly check: (value: unknown) => Failure | undefined;
  /** The value that a parameter's text stands for; undefined where it is none of this type. */
  readonly parse: (text: string) => T | undefined;
  readonly required: boolean;
  readonly nullable: boolean;
  /** The value where an optional property is left out. */
  readonly default: T | null;
  /** Whether no two records may share a value, compared without case. */
  readonly unique: boolean;
  /** The collection whose record the value is the id of. */
  readonly references: string | undefined;
  /** Set by the server alone. */
  readonly readOnly: boolean;
}

type Kind<T extends Json> =
  & Pick<Property<T>, "kind" | "expected" | "schema" | "check" | "parse">
  & Partial<Property<T>>;

function property<T extends Json>(kind: Kind<T>): Property<T> {
  return {
    required: true,
    nullable: false,
    default: null,
    unique: false,
    references: undefined,
    readOnly: false,
    ...kind,
  };
}

/** Makes a property optional. Left out, it is `otherwise`; without that it is null, and null is allowed. */
export function optional<T extends Json>(
  of: Property<T>,
  otherwise: T,
): Property<T>;
export function optional<T extends Json>(of: Property<T>): Property<T | null>;
export function optional<T extends Json>(
  of: Property<T>,
  otherwise: T | null = null,
): Property<T | null> {
  return {
    ...of,
    required: false,
    nullable: otherwise === null,
    default: otherwise,
    expected: otherwise === null ? `${of.expected}, or null` : of.expected,
    schema: otherwise === null
      ? nullableSchema(of.schema)
      : { ...of.schema, default: otherwise },
  };
}

function nullableSchema(schema: JsonSchema): JsonSchema {
  const type = [schema["type"] ?? "string", "null"].flat();
  const words = schema["enum"];
  return {
    ...schema,
    type,
    ...(Array.isArray(words) && { enum: [...words, null] }),
    default: null,
  };
}

/** No two records of the collection may have the same value, compared without case. */
export function unique<T extends Json>(of: Property<T>): Property<T> {
  return { ...of, unique: true };
}

/** A property that the server alone sets. */
export function readOnly<T extends Json>(of: Property<T>): Property<T> {
  return {
    ...of,
    required: false,
    readOnly: true,
    schema: { ...of.schema, readOnly: true },
  };
}

/** What a text may look like; lengths count Unicode code points. */
export interface StringOptions {
  readonly minLength?: number;
  readonly maxLength: number;
  readonly pattern?: RegExp;
  /** What is allowed, in words that follow "must be". */
  readonly description?: string;
}

/** A text: well-formed, without control characters, not blank. */
export function string(options: StringOptions): Property<string> {
  const { minLength = 1, maxLength, pattern } = options;
  return property({
    kind: "string",
    expected: options.description ??
      `a string of ${minLength} to ${maxLength} characters`,
    schema: {
      type: "string",
      minLength: minLength,
      maxLength: maxLength,
      ...(pattern && { pattern: pattern.source }),
    },
    check: (value) => checkText(value, options),
    parse: (text) => text,
  });
}

function checkText(
  value: unknown,
  options: StringOptions,
): Failure | undefined {
  const { minLength = 1, pattern } = options;
  if (typeof value !== "string") return wrongType(value);
  if (pattern === undefined && plain.test(value)) {
    return checkLength(value.length, options);
  }
  if (!value.isWellFormed()) {
    return { code: "format", reason: "holds half of a surrogate pair" };
  }
  if (/\p{Cc}/u.test(value)) {
    return { code: "format", reason: "holds a control character" };
  }
  if (minLength > 0 && /^\s*$/.test(value)) {
    return { code: "length", reason: "is blank" };
  }
  if (pattern && !pattern.test(value)) {
    return { code: "format", reason: "does not have the form" };
  }
  return checkLength(codePoints(value), options);
}

/** What nearly all texts are, and what makes the other questions needless: ASCII that begins with neither a space nor a control character. */
const plain = /^[!-~][ -~]*$/;

function checkLength(
  length: number,
  { minLength = 1, maxLength }: StringOptions,
): Failure | undefined {
  return length < minLength || length > maxLength
    ? { code: "length", reason: `has ${length} characters` }
    : undefined;
}

function codePoints(text: string): number {
  let length = text.length;
  for (let at = 1; at < text.length; at++) {
    const low = (text.charCodeAt(at) & 0xfc00) === 0xdc00;
    if (low && (text.charCodeAt(at - 1) & 0xfc00) === 0xd800) length--;
  }
  return length;
}

function wrongType(value: unknown): Failure {
  const type = value === null
    ? "null"
    : Array.isArray(value)
    ? "an array"
    : typeof value === "object"
    ? "an object"
    : `a ${typeof value}`;
  return { code: "type", reason: `is ${type}` };
}

/** Any string at all, for what is only compared and never kept. */
export function anyString(): Property<string> {
  return property({
    kind: "string",
    expected: "a string",
    schema: { type: "string" },
    check: (value) => typeof value === "string" ? undefined : wrongType(value),
    parse: (text) => text,
  });
}

/** Two or more fixed words. */
export function choice<const T extends string>(
  ...values: readonly T[]
): Property<T> {
  const find = (text: string) => values.find((value) => value === text);
  return property<T>({
    kind: "enum",
    expected: `one of ${values.map((value) => `"${value}"`).join(", ")}`,
    schema: { type: "string", enum: values },
    check: (value) =>
      typeof value !== "string"
        ? wrongType(value)
        : find(value) === undefined
        ? { code: "enum", reason: "is none of them" }
        : undefined,
    parse: find,
  });
}

/** Bounds of a number: from `min` or above `over`, to `max`. */
export interface NumberOptions {
  readonly minimum?: number;
  readonly exclusiveMinimum?: number;
  readonly maximum?: number;
}

/** A finite number. */
export function number(options: NumberOptions = {}): Property<number> {
  return property({
    kind: "number",
    expected: `a number${range(options)}`,
    schema: { type: "number", ...rangeSchema(options) },
    check: (value) =>
      typeof value === "number" ? checkRange(value, options) : wrongType(value),
    parse: parseNumber,
  });
}

/** A whole number that a double holds exactly: at most 2^53-1 either way. */
export function integer(options: NumberOptions = {}): Property<number> {
  const bounds = { maximum: Number.MAX_SAFE_INTEGER, ...options };
  return property({
    kind: "integer",
    expected: `an integer${range(bounds)}`,
    schema: { type: "integer", ...rangeSchema(bounds) },
    check: (value) => checkInteger(value, bounds),
    parse: parseInteger,
  });
}

/** The id of a record of another collection. Its name must end in `_id`; the record then has an address under the same name with `_url`. */
export function reference(collection: string): Property<number> {
  const bounds = { minimum: 1, maximum: Number.MAX_SAFE_INTEGER };
  return property({
    kind: "id",
    expected: `the id of one of the ${collection}`,
    schema: { type: "integer", ...rangeSchema(bounds) },
    check: (value) => checkInteger(value, bounds),
    parse: parseInteger,
    references: collection,
  });
}

/** The id of the record itself. */
export function recordId(): Property<number> {
  return readOnly({
    ...reference(""),
    expected: "an id",
    references: undefined,
  });
}

function checkInteger(
  value: unknown,
  bounds: NumberOptions,
): Failure | undefined {
  if (typeof value !== "number") return wrongType(value);
  if (Number.isFinite(value) && !Number.isInteger(value)) {
    return { code: "type", reason: "is not a whole number" };
  }
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
    return { code: "range", reason: "is beyond 2^53-1" };
  }
  return checkRange(value, bounds);
}

function checkRange(value: number, bounds: NumberOptions): Failure | undefined {
  const {
    minimum = -Infinity,
    exclusiveMinimum = -Infinity,
    maximum = Infinity,
  } = bounds;
  // What JSON spells as 1e400 arrives as Infinity.
  if (!Number.isFinite(value)) {
    return { code: "range", reason: "is too large for a double" };
  }
  return value < minimum || value <= exclusiveMinimum || value > maximum
    ? { code: "range", reason: `is ${value}` }
    : undefined;
}

function range({ minimum, exclusiveMinimum, maximum }: NumberOptions): string {
  return [
    minimum !== undefined ? ` from ${minimum}` : "",
    exclusiveMinimum !== undefined ? ` over ${exclusiveMinimum}` : "",
    maximum === Number.MAX_SAFE_INTEGER
      ? " to 2^53-1"
      : maximum !== undefined
      ? ` to ${maximum}`
      : "",
  ].join("");
}

function rangeSchema(
  { minimum, exclusiveMinimum, maximum }: NumberOptions,
): JsonSchema {
  return {
    ...(minimum !== undefined && { minimum: minimum }),
    ...(exclusiveMinimum !== undefined &&
      { exclusiveMinimum: exclusiveMinimum }),
    ...(maximum !== undefined && { maximum: maximum }),
  };
}

function parseNumber(text: string): number | undefined {
  if (!/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text)) {
    return undefined;
  }
  const value = Number(text);
  return Number.isFinite(value) ? value : undefined;
}

function parseInteger(text: string): number | undefined {
  if (text === "0") return 0;
  return text.startsWith("-") ? negative(text) : parseId(text);
}

function negative(text: string): number | undefined {
  const value = parseId(text.slice(1));
  return value === undefined ? undefined : -value;
}

/** True or false. */
export function boolean(): Property<boolean> {
  return property({
    kind: "boolean",
    expected: "true or false",
    schema: { type: "boolean" },
    check: (value) => typeof value === "boolean" ? undefined : wrongType(value),
    parse: (text) =>
      text === "true" ? true : text === "false" ? false : undefined,
  });
}

/** A calendar day that there is, `YYYY-MM-DD` (RFC 3339 section 5.6, full-date). */
export function date(): Property<string> {
  return property({
    kind: "date",
    expected: "a calendar day as YYYY-MM-DD",
    schema: { type: "string", format: "date" },
    check: (value) =>
      typeof value !== "string"
        ? wrongType(value)
        : isDate(value)
        ? undefined
        : { code: "format", reason: "is no such day" },
    parse: (text) => isDate(text) ? text : undefined,
  });
}

function isDate(text: string): boolean {
  if (!/^\d{4}-\d\d-\d\d$/.test(text)) return false;
  // Date takes 30 February for a day in March, and 2026-13-01 for none.
  const day = new Date(`${text}T00:00:00Z`).getUTCDate();
  return day === Number(text.slice(8));
}

/** A moment (RFC 3339 section 5.6, date-time); kept as UTC with milliseconds, so that text order is time order. */
export function timestamp(): Property<string> {
  return property({
    kind: "timestamp",
    expected: "a moment such as 2026-01-31T12:00:00Z",
    schema: { type: "string", format: "date-time" },
    check: (value) =>
      typeof value !== "string"
        ? wrongType(value)
        : parseTime(value) === undefined
        ? { code: "format", reason: "is no such moment" }
        : undefined,
    parse: parseTime,
  });
}

function parseTime(text: string): string | undefined {
  const form =
    /^(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/i;
  const day = form.exec(text)?.[1];
  if (day === undefined || !isDate(day)) return undefined;
  const moment = new Date(text.toUpperCase());
  if (Number.isNaN(moment.getTime())) return undefined;
  const utc = moment.toISOString();
  return /^\d{4}-/.test(utc) ? utc : undefined; // texts of one length compare
}

/** An address that a browser can follow: http or https, at most 2,000 characters. */
export function url(): Property<string> {
  const max = 2000;
  return property({
    ...string({
      maxLength: max,
      description: "an http(s) address of at most 2000 characters",
    }),
    schema: { type: "string", format: "uri", maxLength: max },
    check: (value) =>
      checkText(value, { maxLength: max }) ??
        (/^https?:\/\/[^\s\\]+$/i.test(String(value)) &&
            URL.canParse(String(value))
          ? undefined
          : { code: "format", reason: "is no such address" }),
  });
}

// A dot-atom, an at sign and a domain name of two labels or more (RFC 5321
// section 4.1.2, without quoted local parts and address literals).
const mailbox =
  /^(?=.{1,64}@)[\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*@(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/i;

/** An e-mail address of at most 254 characters (RFC 5321 section 4.5.3.1.3 less the angle brackets). */
export function email(): Property<string> {
  const max = 254;
  return property({
    ...string({
      maxLength: max,
      description: "an e-mail address of at most 254 characters",
    }),
    schema: { type: "string", format: "email", maxLength: max },
    check: (value) =>
      checkText(value, { maxLength: max }) ??
        (mailbox.test(String(value))
          ? undefined
          : { code: "format", reason: "is no such address" }),
  });
}

/** A text that is kept as a hash only and is in no answer. */
export function secret(options: StringOptions): Property<string> {
  const plain = string(options);
  return {
    ...plain,
    kind: "secret",
    schema: { ...plain.schema, writeOnly: true },
    parse: () => undefined,
  };
}

/** What the server lists; nobody sends it or asks for it by its value. */
export function array(): Property<readonly Json[]> {
  return property<readonly Json[]>({
    kind: "array",
    expected: "left out",
    schema: { type: "array" },
    check: (value) => Array.isArray(value) ? undefined : wrongType(value),
    parse: () => undefined,
  });
}
