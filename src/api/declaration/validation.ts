/**
 * Validates request bodies against a declaration. All failing properties are
 * reported at once; the values returned are those of declared properties only.
 */

import type { Actor } from "../../auth/access.ts";
import { ApiError, type FieldError } from "../../http/errors.ts";
import { excerpt } from "../../http/json.ts";
import { errorText } from "../../store/error.ts";
import type { Document, Store, Table } from "../../store/store.ts";
import {
  type Collection,
  isVisible,
  type NamedProperty,
  ownerOf,
  ownerProperty,
  readValue,
  toIndexKey,
  withArticle,
} from "./declaration.ts";
import type { Json } from "./properties.ts";

/** A request body. */
export type Body = Readonly<Record<string, unknown>>;

/** The change that a body describes, and what it is validated against. */
export interface ValidationContext {
  readonly store: Pick<Store, "table">;
  /** The records of the collection. */
  readonly table: Table;
  /** The records that somebody does not see do not exist for them. */
  readonly caller?: Actor | undefined;
  /** The owner of the record, null for none; undefined if the collection is not private. */
  readonly owner?: Json | undefined;
  /** The record before the change; undefined for a new one. */
  readonly previous?: Document;
  /** If true, omitted properties keep their value (RFC 7396); otherwise they get their default. */
  readonly partial?: boolean;
  /** Values that the URL provides where the body omits them. */
  readonly valuesFromUrl: Readonly<Record<string, Json>>;
  /** The only properties that the caller may change here. */
  readonly only?: readonly string[] | undefined;
}

/**
 * Validates a body.
 *
 * @returns the values of all properties that clients set, in the declared order
 * @throws {ApiError} 42200 with every failing property
 */
export function validate(
  collection: Collection,
  body: Body,
  context: ValidationContext,
): Record<string, Json> {
  const errors = unknownProperties(collection, body);
  const values = collectValues(collection, body, { context, errors });
  if (errors.length > 0) throw validationError(errors);
  return values;
}

/** Returns the valid values of a body, and adds the errors of the others to `errors`. */
function collectValues(
  collection: Collection,
  body: Body,
  { context, errors }: {
    readonly context: ValidationContext;
    readonly errors: FieldError[];
  },
): Record<string, Json> {
  const { previous } = context;
  if (
    previous !== undefined && Object.hasOwn(body, "id") &&
    body["id"] !== previous.id
  ) {
    errors.push({
      field: "id",
      code: "read_only",
      message: `"id" cannot be changed: leave it out, or send ${previous.id}.`,
    });
  }
  const values: Record<string, Json> = {};
  for (const property of collection.properties) {
    const { name, readOnly } = property;
    if (readOnly) continue;
    const sent = Object.hasOwn(body, name) ? body[name] : undefined;
    const value = sent === undefined ? valueOfOmitted(property, context) : sent;
    const error = value === undefined
      ? expectationError(property, "required", "is missing")
      : sent === undefined && previous !== undefined
      // A stored value was validated by the declaration: see evolution.ts.
      ? undefined
      : validateValue(property, value, context);
    if (error) errors.push(error);
    else values[name] = value as Json; // as it passed its checks
  }
  errors.push(...duplicateGroups(collection, values, context));
  return values;
}

/** A `check` that throws or returns no messages: a mistake in the declaration. */
export class RuleError extends Error {
  override readonly name = "RuleError";
  readonly code = "rule";

  constructor(collection: string, cause: unknown) {
    super(`The check of ${collection} failed: ${errorText(cause)}`);
    if (cause instanceof Error) this.stack = `${this.message}\n${cause.stack}`;
  }
}

/**
 * Returns the errors of a complete record by the `check` of its collection,
 * which is given a copy.
 *
 * @throws {RuleError}
 */
export function checkRules(
  { check, name: collection, visibleProperties }: Collection,
  document: Document,
): FieldError[] {
  if (check === undefined) return [];
  const record = Array.from(
    visibleProperties.values(),
    (property) => [property.name, readValue(document, property)],
  );
  try {
    const messages: unknown = check(Object.fromEntries(record)) ?? {};
    if (Object.getPrototypeOf(messages) !== Object.prototype) {
      Promise.resolve(messages).catch(() => {}); // nobody waits for it
      throw new Error("it must return an object of messages, or nothing");
    }
    return Object.entries(messages as object).flatMap(([field, text]) => {
      if (text === undefined) return [];
      if (visibleProperties.has(field) && typeof text === "string") {
        const reason = text.replace(/\.$/, "");
        return { field, code: "rule", message: `"${field}" ${reason}.` };
      }
      throw new Error(`it returned no message of a property by "${field}"`);
    });
  } catch (error) {
    throw new RuleError(collection, error);
  }
}

/** @throws {ApiError} 42200; {RuleError} */
export function enforceRules(collection: Collection, document: Document): void {
  const errors = checkRules(collection, document);
  if (errors.length > 0) throw validationError(errors);
}

/** Returns why a stored record does not fit its collection: the errors of a body with its values. */
export function validateStored(
  collection: Collection,
  document: Document,
  store: Pick<Store, "table">,
): readonly FieldError[] {
  const body: Record<string, Json> = {};
  for (const property of collection.properties) {
    const value = readValue(document, property);
    const isHash = property.kind === "secret";
    if (value !== null && !isHash) body[property.name] = value;
  }
  const table = store.table(collection.name);
  const owner = ownerOf(collection, document);
  const context = {
    store,
    table,
    owner,
    previous: document,
    valuesFromUrl: {},
  };
  const ownerError = owner === undefined
    ? undefined
    : validateValue(ownerProperty, owner, context);
  const errors = ownerError ? [ownerError] : [];
  collectValues(collection, body, { context, errors });
  return errors.length > 0 ? errors : checkRules(collection, document);
}

function validationError(errors: readonly FieldError[]): ApiError {
  const names = [...new Set(errors.slice(0, 10).map(({ field }) => field))];
  const more = errors.length > 10 ? ` and ${errors.length - 10} more` : "";
  return new ApiError(
    42200,
    `The validation failed for ${names.join(", ")}${more}: see "errors".`,
    { errors },
  );
}

function unknownProperties(
  { acceptedNames, properties, singular }: Collection,
  body: Body,
): FieldError[] {
  const unknown = Object.keys(body).filter((name) => !acceptedNames.has(name));
  if (unknown.length === 0) return [];
  const allowed = properties.map(({ name }) => name).join(", ");
  return unknown.map((name) => {
    const field = excerpt(name.toWellFormed());
    return {
      field,
      code: "unknown",
      message: `"${field}" is not a property of ${
        withArticle(singular)
      }; allowed: ${allowed}.`,
    };
  });
}

/** Returns the value of a property that the body omits; undefined if it is required. */
function valueOfOmitted(
  { name, kind, required, default: defaultValue }: NamedProperty,
  { previous, partial, valuesFromUrl }: ValidationContext,
): Json | undefined {
  const stored = previous?.[name];
  // A client cannot read a secret, so it cannot send it back in a PUT.
  if (stored !== undefined && (partial || kind === "secret")) return stored;
  return valuesFromUrl[name] ?? (required ? undefined : defaultValue);
}

function validateValue(
  property: NamedProperty,
  value: unknown,
  context: ValidationContext,
): FieldError | undefined {
  const { previous, valuesFromUrl, only } = context;
  const { name, nullable } = property;
  if (only?.includes(name) === false) {
    return {
      field: name,
      code: "read_only",
      message: `"${name}" cannot be changed here: leave it out.`,
    };
  }
  const error = value === null && nullable
    ? undefined
    : valueError(property, value, context);
  if (error) return error;
  // A record cannot be created in one zoo through the URL of another.
  const fromUrl = previous === undefined ? valuesFromUrl[name] : undefined;
  if (fromUrl !== undefined && value !== fromUrl) {
    return {
      field: name,
      code: "reference",
      message:
        `"${name}" is ${value}, but the URL says ${fromUrl}: leave it out, or send ${fromUrl}.`,
    };
  }
  if (property.unique && isDuplicate(name, value as Json, context)) {
    return {
      field: name,
      code: "unique",
      message: `"${name}" is already in use: it must be unique.`,
    };
  }
  return undefined;
}

/** Returns the error of a value that its property does not allow, or that refers to nothing. */
function valueError(
  property: NamedProperty,
  value: unknown,
  { store, caller, previous }: ValidationContext,
): FieldError | undefined {
  const { target } = property;
  const failure = property.check(value);
  if (failure) return expectationError(property, failure.code, failure.reason);
  if (target === undefined) return undefined;
  const row = store.table(target.name).get(Number(value));
  // It may have been set by somebody who sees it.
  const isSame = value === previous?.[property.name];
  if (row && (isSame || isVisible(target, row.document, caller))) {
    return undefined;
  }
  const reason = `is ${value}, which does not exist`;
  return expectationError(property, "reference", reason);
}

/** Returns whether another record has a value, or a group of values: of private records, another one of the same owner. */
function isDuplicate(
  name: string,
  value: Json,
  { table, previous, owner }: ValidationContext,
): boolean {
  const key = toIndexKey(value);
  return key !== null &&
    table.find(name, key).some(({ document }) =>
      document.id !== previous?.id &&
      (owner === undefined ||
        owner === (document[ownerProperty.name] ?? null))
    );
}

/** Returns an error for each group of valid values that another record has too. */
function duplicateGroups(
  { singular, unique = [] }: Collection,
  values: Readonly<Record<string, Json>>,
  context: ValidationContext,
): FieldError[] {
  return unique.filter((names) => {
    const group = names.map((name) => values[name] ?? null); // null if invalid
    return isDuplicate(names.join(), group, context);
  }).map((names) => ({
    field: names[0] ?? "",
    code: "unique",
    message: `Another ${singular} has the same "${
      names.join('" and "')
    }": together they must be unique.`,
  }));
}

function expectationError(
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
