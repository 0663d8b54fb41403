/**
 * A request, as app.ts, the operations and the features see it: what it sent,
 * what the steps of app.ts have found so far, and what an operation may do with
 * it. An operation returns a {@linkcode Result}.
 */

import { performance } from "node:perf_hooks";
import type { Requester, SharedTurns } from "../admission.ts";
import {
  ClientDisconnected,
  defaultMaxBodyBytes,
  readBody,
} from "../http/body.ts";
import type { IncomingRequest, OutgoingResponse } from "../http/connection.ts";
import { requestId } from "../http/server.ts";
import type { Actor } from "../auth/access.ts";
import type { Document, Mutation } from "../store/store.ts";
import {
  authenticate,
  type Authentication,
  requireAccess,
} from "./accounts/authentication.ts";
import type { Collection } from "./declaration/declaration.ts";
import type { ApiOptions } from "./options.ts";
import type {
  AuditEvent,
  RequestedRoute,
  RequestHooks,
  Requirements,
  Scope,
} from "./request-types.ts";

export type {
  Execution,
  Outcome,
  Page,
  Result,
  Scope,
  Select,
  Selection,
  Subject,
} from "./request-types.ts";

/** The state that all requests share. */
export type SharedState =
  & ApiOptions
  & Authentication
  & { readonly hooks: RequestHooks<RequestContext> };

/** One request, and its response. */
export class RequestContext implements Requester {
  readonly request: IncomingRequest;
  readonly response: OutgoingResponse;
  readonly method: string;
  /** The target as it was sent: in general a path and a query. */
  readonly target: string;
  readonly headers: IncomingRequest["headers"];
  readonly id: string;
  /** The client that sent it, in limits and in the log: the address of its connection, unless a feature says otherwise. */
  readonly client: string;
  /** When it began: a `performance.now()` value, meaningful only as a difference. */
  readonly start = performance.now();
  readonly shared: SharedState;
  #closed: AbortController | undefined;
  #body: Promise<Uint8Array> | undefined;
  /** The URL as it was requested, without the query. This and the rest are set by the steps of app.ts. */
  url = "";
  /** The ids in the path. */
  ids: readonly number[] = [];
  /** Undefined if the URL is unknown. */
  route: RequestedRoute<RequestContext> | undefined;
  operation: Requirements<RequestContext> | undefined;
  /** The signed-in user, with their current rights. */
  caller: Actor | undefined;
  /** Returns the mutations that belong in the transaction that creates a record, such as those that store an idempotency key. */
  storeKey: ((created: Document) => readonly Mutation[]) | undefined;
  /** The collections whose records the response shows besides those of its URL. */
  related: readonly Collection[] = [];
  /** Logged when the response is sent. */
  auditEvent: AuditEvent | undefined;

  constructor(response: OutgoingResponse, shared: SharedState) {
    const { req: request } = response;
    const { headers, method = "", url = "", socket } = request;
    this.request = request;
    this.response = response;
    this.method = method;
    this.target = url;
    this.headers = headers;
    this.id = requestId(headers["x-request-id"]);
    const { remoteAddress: peer = "" } = socket;
    this.client = shared.hooks.findClient?.(peer, headers) ?? peer;
    this.shared = shared;
  }

  /** The turns of long work, if a feature shares them among the clients. */
  get turns(): SharedTurns | undefined {
    return this.shared.hooks.turns;
  }

  /**
   * Finds the records that the URL stands for: those of zoo 7, for
   * `/zoos/7/animals`; undefined if they are all of the collection. Throws an
   * ApiError if that zoo does not exist.
   */
  scope(): Scope | undefined {
    const { records, parent, scopeOf } = this.operation?.resource ?? {};
    return scopeOf ? scopeOf(this) : records?.scopeOf(this, parent);
  }

  /** Returns the current caller; throws an ApiError if the caller lacks the access that the operation requires. */
  authenticate(): Actor | undefined {
    const { operation, headers, request } = this;
    if (!operation?.ignoresCredentials) {
      this.caller = authenticate(this.shared, headers.authorization);
    }
    if (!operation?.isPublicFor?.(request)) {
      requireAccess(this.shared, this.caller, operation?.access ?? "anyone");
    }
    return this.caller;
  }

  /**
   * Waits for a promise, and resumes if the caller still has access: while the
   * request waited, its token may have been revoked, or its caller's role
   * changed. Every wait of an operation before something is changed or shown
   * goes through this; what lasts longer calls {@linkcode authenticate} itself at
   * each step: exports, uploads, imports and event streams. Only signing in has
   * no caller to check.
   */
  afterWaiting<T, R>(
    promise: Promise<T>,
    resume: (value: T) => R | Promise<R>,
  ): Promise<R> {
    return promise.then((value) => {
      this.authenticate();
      return resume(value);
    });
  }

  /** Aborted when the response closes: it has been sent, or the client has disconnected. */
  get signal(): AbortSignal {
    if (this.#closed === undefined) {
      const closed = this.#closed = new AbortController();
      const abort = () => closed.abort(new ClientDisconnected());
      if (this.request.socket.destroyed) abort();
      else this.response.once("close", abort);
    }
    return this.#closed.signal;
  }

  /**
   * Reads the body into memory, once. What waits for it must authenticate anew.
   *
   * @throws {ApiError} 41300, 40800
   */
  readBody(): Promise<Uint8Array> {
    const { maxBodyBytes = defaultMaxBodyBytes } = this.operation ?? {};
    const length = Number(this.headers["content-length"] ?? Infinity);
    const read = () => readBody(this.response, maxBodyBytes);
    return this.#body ??= Math.min(maxBodyBytes, length) > defaultMaxBodyBytes
      ? this.turns?.body.run(this, read) ?? read()
      : read();
  }
}
