/**
 * The records of one collection: the state that reading.ts and writing.ts work
 * on, and the steps that they share with seeds, imports and sign-ins. A write is
 * applied in memory at once; its result has the sequence number that must be
 * durable before the response is sent.
 */

import { ApiError } from "../../http/errors.ts";
import { isReadMethod } from "../../http/methods.ts";
import type { Response } from "../../http/server.ts";
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
  type Reference,
  toIndexKey,
} from "../declaration/declaration.ts";
import type { Json } from "../declaration/properties.ts";
import {
  type Body,
  validate,
  type ValidationContext,
} from "../declaration/validation.ts";
import { QueryPlanner, type Scope } from "../query/planner.ts";
import { Representation } from "../representation.ts";
import {
  type RequestContext,
  type ResolveScope,
  type Result,
} from "../request-context.ts";

/** The settings and the state that all collections share. */
export interface RecordsOptions {
  readonly store: Store;
  /** The beginning of every URL: `/v1/`, or the same after an origin. */
  readonly prefix: string;
  /** Returns milliseconds since 1970. */
  readonly now: () => number;
  /** Whether PUT, PATCH and DELETE must have a precondition. */
  readonly requireIfMatch: boolean;
}

/** A record before and after a planned change. */
export interface RecordChange {
  readonly previous: Document | undefined;
  readonly next: Document | undefined;
}

/** Further rules of one collection. */
export interface RecordRules {
  /** Returns the mutations that must be committed with a change; throws an {@linkcode ApiError} if it is not allowed. */
  readonly sideEffects?: (change: RecordChange) => readonly Mutation[];
}

/** The records of one collection. */
export class Records {
  readonly collection: Collection;
  readonly options: RecordsOptions;
  readonly table: Table;
  readonly representation: Representation;
  readonly planner: QueryPlanner;
  /** The properties that are stored as hashes. */
  readonly secretNames: readonly string[];
  /** Whether a change can be refused as a conflict with other records. */
  readonly hasRules: boolean;
  readonly sideEffects: (change: RecordChange) => readonly Mutation[];

  constructor(
    collection: Collection,
    options: RecordsOptions,
    { sideEffects }: RecordRules = {},
  ) {
    this.collection = collection;
    this.options = options;
    this.table = options.store.table(collection.name);
    this.representation = new Representation(collection, options.prefix);
    this.planner = new QueryPlanner(this.table);
    this.secretNames = collection.properties
      .filter(({ kind }) => kind === "secret")
      .map(({ name }) => name);
    this.hasRules = sideEffects !== undefined;
    this.sideEffects = sideEffects ?? (() => []);
  }

  /** Returns the scope of the records that refer to the one in the path: `/zoos/7/animals`. */
  within({ target, property }: Reference): ResolveScope {
    const { store, prefix } = this.options;
    const table = store.table(target.name);
    return ({ method, ids: [id = 0] }) => {
      const row = table.get(id);
      if (row === undefined) throw this.#notFound(method, target, id);
      return {
        property,
        value: id,
        seq: row.seq,
        name: ` in the ${target.singular} ${id}`,
        url: `${prefix}${target.name}/${id}/${this.collection.name}`,
      };
    };
  }

  /**
   * Returns the record with the last id in the path; without an id, the only
   * one of the scope, as for `/user`.
   *
   * @throws {ApiError} 40401, 41000
   */
  find({ method, ids }: RequestContext, scope: Scope | undefined): Row {
    const of = this.collection;
    const { property, value, where, name = "" } = scope ?? {};
    const id = ids.at(-1) ?? value ?? 0;
    const row = this.table.get(id);
    if (row && property && row.document[property] !== value) {
      throw new ApiError(40401, `There is no ${of.singular} ${id}${name}.`);
    }
    if (row && where?.(row.document) !== false) return row;
    throw this.#notFound(method, of, id);
  }

  /**
   * Builds a new record, without storing it.
   *
   * @throws {ApiError} 42200
   */
  buildRecord(
    body: Body,
    { valuesFromUrl, hashes, id }: {
      readonly valuesFromUrl: Readonly<Record<string, Json>>;
      readonly hashes?: Readonly<Record<string, string>>;
      /** By default the next one. */
      readonly id?: number;
    },
  ): Document {
    const values = this.validate(body, {
      previous: undefined,
      partial: false,
      valuesFromUrl,
    });
    const at = this.timestamp();
    return {
      id: id ?? this.nextId(),
      ...values,
      ...hashes,
      created_at: at,
      updated_at: at,
    };
  }

  /**
   * Returns the values of all declared properties.
   *
   * @throws {ApiError} 42200
   */
  validate(
    body: Body,
    intent: Omit<ValidationContext, "exists" | "isDuplicate">,
  ): Record<string, Json> {
    const { store } = this.options;
    const ownId = intent.previous?.id;
    return validate(this.collection, body, {
      ...intent,
      exists: (collection, id) => store.table(collection).get(id) !== undefined,
      isDuplicate: ({ name }, value) => {
        const key = toIndexKey(value);
        return key !== null &&
          this.table.find(name, key)
            .some(({ document: { id } }) => id !== ownId);
      },
    });
  }

  /**
   * Returns the id of the next new record.
   *
   * @throws {ApiError} 50300 if the highest possible id has been assigned
   */
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
   * the ETag is made from it, and two changes within a millisecond, or after
   * the clock was set back, must not have the same ETag.
   */
  timestamp(previous?: Json): string {
    const now = formatTime(this.options.now());
    return typeof previous === "string" && previous >= now
      ? formatTime(Date.parse(previous) + 1)
      : now;
  }

  putMutation(document: Document): Mutation {
    return ["put", this.collection.name, document];
  }

  /**
   * Commits mutations in one transaction with what must be stored of the
   * response that reports them.
   *
   * @throws {StoreError} if the store accepts no writes
   */
  commit(
    { caller, storeResponse }: RequestContext,
    { mutations, response, by = caller?.id ?? 0, ...options }: CommitOptions & {
      readonly mutations: readonly Mutation[];
      readonly response: Response;
      /** The id of the user, 0 for the server itself. */
      readonly by?: number;
    },
  ): Result {
    const all = [...mutations, ...storeResponse?.(response) ?? []];
    return { ...response, seq: this.options.store.apply(all, by, options) };
  }

  /** Returns a 410 if a record is read that once existed, otherwise a 404. */
  #notFound(method: string, of: Collection, id: number): ApiError {
    const { lastId } = this.options.store.table(of.name);
    return isReadMethod(method) && id <= lastId
      ? new ApiError(41000, `The ${of.singular} ${id} was deleted for good.`)
      : new ApiError(40401, `There is no ${of.singular} ${id}.`);
  }
}
