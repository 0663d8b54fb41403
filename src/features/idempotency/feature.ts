/**
 * The Idempotency-Key of POST (draft-ietf-httpapi-idempotency-key-header): a
 * client that does not know whether a request succeeded repeats it with the
 * same key, and is sent the first response again. A response is stored in the
 * transaction that it reports, so neither can exist without the other.
 */

import { Buffer } from "node:buffer";
import { hash as hashOf } from "node:crypto";
import type { Api, Feature } from "../../api/feature.ts";
import type {
  Outcome,
  RequestContext,
  Result,
  RunOnce,
} from "../../api/request-context.ts";
import { hashPassword, verifyPassword } from "../../auth/passwords.ts";
import type { Response } from "../../http/connection.ts";
import { ApiError } from "../../http/errors.ts";
import {
  type Document,
  formatTime,
  type Mutation,
  type Row,
} from "../../store/store.ts";

const lifetimeMs = 24 * 3_600_000;

/** Bounds the memory: a response takes about 1 KB. The oldest is deleted. */
const maxResponsesPerUser = 10_000;

const responsesTable = {
  name: "answers",
  indexes: {
    key: ({ key }: Document) => String(key),
    by: ({ by }: Document) => Number(by),
  },
};

/** A request with an idempotency key. */
interface KeyedRequest {
  /** The key, prefixed with the user and the URL that it belongs to. */
  readonly key: string;
  /** The id of the user. */
  readonly by: number;
  /** The body, or the digest of a body that is too long for memory. */
  readonly body: Uint8Array;
  /** True if the body can contain a password: then its stored hash must be as hard to reverse as that of a password. */
  readonly secret: boolean;
  readonly context: RequestContext;
  readonly api: Api;
  /** The keys of the requests that are being executed. */
  readonly running: Set<string>;
}

/**
 * Executes a request the first time; returns the stored response later.
 *
 * @throws {ApiError} 42201 if the first request had another body, 40902 while
 * it is still being executed
 */
function runOnce(
  request: KeyedRequest,
  execute: Parameters<RunOnce>[1],
): Outcome {
  const { key, body, secret, context, api, running } = request;
  const table = api.store.table(responsesTable.name);
  const stored = table.find("key", key).find((row) => !isExpired(row, api));
  if (stored !== undefined) {
    const hash = String(stored.document["hash"]);
    const isSame = hash.startsWith("scrypt$")
      ? verifyPassword(textOf(body), hash, context)
      : Promise.resolve(digest(body) === hash);
    return context.afterWaiting(isSame, (isSame) =>
      // A full disk can have rolled the response back in the meantime.
      table.get(stored.document.id) === stored
        ? repeat(stored, isSame)
        : runOnce(request, execute));
  }
  if (running.has(key)) throw new ApiError(40902);
  const hash = secret
    ? hashPassword(textOf(body), context)
    : Promise.resolve(digest(body));
  const result = context.afterWaiting(
    hash,
    (hash) => execute((response) => storeResponse(request, hash, response)),
  );
  running.add(key);
  return result.finally(() => running.delete(key));
}

function isExpired({ document }: Row, { now }: Api): boolean {
  return Date.parse(String(document["created_at"])) + lifetimeMs <= now();
}

/** Returns the mutations that store a response, and delete old ones. */
function storeResponse(
  { key, by, api }: KeyedRequest,
  hash: string,
  { status, headers, body }: Response,
): readonly Mutation[] {
  const table = api.store.table(responsesTable.name);
  // At most two for each response that is stored, so that expired ones do not
  // accumulate.
  const old = table.byId.slice(0, 2).filter((row) => isExpired(row, api));
  const [oldest] = table.find("by", by, 1);
  const isFull = table.count("by", by) >= maxResponsesPerUser;
  if (isFull && oldest && !old.includes(oldest)) old.push(oldest);
  const response = {
    id: table.lastId + 1,
    key,
    by,
    hash,
    status,
    headers,
    body: typeof body === "string" ? body : null,
    created_at: formatTime(api.now()),
  };
  return [
    ["put", table.name, response],
    ...old.map((row) => ["del", table.name, row.document.id] as const),
  ];
}

function digest(body: Uint8Array): string {
  return hashOf("sha256", body, "base64url");
}

/** Decodes each byte as one character, so that no two bodies have the same text. */
function textOf(body: Uint8Array): string {
  return Buffer.from(body).toString("latin1");
}

function repeat({ document, seq }: Row, isSame: boolean): Result {
  if (!isSame) throw new ApiError(42201);
  const { status, headers, body } = document;
  return {
    status: Number(status),
    headers: Array.isArray(headers) ? headers.map(String) : [],
    body: typeof body === "string" ? body : undefined,
    seq,
  };
}

/**
 * Parses the Idempotency-Key field, which can be sent only once (see
 * http/message.ts). The draft requires a quoted string, but most clients send
 * the key without quotes: here the key is the complete value.
 *
 * @throws {ApiError} 40000 if it is malformed
 */
export function parseIdempotencyKey(value: unknown): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value === "string" && /^[!-~]{1,255}$/.test(value)) return value;
  throw new ApiError(
    40000,
    "Idempotency-Key must be sent once, with 1 to 255 visible ASCII characters.",
  );
}

const parameters = [{
  name: "Idempotency-Key",
  in: "header",
  description: "A request repeated within a day is sent the first response",
  schema: { type: "string" },
}];

export const feature: Feature = {
  tables: [responsesTable],
  open(api) {
    const running = new Set<string>();
    return {
      extendCreate: (post) => ({
        ...post,
        docs: { ...post.docs, parameters, errors: [409] },
      }),
      runOnce(context, operation) {
        const sent = parseIdempotencyKey(context.headers["idempotency-key"]);
        // Keys belong to users, so an anonymous request has none.
        const by = context.caller?.id;
        if (sent === undefined || by === undefined) return undefined;
        const path = context.url.slice(api.base.origin.length);
        const key = `${by} ${path} ${sent}`;
        const { records } = operation.resource ?? {};
        const secret = records?.collection.secretName !== undefined;
        const request = { key, by, secret, context, api, running };
        return (body, execute) => runOnce({ ...request, body }, execute);
      },
    };
  },
};
