/**
 * A client of etcd's HTTP/JSON gateway: the few calls that the store needs. In
 * JSON, etcd's keys and values are base64 and its 64-bit integers are strings.
 * All keys are below the prefix of the store, which the callers leave out.
 *
 * All calls may be repeated without harm, so each is tried at one endpoint
 * after the other until its time is over. It rejects with a StoreError:
 * `unreachable` if etcd has not carried it out and never will, `disk-full` if
 * etcd's database has reached its quota (see {@linkcode EtcdClient.transact}),
 * otherwise `outcome-unknown`.
 */

import { Buffer } from "node:buffer";
import { type IncomingMessage, request } from "node:http";
import { request as requestWithTls } from "node:https";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { errorCode, errorText } from "../store/error.ts";
import type { EtcdOptions } from "../store/shared.ts";
import { codeOf, etcdError } from "./errors.ts";

/** A key with its value. */
export interface KeyValue {
  readonly key: string;
  readonly value: Buffer;
}

/** Keys from the first one up to, but without, the second one; a single key if there is no second one. */
export type KeyRange = readonly [first: string, end?: string];

/** Puts a value, which ends with its lease if it has one; without a value, deletes. */
export interface Change {
  readonly keys: KeyRange;
  readonly value?: Uint8Array | string;
  readonly lease?: string | undefined;
}

/** An error that etcd has reported, with its gRPC code. */
class Refusal extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

// gRPC codes.
const canceled = 1; // also by a node that stops
const unknown = 2;
const deadlineExceeded = 4;
const outOfRange = 11;
const unimplemented = 12;
const unavailable = 14;
const unauthenticated = 16;

/** The codes after which etcd may have carried out the call. */
const uncertainCodes = [canceled, unknown, deadlineExceeded, unavailable];

/** The errors after which etcd has not carried out the call. */
const harmlessErrors =
  /no leader|ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|certificate|before secure TLS|EPROTO/;

const minAttemptMs = 500;

/** The longest answer, as text: eight of the longest values in base64, and what is around them. */
const maxAnswerLength = 12 << 20;

/** The text of the error if an answer is longer. */
export const tooLong = "its answer is too long";

interface RawKeyValue {
  readonly key: string;
  readonly value?: string;
}

/** A response of etcd, with the properties of all calls. */
interface EtcdAnswer {
  /** In each response, that of a lease aside. */
  readonly header?: object;
  readonly kvs?: readonly RawKeyValue[];
  readonly succeeded?: boolean;
  readonly responses?: readonly { readonly response_range?: EtcdAnswer }[];
  /** The id of a new lease. */
  readonly ID?: string;
  readonly token?: string;
  /** Of an error: its gRPC code. */
  readonly code?: number;
  readonly message?: string;
  /** Of a lease: how long it still exists. */
  readonly result?: { readonly TTL?: string };
}

/** Calls etcd. */
export class EtcdClient {
  readonly #options: EtcdOptions;
  /** The one that answered last is the first. */
  readonly #endpoints: URL[];
  #token: string | undefined;

  constructor(options: EtcdOptions) {
    this.#options = options;
    this.#endpoints = options.endpoints.map((url) => new URL(url));
  }

  /** Returns the keys of a range as of now (linearizable), in ascending order: all, some, or only the last one. */
  async get(keys: KeyRange, limit?: number | "last"): Promise<KeyValue[]> {
    const { kvs } = await this.call("kv/range", {
      ...this.#rangeOf(keys),
      ...limit === "last" ? { limit: 1, sort_order: "DESCEND" } : { limit },
    });
    return kvs;
  }

  async put(
    key: string,
    value: Uint8Array | string,
    lease?: string,
  ): Promise<void> {
    await this.call("kv/put", {
      ...this.#rangeOf([key]),
      value: toBase64(value),
      lease,
    });
  }

  /**
   * Makes changes together if a key has a value, or is missing if that is empty;
   * otherwise reads the key and another one; `also` is read in both cases.
   * `isDone` is true if it has made them, `isRepeated` if an earlier call may have.
   * A full etcd may have made what it refuses: `disk-full` only if the key is the same.
   */
  async transact(
    [key, value]: readonly [key: string, value: string],
    changes: readonly Change[],
    other = key,
    also: readonly KeyRange[] = [],
  ) {
    const read = (keys: KeyRange) => ({ request_range: this.#rangeOf(keys) });
    try {
      const { succeeded, found, isRepeated } = await this.call(
        "kv/txn",
        {
          compare: [{
            ...this.#rangeOf([key]),
            ...value === ""
              ? { target: "CREATE", create_revision: "0" }
              : { target: "VALUE", value: toBase64(value) },
          }],
          success: [
            ...changes.map(({ keys, value, lease }) => {
              const range = this.#rangeOf(keys);
              return value === undefined
                ? { request_delete_range: range }
                : { request_put: { ...range, value: toBase64(value), lease } };
            }),
            ...also.map(read),
          ],
          failure: [[key] as const, [other] as const, ...also].map(read),
        },
      );
      return { isDone: succeeded === true, isRepeated, found };
    } catch (error) {
      if (errorCode(error) !== "disk-full") throw error;
      const found = await this.#look(key);
      if (String(found[0]?.value ?? "") === value) throw error;
      found.push(...await this.#look(other));
      return { isDone: false, isRepeated: true, found };
    }
  }

  /** Reads a key after a call that may have changed it; if that fails, the outcome is unknown. */
  #look(key: string): Promise<KeyValue[]> {
    return this.get([key]).catch(({ cause }) => {
      throw etcdError(cause);
    });
  }

  /** Reports what etcd sends about a key, as text, until it fails or is aborted. */
  async watch(
    key: string,
    signal: AbortSignal,
    report: (text: string) => void,
  ): Promise<void> {
    const body = JSON.stringify({ create_request: this.#rangeOf([key]) });
    const stream = await this.#send("watch", body, signal);
    if (stream.statusCode !== 200) return void stream.destroy();
    for await (const bytes of stream) {
      const text = String(bytes);
      // So etcd says that it has forgotten the token, and keeps the stream open.
      if (text.includes('"canceled":true')) {
        return void (this.#token = undefined);
      }
      report(text);
    }
  }

  /** Calls a method until it has answered. */
  async call(path: string, body: object) {
    const { timeoutMs = 5000 } = this.#options;
    const deadline = performance.now() + timeoutMs;
    const text = JSON.stringify(body);
    let isRepeated = false;
    for (let attempt = 1;; attempt++) {
      const leftMs = deadline - performance.now();
      // The first one is longer than an election of a leader usually takes, the
      // next is for what takes long. Frozen meanwhile, it may have no time left.
      const share = attempt === 1 ? 0.3 : 0.7;
      const attemptMs = Math.max(Math.ceil(leftMs * share), minAttemptMs);
      const signal = AbortSignal.timeout(attemptMs);
      const [endpoint] = this.#endpoints;
      try {
        return { ...await this.#ask(path, text, signal), isRepeated };
      } catch (cause) {
        const error = signal.aborted ? new Error("no answer in time") : cause;
        const code = error instanceof Refusal ? error.code : unavailable;
        const isSignedOut = code === unauthenticated ||
          /auth store is old|user name is empty/.test(errorText(error));
        const isUncertain = uncertainCodes.includes(code);
        if (isSignedOut) this.#token = undefined;
        isRepeated ||= isUncertain && path !== "kv/range" &&
          !harmlessErrors.test(errorCode(error) + errorText(error));
        // Unless another call that failed there has done so.
        if (endpoint === this.#endpoints[0]) {
          this.#endpoints.push(...this.#endpoints.splice(0, 1));
        }
        if (leftMs < timeoutMs * 0.3 || !isUncertain && !isSignedOut) {
          throw etcdError(error, isRepeated ? undefined : codeOf(error, code));
        }
        // A pause after each round.
        if (attempt % this.#endpoints.length === 0) await delay(100);
      }
    }
  }

  /** Sends a request, and reads the answer; throws a {@linkcode Refusal} if it reports an error, or has not the shape of those of etcd. */
  async #ask(path: string, body: string, signal: AbortSignal) {
    const [endpoint] = this.#endpoints;
    const response = await this.#send(path, body, signal);
    const text = await readAnswer(response, path);
    try {
      return parseAnswer(text, this.#options.prefix);
    } catch (error) {
      if (error instanceof Refusal) throw error;
      throw new Refusal(
        // A proxy may recover, and a transaction may have been carried out.
        response.statusCode === 200 && path !== "kv/txn"
          ? unimplemented
          : unknown,
        `${endpoint?.origin} is not etcd (status ${response.statusCode})`,
      );
    }
  }

  /** Sends a request, signed in. */
  async #send(
    path: string,
    body: string,
    signal: AbortSignal,
  ): Promise<IncomingMessage> {
    const { user: name, password } = this.#options;
    const signIn = "auth/authenticate";
    if (name !== undefined && this.#token === undefined && path !== signIn) {
      const user = JSON.stringify({ name, password });
      try {
        this.#token = (await this.#ask(signIn, user, signal)).token;
      } catch (error) {
        if (!errorText(error).includes("not enabled")) throw error;
        this.#token = ""; // until etcd asks for one
      }
    }
    const [endpoint] = this.#endpoints;
    const send = endpoint?.protocol === "https:" ? requestWithTls : request;
    return await new Promise((resolve, reject) => {
      send(endpoint ?? "", {
        method: "POST",
        path: `/v3/${path}`,
        headers: {
          "content-length": Buffer.byteLength(body),
          ...this.#token && { authorization: this.#token },
        },
        signal,
      }, resolve).on("error", reject).end(body);
    });
  }

  #rangeOf([first, end]: KeyRange) {
    const { prefix } = this.#options;
    return {
      key: toBase64(prefix + first),
      ...end && { range_end: toBase64(prefix + end) },
    };
  }
}

/** Reads an answer; throws a {@linkcode Refusal} if it is too long. A transaction may have been carried out. */
async function readAnswer(
  response: IncomingMessage,
  path: string,
): Promise<string> {
  let text = "";
  for await (const part of response.setEncoding("utf8")) {
    text += part;
    if (text.length <= maxAnswerLength) continue;
    throw new Refusal(path === "kv/txn" ? unknown : outOfRange, tooLong);
  }
  return text;
}

/**
 * Parses an answer.
 *
 * @throws {Refusal} if it reports an error; another error if it has not the
 * shape of those of etcd
 */
function parseAnswer(text: string, prefix: string) {
  const decode = (kvs: readonly RawKeyValue[] = []): KeyValue[] =>
    kvs.map(({ key, value = "" }) => ({
      key: fromBase64(key).toString().slice(prefix.length),
      value: fromBase64(value),
    }));
  const answer: EtcdAnswer = JSON.parse(text);
  const { header, result, kvs, responses = [], code = 0, message = "" } =
    answer;
  if (code > 0 && message.trim()) throw new Refusal(code, message);
  if (!header && !result) throw new TypeError();
  const found = responses.flatMap(({ response_range: range }) =>
    decode(range?.kvs)
  );
  return { ...answer, kvs: decode(kvs), found };
}

/** A server that is gone for so long loses what it held. */
const leaseSeconds = 60;
export const renewMs = 20_000;

/** Returns the key that is there while a server is. */
export function serverKey(id: string): string {
  return `servers/${id}`;
}

/** The lease of a server: the sign for the others that it is there. */
export class Lease {
  id: string | undefined;
  /** True once it was said that another process has taken the name. */
  isReported = false;
  readonly #client: EtcdClient;
  #key = "";
  #process = "";

  constructor(client: EtcdClient) {
    this.#client = client;
  }

  /**
   * Takes the name of a server for a process. Returns false if it belongs to
   * another process than earlier ones of the same folder: this folder is a copy.
   */
  async claim(
    serverId: string,
    process: string,
    earlierProcesses: readonly string[],
  ): Promise<boolean> {
    this.#key = serverKey(serverId);
    this.#process = process;
    return await this.renew(earlierProcesses);
  }

  /** Renews the lease; returns false if another process has taken the name. */
  async renew(earlierProcesses: readonly string[] = []): Promise<boolean> {
    const isAlive = await this.#keepAlive();
    const [found] = await this.#client.get([this.#key]);
    const current = String(found?.value ?? "");
    if (current === this.#process && isAlive) return true;
    if (current && ![...earlierProcesses, this.#process].includes(current)) {
      return false;
    }
    if (found && current === "") { // of version 0.2.0
      await this.#client.put(this.#key, this.#process, this.id);
      return true;
    }
    const { isDone, found: [other] } = await this.#client.transact(
      [this.#key, current],
      [{ keys: [this.#key], value: this.#process, lease: this.id }],
    );
    // The answer to an earlier attempt may have been lost.
    return isDone || String(other?.value) === this.#process;
  }

  /** Returns false if the lease had ended, and another one was granted. */
  async #keepAlive(): Promise<boolean> {
    if (this.id !== undefined) {
      const { result } = await this.#client.call("lease/keepalive", {
        ID: this.id,
      });
      if (Number(result?.TTL) > 0) return true;
    }
    const { ID } = await this.#client.call("lease/grant", {
      TTL: leaseSeconds,
    });
    this.id = ID;
    return false;
  }
}

export function toBase64(value: Uint8Array | string): string {
  return Buffer.from(value).toString("base64");
}

function fromBase64(text: string): Buffer {
  return Buffer.from(text, "base64");
}
