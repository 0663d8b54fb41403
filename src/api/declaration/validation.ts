/**
 * Whether a body may become a record. All failing properties are told at once,
 * and what is returned holds exactly the declared properties.
 */

import { ApiError, type FieldError } from "../../http/errors.ts";
import { excerpt } from "../../http/json.ts";
import type { Document } from "../../store/store.ts";
import type { Collection, NamedProperty } from "./declaration.ts";
import type { Json } from "./properties.ts";

/** A request body. */
export type Body = Readonly<Record<string, unknown>>;

/** What a body is to become. */
export interface ValidationContext {
  /** The record before; undefined for a new one. */
  readonly previous: Document | undefined;
  /** Whether properties that are left out keep their value (RFC 7396) or get their default. */
  readonly partial: boolean;
  /** Values that the address gives where the body leaves them out. */
  readonly valuesFromUrl: Readonly<Record<string, Json>>;
  /** Properties that the caller may not change here. */
  readonly locked?: readonly string[];
  /** Whether the record with this id is there in another collection. */
  readonly exists: (collection: string, id: number) => boolean;
  /** Whether another record of the collection has this value. */
  readonly isDuplicate: (property: NamedProperty, value: Json) => boolean;
}

// A body of a million names shall not get an answer of many millions.
const maximumUnknown = 1000;

/**
 * Checks a body against a declaration.
 *
 * @returns the values of all declared properties, in the declared order
 * @throws {ApiError} 42200 with every failing property
 */
export function validate(
  collection: Collection,
  body: Body,
  intent: ValidationContext,
): Record<string, Json> {
  const errors: FieldError[] = unknownProperties(collection, body);
  const { previous } = intent;
  if (
    previous !== undefined && Object.hasOwn(body, "id") &&
    body["id"] !== previous.id
  ) {
    errors.push({
      field: "id",
      code: "read_only",
      message:
        `"id" is the server's own: leave it out, or send ${previous.id}.`,
    });
  }
  const values: Record<string, Json> = {};
  for (const property of collection.properties) {
    const { name, readOnly } = property;
    const sent = readOnly || !Object.hasOwn(body, name)
      ? undefined
      : body[name];
    const value = sent === undefined ? absent(property, intent) : sent;
    const error = value === undefined
      ? failure(property, "required", "is missing")
      : sent === undefined && previous !== undefined
      ? undefined // what it was or defaults to has been judged before
      : judge(property, value, intent);
    if (error) errors.push(error);
    else values[name] = value as Json; // judged just now
  }
  if (errors.length > 0) throw invalid(errors);
  return values;
}

function invalid(errors: readonly FieldError[]): ApiError {
  const names = [...new Set(errors.slice(0, 10).map(({ field }) => field))];
  const more = errors.length > 10 ? ` and ${errors.length - 10} more` : "";
  return new ApiError(
    42200,
    `The validation failed for ${names.join(", ")}${more}: see "errors".`,
    { errors },
  );
}

function unknownProperties(collection: Collection, body: Body): FieldError[] {
  const unknown = Object.keys(body)
    .filter((name) => !collection.acceptedNames.has(name));
  if (unknown.length === 0) return [];
  const names = collection.properties.map(({ name }) => name);
  return unknown
    .slice(0, maximumUnknown)
    .map((name) => ({
      field: excerpt(name.toWellFormed()),
      code: "unknown",
      message: `"${excerpt(name.toWellFormed())}" is not a property of ${
        /^[aeiou]/.test(collection.singular) ? "an" : "a"
      } ${collection.singular}; allowed are ${names.join(", ")}.`,
    }));
}

/** The value of a property that the body leaves out; undefined where it must be sent. */
function absent(
  { name, kind, required, default: otherwise }: NamedProperty,
  { previous, partial, valuesFromUrl }: ValidationContext,
): Json | undefined {
  // A secret can't be read, so a client that sends back what it read lacks it.
  const kept = previous?.[name];
  if (kept !== undefined && (partial || kind === "secret")) return kept;
  return valuesFromUrl[name] ?? (required ? undefined : otherwise);
}

function judge(
  property: NamedProperty,
  value: unknown,
  { previous, valuesFromUrl, locked, exists, isDuplicate }: ValidationContext,
): FieldError | undefined {
  const { name, nullable, references } = property;
  if (locked?.includes(name)) {
    return {
      field: name,
      code: "read_only",
      message: `"${name}" cannot be changed here: leave it out.`,
    };
  }
  if (value === null && nullable) return undefined;
  const wrong = property.check(value);
  if (wrong) return failure(property, wrong.code, wrong.reason);
  if (references !== undefined && !exists(references, Number(value))) {
    return failure(property, "reference", `is ${value}, and there is none`);
  }
  // Nothing new is made in one zoo through the address of another.
  const fixed = previous === undefined ? valuesFromUrl[name] : undefined;
  if (fixed !== undefined && value !== fixed) {
    return {
      field: name,
      code: "reference",
      message:
        `"${name}" is ${value}, but the address says ${fixed}: leave it out, or send the same.`,
    };
  }
  if (property.unique && isDuplicate(property, value as Json)) {
    return {
      field: name,
      code: "unique",
      message: `"${name}" is taken already: it must differ from all others.`,
    };
  }
  return undefined;
}

function failure(
  { name, expected }: NamedProperty,
  code: FieldError["code"],
  reason: string,
): FieldError {
  return {
    field: name,
    code,
    message: `"${name}" ${reason}: it must be ${expected}.`,
  };
}
