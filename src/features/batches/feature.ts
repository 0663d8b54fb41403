/**
 * Batches: POST of a collection accepts an array of records too, and creates all
 * of them in one transaction, or none.
 */

import { Buffer } from "node:buffer";
import type { Feature } from "../../api/feature.ts";
import type { Operation, Resource } from "../../api/operation.ts";
import type { Body } from "../../api/declaration/validation.ts";
import { validationError } from "../../api/declaration/validation.ts";
import type { Values } from "../../api/declaration/properties.ts";
import { hashSecret } from "../../api/records/writing.ts";
import type {
  Outcome,
  RequestContext,
  Result,
} from "../../api/request-context.ts";
import { defaultMaxBodyBytes, tooLarge } from "../../http/body.ts";
import { ApiError, type FieldError } from "../../http/errors.ts";
import { isObject, parseJson, requireObject } from "../../http/json.ts";
import type { Document } from "../../store/store.ts";

/** The most records of a batch. */
const maxRecords = 1000;

/** The most records of a batch of which each has a password: hashing those of more could take longer than a connection waits. */
const maxHashed = 100;

/** The longest body of a batch. */
const maxBatchBytes = 1 << 20;

/** The most errors that a response lists. */
const maxErrors = 100;

/**
 * Parses the body of a POST: one record, or an array of at most `max`.
 *
 * @throws {ApiError} 40001, 40002; 41300 for one record that is too long
 */
function parseRecords(
  bytes: Uint8Array,
  maxBytes: number,
  max: number,
): Body {
  const isArray = /^\s*\[/.test(Buffer.from(bytes.subarray(0, 100)).toString());
  if (!isArray && bytes.length > maxBytes) throw tooLarge(maxBytes);
  const sent = parseJson(bytes);
  if (!Array.isArray(sent)) return requireObject(sent, "body");
  if (sent.length === 0 || sent.length > max) {
    throw new ApiError(
      40002,
      `The body must be a JSON object, or an array of 1 to ${max} of them, not of ${sent.length}.`,
    );
  }
  const index = sent.findIndex((each) => !isObject(each));
  if (index !== -1) requireObject(sent[index], `element ${index} of the body`);
  return sent as unknown as Body; // createBatch takes it
}

/**
 * Creates records in one transaction. Passwords are hashed one after the other,
 * once all else is known to be valid.
 *
 * @throws {ApiError} 40401, 41200, 42200 with all errors, each with the `index` of
 * its record
 */
function createBatch(
  { records }: Resource,
  context: RequestContext,
  bodies: readonly Body[],
): Outcome {
  if (records.collection.secretName === undefined) {
    return commitBatch(records, context, bodies);
  }
  commitBatch(records, context, bodies, "check");
  const hashAll = async () => {
    const all: (Values | undefined)[] = [];
    for (const body of bodies) {
      all.push(await hashSecret(records, body, context));
    }
    return all;
  };
  return context.afterWaiting(
    hashAll(),
    (hashes) => commitBatch(records, context, bodies, hashes),
  );
}

/** The end of a transaction that only checks. */
const checked = new Error("checked");

/**
 * Commits a batch. Each record is applied before the next is validated, so
 * that `unique` holds among them and they may refer to earlier ones.
 *
 * @param hashes of the passwords, for each record; "check" if nothing is to be stored
 */
function commitBatch(
  records: Resource["records"],
  context: RequestContext,
  bodies: readonly Body[],
  hashes: readonly (Values | undefined)[] | "check" = [],
): Result {
  const { collection, representation, store } = records;
  const { caller } = context;
  const scope = context.scope();
  context.shared.hooks.precondition?.(context, { collection, scope });
  const documents: Document[] = [];
  try {
    const seq = store.transact(caller?.id ?? 0, (apply) => {
      const errors: (FieldError & { readonly index: number })[] = [];
      for (const [index, body] of bodies.entries()) {
        try {
          const next = records.buildRecord(body, {
            caller,
            valuesFromUrl: scope?.conditions,
            hashes: hashes === "check" ? undefined : hashes[index],
          });
          apply(records.putMutation(next));
          const change = { previous: undefined, next };
          collection.sideEffects?.(change, store).forEach(apply);
          documents.push(next);
        } catch (error) {
          if (!(error instanceof ApiError && error.errors)) throw error;
          for (const each of error.errors) errors.push({ index, ...each });
        }
        if (errors.length > maxErrors) break;
      }
      if (errors.length > 0) throw validationError(errors.slice(0, maxErrors));
      if (hashes === "check") throw checked;
      const [first] = documents;
      if (first) context.storeKey?.(first).forEach(apply);
    });
    if (collection.name === "users") { // whose changes the log reports
      const ids = documents.map(({ id }) => id);
      context.auditEvent = {
        message: `created ${collection.name}`,
        fields: { ids },
      };
    }
    const items = documents.map((each) => representation.serialize(each));
    const body = `[${items.join(",")}]`;
    return { status: 201, headers: [], body, seq, isCommitted: true };
  } catch (error) {
    if (error !== checked) throw error;
    return { status: 201, headers: [], seq: 0 };
  }
}

/** Adds to the POST that creates a record one that creates several. */
function withBatch(POST: Operation, resource: Resource): Operation {
  const { maxBodyBytes = defaultMaxBodyBytes } = POST;
  const { secretName } = resource.records.collection;
  const max = secretName === undefined ? maxRecords : maxHashed;
  const { description = "" } = POST.docs ?? {};
  return {
    ...POST,
    maxBodyBytes: Math.max(maxBodyBytes, maxBatchBytes),
    docs: {
      ...POST.docs,
      description:
        `${description} An array of up to ${max} records creates all or none, and returns an array.`
          .trim(),
    },
    parseBody: (bytes) => parseRecords(bytes, maxBodyBytes, max),
    run: (context, parsed, body) =>
      Array.isArray(body)
        ? createBatch(resource, context, body)
        : POST.run(context, parsed, body),
  };
}

/** Batches of records. */
export const feature: Feature = {
  open({ served }) {
    const names = new Set(served.map(({ collection }) => collection.name));
    return {
      extend({ POST, ...others }) {
        const { resource, consumes } = POST ?? {};
        const isCreated = resource !== undefined &&
          names.has(resource.records.collection.name) &&
          consumes?.includes("application/json");
        if (!POST || !isCreated) return undefined;
        return { ...others, POST: withBatch(POST, resource) };
      },
    };
  },
};
