/**
 * What changes, as server-sent events (HTML standard section 9.2). Each
 * listener has a place in the log and takes what follows it when its connection
 * has taken what went before: who is slow costs no memory, and who does not
 * read at all is cut off. What a transaction tells is written once for all
 * whose role lets them read the same.
 */

import { Buffer } from "node:buffer";
import type { Writable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { mayAccess, type Role } from "../../auth/access.ts";
import type { Mutation, Store } from "../../store/store.ts";
import { ChangeFeed, type Reset, type Transaction } from "./feed.ts";
import type { Records } from "../../api/records/records.ts";
import type { RequestContext, Result } from "../../api/request-context.ts";
import {
  noParameters,
  type Operation as Method,
  type Route,
  route,
} from "../../api/operations.ts";
import type { Feature } from "../../api/feature.ts";

/** The time between two signs of life, in milliseconds. Who takes nothing for two of them is cut off. */
const heartbeat = 15_000;

/** So many bytes are written at once where there is more. */
const enough = 1 << 14;

/**
 * What follows within so many milliseconds is written together: with a thousand
 * listeners and a hundred changes a second, these then take 4 ms instead of 25.
 */
const pace = 50;

/** Who follows. */
interface Listener {
  readonly to: Writable;
  readonly role: Role;
  /** Whether it is still signed in, and with that role. */
  readonly isValid: () => boolean;
  readonly end: () => void;
  /** The last sequence that was looked at, and the last that the client knows of. */
  seq: number;
  told: number;
  /** Whether it took nothing since the last sign of life. */
  stalled: boolean;
}

/** Lets clients follow what is written. */
export class Events {
  readonly #store: Store;
  readonly #feed: ChangeFeed;
  readonly #records: ReadonlyMap<string, Records>;
  readonly #listeners = new Set<Listener>();
  readonly #texts = new WeakMap<Transaction, Map<Role, Uint8Array>>();
  #timer: NodeJS.Timeout | undefined;

  /** @param records what is told of, to those who may read it */
  constructor(store: Store, feed: ChangeFeed, records: readonly Records[]) {
    this.#store = store;
    this.#feed = feed;
    this.#records = new Map(
      records.map((records) => [records.collection.name, records]),
    );
  }

  /** Follows from behind the event that the client saw last, else from now on. */
  open({ headers, caller, reauthenticate }: RequestContext): Result {
    if (caller === undefined) throw new Error("Nobody is signed in");
    const { role } = caller;
    const { durableSeq } = this.#store;
    const seen = headers["last-event-id"];
    const seq = seen === undefined ? durableSeq : parseSequence(seen);
    const told = seen === undefined ? -1 : seq;
    const isValid = () => {
      try {
        return reauthenticate()?.role === role;
      } catch {
        return false;
      }
    };
    return {
      status: 200,
      // The last is for proxies of nginx's kind, which collect what they pass on.
      headers: ["Cache-Control", "no-store", "X-Accel-Buffering", "no"],
      body: undefined,
      type: "text/event-stream",
      live: (to) => this.#follow({ to, role, isValid, seq, told }),
      seq: 0, // what is not on the disk is not in the feed
    };
  }

  async #follow(who: Omit<Listener, "end" | "stalled">): Promise<void> {
    const { to, role, isValid, seq } = who;
    const feed = this.#feed.changes(seq);
    let goOn = () => {};
    const end = () => {
      this.#remove(listener);
      feed.return();
      goOn();
      // Who has not taken what there is does not take an end either.
      if (to.writableNeedDrain) to.destroy();
      else to.end();
    };
    const listener: Listener = { ...who, end, stalled: false };
    to.on("drain", () => {
      listener.stalled = false;
      goOn();
    });
    to.on("close", end);
    this.#listeners.add(listener);
    this.#timer ??= setInterval(() => this.#beat(), heartbeat);
    // A place to go on from, also for who is cut off before the first event.
    to.write(`retry: 1000\n${signOfLife(listener)}`);
    let texts: Uint8Array[] = [];
    let length = 0;
    for await (const item of feed) {
      if (!isValid()) break;
      const seq = "reset" in item ? item.reset : item.seq;
      const text = this.#text(item, role);
      if (text.length > 0) texts.push(text);
      length += text.length;
      if (length === 0) listener.seq = seq;
      // A write costs far more than what is in it.
      const more = seq < this.#store.durableSeq && length < enough;
      if (more || length === 0) continue;
      listener.seq = seq;
      listener.told = seq;
      to.write(texts.length === 1 ? texts[0] : Buffer.concat(texts, length));
      texts = [];
      length = 0;
      if (to.writableNeedDrain) {
        await new Promise<void>((resolve) => goOn = resolve);
      } else if (seq === this.#store.durableSeq) await delay(pace);
    }
    end();
  }

  #remove(listener: Listener): void {
    this.#listeners.delete(listener);
    if (this.#listeners.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #beat(): void {
    for (const listener of this.#listeners) {
      const { to, isValid, end, stalled } = listener;
      if (stalled || !isValid()) end();
      else if (to.writableNeedDrain) listener.stalled = true;
      else to.write(signOfLife(listener));
    }
  }

  /** All that a role may know of a transaction. */
  #text(item: Transaction | Reset, role: Role): Uint8Array {
    if ("reset" in item) {
      return Buffer.from(`id: ${item.reset}\nevent: reset\ndata: {}\n\n`);
    }
    const { seq, operations } = item;
    const made = this.#texts.get(item) ?? new Map<Role, Uint8Array>();
    const known = made.get(role);
    if (known !== undefined) return known;
    const events = operations.flatMap((operation) =>
      this.#event(operation, role) ?? []
    );
    // Going on from any but the last would miss those behind it.
    const last = events.pop();
    if (last !== undefined) events.push(`id: ${seq}\n${last}`);
    // Bytes, as all connections can share them.
    const text = Buffer.from(events.join(""));
    this.#texts.set(item, made.set(role, text));
    return text;
  }

  #event([kind, name, what]: Mutation, role: Role): string | undefined {
    const records = this.#records.get(name);
    if (!records || !mayAccess(role, records.collection.access.read)) {
      return undefined;
    }
    if (kind === "del") {
      return `event: ${name}.deleted\ndata: {"id":${what}}\n\n`;
    }
    const { created_at, updated_at = created_at } = what;
    const change = updated_at === created_at ? "created" : "updated";
    // JSON has no line breaks but those in strings, which are escaped.
    const data = records.representation.serialize(what);
    return `event: ${name}.${change}\ndata: ${data}\n\n`;
  }
}

/** A comment; with what was passed over, which an id without data tells without an event. */
function signOfLife(listener: Listener): string {
  const { seq, told } = listener;
  listener.told = seq;
  return seq > told ? `:\nid: ${seq}\n\n` : ":\n\n";
}

/** A sequence as `id` tells it; what is none is before all that is kept. */
function parseSequence(text: string): number {
  return /^(?:0|[1-9]\d{0,15})$/.test(text) ? Number(text) : -1;
}

function eventsRoute(events: Events): Route {
  const get: Method = {
    summary: "What changes, from now or from the last event on",
    access: "viewer",
    produces: ["text/event-stream"],
    parse: noParameters,
    docs: {
      responses: {
        200: { schema: { type: "string" }, headers: ["X-Accel-Buffering"] },
      },
    },
    run: (call) => events.open(call),
  };
  return route({ GET: get }, { tag: "events" });
}

/** What changes, to whoever listens. */
export const feature: Feature = {
  open({ add, store, served, log }) {
    const feed = new ChangeFeed(store, (error) => {
      const text = error instanceof Error ? error.message : String(error);
      log("error", `Cannot read the log back: ${text}`);
    });
    add("events", eventsRoute(new Events(store, feed, served)), "events_url");
  },
};
