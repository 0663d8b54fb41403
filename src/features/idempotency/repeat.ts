/**
 * The response to the request that created a record, once more. If that has been
 * changed since, it is built from the body, which a retry repeats, and from the
 * id and the times of the record, so it shows callers nothing but what they have
 * sent. It has the properties and URLs of the present declaration.
 */

import type { Resource } from "../../api/operation.ts";
import {
  unknownProperties,
  valueIn,
} from "../../api/declaration/validation.ts";
import type { Body } from "../../api/declaration/validation.ts";
import {
  type Collection,
  isVisible,
} from "../../api/declaration/declaration.ts";
import type { Json, Values } from "../../api/declaration/properties.ts";
import { deletedForGood } from "../../api/records/records.ts";
import type { RequestContext, Result } from "../../api/request-context.ts";
import { mayAccess } from "../../auth/access.ts";
import { ApiError } from "../../http/errors.ts";
import { parseJson, requireObject } from "../../http/json.ts";

/** The record that a request created, or the first one of a batch. */
interface Created {
  readonly id: number;
  /** When it was created, in milliseconds since 1970; undefined if an earlier version stored the request. */
  readonly time: number | undefined;
}

/**
 * Returns the response to the request that created a record, whatever has become
 * of other records since.
 *
 * @throws {ApiError} 41000 if it was deleted, or if another declaration has given
 * its URL to other records
 */
export function repeatCreate(
  resource: Resource,
  context: RequestContext,
  { body, ...created }: Created & { readonly body: Uint8Array },
): Result {
  const sent = parseJson(body);
  if (!Array.isArray(sent)) {
    return repeatRecord(
      resource,
      context,
      requireObject(sent, "body"),
      created,
    );
  }
  // The records of a batch have consecutive ids.
  const all = sent.map((each, index) =>
    repeatRecord(resource, context, each, {
      id: created.id + index,
      time: index === 0 ? created.time : undefined,
    }, true)
  );
  const seq = Math.max(...all.map((each) => each.seq));
  const items = all.map((each) => each.body).join(",");
  return { status: 201, headers: [], body: `[${items}]`, seq };
}

/** Returns the response to the creation of one record, or an element of that of a batch. */
function repeatRecord(
  { records, parent }: Resource,
  context: RequestContext,
  sent: Body,
  { id, time }: Created,
  isElement = false,
): Result {
  const { ids: [parentId = 0], caller } = context;
  const { collection, table, representation } = records;
  const row = table.get(id);
  if (row === undefined) throw deletedForGood(collection, id);
  const createdAt = Date.parse(String(row.document["created_at"]));
  if (time !== undefined && time !== createdAt) {
    throw new ApiError(
      41000,
      `The ${collection.singular} that this request created is not at this URL any more: another declaration has given the URL to other records.`,
    );
  }
  const values = readInitialValues(
    collection,
    sent,
    parent && { [parent.property]: parentId },
  );
  // A body that does not fit the present declaration cannot be shown in its
  // terms, so the record is shown as it is.
  const isReadable = mayAccess(caller?.grants, collection.access.read) &&
    isVisible(collection, row.document, caller);
  if (!values && !isReadable) {
    throw new ApiError(
      40300,
      `This request has created the ${collection.singular} ${id}, which is declared otherwise by now and which you may not read: do not repeat it.`,
    );
  }
  const { owner_id = null, created_at = null, updated_at } = row.document;
  const owned = collection.private ? { owner_id } : {};
  const document = values && updated_at !== created_at
    ? { id, ...values, ...owned, created_at, updated_at: created_at }
    : row.document;
  const headers = [
    ...["Location", representation.url(id)],
    ...context.shared.hooks.validators?.(context, { collection, document }) ??
      [],
  ];
  const item = representation.serialize(document);
  if (isElement) return { status: 201, headers, body: item, seq: row.seq };
  const text = representation.asStandalone(
    item,
    parent && `${parent.target.url}/${parentId}/${parent.segment}`,
  );
  return { status: 201, headers, body: text, seq: row.seq };
}

/** Returns the values, except secrets, that a body gave a new record; undefined if it does not fit the declaration any more. */
function readInitialValues(
  collection: Collection,
  body: Body,
  valuesFromUrl: Values | undefined,
): Values | undefined {
  if (unknownProperties(collection, body).length > 0) return undefined;
  const values: Record<string, Json> = {};
  for (const property of collection.properties) {
    const { name, kind, nullable, readOnly, check } = property;
    if (readOnly || kind === "secret") continue;
    const value = valueIn(body, property, { valuesFromUrl });
    const isValid = value === null ? nullable : check(value) === undefined;
    if (!isValid) return undefined;
    values[name] = value as Json; // it has passed its check
  }
  return values;
}
