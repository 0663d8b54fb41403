/**
 * A request and the response to it: what the steps of {@linkcode Application}
 * have found so far, and what an operation may do with it.
 */

import { performance } from "node:perf_hooks";
import {
  authenticate,
  type Authentication,
  type Caller,
  requireAccess,
} from "./api/accounts/authentication.ts";
import type { ApiOptions, Feature, SingleHooks } from "./api/feature.ts";
import type { Operation, Route } from "./api/operations.ts";
import type { Scope, Select } from "./api/query/select.ts";
import type {
  AuditEvent,
  RequestContext,
  Result,
  StoreKey,
} from "./api/request-context.ts";
import { ClientDisconnected } from "./http/body.ts";
import { isReadMethod } from "./http/conditional.ts";
import { ndjsonType } from "./api/representation.ts";
import { networkOf } from "./http/client-address.ts";
import type {
  IncomingRequest,
  OutgoingResponse,
  Response,
} from "./http/connection.ts";
import { requestId } from "./http/server.ts";
import { type DurableCallback, StoreError } from "./store/error.ts";

/** The parts that an application is built from. */
export interface ApplicationOptions extends ApiOptions {
  readonly features: readonly Feature[];
}

/** The state that the exchanges of one application share. */
export type Shared =
  & ApplicationOptions
  & Authentication
  & { readonly hooks: SingleHooks };

/** After so many attempts a request is refused. */
const maxOvertaken = 10;

/** One request and its response. */
export class Exchange implements RequestContext {
  readonly request: IncomingRequest;
  readonly response: OutgoingResponse;
  readonly method: string;
  readonly headers: IncomingRequest["headers"];
  readonly id: string;
  readonly client: string;
  /** A `performance.now()` value: meaningful only as a difference. */
  readonly start = performance.now();
  readonly shared: Shared;
  #closed: AbortController | undefined;
  #isConfirmed = false;
  /** How often another server changed the state before this request could. */
  #overtaken = 0;
  // Set by the steps of the request.
  url = "";
  ids: readonly number[] = [];
  route: Route | undefined;
  operation: Operation | undefined;
  caller: Caller | undefined;
  asNdjson = false;
  body: Uint8Array | undefined;
  storeKey: StoreKey | undefined;
  auditEvent: AuditEvent | undefined;
  /** Turns the response into what is sent. */
  toPage: ((response: Response) => Response) | undefined;

  constructor(response: OutgoingResponse, shared: Shared) {
    const request = response.req;
    this.request = request;
    this.response = response;
    this.method = request.method ?? "";
    this.headers = request.headers;
    this.id = requestId(request.headers["x-request-id"]);
    const { remoteAddress: peer = "" } = request.socket;
    this.client = networkOf(
      shared.hooks.findClient?.(peer, request.headers) ?? peer,
    );
    this.shared = shared;
  }

  get select(): Select | undefined {
    return this.shared.hooks.select;
  }

  scope(): Scope | undefined {
    return this.operation?.resource?.scope?.(this);
  }

  /** Returns the current caller; throws an ApiError if the caller lacks the access that the operation requires. */
  authenticate(): Caller | undefined {
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
   * Resumes after a wait: while the request waited, its token may have been
   * revoked, or its caller's role changed. What lasts longer calls
   * {@linkcode authenticate} itself at each step: exports, uploads, imports and
   * event streams. Only signing in has no caller to check.
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

  /** Aborted when the response closes, complete or not. */
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
   * Returns a promise that the state in memory is no older than what anybody
   * was shown before this request; undefined if that is certain, or if it can be
   * found out later: the commit of a write confirms what it was judged by.
   */
  confirmFirst(): Promise<void> | undefined {
    const { headers, method, operation } = this;
    if (
      !isReadMethod(method) && !operation?.ignoresCredentials &&
      // An import can be read only once; parameters may follow its type.
      !headers["content-type"]?.toLowerCase().startsWith(ndjsonType)
    ) return undefined;
    return this.#confirm();
  }

  #confirm(): Promise<void> | undefined {
    if (this.#isConfirmed || this.operation?.isLocal) return undefined;
    this.#isConfirmed = true;
    return this.shared.store.confirm(isReadMethod(this.method));
  }

  /** Calls back once a result is durable; with `overtaken` if it must be found again. */
  whenSettled(
    { seq, isCommitted }: Pick<Result, "seq" | "isCommitted">,
    callback: DurableCallback,
  ): void {
    const { store } = this.shared;
    const { durableSeq } = store;
    // A write that was refused or changes nothing may have seen an old state.
    const confirmed = !isCommitted && seq > 0 && this.#confirm();
    if (!confirmed) return store.onDurable(seq, callback);
    confirmed.then(
      () =>
        callback(
          Math.max(seq, store.durableSeq) > durableSeq
            ? new StoreError("overtaken", "Other servers changed the state")
            : undefined,
        ),
      callback,
    );
  }

  /** Returns whether the request can be processed again after what it saw was rolled back. */
  canRepeat({ code }: StoreError): boolean {
    if (code === "overtaken") return this.#overtaken++ < maxOvertaken;
    return isReadMethod(this.method) &&
      (code === "disk-full" || code === "outcome-unknown");
  }
}
