/**
 * A client of etcd's HTTP/JSON gateway: the few calls that the store needs. In
 * JSON, etcd's keys and values are base64 and its 64-bit integers are strings.
 *
 * All calls may be repeated without harm, so each is tried at one endpoint
 * after the other until its time is over. It rejects with a StoreError:
 * `unreachable` if etcd has not carried it out and never will, `disk-full` if
 * etcd's database has reached its quota, otherwise `outcome-unknown`.
 */

import { Buffer } from "node:buffer";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { errorCode, errorText, StoreError } from "../store/error.ts";
import type { EtcdOptions } from "../store/options.ts";

/** A key with its value. */
export interface KeyValue {
  readonly key: string;
  readonly value: Buffer;
  /** The revision of etcd at which it was last put. */
  readonly revision: number;
}

/** Keys from the first one up to, but without, the second one; a single key if there is no second one. */
export type KeyRange = readonly [first: string, end?: string];

/** An error that etcd has reported, with its gRPC code. */
class Refusal extends Error {
  readonly code: number;

  constructor({ code = unknown, message = "" }) {
    super(message);
    this.code = code;
  }
}

// gRPC codes.
const unknown = 2;
const deadlineExceeded = 4;
const exhausted = 8;
const unavailable = 14;
const unauthenticated = 16;

/** The codes after which etcd may have carried out the call. */
const uncertainCodes = [unknown, deadlineExceeded, unavailable];
/** The codes after which another attempt is made. */
const transientCodes = [...uncertainCodes, unauthenticated];

/** The errors before anything is sent. */
const connectErrors =
  /^(?:ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|UND_ERR_CONNECT_TIMEOUT)$/;

/** A longer call, or one that reads several values, may take four times as long. */
const maxShortLength = 1 << 17;

interface RawKeyValue {
  readonly key: string;
  readonly value?: string;
  readonly mod_revision: string;
}

/** What etcd answers, of all calls together. */
interface EtcdAnswer {
  readonly kvs?: readonly RawKeyValue[];
  readonly header?: { readonly revision: string };
  readonly succeeded?: boolean;
  readonly responses?: readonly { readonly response_range?: EtcdAnswer }[];
  /** The id of a new lease. */
  readonly ID?: string;
  readonly token?: string;
  /** Of a stream. */
  readonly result?: {
    /** Of a lease that still exists. */
    readonly TTL?: string;
    readonly events?: readonly { readonly kv: RawKeyValue }[];
  };
}

/** Calls etcd. */
export class EtcdClient {
  readonly #options: EtcdOptions;
  /** The one that answered last is the first. */
  readonly #endpoints: string[];
  #token: string | undefined;

  constructor(options: EtcdOptions) {
    this.#options = options;
    this.#endpoints = [...options.endpoints];
  }

  /** Returns the keys of a range as of now (linearizable), in ascending order; or only the last one. */
  async get(range: KeyRange, limit: number | "last" = 0): Promise<KeyValue[]> {
    const page = limit === "last"
      ? { limit: 1, sort_order: "DESCEND" }
      : { limit };
    const { kvs } = await this.call("kv/range", { ...rangeOf(range), ...page });
    return decode(kvs);
  }

  /**
   * Carries out operations together if a key was last put at a revision, or is
   * not there and that is 0.
   *
   * @returns the revision, or undefined if the key was put later; and then the key
   */
  async transact(
    [key, revision]: readonly [key: string, revision: number],
    success: readonly object[],
  ): Promise<
    { readonly revision?: number; readonly found?: KeyValue | undefined }
  > {
    const mod_revision = String(revision);
    const compare = [{ ...rangeOf([key]), target: "MOD", mod_revision }];
    const failure = [{ request_range: rangeOf([key]) }];
    const body = { compare, success, failure };
    const { header, succeeded, responses } = await this.call("kv/txn", body);
    if (succeeded) return { revision: Number(header?.revision) };
    return { found: decode(responses?.[0]?.response_range?.kvs)[0] };
  }

  /** Yields the values of a key as they are put, from a revision on, until it fails or is aborted. */
  async *watch(
    key: string,
    revision: number,
    signal: AbortSignal,
  ): AsyncGenerator<KeyValue> {
    const start_revision = String(revision);
    const create_request = { ...rangeOf([key]), start_revision };
    const { body } = await this.#fetch(
      "watch",
      JSON.stringify({ create_request }),
      signal,
    );
    let text = "";
    for await (const bytes of body ?? []) {
      const lines = (text + Buffer.from(bytes)).split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) {
        const { result }: EtcdAnswer = JSON.parse(line);
        yield* decode(result?.events?.map(({ kv }) => kv));
      }
    }
  }

  /** Calls a method until it has answered. */
  async call(path: string, body: object): Promise<EtcdAnswer> {
    const { timeoutMs = 5000 } = this.#options;
    // Longer than an election of a leader usually takes.
    const attemptMs = timeoutMs * 0.3;
    const text = JSON.stringify(body);
    const isLong = text.length > maxShortLength || "range_end" in body;
    const startedAt = performance.now();
    let isCertain = true;
    for (let attempt = 1;; attempt++) {
      const signal = AbortSignal.timeout(isLong ? 4 * attemptMs : attemptMs);
      try {
        const response = await this.#fetch(path, text, signal);
        return await response.json() as EtcdAnswer;
      } catch (error) {
        const code = error instanceof Refusal ? error.code : unavailable;
        if (code === unauthenticated) this.#token = undefined;
        isCertain &&= path === "kv/range" || isRefused(error);
        this.#endpoints.push(...this.#endpoints.splice(0, 1));
        const isLate = performance.now() - startedAt > timeoutMs - attemptMs;
        if (isLate || !transientCodes.includes(code)) {
          throw toStoreError(error, code, isCertain);
        }
        // A pause after each round.
        if (attempt % this.#endpoints.length === 0) await delay(100);
      }
    }
  }

  /** Sends a request; throws a {@linkcode Refusal} if etcd reports an error. */
  async #fetch(
    path: string,
    body: string,
    signal: AbortSignal,
  ): Promise<Response> {
    const { user: name, password } = this.#options;
    const signIn = "auth/authenticate";
    if (name !== undefined && this.#token === undefined && path !== signIn) {
      const user = JSON.stringify({ name, password });
      const response = await this.#fetch(signIn, user, signal);
      this.#token = (await response.json() as EtcdAnswer).token;
    }
    const response = await fetch(`${this.#endpoints[0]}/v3/${path}`, {
      method: "POST",
      headers: { ...this.#token && { authorization: this.#token } },
      body,
      signal,
    });
    if (response.ok) return response;
    const text = await response.text();
    throw new Refusal(
      text.startsWith("{") ? JSON.parse(text) : { message: text },
    );
  }
}

/** Returns whether a call is known not to have been carried out. */
function isRefused(error: unknown): boolean {
  if (error instanceof Refusal) {
    return !uncertainCodes.includes(error.code) ||
      error.message.includes("no leader");
  }
  const cause = error instanceof Error ? error.cause : undefined;
  return connectErrors.test(errorCode(cause));
}

function toStoreError(
  cause: unknown,
  code: number,
  isCertain: boolean,
): StoreError {
  const message = `etcd: ${errorText(cause)}`;
  if (!isCertain) return outcomeUnknown(cause, message);
  const kind = code === exhausted ? "disk-full" : "unreachable";
  return new StoreError(kind, `${message}; nothing was changed`, { cause });
}

export function outcomeUnknown(
  cause: unknown,
  message = errorText(cause),
): StoreError {
  const text = `${message}; the write may have been carried out`;
  return new StoreError("outcome-unknown", text, { cause });
}

function encode(value: Uint8Array | string): string {
  return Buffer.from(value).toString("base64");
}

function decode(kvs: readonly RawKeyValue[] = []): KeyValue[] {
  return kvs.map(({ key, value = "", mod_revision }) => ({
    key: Buffer.from(key, "base64").toString(),
    value: Buffer.from(value, "base64"),
    revision: Number(mod_revision),
  }));
}

export function rangeOf([first, end]: KeyRange) {
  return { key: encode(first), ...end && { range_end: encode(end) } };
}

/** The body of a put, under a lease or not. */
export function entry(key: string, value: Uint8Array | string, lease?: string) {
  return { ...rangeOf([key]), value: encode(value), lease };
}

/** A put within a transaction. */
export function put(...of: Parameters<typeof entry>) {
  return { request_put: entry(...of) };
}
