/** Checks values of properties, and parses them from the text of query parameters. */

import type { FieldError } from "../../http/errors.ts";

/** The reason why a value is refused: the code of a field error, and a phrase that follows the property's name. */
export interface Failure {
  readonly code: FieldError["code"];
  readonly reason: string;
}

/** The limits of a string; lengths count Unicode code points. */
export interface StringOptions {
  /** 1 by default. */
  readonly minLength?: number;
  readonly maxLength: number;
  readonly pattern?: RegExp;
  /** The allowed strings, as a phrase that follows "must be". */
  readonly description?: string;
}

/** The bounds of a number, by the keywords of JSON Schema. */
export type NumberOptions = {
  readonly [bound in "minimum" | "exclusiveMinimum" | "maximum"]?: number;
};

/** Returns the failure of a value of the wrong JSON type. */
export function wrongType(value: unknown): Failure {
  const type = value === null
    ? "null"
    : Array.isArray(value)
    ? "an array"
    : typeof value === "object"
    ? "an object"
    : `a ${typeof value}`;
  return { code: "type", reason: `is ${type}` };
}

/** Returns a check that refuses every string for which `parse` returns undefined. */
export function checkBy(
  parse: (text: string) => unknown,
  failure: Failure,
): (value: unknown) => Failure | undefined {
  return (value) => {
    if (typeof value !== "string") return wrongType(value);
    return parse(value) === undefined ? failure : undefined;
  };
}

/** Checks that a string is well-formed, without control characters, not blank, and within its limits. */
export function checkString(
  value: unknown,
  options: StringOptions,
): Failure | undefined {
  const { minLength = 1, pattern } = options;
  if (typeof value !== "string") return wrongType(value);
  if (pattern === undefined && plainText.test(value)) {
    return checkLength(value.length, options);
  }
  if (!value.isWellFormed()) {
    return { code: "format", reason: "contains an unpaired surrogate" };
  }
  if (/\p{Cc}/u.test(value)) {
    return { code: "format", reason: "contains a control character" };
  }
  if (minLength > 0 && /^\s*$/.test(value)) {
    return { code: "length", reason: "is blank" };
  }
  let codePoints = 0;
  for (const _ of value) codePoints++;
  const failure = checkLength(codePoints, options);
  if (failure || !pattern || pattern.test(value)) return failure;
  return { code: "format", reason: "does not match the required format" };
}

/** Matches printable ASCII that does not begin with a space: nearly all strings, which makes the other checks unnecessary. */
const plainText = /^[!-~][ -~]*$/;

function checkLength(
  length: number,
  { minLength = 1, maxLength }: StringOptions,
): Failure | undefined {
  return length < minLength || length > maxLength
    ? { code: "length", reason: `has ${length} characters` }
    : undefined;
}

export function checkNumber(
  value: unknown,
  { minimum = -Infinity, exclusiveMinimum = -Infinity, maximum = Infinity }:
    NumberOptions,
): Failure | undefined {
  if (typeof value !== "number") return wrongType(value);
  // JSON.parse returns Infinity for 1e400.
  if (!Number.isFinite(value)) {
    return { code: "range", reason: "is too large for a double" };
  }
  return value < minimum || value <= exclusiveMinimum || value > maximum
    ? { code: "range", reason: `is ${value}` }
    : undefined;
}

export function checkInteger(
  value: unknown,
  bounds: NumberOptions,
): Failure | undefined {
  if (Number.isFinite(value) && !Number.isInteger(value)) {
    return { code: "type", reason: "is not a whole number" };
  }
  return checkNumber(value, bounds);
}

/** Describes bounds as a phrase that follows "a number". */
export function describeRange(
  { minimum, exclusiveMinimum, maximum }: NumberOptions,
): string {
  const limit = maximum === Number.MAX_SAFE_INTEGER ? "2^53-1" : maximum;
  return [
    minimum === undefined ? "" : ` from ${minimum}`,
    exclusiveMinimum === undefined ? "" : ` above ${exclusiveMinimum}`,
    limit === undefined ? "" : ` up to ${limit}`,
  ].join("");
}

export function parseNumber(text: string): number | undefined {
  if (!/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text)) {
    return undefined;
  }
  const value = Number(text);
  return Number.isFinite(value) ? value : undefined;
}

export function parseInteger(text: string): number | undefined {
  if (!/^(?:0|-?[1-9]\d{0,15})$/.test(text)) return undefined;
  const value = Number(text);
  return Number.isSafeInteger(value) ? value : undefined;
}

export function parseDate(text: string): string | undefined {
  if (!/^\d{4}-\d\d-\d\d$/.test(text)) return undefined;
  // For Date, 30 February is a day in March, and 2026-13-01 is invalid.
  const day = new Date(`${text}T00:00:00Z`).getUTCDate();
  return day === Number(text.slice(8)) ? text : undefined;
}

const timestampForm =
  /^(\d{4}-\d\d-\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/i;

export function parseTimestamp(text: string): string | undefined {
  const [, date = ""] = timestampForm.exec(text) ?? [];
  if (parseDate(date) === undefined) return undefined;
  const utc = new Date(text.toUpperCase()).toISOString();
  // Years with a sign and six digits would not sort as text.
  return /^\d{4}-/.test(utc) ? utc : undefined;
}

/** A dot-atom, an at sign and a domain name of two labels or more (RFC 5321 section 4.1.2, without quoted local parts and address literals). */
export const emailAddress =
  /^(?=.{1,64}@)[\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*@(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/i;
