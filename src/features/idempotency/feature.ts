/**
 * The Idempotency-Key of POST (draft-ietf-httpapi-idempotency-key-header): a
 * client that does not know whether a request succeeded repeats it with the
 * same key, and is sent the first response again.
 *
 * Of a request, only the hashes of its key and body, and the id and the time of
 * creation of its record are stored, in the transaction that creates the record,
 * so neither can exist without the other. The response is not stored: a retry has
 * the same body, from which the same response is built, whatever has been changed
 * since (see repeat.ts). Once the record is deleted, nothing of it is left here,
 * and the retry is 410; as it is if other records have got its URL, which the
 * time shows.
 *
 * A row of the table holds up to four requests, because a row takes four times
 * as much memory as a request.
 */

import { Buffer } from "node:buffer";
import { hash as hashOf } from "node:crypto";
import { getHeapStatistics } from "node:v8";
import type { Api, Feature } from "../../api/feature.ts";
import type { Resource } from "../../api/operation.ts";
import type {
  Execution,
  Outcome,
  RequestContext,
  Result,
} from "../../api/request-context.ts";
import { hashPassword, verifyPassword } from "../../auth/passwords.ts";
import { ApiError } from "../../http/errors.ts";
import { decodePercent } from "../../http/router.ts";
import type { Document, Mutation, Row, Table } from "../../store/store.ts";
import { repeatCreate } from "./repeat.ts";

const lifetimeMs = 24 * 3_600_000;

/** The most requests of a row. */
const maxRowLength = 4;

/** A row is deleted a day after its last request, so its first one must not be much older. */
const maxRowMs = 600_000;

/** The most bytes of memory that all rows take, and those of one user, in a heap of 2 GiB or more. The oldest are deleted. */
const maxBytes = 32 << 20;
const maxBytesPerUser = 4 << 20;

/** The share of that in this heap. */
const share = Math.min(1, getHeapStatistics().heap_size_limit / 2 ** 31);

/** The memory that a row takes besides its text. */
const rowBytes = 250;

/** The most rows that a request deletes; more than it adds, so that they become fewer. */
const maxDeletions = 10;

/** The lengths of hashes, 6 bits a character: only the user's own keys and bodies are compared. */
const keyLength = 12;
const bodyLength = 8;

/** A row: requests of one user whose keys have hashes that begin alike. */
const keysTable = {
  name: "answers",
  indexes: {
    by: ({ by }: Document) => Number(by),
    bucket: (document: Document) =>
      bucketOf(Number(document["by"]), textOf(document)),
  },
};

/** A request with an idempotency key. */
interface KeyedRequest {
  /** The hash of the key, the user and the URL. */
  readonly key: string;
  /** The id of the user. */
  readonly by: number;
  /** The body, or the digest of a body that is too long for memory. */
  readonly body: Uint8Array;
  /** True if the body can contain a password: then its stored hash must be as hard to reverse as that of a password. */
  readonly secret: boolean;
  readonly context: RequestContext;
  readonly keys: StoredKeys;
  /** The requests that are being executed. */
  readonly running: Set<string>;
}

/** Returns the requests of a row: of each a space, the hash of its key, that of its body, a colon, and the id of the new record, an @ and the time of its creation. */
function textOf({ keys, key, hash, headers }: Document): string {
  if (typeof keys === "string") return keys;
  // Older versions stored no time, and one response in a row, with its Location first.
  const [, location] = Array.isArray(headers) ? headers : [];
  const id = /\d+$/.exec(String(location))?.[0];
  const body = isSecret(String(hash))
    ? hash
    : String(hash).slice(0, bodyLength);
  return ` ${digest(String(key), keyLength)}${body}:${id}`;
}

function isSecret(bodyHash: string): boolean {
  return bodyHash.startsWith("scrypt$");
}

/** Returns the group of rows that a key is in: one of 64 for each user. */
function bucketOf(by: number, text: string): string {
  return `${by}${text.charAt(1)}`;
}

function bytesOf({ document }: Row): number {
  const { body } = document; // of older versions
  const length = typeof body === "string" ? body.length : 0;
  return rowBytes + textOf(document).length + length;
}

/** The requests of the last day. */
class StoredKeys {
  readonly #api: Api;
  readonly #table: Table;
  /** The bytes that the rows of each user take, and of all, under 0. */
  readonly #bytes = new Map<number, number>();
  /** The time of the last request. */
  #latest = 0;
  /** The time of the first request after a day without any. */
  #since = 0;

  constructor(api: Api) {
    this.#api = api;
    this.#table = api.store.table(keysTable.name);
    for (const row of this.#table.rows()) this.#count(row, 1);
    this.#table.listeners.add((before, after) => {
      this.#count(before, -1);
      this.#count(after, 1);
    });
  }

  #count(row: Row | undefined, sign: 1 | -1): void {
    if (row === undefined) return;
    if (sign === 1) {
      const at = Number(row.document["at"] ?? 0);
      this.#noteTime(at); // in the order of the requests, also after a start
      this.#latest = at;
    }
    for (const each of [0, Number(row.document["by"])]) {
      const bytes = (this.#bytes.get(each) ?? 0) + sign * bytesOf(row);
      if (bytes === 0) this.#bytes.delete(each);
      else this.#bytes.set(each, bytes);
    }
  }

  /** Notes the end of a day without any request, once: or requests would stay for ever. */
  #noteTime(time: number): void {
    const isLate = time > this.#latest + lifetimeMs;
    if (isLate && this.#since <= this.#latest) this.#since = time;
  }

  /** Returns the hash of the body of a key, a colon, and its record. */
  find({ by, key }: KeyedRequest): string | undefined {
    this.#noteTime(this.#api.now());
    const start = ` ${key}`;
    for (const row of this.#table.find("bucket", bucketOf(by, start))) {
      const text = textOf(row.document);
      const at = text.lastIndexOf(start);
      if (at === -1 || this.#isOlder(row, lifetimeMs)) continue;
      const [found] = text.slice(at + start.length).split(" ", 1);
      return found;
    }
    return undefined;
  }

  /** Returns the mutations that store a request, and delete the oldest ones. */
  add(
    { by, key }: KeyedRequest,
    bodyHash: string,
    { id, created_at }: Document,
  ): Mutation[] {
    const { lastId, name } = this.#table;
    const created = Date.parse(String(created_at)).toString(36);
    const text = ` ${key}${bodyHash}:${id}@${created}`;
    const last = this.#table.find("bucket", bucketOf(by, text)).at(-1);
    const keys = last?.document["keys"];
    const isOpen = typeof keys === "string" && last !== undefined &&
      keys.split(":").length <= maxRowLength && !this.#isOlder(last, maxRowMs);
    const row = {
      id: isOpen ? last.document.id : lastId + 1,
      by,
      at: this.#api.now(),
      keys: isOpen ? keys + text : text,
    };
    return [
      ...Array.from(this.#surplus(by), (id): Mutation => ["del", name, id]),
      ["put", name, row],
    ];
  }

  /** Returns the ids of the oldest rows, if they have expired or if there are too many bytes. */
  #surplus(by: number): Iterable<number> {
    const rows = [
      ...this.#oldest(this.#table.rows(0, maxDeletions), 0, maxBytes),
      ...this.#oldest(
        this.#table.find("by", by, maxDeletions),
        by,
        maxBytesPerUser,
      ),
    ];
    return new Set(rows.map(({ document }) => document.id));
  }

  #oldest(rows: readonly Row[], of: number, max: number): readonly Row[] {
    let excess = (this.#bytes.get(of) ?? 0) - max * share;
    return rows.filter((row) => {
      const isSurplus = excess > 0 || this.#isOlder(row, lifetimeMs);
      excess -= bytesOf(row);
      return isSurplus;
    });
  }

  /** Returns whether the last request of a row was so long ago. After a day without any the clock may have been set: those before have another day. */
  #isOlder({ document: { at, created_at } }: Row, ms: number): boolean {
    const time = Number(at ?? Date.parse(String(created_at)));
    return Math.max(time, this.#since) + ms <= this.#api.now();
  }
}
/**
 * Executes a request the first time, and repeats its response later.
 *
 * @throws {ApiError} 42201 if the first request had another body, 40902 while
 * it is still being executed, 41000 if its record was deleted
 */
function runOnce(
  request: KeyedRequest,
  execute: Execution["execute"],
  repeat: (createdId: number, createdAt?: number) => Result,
): Outcome {
  const { key, body, secret, context, keys, running } = request;
  const stored = keys.find(request);
  if (stored !== undefined) {
    const [hash = "", id, time] = stored.split(/[:@]/);
    const isSame = isSecret(hash)
      ? verifyPassword(latin1(body), hash, context)
      : Promise.resolve(digest(body, bodyLength) === hash);
    return context.afterWaiting(isSame, (isSame) => {
      // A full disk can have rolled the request back in the meantime.
      if (keys.find(request) !== stored) {
        return runOnce(request, execute, repeat);
      }
      if (!isSame) throw new ApiError(42201);
      return repeat(Number(id), time ? Number.parseInt(time, 36) : undefined);
    });
  }
  if (running.has(key)) throw new ApiError(40902);
  const hash = secret
    ? hashPassword(latin1(body), context)
    : Promise.resolve(digest(body, bodyLength));
  const result = context.afterWaiting(
    hash,
    (hash) => {
      context.storeKey = (created) => keys.add(request, hash, created);
      return execute();
    },
  );
  running.add(key);
  return result.finally(() => running.delete(key));
}

function digest(bytes: Uint8Array | string, length: number): string {
  return hashOf("sha256", bytes, "base64url").slice(0, length);
}

/** Decodes each byte as one character, so that no two bodies have the same text. */
function latin1(body: Uint8Array): string {
  return Buffer.from(body).toString("latin1");
}

/**
 * Parses the Idempotency-Key field, which can be sent only once: node:http joins
 * two with a comma and a space. The draft requires a quoted string, but most
 * clients send the key without quotes: here the key is the complete value.
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

function keyOf({ headers }: RequestContext): string | undefined {
  return parseIdempotencyKey(headers["idempotency-key"]);
}

const parameters = [{
  name: "Idempotency-Key",
  in: "header",
  description: "A user's request repeated within a day gets the first response",
  schema: { type: "string" },
}];

export const feature: Feature = {
  tables: [keysTable],
  open(api) {
    const keys = new StoredKeys(api);
    const running = new Set<string>();
    /** The resources that a POST creates. */
    const resources = new Map<unknown, Resource>();
    return {
      extend({ POST, ...others }) {
        if (POST?.resource === undefined) return undefined;
        resources.set(POST.resource, POST.resource);
        const docs = { ...POST.docs, parameters, errors: [409, 410] };
        return {
          ...others,
          POST: {
            ...POST,
            docs,
            receive(context, body) {
              keyOf(context); // refuses a malformed one before the body
              return POST.receive?.(context, body);
            },
          },
        };
      },
      runOnce(context, { body, execute, repeat }) {
        const { method, caller } = context;
        const resource = resources.get(context.operation?.resource);
        const sent = method === "POST" ? keyOf(context) : undefined;
        // Keys belong to users, so an anonymous request has none.
        const by = caller?.id;
        if (sent === undefined || !by || !resource) return execute();
        // Each spelling of a URL is the same resource (RFC 3986 section 6.2.2.2).
        const path = decodePercent(context.url.slice(api.base.origin.length));
        const key = digest(`${by} ${path} ${sent}`, keyLength);
        const secret = resource.records.collection.secretName !== undefined;
        const request = { key, by, body, secret, context, keys, running };
        return runOnce(
          request,
          execute,
          repeat ??
            ((id, time) => repeatCreate(resource, context, { body, id, time })),
        );
      },
    };
  },
};
