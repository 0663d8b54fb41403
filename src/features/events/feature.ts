/**
 * Events: changes of records as server-sent events (HTML standard section 9.2).
 *
 * Each client has a cursor into the log, which advances only when the
 * connection has sent what was written before. So a slow client costs no
 * memory; one that does not read at all is disconnected. The events of a
 * transaction are encoded once for all clients of the same role; with private
 * records among them, once for each user.
 */

import type { Operation } from "../../api/operation.ts";
import { Buffer } from "node:buffer";
import type { Writable } from "node:stream";
import {
  setImmediate as nextTick,
  setTimeout as delay,
} from "node:timers/promises";
import { type Actor, type Grants, mayAccess } from "../../auth/access.ts";
import {
  ownerOf,
  ownerProperty,
  readsAll,
  seesAll,
} from "../../api/declaration/declaration.ts";
import { errorText } from "../../store/error.ts";
import type { Json, Mutation } from "../../store/store.ts";
import {
  ChangeFeed,
  type LogPosition,
  positionOf,
  type Reset,
  type Subscriber,
  type Transaction,
} from "./feed.ts";
import type { RequestContext, Result } from "../../api/request-context.ts";
import { declarationTable } from "../../api/declaration/remembered.ts";
import { historyTable } from "../../api/own-tables.ts";
import { parseEventId, toEventId } from "./history.ts";
import type { Records } from "../../api/records/records.ts";
import type { Api, Feature } from "../../api/feature.ts";

/** The time between two heartbeats. */
const heartbeatMs = 15_000;

/** How many bytes are combined into one write to a client that lags behind. */
const maxBatchBytes = 1 << 14;

/**
 * Changes within this time are written together: with a thousand clients and a
 * hundred changes per second, a change then takes 4 ms instead of 25.
 */
const flushIntervalMs = 50;

/** A client that follows the changes. */
interface Client extends Subscriber {
  readonly output: Writable;
  readonly reader: Actor;
  /** Returns whether the user is still signed in, with the same role. */
  readonly isAuthorized: () => boolean;
  /** The id from which it can resume; empty if unknown. It tells nothing about the records of others. */
  id: string;
}

interface Source extends Api {
  readonly feed: ChangeFeed;
  /** Resolves in the next turn of the event loop for which no other client is waiting. */
  readonly nextTurn: () => Promise<void>;
  encoded: Encoded;
  /** The deletions that may still be rolled back, by collection and id. */
  readonly deletions: Map<string, PendingDeletion>;
  /** The number of those that were rolled back after an event of their record was hidden. */
  rollbacks: number;
  /** The sequence number from which on changes are noted. */
  readonly openedAt: number;
  /** That of the last change since then, by the owner of the record. */
  readonly lastSeqs: Map<Json | undefined, number>;
}

/** A deletion that is in memory, and perhaps not yet durable. */
interface PendingDeletion {
  readonly seq: number;
  /** True if an earlier event of the record was hidden, because the record is gone. */
  hasHidden: boolean;
}

/** Events as bytes, and the id to resume from after them. */
interface Events {
  readonly id: string;
  readonly bytes: Uint8Array;
}

/** The events of transactions, by the rights of a role, then by the id of a user; 0 stands for all users. */
type Encoded = WeakMap<Transaction, Map<Grants, Map<number, Events>>>;

/** Follows the changes after an event that a client names. */
function resume(
  source: Source,
  context: RequestContext,
  id: string,
): Promise<Result> {
  const { feed, store } = source;
  const seq = parseEventId(store, id);
  // Records from before the last change of the declaration may not fit it, and
  // its own number precedes the history that this server began.
  const { lastSeq } = store.table(declarationTable);
  const isOutdated = seq <= lastSeq && lastSeq > 1;
  // The oldest number that the logs still have would tell about the records of others.
  const isCurrent = !isOutdated && seq >= lastSeqOf(source, readerOf(context));
  const found = isCurrent
    ? positionOf(store)
    : feed.find(isOutdated ? -1 : seq);
  return context.afterWaiting(
    Promise.resolve(found),
    (from) => follow(source, context, from, id),
  );
}

/** Follows the changes after a position, of which the client may have sent the id; if it is unknown, sends a reset and follows from now on. */
function follow(
  source: Source,
  context: RequestContext,
  from: LogPosition | undefined,
  sentId?: string,
): Result {
  const reader = readerOf(context);
  const id = from ? sentId ?? resumeId(source, reader, from.seq) : "";
  const isAuthorized = () => {
    try {
      return context.authenticate()?.grants === reader.grants;
    } catch {
      return false;
    }
  };
  return {
    status: 200,
    // X-Accel-Buffering keeps proxies such as nginx from buffering the events.
    headers: ["Cache-Control", "no-store", "X-Accel-Buffering", "no"],
    type: "text/event-stream",
    live: (output) => {
      const state = { id, isEnded: false, wake() {} };
      return send(source, { output, reader, isAuthorized, ...state }, from);
    },
    seq: 0, // the feed has only what is durable
  };
}

function readerOf({ caller }: RequestContext): Actor {
  if (caller === undefined) throw new Error("Nobody is signed in");
  return caller;
}

/** Returns whether a user sees the records of all others. */
function seesOthers({ served }: Api, reader: Actor): boolean {
  return served.every(({ collection }) => seesAll(collection, reader));
}

/** Returns the sequence number of the last change that a user may have been shown; any may be that of a user who sees all. */
function lastSeqOf(source: Source, reader: Actor): number {
  const { served, lastSeqs, openedAt } = source;
  if (seesOthers(source, reader)) return Infinity;
  const seqs = served.filter(({ collection }) => readsAll(collection, reader))
    .map(({ table }) => table.lastSeq);
  return Math.max(lastSeqs.get(reader.id) ?? openedAt, ...seqs);
}

/** Returns the id to resume from for a user who needs no change up to a sequence number. It tells nothing about the records of others. */
function resumeId(source: Source, reader: Actor, seq: number): string {
  const last = lastSeqOf(source, reader);
  // If there was no change since then, from the beginning of the history on.
  const id = last > source.openedAt ? Math.min(last, seq) : 0;
  return toEventId(source.store, id);
}

async function send(
  source: Source,
  client: Client,
  from: LogPosition | undefined,
): Promise<void> {
  const { output, reader, isAuthorized } = client;
  output.on("drain", () => client.wake());
  output.on("close", () => disconnect(client));
  const timer = setInterval(() => {
    if (!isAuthorized()) disconnect(client);
    else if (!output.writableNeedDrain && !output.writableEnded) {
      output.write(heartbeatComment(client));
    }
  }, heartbeatMs);
  // Contains an id to resume from, in case the connection breaks before any
  // event.
  output.write(`retry: 1000\n${heartbeatComment(client)}`);
  const showsAll = seesOthers(source, reader);
  let batch: Uint8Array[] = [];
  let length = 0;
  let resumeFrom = client.id;
  let { rollbacks } = source;
  try {
    for await (const item of source.feed.changes(client, from)) {
      if (item.mutations && item.bytes > maxBatchBytes) {
        await source.nextTurn();
      }
      // In the meantime the server may have ended the response, because it is
      // stopping.
      if (output.writableEnded || !isAuthorized() || isLast(item)) break;
      const { seq } = item;
      const isMissing = source.rollbacks > rollbacks;
      const { id, bytes } = isMissing
        ? resetOf(source, reader, seq)
        : encode(source, item, reader);
      ({ rollbacks } = source);
      if (bytes.length > 0) batch.push(bytes);
      if (bytes.length > 0 || showsAll) resumeFrom = id;
      length += bytes.length;
      // The cost of a write hardly depends on its length.
      const isBehind = seq < source.store.durableSeq;
      if (isBehind && length < maxBatchBytes) continue;
      client.id = resumeFrom;
      const [first] = batch;
      if (first) {
        output.write(batch.length > 1 ? Buffer.concat(batch, length) : first);
      }
      batch = [];
      length = 0;
      // A new change wakes it too.
      while (output.writableNeedDrain && !client.isEnded) {
        await new Promise<void>((resolve) => client.wake = resolve);
      }
      if (seq === source.store.durableSeq) await delay(flushIntervalMs);
    }
  } finally {
    clearInterval(timer);
    disconnect(client);
  }
}

/** Returns those events of a transaction that a user may read; connections share them. */
function encode(
  source: Source,
  item: Transaction | Reset,
  reader: Actor,
): Events {
  const { mutations } = item;
  if (mutations === undefined) return resetOf(source, reader, item.seq);
  const { encoded } = source;
  const byRole = encoded.get(item) ??
    new Map<Grants, Map<number, Events>>();
  const byUser = byRole.get(reader.grants) ?? new Map<number, Events>();
  const cached = byUser.get(0) ?? byUser.get(reader.id);
  if (cached !== undefined) return cached;
  const events = eventsOf(source, item, reader);
  const isPrivate = mutations.some(([, name]) =>
    source.collections.get(name)?.private
  );
  byUser.set(isPrivate ? reader.id : 0, events);
  encoded.set(item, byRole.set(reader.grants, byUser));
  return events;
}

/** Returns whether another server follows another declaration from a transaction on: its rules decide who sees the next ones. */
function isLast({ mutations = [] }: Transaction | Reset): boolean {
  return mutations.some(([, name]) => name === declarationTable);
}

function resetOf(source: Source, reader: Actor, seq: number): Events {
  const id = resumeId(source, reader, seq);
  return { id, bytes: Buffer.from(`id: ${id}\nevent: reset\ndata: {}\n\n`) };
}

function eventsOf(
  source: Source,
  item: Transaction,
  reader: Actor,
): Events {
  const events = item.mutations.map((each) => eventOf(source, each, reader))
    .filter((event) => event !== "");
  if (events.includes(undefined)) return resetOf(source, reader, item.seq);
  const id = toEventId(source.store, item.seq);
  // Resuming from any event but the last would miss those after it.
  const last = events.pop();
  if (last !== undefined) events.push(`id: ${id}\n${last}`);
  return { id, bytes: Buffer.from(events.join("")) };
}

/**
 * Returns an event, "" if the reader may not see it, undefined if that is
 * unknown. Of a record that is gone only the deletion is shown.
 */
function eventOf(
  { served, store, deletions }: Source,
  mutation: Mutation,
  reader: Actor,
): string | undefined {
  if (mutation[0] === "rename") return "";
  const [kind, name, target, deletedOwner] = mutation;
  const records = served.find(({ collection }) => collection.name === name);
  if (!records || !mayAccess(reader.grants, records.collection.access.read)) {
    return "";
  }
  if (!seesAll(records.collection, reader)) {
    const owner = kind === "del"
      ? deletedOwner
      : target[ownerProperty.name] ?? null;
    if (owner === undefined) return undefined;
    if (owner !== reader.id) return "";
  }
  if (kind === "del") {
    return `event: ${name}.deleted\ndata: {"id":${target}}\n\n`;
  }
  if (records.table.get(target.id) === undefined) {
    const deletion = deletions.get(`${name}/${target.id}`);
    if (deletion && deletion.seq > store.durableSeq) deletion.hasHidden = true;
    return "";
  }
  const { created_at, updated_at = created_at } = target;
  const change = updated_at === created_at ? "created" : "updated";
  // JSON has no line breaks except in strings, where they are escaped.
  const data = records.representation.serialize(target);
  return `event: ${name}.${change}\ndata: ${data}\n\n`;
}

function disconnect(client: Client): void {
  const { output } = client;
  client.isEnded = true;
  client.wake();
  // A client that has not read the last write would not read the end either.
  if (output.writableNeedDrain) output.destroy();
  else output.end();
}

/** Returns a comment with the id of the last change, which the client may not have been sent. */
function heartbeatComment({ id }: Client): string {
  return id ? `:\nid: ${id}\n\n` : ":\n\n";
}

/** Notes the last changes of a collection, the deletions that may still be rolled back, and those that are. */
function followChanges(source: Source, { collection, table }: Records): void {
  const { deletions, lastSeqs, store } = source;
  table.listeners.add((before, after) => {
    const { document } = after ?? before ?? {};
    if (document === undefined) return;
    const owner = ownerOf(collection, document);
    // A table that is loaded anew may have changed less recently than another.
    const last = Math.max(lastSeqs.get(owner) ?? 0, table.lastSeq);
    lastSeqs.set(owner, last);
    const key = `${table.name}/${document.id}`;
    if (after !== undefined) {
      // An earlier version is back.
      if (before === undefined && deletions.get(key)?.hasHidden) {
        source.rollbacks++;
      }
      deletions.delete(key);
      return;
    }
    // The events of a record that is gone must not be sent again.
    source.encoded = new WeakMap();
    for (const [each, { seq }] of deletions) {
      if (seq > store.durableSeq) break;
      deletions.delete(each);
    }
    deletions.set(key, { seq: store.seq + 1, hasHidden: false });
  });
}

/** Changes of records as server-sent events. */
export const feature: Feature = {
  tables: [{ name: historyTable }],
  open(api) {
    const feed = new ChangeFeed(api.store, (error) => {
      api.log("error", `Cannot read the log: ${errorText(error)}`);
    });
    let lastTurn = Promise.resolve();
    const nextTurn = () => lastTurn = lastTurn.then(() => nextTick());
    const source: Source = {
      ...api,
      feed,
      encoded: new WeakMap(),
      nextTurn,
      deletions: new Map(),
      rollbacks: 0,
      openedAt: api.store.seq,
      lastSeqs: new Map(),
    };
    for (const each of api.served) followChanges(source, each);
    const GET: Operation = {
      access: api.declaration.roles.lowest,
      produces: ["text/event-stream"],
      docs: {
        summary: "Changes as server-sent events, from now or the last event on",
        tag: "events",
        errors: [503],
        responses: {
          200: { schema: { type: "string" }, headers: ["X-Accel-Buffering"] },
        },
      },
      run: (context) => {
        const id = context.headers["last-event-id"];
        return id === undefined
          ? follow(source, context, positionOf(api.store))
          : resume(source, context, String(id));
      },
    };
    api.add("events", { methods: { GET } }, "events_url");
    return { stop: () => feed.close() };
  },
};
