/**
 * Events: changes of records as server-sent events (HTML standard section 9.2).
 *
 * Each client has a cursor into the log and continues when its connection has
 * sent what was written before, so a slow client costs no memory, and one that
 * does not read at all is disconnected. The events of a transaction are encoded
 * once for all clients of the same role.
 */

import { Buffer } from "node:buffer";
import type { Writable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { type Grants, mayAccess } from "../../auth/access.ts";
import { errorText } from "../../store/error.ts";
import type { LogPosition } from "../../store/file-store.ts";
import type { Mutation } from "../../store/store.ts";
import {
  ChangeFeed,
  type Feed,
  type Reset,
  type Subscriber,
  type Transaction,
} from "./feed.ts";

import type { RequestContext, Result } from "../../api/request-context.ts";
import { noParameters, route } from "../../api/operations.ts";
import type { Api, Feature } from "../../api/feature.ts";

/** The time between two heartbeats. */
const heartbeatMs = 15_000;

/** How many bytes are collected into one write to a client that is behind. */
const maxBatchBytes = 1 << 14;

/**
 * Changes within this time are written together: with a thousand clients and a
 * hundred changes a second, these then take 4 ms instead of 25.
 */
const flushIntervalMs = 50;

/** A client that follows the changes. */
interface Client extends Subscriber {
  readonly output: Writable;
  readonly grants: Grants;
  /** Returns whether it is still signed in, with the same role. */
  readonly isAuthorized: () => boolean;
  /** The last sequence number that it was sent or may not see; -1 if it is unknown. */
  seq: number;
}

/** The encoded events of each transaction, by role. */
const encoded = new WeakMap<Transaction, Map<Grants, Uint8Array>>();

/** Follows the changes after a position; after a reset, from now on, if that is unknown. */
function follow(
  api: Api,
  feed: ChangeFeed,
  context: RequestContext,
  from: LogPosition | undefined,
): Result {
  const { caller } = context;
  if (caller === undefined) throw new Error("Nobody is signed in");
  const { role, grants } = caller;
  const isAuthorized = () => {
    try {
      return context.reauthenticate()?.role === role;
    } catch {
      return false;
    }
  };
  const { seq = -1 } = from ?? {};
  return {
    status: 200,
    // The last one keeps proxies such as nginx from buffering the events.
    headers: ["Cache-Control", "no-store", "X-Accel-Buffering", "no"],
    type: "text/event-stream",
    live: (output) => {
      const state = { seq, isEnded: false, wake() {} };
      const client: Client = { output, grants, isAuthorized, ...state };
      return send(api, client, feed.changes(client, from));
    },
    seq: 0, // the feed has only what is durable
  };
}

async function send(api: Api, client: Client, changes: Feed): Promise<void> {
  const { output, grants, isAuthorized } = client;
  output.on("drain", () => client.wake());
  output.on("close", () => disconnect(client));
  const timer = setInterval(() => sendHeartbeat(client), heartbeatMs);
  // An id to resume from, even if the connection breaks before any event.
  output.write(`retry: 1000\n${heartbeatComment(client)}`);
  let batch: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const item of changes) {
      if (!isAuthorized()) break;
      const { seq } = item;
      const bytes = encode(api, item, grants);
      if (bytes.length > 0) batch.push(bytes);
      length += bytes.length;
      // A write costs far more than the bytes in it.
      const isBehind = seq < api.store.durableSeq;
      if (isBehind && length < maxBatchBytes) continue;
      client.seq = seq;
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
      if (seq === api.store.durableSeq) await delay(flushIntervalMs);
    }
  } finally {
    clearInterval(timer);
    disconnect(client);
  }
}

/** Returns the events of a transaction that a role may read, as bytes that all connections share. */
function encode(
  api: Api,
  item: Transaction | Reset,
  grants: Grants,
): Uint8Array {
  if (item.operations === undefined) {
    return Buffer.from(`id: ${item.seq}\nevent: reset\ndata: {}\n\n`);
  }
  const byRole = encoded.get(item) ?? new Map<Grants, Uint8Array>();
  const cached = byRole.get(grants);
  if (cached !== undefined) return cached;
  const events = item.operations.flatMap((operation) =>
    eventOf(api, operation, grants) ?? []
  );
  // Resuming from any event but the last would miss those after it.
  const last = events.pop();
  if (last !== undefined) events.push(`id: ${item.seq}\n${last}`);
  const bytes = Buffer.from(events.join(""));
  encoded.set(item, byRole.set(grants, bytes));
  return bytes;
}

function eventOf(
  { served }: Api,
  mutation: Mutation,
  grants: Grants,
): string | undefined {
  if (mutation[0] === "rename") return undefined;
  const [kind, name, target] = mutation;
  const records = served.find(({ collection }) => collection.name === name);
  if (!records || !mayAccess(grants, records.collection.access.read)) {
    return undefined;
  }
  if (kind === "del") {
    return `event: ${name}.deleted\ndata: {"id":${target}}\n\n`;
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
  // A client that has not read the last write would not read an end.
  if (output.writableNeedDrain) output.destroy();
  else output.end();
}

function sendHeartbeat(client: Client): void {
  const { output, isAuthorized } = client;
  if (!isAuthorized()) disconnect(client);
  else if (!output.writableNeedDrain) output.write(heartbeatComment(client));
}

/** Returns a comment with the id of the last change, which the client may not have been sent. */
function heartbeatComment({ seq }: Client): string {
  return seq < 0 ? ":\n\n" : `:\nid: ${seq}\n\n`;
}

/** Parses a sequence number; returns one that is too old if it is invalid. */
function parseSequence(text: string): number {
  return /^(?:0|[1-9]\d{0,15})$/.test(text) ? Number(text) : -1;
}

/** Changes of records as server-sent events. */
export const feature: Feature = {
  open(api) {
    const feed = new ChangeFeed(api.store, (error) => {
      api.log("error", `Cannot read the log: ${errorText(error)}`);
    });
    const path = route({
      GET: {
        summary: "Changes as server-sent events, from now or the last event on",
        access: api.declaration.roles.lowest,
        produces: ["text/event-stream"],
        parse: noParameters,
        docs: {
          errors: [503],
          responses: {
            200: { schema: { type: "string" }, headers: ["X-Accel-Buffering"] },
          },
        },
        run: (context) => {
          const id = context.headers["last-event-id"];
          if (id === undefined) {
            return follow(api, feed, context, api.store.position);
          }
          return context.afterWaiting(
            feed.find(parseSequence(String(id))),
            (from) => follow(api, feed, context, from),
          );
        },
      },
    }, { tag: "events" });
    api.add("events", path, "events_url");
  },
};
