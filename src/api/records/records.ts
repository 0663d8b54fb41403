/**
 * The records of one collection: the state that reading.ts and writing.ts work
 * on, and the steps that they share with seeds, imports and sign-ins. A write is
 * applied in memory at once; its result has the sequence number that must be
 * durable before the response is sent.
 */

import { isReadMethod } from "../../http/content.ts";
import { ApiError } from "../../http/errors.ts";
import type { Response } from "../../http/connection.ts";
import {
  type CommitOptions,
  type Document,
  formatTime,
  type Mutation,
  type Row,
  type Store,
  type Table,
} from "../../store/store.ts";
import {
  type Collection,
  isVisible,
  ownerOf,
  readsAll,
  type RecordChange,
  type Reference,
  seesAll,
} from "../declaration/declaration.ts";
import type { Json, Values } from "../declaration/properties.ts";
import {
  type Body,
  enforceRules,
  validate,
  type ValidationContext,
} from "../declaration/validation.ts";
import type { ApiOptions } from "../options.ts";
import { Representation } from "../representation.ts";
import type { RequestContext, Result, Scope } from "../request-context.ts";

/** The changes and the response of one transaction. */
interface Commit extends CommitOptions {
  readonly mutations: readonly Mutation[];
  readonly response: Response;
  /** The change of a record of the collection. */
  readonly change?: RecordChange;
  /** The id of the user, 0 for the server itself. */
  readonly by?: number;
}

/** The records of one collection. */
export class Records {
  readonly collection: Collection;
  readonly store: Store;
  readonly table: Table;
  readonly representation: Representation;
  /** Returns milliseconds since 1970. */
  readonly now: () => number;

  constructor(
    collection: Collection,
    { store, now }: Pick<ApiOptions, "store" | "now">,
  ) {
    this.collection = collection;
    this.store = store;
    this.now = now;
    this.table = store.table(collection.name);
    this.representation = new Representation(collection);
  }

  /**
   * Returns the scope of a request: the records that the caller may see, and
   * with a reference only those that refer to the record in the path, as in
   * `/zoos/7/animals`; undefined for all records.
   *
   * @throws {ApiError} 40401, 41000 if there is no such record
   */
  scopeOf(context: RequestContext, parent?: Reference): Scope | undefined {
    const scope = parent && this.#within(parent, context);
    if (seesAll(this.collection, context.caller)) return scope;
    const own = { [String(this.collection.owner)]: context.caller?.id ?? 0 };
    return { ...scope, conditions: { ...scope?.conditions, ...own } };
  }

  /** Returns the scope of the records that refer to the one in the path. */
  #within(
    { target, property, segment }: Reference,
    context: RequestContext,
  ): Scope {
    const { ids: [id = 0], caller } = context;
    const row = this.store.table(target.name).get(id);
    if (row === undefined || !isVisible(target, row.document, caller)) {
      throw this.#notFound(context, target, id);
    }
    return {
      conditions: { [property]: id },
      seq: row.seq,
      name: ` in the ${target.singular} ${id}`,
      url: `${target.url}/${id}/${segment}`,
    };
  }

  /**
   * Returns the record with the last id in the path; without an id, the only
   * one of the scope, as for `/user`.
   *
   * @throws {ApiError} 40401, 41000
   */
  find(context: RequestContext, scope: Scope | undefined): Row {
    const { collection, table } = this;
    const id = context.ids.at(-1) ?? scope?.conditions["id"] ?? 0;
    const row = table.get(id);
    if (row === undefined || scope?.where?.(row.document) === false) {
      throw this.#notFound(context, collection, id, scope?.name);
    }
    if (this.isInScope(row, scope)) return row;
    throw noSuchRecord(collection, id, scope?.name);
  }

  /** Returns whether a record is one of those that a URL stands for, and that its caller may see. */
  isInScope({ document }: Row, scope: Scope | undefined): boolean {
    for (const name in scope?.conditions) {
      const value = document[name] ??
        this.collection.visibleProperties.get(name)?.default;
      if (value !== scope.conditions[name]) return false;
    }
    return true;
  }

  /**
   * Returns the document that a body makes of a record, without storing it: a new
   * one, or the next one of `previous`, which is the same if nothing changes.
   *
   * @throws {ApiError} 42200; what the `check` of the collection throws
   */
  buildRecord(
    body: Body,
    {
      caller,
      previous,
      hashes,
      imported,
      owner: creator = caller?.id || null,
      ...options
    }: Omit<ValidationContext, "store" | "table" | "owner"> & {
      /** The owner of a new record, if records are private: by default the caller. */
      readonly owner?: number | null;
      /** The hash of the password in the body. */
      readonly hashes?: Values | undefined;
      /** The values that a new record has instead of the next id and the current time. */
      readonly imported?: Partial<Document>;
    },
  ): Document {
    const { collection, table, store } = this;
    const owner = previous
      ? ownerOf(collection, previous)
      : collection.private
      ? creator
      : undefined;
    const context = { ...options, store, table, caller, owner, previous };
    const values = { ...validate(collection, body, context), ...hashes };
    const isSame = (name: string) => values[name] === previous?.[name];
    if (previous && Object.keys(values).every(isSame)) return previous;
    const at = this.timestamp(previous?.["updated_at"]);
    const document = previous
      ? { ...previous, ...values, updated_at: at } // undeclared properties stay stored
      : {
        id: this.nextId(),
        ...values,
        ...(owner !== undefined && { owner_id: owner }),
        created_at: at,
        updated_at: at,
        ...imported,
      };
    enforceRules(collection, document);
    return document;
  }

  /** Returns the id of the next new record; throws an ApiError 50300 if the highest one has been assigned. */
  nextId(): number {
    const { lastId } = this.table;
    if (lastId < Number.MAX_SAFE_INTEGER) return lastId + 1;
    throw new ApiError(
      50300,
      `No more ${this.collection.name} can be created: the highest id has been assigned.`,
    );
  }

  /**
   * Returns the time of a change, always later than that of the previous one:
   * the ETag is derived from it, and two changes within a millisecond, or
   * before and after the clock is set back, must not have the same ETag.
   */
  timestamp(previous?: Json): string {
    const now = formatTime(this.now());
    return typeof previous === "string" && previous >= now
      ? formatTime(Date.parse(previous) + 1)
      : now;
  }

  putMutation(document: Document): Mutation {
    return ["put", this.collection.name, document];
  }

  /**
   * Commits mutations in one transaction, together with the effects of the
   * change on other collections, and the idempotency key of a request that
   * creates a record.
   *
   * @throws {ApiError} if the change is not allowed; {StoreError} if the store
   * accepts no writes
   */
  commit(
    context: RequestContext,
    { mutations, response, by = context.caller?.id ?? 0, change, ...options }:
      Commit,
  ): Result {
    const { collection, store } = this;
    const all = [
      ...mutations,
      ...change && collection.sideEffects?.(change, store) || [],
      ...change?.next && context.storeKey?.(change.next) || [],
    ];
    const seq = store.apply(all, by, options);
    if (change) context.shared.hooks.onChange?.(context, collection, change);
    return { ...response, seq, isCommitted: true };
  }

  /** Returns a 410 if the request reads a record that once existed, otherwise a 404, as always for records that the caller may not all read. */
  #notFound(
    { method, caller }: RequestContext,
    of: Collection,
    id: number,
    where?: string,
  ): ApiError {
    const { lastId } = this.store.table(of.name);
    // The owner of a task or a sign-in that is gone is unknown.
    const isShown = readsAll(of, caller) || (of.owner && !of.private);
    return isReadMethod(method) && id <= lastId && isShown
      ? deletedForGood(of, id)
      : noSuchRecord(of, id, where);
  }
}

export function deletedForGood({ singular }: Collection, id: number): ApiError {
  return new ApiError(41000, `The ${singular} ${id} was deleted for good.`);
}

/** @param where describes the scope that was searched */
function noSuchRecord(
  { singular }: Collection,
  id: number,
  where = "",
): ApiError {
  return new ApiError(40401, `There is no ${singular} ${id}${where}.`);
}
