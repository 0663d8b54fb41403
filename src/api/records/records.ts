/**
 * What GET, POST, PUT, PATCH and DELETE mean for the records of a declared
 * collection. A write applies its transaction and gives its answer at once,
 * with the sequence that must be durable before it is sent.
 */

import { mayAccess } from "../../auth/access.ts";
import { hashPassword } from "../../auth/passwords.ts";
import {
  evaluatePreconditions,
  hasPrecondition,
  isConditional,
} from "../../http/conditional.ts";
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
  type RequestContext,
  type ResolveScope,
  type Result,
} from "../request-context.ts";
import {
  type Collection,
  type NamedProperty,
  type Reference,
  toIndexKey,
} from "../declaration/declaration.ts";
import type { Json } from "../declaration/properties.ts";
import { pageHeaders, type Query, withoutLimit } from "../query/parameters.ts";
import { ndjsonType, Representation } from "../representation.ts";
import { type Page, QueryPlanner, type Scope } from "../query/planner.ts";
import { type Body, validate } from "../declaration/validation.ts";

/** The difference that a request makes to one record, before it is made. */
export interface RecordChange {
  readonly previous: Document | undefined;
  readonly next: Document | undefined;
}

/** What all collections share. */
export interface RecordsContext {
  readonly store: Store;
  readonly collections: ReadonlyMap<string, Collection>;
  /** What every address begins with: `/v1/`, or a whole address. */
  readonly prefix: string;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Whether a change of a record must have a precondition. */
  readonly requireIfMatch: boolean;
}

/** Further rules of one collection. */
export interface RecordRules {
  /** What else must change with a record; throws an {@linkcode ApiError} where it may not change. */
  readonly sideEffects?: (change: RecordChange) => readonly Mutation[];
}

/** A change to one record, and what its answer needs besides. */
interface PlannedWrite extends RecordChange {
  readonly next: Document;
  readonly headers: readonly string[];
  readonly scope: Scope | undefined;
}

/** The records of one collection. */
export class Records {
  readonly collection: Collection;
  readonly representation: Representation;
  readonly table: Table;
  readonly #context: RecordsContext;
  readonly #rules: RecordRules;
  readonly #selection: QueryPlanner;
  readonly #secrets: readonly string[];

  constructor(
    collection: Collection,
    context: RecordsContext,
    rules: RecordRules = {},
  ) {
    this.collection = collection;
    this.representation = new Representation(collection, context.prefix);
    this.table = context.store.table(collection.name);
    this.#context = context;
    this.#rules = rules;
    this.#selection = new QueryPlanner(this.table);
    this.#secrets = collection.properties
      .filter(({ kind }) => kind === "secret")
      .map(({ name }) => name);
  }

  /** Whether there are rules by which a change can be a conflict. */
  get hasRules(): boolean {
    return this.#rules.sideEffects !== undefined;
  }

  /** The records of this collection that refer to the one in the path: `/zoos/7/animals`. */
  within({ target, property }: Reference): ResolveScope {
    const { store, prefix } = this.#context;
    const table = store.table(target.name);
    return ({ ids: [id = 0], method }) => {
      const { seq } = table.get(id) ??
        missing(table, { id, of: target, method });
      return {
        property,
        value: id,
        seq,
        name: ` in the ${target.singular} ${id}`,
        address: `${prefix}${target.name}/${id}/${this.collection.name}`,
      };
    };
  }

  /**
   * A page of the collection; a promise where it takes a while to find.
   *
   * @throws {ApiError} 40401 or 41000 where the record in the path is not there
   */
  list(call: RequestContext, query: Query): Result | Promise<Result> {
    const scopeOf = () => call.resolveScope?.(call);
    const scope = scopeOf();
    const { fields } = query;
    const { url, throwIfAborted } = call;
    // What expires has a state that no sequence tells.
    const validators = () =>
      scope?.where === undefined ? this.#etag(call.asNdjson) : [];
    const seqOf = () => Math.max(this.table.lastSeq, scopeOf()?.seq ?? 0);
    if (this.#isKnown(call, validators)) {
      return notModified(validators(), seqOf());
    }
    const wanted = call.asNdjson ? withoutLimit(query) : query;
    const counted = call.method === "HEAD"; // which needs the number alone
    if (call.asNdjson && !counted) call.acquireExportSlot();
    const use = ({ rows, total }: Page): Result => {
      if (call.asNdjson) {
        const headers = wanted === query
          ? pageHeaders(query, total, url)
          : ["X-Total-Count", String(total)];
        return {
          status: 200,
          headers: [...validators(), ...headers],
          body: undefined,
          type: ndjsonType,
          stream: () => this.representation.toNdjson(rows, fields),
          seq: seqOf(),
        };
      }
      let body = ""; // not an array to be joined: that would be copied twice
      for (const row of rows) {
        body += (body && ",") +
          (fields
            ? this.representation.serializeFields(row, fields)
            : this.representation.asListItem(row));
      }
      return {
        status: 200,
        headers: [...validators(), ...pageHeaders(query, total, url)],
        body: `[${body}]`,
        seq: seqOf(),
      };
    };
    const result = this.#selection.select(
      counted && call.asNdjson ? { ...wanted, limit: 0 } : wanted,
      { scope, use, check: throwIfAborted },
    );
    return result instanceof Promise
      ? call.afterWaiting(result, (result) => result)
      : result;
  }

  /**
   * One record, or some of its properties.
   *
   * @throws {ApiError} 40401, 41000
   */
  read(call: RequestContext, fields: readonly string[] | undefined): Result {
    const scope = call.resolveScope?.(call);
    const row = this.#find(call, scope);
    const headers = this.representation.validators(row);
    if (this.#isKnown(call, () => headers)) {
      return notModified(headers, row.seq);
    }
    const body = fields
      ? this.representation.serializeFields(row, fields)
      : this.representation.asStandalone(
        this.representation.asListItem(row),
        scope?.address,
      );
    return { status: 200, headers, body, seq: row.seq };
  }

  /**
   * Makes a new record.
   *
   * @throws {ApiError} 40401, 42200
   */
  create(call: RequestContext, body: Body): Result | Promise<Result> {
    return this.#write(call, body, (scope, secrets) => {
      const given = this.prepareCreate(call, scope);
      const next = this.buildRecord(body, { given, secrets });
      const headers = ["Location", this.representation.url(next.id)];
      return { previous: undefined, next, headers, scope };
    });
  }

  /**
   * Whether new records may be made now, and the values that the path gives
   * them: the zoo of `/zoos/7/animals`.
   *
   * @throws {ApiError} 40401, 41200
   */
  prepareCreate(
    call: RequestContext,
    scope = call.resolveScope?.(call),
  ): Readonly<Record<string, Json>> {
    this.#isKnown(call, () => this.#etag());
    return givenBy(scope);
  }

  /**
   * A new record, not put yet.
   *
   * @throws {ApiError} 42200
   */
  buildRecord(
    body: Body,
    { given, secrets, id }: {
      readonly given: Readonly<Record<string, Json>>;
      readonly secrets?: Readonly<Record<string, string>>;
      /** The next one, where it is left out. */
      readonly id?: number;
    },
  ): Document {
    const values = this.#validate(body, {
      previous: undefined,
      valuesFromUrl: given,
    });
    const at = this.timestamp();
    return {
      id: id ?? this.nextId(),
      ...values,
      ...secrets,
      created_at: at,
      updated_at: at,
    };
  }

  /**
   * Replaces a record by a complete one, or changes some of its properties
   * (`partial`, RFC 7396).
   *
   * @param locked properties that the caller may not change
   * @throws {ApiError} 40401, 42200, 409xx
   */
  change(
    call: RequestContext,
    body: Body,
    { partial, locked = [] }: {
      readonly partial: boolean;
      readonly locked?: readonly string[] | undefined;
    },
  ): Result | Promise<Result> {
    return this.#write(call, body, (scope, secrets) => {
      const row = this.#find(call, scope);
      this.#guard(call, row);
      const previous = row.document;
      const values = {
        ...this.#validate(body, {
          previous,
          partial,
          locked,
          valuesFromUrl: givenBy(scope),
        }),
        ...secrets,
      };
      const changed = this.collection.properties.some(({ name }) =>
        values[name] !== previous[name]
      );
      const next: Document = changed
        ? {
          id: previous.id,
          ...values,
          ...this.#undeclared(previous),
          created_at: previous["created_at"] ?? null,
          updated_at: this.timestamp(previous["updated_at"]),
        }
        : previous;
      return { previous, next, headers: [], scope };
    });
  }

  /** What is stored under names that are not declared any more: it stays. */
  #undeclared(document: Document): Record<string, Json> {
    const { properties, visibleProperties } = this.collection;
    const declared = new Set(properties.map(({ name }) => name));
    return Object.fromEntries(
      Object.entries(document)
        .filter(([name]) =>
          !declared.has(name) && !visibleProperties.has(name)
        ),
    );
  }

  /**
   * Removes a record; with `cascade` all that refer to it too, in one
   * transaction.
   *
   * @throws {ApiError} 40401; 40900 where others refer to it; 40300 where the
   * caller may not remove those
   */
  delete(call: RequestContext, cascade: boolean): Result {
    const { collections } = this.#context;
    const row = this.#find(call, call.resolveScope?.(call));
    this.#guard(call, row);
    const { document } = row;
    if (!cascade) this.#refuseReferences(document.id);
    const related = this.#related(document.id);
    const operations: Mutation[] = [];
    for (const [name, ids] of related) {
      const { delete: required } = collections.get(name)?.access ?? {};
      if (required === undefined || !mayAccess(call.caller?.role, required)) {
        throw new ApiError(
          40300,
          `Removing the ${this.collection.singular} would remove ${name}, which takes the role ${required}.`,
        );
      }
      for (const id of ids) operations.push(["del", name, id]);
    }
    operations.push(
      ["del", this.collection.name, document.id],
      ...this.#consequences({ previous: document, next: undefined }),
    );
    const answer = { status: 204, headers: [], body: undefined };
    return this.commit(call, operations, answer);
  }

  /**
   * Counts what refers to a record: to collect it could take long.
   *
   * @throws {ApiError} 40900
   */
  #refuseReferences(id: number): void {
    const counts: string[] = [];
    for (const { source, property } of this.collection.children) {
      const count = this.#context.store.table(source.name).count(property, id);
      if (count === 0) continue;
      counts.push(`${count} ${count === 1 ? source.singular : source.name}`);
    }
    if (counts.length === 0) return;
    throw new ApiError(
      40900,
      `The ${this.collection.singular} ${id} still has ${
        counts.join(" and ")
      }: remove them first, or all together with ?cascade=true.`,
    );
  }

  /** All records that refer to this one, and to those, by collection. */
  #related(id: number): Map<string, Set<number>> {
    const found = new Map<string, Set<number>>();
    const open: { readonly of: Collection; readonly id: number }[] = [
      { of: this.collection, id },
    ];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      for (const { source, property } of next.of.children) {
        const rows = this.#context.store.table(source.name)
          .find(property, next.id);
        const ids = found.get(source.name) ?? new Set<number>();
        for (const { document } of rows) {
          if (ids.has(document.id)) continue;
          ids.add(document.id);
          if (source.children.length > 0) {
            open.push({ of: source, id: document.id });
          }
        }
        if (ids.size > 0) found.set(source.name, ids);
      }
    }
    return found;
  }

  /**
   * Plans a change, makes it, and answers with the record. Hashing a password
   * takes a while in which anything may have changed: the plan that is carried
   * out is made after it.
   */
  #write(
    call: RequestContext,
    body: Body,
    plan: (
      scope: Scope | undefined,
      secrets: Readonly<Record<string, string>>,
    ) => PlannedWrite,
  ): Result | Promise<Result> {
    const planned = plan(call.resolveScope?.(call), {});
    const sent = this.#secrets.filter((secret) => Object.hasOwn(body, secret));
    if (sent.length === 0) return this.#put(call, planned);
    const hashing = hashAll(sent, body, call.abortSignal());
    return call.afterWaiting(
      hashing,
      (hashes) => this.#put(call, plan(call.resolveScope?.(call), hashes)),
    );
  }

  #put(
    call: RequestContext,
    { previous, next, headers, scope }: PlannedWrite,
  ): Result {
    // The text is not kept: it would be memory for what may never be read.
    const element = this.representation.serialize(next);
    const body = this.representation.asStandalone(element, scope?.address);
    // What was put is not what was sent: the server added to it, so there is
    // no validator for it (RFC 9110 section 9.3.4).
    const shown = call.method === "PUT"
      ? ["Content-Location", this.representation.url(next.id)]
      : this.representation.validatorsOf(next);
    const answer = { status: 201, headers: [...headers, ...shown], body };
    if (next === previous) return { ...answer, seq: this.#row(next.id).seq };
    const consequences = this.#consequences({ previous, next });
    return this.commit(call, [this.putMutation(next), ...consequences], answer);
  }

  /** What puts a record. */
  putMutation(document: Document): Mutation {
    return ["put", this.collection.name, document];
  }

  /**
   * Makes a transaction of some operations and of what is to be remembered of
   * the answer that tells of them.
   *
   * @throws {StoreError} where the store takes no write
   */
  commit(
    { caller, storeResponse }: RequestContext,
    operations: readonly Mutation[],
    answer: Response,
    { by = caller?.id ?? 0, ...options }: CommitOptions & {
      /** The id of the user, 0 for the server itself. */
      readonly by?: number;
    } = {},
  ): Result {
    const all = [...operations, ...storeResponse?.(answer) ?? []];
    return { ...answer, seq: this.#context.store.apply(all, by, options) };
  }

  /** The row of a record that is there for sure. */
  #row(id: number): Row {
    const row = this.table.get(id);
    if (row === undefined) throw new Error("A record vanished");
    return row;
  }

  /**
   * The id of the next new record.
   *
   * @throws {ApiError} 50300 where the highest possible one has been given
   */
  nextId(): number {
    const { lastId } = this.table;
    if (lastId < Number.MAX_SAFE_INTEGER) return lastId + 1;
    throw new ApiError(
      50300,
      `No further ${this.collection.singular} can be made: the highest id has been given.`,
    );
  }

  #consequences(change: RecordChange): readonly Mutation[] {
    return this.#rules.sideEffects?.(change) ?? [];
  }

  #validate(
    body: Body,
    intent: {
      readonly previous: Document | undefined;
      readonly partial?: boolean;
      readonly locked?: readonly string[];
      readonly valuesFromUrl: Readonly<Record<string, Json>>;
    },
  ): Record<string, Json> {
    const { store } = this.#context;
    const own = intent.previous?.id;
    return validate(this.collection, body, {
      partial: false,
      ...intent,
      exists: (collection, id) => store.table(collection).get(id) !== undefined,
      isDuplicate: (property, value) => this.#taken(property, value, own),
    });
  }

  #taken(
    { name }: NamedProperty,
    value: Json,
    own: number | undefined,
  ): boolean {
    const key = toIndexKey(value);
    if (key === null) return false;
    for (const { document } of this.table.find(name, key)) {
      if (document.id !== own) return true;
    }
    return false;
  }

  /** The record that the path names last, or that alone is in the scope. */
  #find(call: RequestContext, scope: Scope | undefined): Row {
    const of = this.collection;
    const { property, value, where, name = "" } = scope ?? {};
    const id = call.ids.at(-1) ?? value ?? 0;
    const row = this.table.get(id);
    if (row && property && row.document[property] !== value) {
      throw new ApiError(40401, `There is no ${of.singular} ${id}${name}.`);
    }
    if (row && where?.(row.document) !== false) return row;
    return missing(this.table, { id, of, method: call.method });
  }

  /** The time of a change: later than the one before it, whatever the clock says, as the ETag is made of it. */
  timestamp(before?: Json): string {
    const now = formatTime(this.#context.now());
    return typeof before === "string" && before >= now
      ? formatTime(Date.parse(before) + 1)
      : now;
  }

  /** The entity tag of the collection: weak, as it is one for all its pages (RFC 9110 section 8.8.1). */
  #etag(exported = false): readonly string[] {
    const state = `${start}-${this.table.lastSeq.toString(36)}`;
    return ["ETag", `W/"${state}${exported ? "-lines" : ""}"`];
  }

  /**
   * Whether a reader has what is there already (RFC 9110 section 13.2).
   *
   * @param validators the fields ETag and Last-Modified, as far as there are any
   * @throws {ApiError} 41200
   */
  #isKnown(
    { method, headers }: RequestContext,
    validators: () => readonly string[],
  ): boolean {
    if (!isConditional(headers)) return false;
    const [, etag, , modified] = validators();
    const request = { method, headers, now: this.#context.now() };
    const lastModified = modified === undefined
      ? undefined
      : Date.parse(modified);
    const outcome = evaluatePreconditions(request, { etag, lastModified });
    if (outcome === "failed") throw new ApiError(41200);
    return outcome === "not-modified";
  }

  /**
   * Refuses a change of a record whose precondition fails, or has none where
   * there must be one (RFC 6585 section 3).
   *
   * @throws {ApiError} 41200, 42800
   */
  #guard(call: RequestContext, row: Row): void {
    const { now, requireIfMatch } = this.#context;
    const { method, headers } = call;
    if (requireIfMatch && !hasPrecondition({ method, headers, now: now() })) {
      throw new ApiError(42800);
    }
    this.#isKnown(call, () => this.representation.validators(row));
  }
}

/** The values that a scope gives: the zoo of `/zoos/7/animals`. */
function givenBy(scope: Scope | undefined): Readonly<Record<string, Json>> {
  return scope === undefined ? {} : { [scope.property]: scope.value };
}

/** Sequences can be given again where a backup was put back, but not in the same process. */
const start = Date.now().toString(36);

/** RFC 9110 section 15.4.5. */
function notModified(headers: readonly string[], seq: number): Result {
  return { status: 304, headers, body: undefined, seq };
}

async function hashAll(
  secrets: readonly string[],
  body: Body,
  abandoned: AbortSignal,
): Promise<Record<string, string>> {
  const hashes: Record<string, string> = {};
  for (const secret of secrets) {
    hashes[secret] = await hashPassword(String(body[secret]), abandoned);
  }
  return hashes;
}

/** 410 where the record was there once, but only to who asks to see it; else 404. */
function missing(
  table: Table,
  { id, of, method }: {
    readonly id: number;
    readonly of: Collection;
    readonly method: string;
  },
): never {
  if (isReadMethod(method) && id <= table.lastId) {
    throw new ApiError(41000, `The ${of.singular} ${id} was deleted for good.`);
  }
  throw new ApiError(40401, `There is no ${of.singular} ${id}.`);
}
