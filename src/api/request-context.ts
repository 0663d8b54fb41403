/**
 * The types that app.ts, the operations and the features share: the request that
 * an operation gets, the records that it is about, and the result that it returns.
 */

import type { Requester } from "../admission.ts";
import type { Actor } from "../auth/access.ts";
import type {
  IncomingRequest,
  OutgoingResponse,
  Response,
} from "../http/connection.ts";
import type { Document, Mutation, Row, Table } from "../store/store.ts";
import type { Collection } from "./declaration/declaration.ts";
import type { Query } from "./query/parameters.ts";

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

/** The subject of a request, as validators see it: a record, or the records of a URL. */
export type Subject =
  | { readonly collection: Collection; readonly document: Document }
  | { readonly collection: Collection; readonly scope: Scope | undefined };

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

/** The condition that a URL, such as `/zoos/7/animals`, imposes on the records of a collection. */
export interface Scope {
  /** Properties with an index, and the values that they must have. */
  readonly conditions: Readonly<Record<string, number>>;
  /** A further condition. */
  readonly where?: ((document: Document) => boolean) | undefined;
  /** The sequence number of the record in the URL, such as the zoo. */
  readonly seq?: number;
  /** Describes the scope in messages, after the name of a record. */
  readonly name?: string;
  /** The URL of the collection in this scope. */
  readonly url?: string;
}

/** A page of the matching rows, and the number of all matching rows. */
export interface Page {
  /** The rows of an unlimited query are as of the moment of its selection, however late they are read. */
  readonly rows: Iterable<Row>;
  readonly total: number;
}

/** The records that a query selects from, and the requester. */
export interface Selection<T> {
  readonly table: Table;
  readonly scope: Scope | undefined;
  /** Returns whether a row has the values that the scope demands. */
  readonly isInScope: (row: Row) => boolean;
  readonly use: (page: Page) => T;
  readonly requester: Requester;
}

/**
 * Returns the result of `use` for the page of a table that a query selects; a
 * promise if that takes long. The page and the total are as of the moment when
 * `use` is called, so `use` must also read the rest of the response.
 *
 * @throws {OverloadedError}; the reason of the requester's signal
 */
export type Select = <T>(
  query: Query,
  selection: Selection<T>,
) => T | Promise<T>;
