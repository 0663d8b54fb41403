/**
 * What GET, POST, PUT, PATCH and DELETE mean for the records of a declared
 * collection. A write applies its transaction and gives its answer at once,
 * with the sequence that must be durable before it is sent.
 */

import { may } from "../auth/access.ts";
import { hashPassword } from "../auth/passwords.ts";
import {
  type ConditionalRequest,
  evaluatePreconditions,
  hasPrecondition,
  isConditional,
} from "../http/conditional.ts";
import { ApiError } from "../http/errors.ts";
import type { Answer } from "../http/server.ts";
import {
  type Document,
  formatTime,
  type Operation,
  type Row,
  type Store,
  type Table,
} from "../store/store.ts";
import type { Caller } from "./authentication.ts";
import {
  type Collection,
  foldText,
  type Named,
  type Relation,
} from "./declaration.ts";
import type { Json } from "./properties.ts";
import { pageHeaders, type Query, withoutEnd } from "./query.ts";
import { collectionLink, linesType, Representation } from "./representation.ts";
import { type Page, type Scope, Selection } from "./selection.ts";
import { type Body, validate } from "./validation.ts";

/** An answer with the log sequence of what it shows: it may be sent when that is durable. */
export interface Result extends Answer {
  readonly seq: number;
}

/** What makes an answer part of the transaction that it tells of. */
export type Remember = (answer: Answer) => readonly Operation[];

/** What an operation is asked for. */
export interface Call {
  /** The ids in the path. */
  readonly ids: readonly number[];
  readonly caller: Caller | undefined;
  /** The address as it was asked, without the query. */
  readonly address: string;
  readonly method: string;
  /** Whether a collection is asked for as lines: all of it, unless a page is named. */
  readonly exports: boolean;
  /** Its preconditions are looked at when the record is at hand. */
  readonly headers: ConditionalRequest["headers"] & {
    readonly "last-event-id"?: string | undefined;
  };
  /** Set where its answer is to be kept with what it does. */
  readonly remember?: Remember | undefined;
  /** Who is asking by now; throws an ApiError who may not any more. For after a wait. */
  readonly confirm: () => Caller | undefined;
  /** Throws where nobody waits for the answer any more. */
  readonly check: () => void;
  /** Aborted as soon as nobody waits for the answer any more. */
  readonly abandoned: () => AbortSignal;
  /**
   * Takes one of the places for exports, until the answer is sent or nobody
   * waits for it any more; throws a StoreError where there is none.
   */
  readonly holdExport: () => void;
}

/** The difference that a request makes to one record, before it is made. */
export interface Change {
  readonly previous: Document | undefined;
  readonly next: Document | undefined;
}

/** What all collections share. */
export interface Context {
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
export interface Rules {
  /** What else must change with a record; throws an {@linkcode ApiError} where it may not change. */
  readonly consequences?: (change: Change) => readonly Operation[];
}

/** A change to one record, and what its answer needs besides. */
interface Plan extends Change {
  readonly next: Document;
  readonly headers: readonly string[];
  readonly through: Relation | undefined;
}

/** The records of one collection. */
export class Records {
  readonly collection: Collection;
  readonly representation: Representation;
  readonly table: Table;
  readonly #context: Context;
  readonly #rules: Rules;
  readonly #selection: Selection;
  readonly #secrets: readonly string[];

  constructor(collection: Collection, context: Context, rules: Rules = {}) {
    this.collection = collection;
    this.representation = new Representation(collection, context.prefix);
    this.table = context.store.table(collection.name);
    this.#context = context;
    this.#rules = rules;
    this.#selection = new Selection(this.table);
    this.#secrets = collection.properties
      .filter(({ kind }) => kind === "secret")
      .map(({ name }) => name);
  }

  /** Whether there are rules by which a change can be a conflict. */
  get hasRules(): boolean {
    return this.#rules.consequences !== undefined;
  }

  /**
   * A page of the collection.
   *
   * @throws {ApiError} 40401 or 41000 where the record in the path is not there
   */
  list(
    call: Call,
    query: Query,
    through?: Relation,
  ): Result | Promise<Result> {
    if (through === undefined) {
      return this.page(call, { query, scope: undefined });
    }
    const parent = () => this.#parent(through, call, true);
    const scope = { property: through.property, value: parent().document.id };
    return this.page(call, { query, scope, parent });
  }

  /** A page of the records in a scope; a promise where they take a while to find. */
  page(
    call: Call,
    { query, scope, parent }: {
      readonly query: Query;
      readonly scope: Scope | undefined;
      /** The record in the path as it is now; throws an ApiError where it is gone. */
      readonly parent?: () => Row;
    },
  ): Result | Promise<Result> {
    const { fields } = query;
    const { address, confirm, check } = call;
    // What expires has a state that no sequence tells.
    const validators = () =>
      scope?.where === undefined ? this.#etag(call.exports) : [];
    const seqOf = () => Math.max(this.table.lastSeq, parent?.().seq ?? 0);
    if (this.#isKnown(call, validators)) {
      return notModified(validators(), seqOf());
    }
    let waited = false;
    const wanted = call.exports ? withoutEnd(query) : query;
    const counted = call.method === "HEAD"; // which needs the number alone
    if (call.exports && !counted) call.holdExport();
    const use = ({ rows, total }: Page): Result => {
      if (waited) confirm();
      if (call.exports) {
        const headers = wanted === query
          ? pageHeaders(query, total, address)
          : ["X-Total-Count", String(total)];
        return {
          status: 200,
          headers: [...validators(), ...headers],
          body: undefined,
          type: linesType,
          stream: () => this.representation.lines(rows, fields),
          seq: seqOf(),
        };
      }
      let body = ""; // not an array to be joined: that would be copied twice
      for (const row of rows) {
        body += (body && ",") +
          (fields
            ? this.representation.partial(row, fields)
            : this.representation.element(row));
      }
      return {
        status: 200,
        headers: [...validators(), ...pageHeaders(query, total, address)],
        body: `[${body}]`,
        seq: seqOf(),
      };
    };
    const result = this.#selection.select(
      counted && call.exports ? { ...wanted, limit: 0 } : wanted,
      { scope, use, check },
    );
    waited = true;
    return result;
  }

  /**
   * One record, or some of its properties.
   *
   * @throws {ApiError} 40401, 41000
   */
  read(
    call: Call,
    fields: readonly string[] | undefined,
    through?: Relation,
  ): Result {
    const row = this.#find(call, { through, reading: true });
    const headers = this.representation.validators(row);
    if (this.#isKnown(call, () => headers)) {
      return notModified(headers, row.seq);
    }
    const body = fields
      ? this.representation.partial(row, fields)
      : this.#single(this.representation.element(row), call, through);
    return { status: 200, headers, body, seq: row.seq };
  }

  /**
   * Makes a new record.
   *
   * @throws {ApiError} 40401, 42200
   */
  create(
    call: Call,
    body: Body,
    through?: Relation,
  ): Result | Promise<Result> {
    return this.#write(call, body, (secrets) => {
      const given = this.admit(call, through);
      const next = this.draft(body, { given, secrets });
      const location = ["Location", this.representation.url(next.id)];
      return { previous: undefined, next, headers: location, through };
    });
  }

  /**
   * Whether new records may be made now, and the values that the path gives
   * them: the zoo of `/zoos/7/animals`.
   *
   * @throws {ApiError} 40401, 41200
   */
  admit(
    call: Call,
    through: Relation | undefined,
  ): Readonly<Record<string, Json>> {
    const given = this.#given(call, through);
    this.#isKnown(call, () => this.#etag());
    return given;
  }

  /**
   * A new record, not put yet.
   *
   * @throws {ApiError} 42200
   */
  draft(
    body: Body,
    { given, secrets, id, taken }: {
      readonly given: Readonly<Record<string, Json>>;
      readonly secrets?: Readonly<Record<string, string>>;
      /** The next one, where it is left out. */
      readonly id?: number;
      /** Whether a record that is not in its table yet has a value. */
      readonly taken?: (property: Named, value: Json) => boolean;
    },
  ): Document {
    const values = this.#validate(body, { previous: undefined, given, taken });
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
   * Replaces a record by a complete one.
   *
   * @throws {ApiError} 40401, 42200, 409xx
   */
  replace(
    call: Call,
    body: Body,
    through?: Relation,
  ): Result | Promise<Result> {
    return this.#change(call, body, { partial: false, through });
  }

  /**
   * Changes some properties of a record (RFC 7396).
   *
   * @throws {ApiError} 40401, 42200, 409xx
   */
  patch(
    call: Call,
    body: Body,
    options: {
      readonly through?: Relation | undefined;
      /** Properties that the caller may not change. */
      readonly locked?: readonly string[];
    } = {},
  ): Result | Promise<Result> {
    return this.#change(call, body, { partial: true, ...options });
  }

  #change(
    call: Call,
    body: Body,
    { partial, through, locked = [] }: {
      readonly partial: boolean;
      readonly through?: Relation | undefined;
      readonly locked?: readonly string[];
    },
  ): Result | Promise<Result> {
    return this.#write(call, body, (secrets) => {
      const row = this.#find(call, { through, reading: false });
      this.#guard(call, row);
      const previous = row.document;
      const values = {
        ...this.#validate(body, {
          previous,
          partial,
          locked,
          given: this.#given(call, through),
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
      return { previous, next, headers: [], through };
    });
  }

  /** What is stored under names that are not declared any more: it stays. */
  #undeclared(document: Document): Record<string, Json> {
    const { properties, readable } = this.collection;
    const declared = new Set(properties.map(({ name }) => name));
    return Object.fromEntries(
      Object.entries(document)
        .filter(([name]) => !declared.has(name) && !readable.has(name)),
    );
  }

  /**
   * Removes a record; with `cascade` all that refer to it too, in one
   * transaction.
   *
   * @throws {ApiError} 40401; 40900 where others refer to it; 40300 where the
   * caller may not remove those
   */
  remove(call: Call, cascade: boolean, through?: Relation): Result {
    const { store, collections } = this.#context;
    const row = this.#find(call, { through, reading: false });
    this.#guard(call, row);
    const { document } = row;
    if (!cascade) this.#refuseReferences(document.id);
    const related = this.#related(document.id);
    const operations: Operation[] = [];
    for (const [name, ids] of related) {
      const { remove } = collections.get(name)?.access ?? {};
      if (remove === undefined || !may(call.caller?.role, remove)) {
        throw new ApiError(
          40300,
          `Removing the ${this.collection.singular} would remove ${name}, which takes the role ${remove}.`,
        );
      }
      for (const id of ids) operations.push(["del", name, id]);
    }
    operations.push(
      ["del", this.collection.name, document.id],
      ...this.#consequences({ previous: document, next: undefined }),
    );
    const seq = store.apply(operations, call.caller?.id ?? 0);
    return { status: 204, headers: [], body: undefined, seq };
  }

  /**
   * Counts what refers to a record: to collect it could take long.
   *
   * @throws {ApiError} 40900
   */
  #refuseReferences(id: number): void {
    const counts: string[] = [];
    for (const { from, property } of this.collection.children) {
      const count = this.#context.store.table(from.name).count(property, id);
      if (count === 0) continue;
      counts.push(`${count} ${count === 1 ? from.singular : from.name}`);
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
      for (const { from, property } of next.of.children) {
        const rows = this.#context.store.table(from.name)
          .find(property, next.id);
        const ids = found.get(from.name) ?? new Set<number>();
        for (const { document } of rows) {
          if (ids.has(document.id)) continue;
          ids.add(document.id);
          if (from.children.length > 0) {
            open.push({ of: from, id: document.id });
          }
        }
        if (ids.size > 0) found.set(from.name, ids);
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
    call: Call,
    body: Body,
    plan: (secrets: Readonly<Record<string, string>>) => Plan,
  ): Result | Promise<Result> {
    const planned = plan({});
    const sent = this.#secrets.filter((secret) => Object.hasOwn(body, secret));
    if (sent.length === 0) return this.#carryOut(call, planned);
    return hashAll(sent, body, call.abandoned()).then((hashes) => {
      call.confirm();
      return this.#carryOut(call, plan(hashes));
    });
  }

  #carryOut(call: Call, { previous, next, headers, through }: Plan): Result {
    // The text is not kept: it would be memory for what may never be read.
    const element = this.representation.write(next);
    const body = this.#single(element, call, through);
    // What was put is not what was sent: the server added to it, so there is
    // no validator for it (RFC 9110 section 9.3.4).
    const shown = call.method === "PUT"
      ? ["Content-Location", this.representation.url(next.id)]
      : this.representation.validatorsOf(next);
    const answer = { status: 201, headers: [...headers, ...shown], body };
    if (next === previous) return { ...answer, seq: this.#row(next.id).seq };
    const others = [
      ...this.#consequences({ previous, next }),
      ...call.remember?.(answer) ?? [],
    ];
    const row = this.put(next, { others, by: call.caller?.id ?? 0 });
    return { ...answer, seq: row.seq };
  }

  /**
   * Puts a record, with other operations in the same transaction; returns its
   * row, whose sequence tells what is to be waited for.
   *
   * @throws {StoreError} where the store takes no write
   */
  put(
    document: Document,
    { others, by, essential = false }: {
      readonly others: readonly Operation[];
      /** The id of the user, 0 for the server itself. */
      readonly by: number;
      readonly essential?: boolean;
    },
  ): Row {
    const put: Operation = ["put", this.collection.name, document];
    this.#context.store.apply([put, ...others], by, { essential });
    return this.#row(document.id);
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

  #consequences(change: Change): readonly Operation[] {
    return this.#rules.consequences?.(change) ?? [];
  }

  #validate(
    body: Body,
    intent: {
      readonly previous: Document | undefined;
      readonly partial?: boolean;
      readonly locked?: readonly string[];
      readonly given: Readonly<Record<string, Json>>;
      readonly taken?: ((property: Named, value: Json) => boolean) | undefined;
    },
  ): Record<string, Json> {
    const { store } = this.#context;
    const own = intent.previous?.id;
    return validate(this.collection, body, {
      partial: false,
      ...intent,
      exists: (collection, id) => store.table(collection).get(id) !== undefined,
      taken: (property, value) =>
        this.#taken(property, value, own) ||
        (intent.taken?.(property, value) ?? false),
    });
  }

  #taken({ name }: Named, value: Json, own: number | undefined): boolean {
    const key = foldText(value);
    if (key === null) return false;
    for (const { document } of this.table.find(name, key)) {
      if (document.id !== own) return true;
    }
    return false;
  }

  /** The value that the path gives: the zoo of `/zoos/7/animals`. */
  #given(
    call: Call,
    through: Relation | undefined,
  ): Readonly<Record<string, Json>> {
    if (through === undefined) return {};
    const { document } = this.#parent(through, call, false);
    return { [through.property]: document.id };
  }

  /** The record that the path leads through. */
  #parent({ to }: Relation, { ids }: Call, reading: boolean): Row {
    const [id = 0] = ids;
    const table = this.#context.store.table(to.name);
    return table.get(id) ?? missing(table, { id, of: to, reading });
  }

  /** The record that the path names last. */
  #find(
    call: Call,
    { through, reading }: {
      readonly through: Relation | undefined;
      readonly reading: boolean;
    },
  ): Row {
    const of = this.collection;
    const id = call.ids.at(-1) ?? 0;
    const parent = through && this.#parent(through, call, reading);
    const row = this.table.get(id) ??
      missing(this.table, { id, of, reading });
    if (
      through && row.document[through.property] !== parent?.document.id
    ) {
      throw new ApiError(
        40401,
        `There is no ${of.singular} ${id} in the ${through.to.singular} ${parent?.document.id}.`,
      );
    }
    return row;
  }

  /** The text of a record with the link to the collection that was asked. */
  #single(
    element: string,
    { ids }: Call,
    through: Relation | undefined,
  ): string {
    if (through === undefined) return this.representation.single(element);
    const { prefix } = this.#context;
    const { name } = this.collection;
    const address = `${prefix}${through.to.name}/${ids[0]}/${name}`;
    return this.representation.single(element, collectionLink(name, address));
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
    { method, headers }: Call,
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
  #guard(call: Call, row: Row): void {
    const { now, requireIfMatch } = this.#context;
    const { method, headers } = call;
    if (requireIfMatch && !hasPrecondition({ method, headers, now: now() })) {
      throw new ApiError(42800);
    }
    this.#isKnown(call, () => this.representation.validators(row));
  }
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
  { id, of, reading }: {
    readonly id: number;
    readonly of: Collection;
    readonly reading: boolean;
  },
): never {
  if (reading && id <= table.lastId) {
    throw new ApiError(41000, `The ${of.singular} ${id} was deleted for good.`);
  }
  throw new ApiError(40401, `There is no ${of.singular} ${id}.`);
}
