/**
 * The types that app.ts and the operations share: the request that an operation
 * gets, and the result that it returns.
 */

import type { Actor } from "../auth/access.ts";
import type { IncomingRequest, Response } from "../http/connection.ts";
import type { Mutation } from "../store/store.ts";
import type { Scope, Select } from "./query/select.ts";

/** A response, and the log sequence number that must be durable before it is sent. */
export interface Result extends Response {
  readonly seq: number;
  /** Set if the request itself has committed what it reports. */
  readonly isCommitted?: true;
}

/** A result; a promise of it if the operation must wait. */
export type Outcome = Result | Promise<Result>;

/** Returns the mutations that store an idempotency key in the transaction that creates its record. */
export type StoreKey = (createdId: number) => readonly Mutation[];

/**
 * Executes a request at most once for its idempotency key, if it has one.
 *
 * @param repeat returns the first response again, if the request creates
 * something else than a record of its URL
 */
export type RunOnce = (
  body: Uint8Array,
  execute: (storeKey?: StoreKey) => Outcome,
  repeat?: (createdId: number) => Result,
) => Outcome;

/** An action of a request that the log reports at the level `info`. */
export interface AuditEvent {
  readonly message: string;
  readonly fields?: Readonly<Record<string, unknown>>;
}

/** A request, as the operations see it. */
export interface RequestContext {
  /** The client that sent it: an IPv4 address, or the first 64 bits of an IPv6 address. */
  readonly client: string;
  readonly method: string;
  /** The URL as it was requested, without the query. */
  readonly url: string;
  /** The ids in the path. */
  readonly ids: readonly number[];
  /** The signed-in user, with their current rights. */
  caller: Actor | undefined;
  /** True if a collection is requested as NDJSON: all of it, unless the query asks for a page. */
  readonly asNdjson: boolean;
  /** The header fields, for preconditions, which are evaluated once the record has been found. */
  readonly headers: IncomingRequest["headers"];
  /** Set if it creates a record and has an idempotency key. */
  storeKey?: StoreKey | undefined;
  /** Logged when the response is sent. */
  auditEvent?: AuditEvent | undefined;
  /**
   * Finds the records that the URL stands for: those of zoo 7, for
   * `/zoos/7/animals`; undefined if they are all of the collection. Throws an
   * ApiError if that zoo does not exist.
   */
  scope(): Scope | undefined;
  /** Returns the current caller; throws an ApiError if access was lost. */
  authenticate(): Actor | undefined;
  /**
   * Waits for a promise, and resumes if the caller still has access. Every wait
   * of an operation before something is changed or shown goes through this.
   */
  afterWaiting<T, R>(
    promise: Promise<T>,
    resume: (value: T) => R | Promise<R>,
  ): Promise<R>;
  /** Finds the rows of a list, if a feature does. */
  readonly select?: Select | undefined;
  /** Aborted when the response closes: it has been sent, or the client has disconnected. */
  readonly signal: AbortSignal;
}

/** Finds the records that a URL stands for, as {@linkcode RequestContext.scope}. */
export type ResolveScope = (context: RequestContext) => Scope | undefined;
