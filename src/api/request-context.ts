/**
 * The types that app.ts and the operations share: the request that an operation
 * gets, and the result that it returns.
 */

import type { Actor } from "../auth/access.ts";
import type {
  IncomingRequest,
  OutgoingResponse,
  Response,
} from "../http/connection.ts";
import type { Document, Mutation } from "../store/store.ts";
import type { Collection } from "./declaration/declaration.ts";
import type { Scope, Select } from "./query/select.ts";

/** A response, and the log sequence number that must be durable before it is sent. */
export interface Result extends Response {
  readonly seq: number;
  /** Set if the request itself has committed what it reports. */
  readonly isCommitted?: true;
}

/** A result; a promise of it if the operation must wait. */
export type Outcome = Result | Promise<Result>;

/** How a request is executed at most once. */
export interface Execution {
  /** The part that a retry shares with the first request: the body, or the digest of one that is too long for memory. */
  readonly body: Uint8Array;
  readonly execute: () => Outcome;
  /** Returns the first response again, if the request creates something else than a record of its URL. */
  readonly repeat?: (createdId: number) => Result;
}

/** An action of a request that the log reports at the level `info`. */
export interface AuditEvent {
  readonly message: string;
  readonly fields?: Readonly<Record<string, unknown>>;
}

/** The subject of a request, as validators see it: a record, the records of a URL, or a text that never changes, by its digest. */
export type Subject =
  | { readonly collection: Collection; readonly document: Document }
  | { readonly collection: Collection; readonly scope: Scope | undefined }
  | { readonly digest: string };

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
  /** The media type that a read should return: one of those that its operation produces. */
  readonly format: string | undefined;
  readonly headers: IncomingRequest["headers"];
  /** The source of a body of any length. */
  readonly response: OutgoingResponse;
  /** Returns the mutations that belong in the transaction that creates a record, such as those that store an idempotency key. */
  storeKey?: ((createdId: number) => readonly Mutation[]) | undefined;
  /** Logged when the response is sent. */
  auditEvent?: AuditEvent | undefined;
  /**
   * Finds the records that the URL stands for: those of zoo 7, for
   * `/zoos/7/animals`; undefined if they are all of the collection. Throws an
   * ApiError if that zoo does not exist.
   */
  scope(): Scope | undefined;
  /**
   * Checks the preconditions of the request, if a feature evaluates them; returns
   * true if the client has the current representation already (304). Throws an
   * ApiError if one fails.
   */
  checkPreconditions(subject: Subject): boolean;
  /** Returns the header fields that identify a representation as it is now; none without a feature. */
  validators(subject: Subject): readonly string[];
  /** Executes the request, unless it is a retry of one that was executed. */
  runOnce(execution: Execution): Outcome;
  /** Reads the body into memory. */
  readBody(): Promise<Uint8Array>;
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
