/** What an operation returns, and what it says about itself. */

import type { Response } from "../http/connection.ts";
import type { Document } from "../store/store.ts";
import type { Collection } from "./declaration/declaration.ts";
import type { Scope } from "./query/select.ts";

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
