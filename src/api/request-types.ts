/**
 * The types in which the core, the operations and the features describe a
 * request to each other. `Context` is always RequestContext, whose file names these.
 */

import type { Requester, SharedTurns } from "../admission.ts";
import type { Access } from "../auth/access.ts";
import type { IncomingRequest, Response } from "../http/connection.ts";
import type { Document, Row, Table } from "../store/store.ts";
import type {
  Collection,
  RecordChange,
  Reference,
} from "./declaration/declaration.ts";
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

/** The records that a URL stands for. */
export interface ScopedRecords<Context> {
  readonly records: {
    /** Returns the scope of a request; undefined for all records. */
    scopeOf(context: Context, parent?: Reference): Scope | undefined;
  };
  /** The reference to the record in the path, such as `zoo_id` in `/zoos/7/animals`. */
  readonly parent?: Reference | undefined;
  /** Limits the records, if not as `records` does. */
  readonly scopeOf?: (context: Context) => Scope;
}

/** The requirements of an operation, and the types of its responses. */
export interface Requirements<Context> {
  readonly access: Access;
  /** Returns whether a request needs no role, whatever `access` says. */
  readonly isPublicFor?: ((request: IncomingRequest) => boolean) | undefined;
  readonly ignoresCredentials?: true;
  /** The largest body that is read into memory; {@linkcode defaultMaxBodyBytes} by default. */
  readonly maxBodyBytes?: number;
  /** The media types of a successful response, the preferred one first; JSON by default. */
  readonly produces?: readonly string[];
  /** The records that it is about. */
  readonly resource?: ScopedRecords<Context>;
}

/** The URL of a request: what each of its methods requires. */
export interface RequestedRoute<Context> {
  readonly operations: ReadonlyMap<string, Requirements<Context>>;
  /** All methods, for Allow (RFC 9110 section 10.2.1). */
  readonly allow: string;
}

/**
 * Runs a sign-in, unless too many have failed. `check` returns undefined if the
 * password is wrong, and awaits `beforeHash` before it hashes one.
 *
 * @throws {ApiError} 42900
 */
export type LimitSignIns<Sender> = <User>(
  sender: Sender,
  username: string,
  check: (beforeHash: () => Promise<void>) => Promise<User | undefined>,
) => Promise<User | undefined>;

/** The hooks of features that operations call: that of the last feature that has it. */
export interface RequestHooks<Context> {
  /** Returns the client of a request, given the address of its connection; of several features the last one decides. */
  readonly findClient?: (
    peer: string,
    headers: IncomingRequest["headers"],
  ) => string;
  /** Checks the preconditions of a change; throws an ApiError if one fails. */
  readonly precondition?: (context: Context, subject: Subject) => void;
  /** Returns the header fields that identify the representation of a record that was written. */
  readonly validators?: (
    context: Context,
    subject: Subject,
  ) => readonly string[];
  /** Executes a request, unless it is a retry of one that was executed. */
  readonly runOnce?: (
    context: Context,
    execution: Execution,
  ) => Outcome;
  /** Finds the rows of a list, as {@linkcode Select}. */
  readonly select?: Select;
  /** Shares the turns of long work among the clients. */
  readonly turns?: SharedTurns;
  /** Called after each change of a record by a request, before it is durable. */
  readonly onChange?: (
    context: Context,
    collection: Collection,
    change: RecordChange,
  ) => void;
  /** Limits how fast passwords can be guessed. */
  readonly limitSignIns?: LimitSignIns<Context>;
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
