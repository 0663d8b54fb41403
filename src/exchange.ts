/**
 * A request and the response to it: what the steps of {@linkcode Application}
 * have found so far, and what an operation may do with it.
 */

import type { Operation, Route } from "./api/operation.ts";
import { performance } from "node:perf_hooks";
import {
  authenticate,
  type Authentication,
  requireAccess,
} from "./api/accounts/authentication.ts";
import type { ApiOptions, Feature, SingleHooks } from "./api/feature.ts";
import { defaultMaxBodyBytes } from "./api/operations.ts";
import type {
  AuditEvent,
  Execution,
  Outcome,
  RequestContext,
  Scope,
  Select,
  Subject,
} from "./api/request-context.ts";
import type { Actor } from "./auth/access.ts";
import { ClientDisconnected, readBody } from "./http/body.ts";
import { networkOf } from "./http/client-address.ts";
import type { IncomingRequest, OutgoingResponse } from "./http/connection.ts";
import { requestId } from "./http/server.ts";

/** The parts that an application is built from. */
export interface ApplicationOptions extends ApiOptions {
  readonly features: readonly Feature[];
}

/** The state that the exchanges of one application share. */
export type Shared =
  & ApplicationOptions
  & Authentication
  & { readonly hooks: SingleHooks };

/** One request and its response. */
export class Exchange implements RequestContext {
  readonly request: IncomingRequest;
  readonly response: OutgoingResponse;
  readonly method: string;
  readonly target: string;
  readonly headers: IncomingRequest["headers"];
  readonly id: string;
  readonly client: string;
  /** A `performance.now()` value: meaningful only as a difference. */
  readonly start = performance.now();
  readonly shared: Shared;
  #closed: AbortController | undefined;
  #body: Promise<Uint8Array> | undefined;
  // Set by the steps of the request.
  url = "";
  ids: readonly number[] = [];
  route: Route | undefined;
  operation: Operation | undefined;
  caller: Actor | undefined;
  format: string | undefined;
  storeKey: RequestContext["storeKey"];
  auditEvent: AuditEvent | undefined;

  constructor(response: OutgoingResponse, shared: Shared) {
    const request = response.req;
    this.request = request;
    this.response = response;
    this.method = request.method ?? "";
    this.target = request.url ?? "";
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
    const { records, parent, scopeOf } = this.operation?.resource ?? {};
    return scopeOf ? scopeOf(this) : records?.scopeOf(this, parent);
  }

  /** Returns the current caller; throws an ApiError if the caller lacks the access that the operation requires. */
  authenticate(): Actor | undefined {
    const { operation, headers } = this;
    if (!operation?.ignoresCredentials) {
      this.caller = authenticate(this.shared, headers.authorization);
    }
    requireAccess(this.shared, this.caller, operation?.access ?? "anyone");
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
   * Reads the body into memory, once. What waits for it must authenticate anew.
   *
   * @throws {ApiError} 41300, 40800
   */
  readBody(): Promise<Uint8Array> {
    const { maxBodyBytes = defaultMaxBodyBytes } = this.operation ?? {};
    return this.#body ??= readBody(this.response, maxBodyBytes);
  }

  checkPreconditions(subject: Subject): boolean {
    return this.shared.hooks.precondition?.(this, subject) ?? false;
  }

  validators(subject: Subject): readonly string[] {
    return this.shared.hooks.validators?.(this, subject) ?? [];
  }

  runOnce(execution: Execution): Outcome {
    const { operation, shared: { hooks } } = this;
    return operation && hooks.runOnce
      ? hooks.runOnce(this, operation, execution)
      : execution.execute();
  }
}
