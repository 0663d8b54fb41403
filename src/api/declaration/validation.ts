/**
 * Validates request bodies against a declaration. All invalid properties are
 * reported at once; only the values of declared properties are returned.
 */

import type { Actor } from "../../auth/access.ts";
import { ApiError, type FieldError } from "../../http/errors.ts";
import { excerpt } from "../../http/json.ts";
import type { Document, Store, Table } from "../../store/store.ts";
import {
  type Collection,
  isVisible,
  type NamedProperty,
  ownerProperty,
  readValue,
  toIndexKey,
  withArticle,
} from "./declaration.ts";
import {
  type Failure,
  failWith,
  type Json,
  type Values,
} from "./properties.ts";

/** A request body. */
export type Body = Readonly<Record<string, unknown>>;

/** The change that a body describes, and what it is validated against. */
export interface ValidationContext {
  readonly store: Pick<Store, "table">;
  /** The records of the collection. */
  readonly table: Table;
  /** The sender of the body: records that they do not see do not exist for them. */
  readonly caller?: Actor | undefined;
  /** The owner of the record, null for none; undefined if the collection is not private. */
  readonly owner?: Json | undefined;
  /** The record before the change; undefined for a new one. */
  readonly previous?: Document | undefined;
  /** If true, omitted properties keep their value (RFC 7396); otherwise they get their default. */
  readonly partial?: boolean;
  /** Values that the URL provides where the body omits them. */
  readonly valuesFromUrl?: Values | undefined;
  /** Called with each reference to a record that does not exist; returns whether it is checked later instead. */
  readonly defersCheck?:
    | ((property: NamedProperty, id: number) => boolean)
    | undefined;
  /** The only properties that the caller may change here. */
  readonly only?: readonly string[] | undefined;
}

/**
 * Validates a body.
 *
 * @returns the values of all properties that clients set, in the declared order
 * @throws {ApiError} 42200 with every invalid property
 */
export function validate(
  collection: Collection,
  body: Body,
  context: ValidationContext,
): Values {
  const { values, errors } = collectValues(collection, body, context);
  if (errors.length > 0) throw validationError(errors);
  return values;
}

/** Returns the valid values of a body, and the errors of the others. */
export function collectValues(
  collection: Collection,
  body: Body,
  context: ValidationContext,
) {
  const { previous } = context;
  const errors = unknownProperties(collection, body);
  if (
    previous !== undefined && Object.hasOwn(body, "id") &&
    body["id"] !== previous.id
  ) {
    errors.push(
      fieldError(
        "id",
        failWith(
          "read_only",
          `cannot be changed: leave it out, or send ${previous.id}`,
        ),
      ),
    );
  }
  const values: Record<string, Json> = {};
  for (const property of collection.properties) {
    const { name, readOnly } = property;
    if (readOnly) continue;
    const value = valueIn(body, property, context);
    // A stored value has been validated against this declaration: see
    // followDeclaration in data-folder.ts.
    const isKnown = previous && value !== undefined &&
      !Object.hasOwn(body, name);
    const failure = isKnown ? undefined : findFailure(property, value, context);
    if (failure) errors.push(fieldError(name, failure));
    else values[name] = value as Json; // it has passed its checks
  }
  errors.push(...duplicateGroups(collection, values, context));
  return { values, errors };
}

/**
 * Returns the value that a body gives a property: the one that it has, or else
 * the stored one, that of the URL or the default; undefined if it is required.
 */
export function valueIn(
  body: Body,
  { name, kind, parse, required, default: defaultValue }: NamedProperty,
  { previous, partial, valuesFromUrl }: Pick<
    ValidationContext,
    "previous" | "partial" | "valuesFromUrl"
  >,
): unknown {
  const sent = Object.hasOwn(body, name) ? body[name] : undefined;
  // In the form that filters and sorting compare.
  if (kind === "timestamp" && typeof sent === "string") {
    return parse(sent) ?? sent;
  }
  // A client cannot read a secret, so it cannot send it back in a PUT.
  const stored = partial || kind === "secret" ? previous?.[name] : undefined;
  const omitted = required ? undefined : defaultValue;
  return sent === undefined ? stored ?? valuesFromUrl?.[name] ?? omitted : sent;
}

/** Creates the error of a property. */
export function fieldError(
  field: string,
  { code, reason }: Failure,
): FieldError {
  return { field, code, message: `"${field}" ${reason}.` };
}

/**
 * Returns the errors that the `check` of a collection finds in a complete
 * record. It gets a copy. It may throw.
 */
export function checkRules(
  { check, visibleProperties }: Collection,
  document: Document,
): FieldError[] {
  if (check === undefined) return [];
  const record: Record<string, Json> = {};
  for (const [name, property] of visibleProperties) {
    record[name] = readValue(document, property);
  }
  return Object.entries(check(record) ?? {}).flatMap(([field, text]) =>
    text === undefined
      ? []
      : fieldError(field, failWith("rule", text.replace(/\.$/, "")))
  );
}

/** @throws {ApiError} 42200; what a `check` throws */
export function enforceRules(collection: Collection, document: Document): void {
  const errors = checkRules(collection, document);
  if (errors.length > 0) throw validationError(errors);
}

export function validationError(errors: readonly FieldError[]): ApiError {
  const names = [...new Set(errors.slice(0, 10).map(({ field }) => field))];
  const more = errors.length > 10 ? ` and ${errors.length - 10} more` : "";
  return new ApiError(
    42200,
    `The validation failed for ${names.join(", ")}${more}: see "errors".`,
    { errors },
  );
}

export function unknownProperties(
  { acceptedNames, urlProperties, properties, singular }: Collection,
  body: Body,
): FieldError[] {
  const unknown = Object.keys(body).filter((name) =>
    !acceptedNames.has(name) && !urlProperties.some((url) => url.name === name)
  );
  if (unknown.length === 0) return [];
  const allowed = properties.map(({ name }) => name).join(", ");
  const reason = `is not a property of ${
    withArticle(singular)
  }; allowed: ${allowed}`;
  return unknown.map((name) =>
    fieldError(excerpt(name.toWellFormed()), { code: "unknown", reason })
  );
}

/** Returns why a value is refused; undefined if it is allowed. */
export function findFailure(
  property: NamedProperty,
  value: unknown,
  context: ValidationContext,
): Failure | undefined {
  const { previous, valuesFromUrl, only } = context;
  const { name, nullable, expected, unique } = property;
  if (value !== undefined && only?.includes(name) === false) {
    return failWith("read_only", "cannot be changed here: leave it out");
  }
  const failure = value === null && nullable
    ? undefined
    : checkValue(property, value, context);
  if (failure) {
    return { ...failure, reason: `${failure.reason}: it must be ${expected}` };
  }
  // A record cannot be created in one zoo through the URL of another.
  const fromUrl = previous === undefined ? valuesFromUrl?.[name] : undefined;
  if (fromUrl !== undefined && value !== fromUrl) {
    return failWith(
      "reference",
      `is ${value}, but the URL says ${fromUrl}: leave it out, or send ${fromUrl}`,
    );
  }
  if (unique && isDuplicate(name, value as Json, context)) {
    return failWith("unique", "is already in use: it must be unique");
  }
  return undefined;
}

/** Checks that a value is present, allowed by its property, and refers to a record. */
function checkValue(
  property: NamedProperty,
  value: unknown,
  { store, caller, previous, defersCheck }: ValidationContext,
): Failure | undefined {
  const { name, check, target } = property;
  if (value === undefined) return failWith("required", "is missing");
  const failure = check(value);
  if (failure || target === undefined) return failure;
  const row = store.table(target.name).get(Number(value));
  // Another user, who sees that record, may have set it.
  const isSame = value === previous?.[name];
  const isFound = row
    ? isSame || isVisible(target, row.document, caller)
    : defersCheck?.(property, Number(value));
  return isFound
    ? undefined
    : failWith("reference", `is ${value}, which does not exist`);
}

/**
 * Returns whether another record has the same value, or group of values; if
 * records are private, another one of the same owner. Those without an owner
 * belong to different people.
 */
function isDuplicate(
  name: string,
  value: Json,
  { table, previous, owner }: ValidationContext,
): boolean {
  const key = toIndexKey(value);
  return key !== null && owner !== null &&
    table.find(name, key).some(({ document }) =>
      document.id !== previous?.id &&
      (owner === undefined ||
        owner === document[ownerProperty.name])
    );
}

/** Returns an error for each group of valid values that another record has too. */
function duplicateGroups(
  { singular, unique = [] }: Collection,
  values: Values,
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
