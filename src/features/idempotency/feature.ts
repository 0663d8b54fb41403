/**
 * The Idempotency-Key of POST (draft-ietf-httpapi-idempotency-key-header): who
 * is not sure whether a request arrived sends it again with the same key, and
 * gets the first answer again. The answer is kept in the transaction that it
 * tells of, so there is never one without the other, whatever happens.
 */

import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { hashPassword, verifyPassword } from "../../auth/passwords.ts";
import { ApiError } from "../../http/errors.ts";
import type { Response } from "../../http/server.ts";
import {
  type Document,
  formatTime,
  type Mutation,
  type Row,
  type Store,
  type TableDeclaration,
} from "../../store/store.ts";
import type {
  RequestContext,
  Result,
  StoreResponse,
} from "../../api/request-context.ts";
import type { Feature } from "../../api/feature.ts";
import { parseIdempotencyKey } from "./idempotency-key.ts";

/** How long an answer is kept, in ms. */
const lifetime = 24 * 60 * 60 * 1000;

/** How many are kept of a user, the newest, so that memory is bounded: about 1 KB each. */
const mostKept = 10_000;

/** Where the answers are kept. */
export const answersTable: TableDeclaration = {
  name: "answers",
  indexes: {
    key: (value) => typeof value === "string" ? value : null,
    by: (value) => typeof value === "number" ? value : null,
  },
};

/** A request that may be a repeated one. */
export interface Repeatable {
  /** The key with the user and the address that it is for. */
  readonly key: string;
  /** The id of the user. */
  readonly by: number;
  /** Its body, byte for byte; or what stands for one that is too long to be kept. */
  readonly body: Uint8Array;
  /** Whether a password can be in it: what is kept of it must be as hard to guess from as a stored one. */
  readonly secret: boolean;
  readonly context: RequestContext;
}

/** Remembers answers by their keys. */
export class Idempotency {
  readonly #store: Store;
  readonly #now: () => number;
  readonly #running = new Set<string>();

  /** @param now milliseconds since 1970 */
  constructor(store: Store, now: () => number) {
    this.#store = store;
    this.#now = now;
  }

  /**
   * Carries out a request the first time, and gives the same answer later.
   *
   * @throws {ApiError} 42201 where the key came with another body, 40902 where
   * the first request is still under way
   */
  once(
    request: Repeatable,
    carryOut: (remember: StoreResponse) => Result | Promise<Result>,
  ): Result | Promise<Result> {
    const { key, by, body, secret, context } = request;
    const [...known] = this.#table.find("key", key);
    const kept = known.find(({ document }) => !this.#isPast(document));
    if (kept !== undefined) {
      const same = isOf(String(kept.document["hash"]), body, context);
      if (!(same instanceof Promise)) return answerOf(kept, same);
      return context.afterWaiting(same, (same) =>
        // Meanwhile a full disk may have taken it back.
        this.#table.get(kept.document.id) === kept
          ? answerOf(kept, same)
          : this.once(request, carryOut));
    }
    if (this.#running.has(key)) throw new ApiError(40902);
    const runWith = (hash: string) =>
      carryOut((answer) => this.#remember({ key, by, hash }, answer));
    const result = secret
      ? context.afterWaiting(
        hashPassword(textOf(body), context.abortSignal()),
        runWith,
      )
      : runWith(digest(body));
    if (!(result instanceof Promise)) return result;
    this.#running.add(key);
    return result.finally(() => this.#running.delete(key));
  }

  get #table() {
    return this.#store.table(answersTable.name);
  }

  #isPast({ created_at }: Document): boolean {
    return Date.parse(String(created_at)) + lifetime <= this.#now();
  }

  #remember(
    request: Pick<Repeatable, "key" | "by"> & { readonly hash: string },
    { status, headers, body }: Response,
  ): Mutation[] {
    const { by } = request;
    const { name, lastId, byId } = this.#table;
    const document = {
      id: lastId + 1,
      ...request,
      status,
      headers,
      body: body ?? null,
      created_at: formatTime(this.#now()),
    };
    // Two go for each that comes, so the past ones are gone before long.
    const ended = byId.slice(0, 2).filter((row) => this.#isPast(row.document));
    const [oldest] = this.#table.find("by", by);
    if (this.#table.count("by", by) >= mostKept && oldest) ended.push(oldest);
    const ids = new Set(ended.map(({ document: { id } }) => id));
    return [
      ["put", name, document],
      ...Array.from(ids, (id): Mutation => ["del", name, id]),
    ];
  }
}

function digest(body: Uint8Array): string {
  return createHash("sha256").update(body).digest("base64url");
}

/** A character a byte, so that no two bodies are one text. */
function textOf(body: Uint8Array): string {
  return Buffer.from(body).toString("latin1");
}

/** Whether a kept hash is that of a body. */
function isOf(
  hash: string,
  body: Uint8Array,
  { abortSignal }: RequestContext,
): boolean | Promise<boolean> {
  return hash.startsWith("scrypt$")
    ? verifyPassword(textOf(body), hash, abortSignal())
    : digest(body) === hash;
}

function answerOf({ document, seq }: Row, same: boolean): Result {
  if (!same) throw new ApiError(42201);
  const { status, headers, body } = document;
  return {
    status: Number(status),
    headers: Array.isArray(headers) ? headers.map(String) : [],
    body: typeof body === "string" ? body : undefined,
    seq,
  };
}

/** POSTs that may be sent again. */
export const feature: Feature = {
  tables: [answersTable],
  open({ store, now }) {
    const kept = new Idempotency(store, now);
    return {
      runOnce({ headersDistinct }, { path, secret, context }) {
        const key = parseIdempotencyKey(headersDistinct["idempotency-key"]);
        // Nobody's keys are anybody's: an answer is kept for one user only.
        const by = context.caller?.id;
        if (key === undefined || by === undefined) return undefined;
        const whole = `${by} ${path} ${key}`;
        return (body, carryOut) =>
          kept.once({ key: whole, by, body, secret, context }, carryOut);
      },
    };
  },
};
