/**
 * Waiting for work that takes long: a search, an index, a password hash, an
 * export, an import. One rule holds for all of it: a request waits for its
 * turn, and the clients take turns by address, the one whose last turn was the
 * longest ago first. So a client that asks for much waits behind its own
 * requests. The number of connections bounds how many wait; nobody is displaced,
 * and only a request that has waited for 30 s is refused.
 */

import type { Writable } from "node:stream";

/** The request waited too long, or there is no room for it; nothing was done. */
export class OverloadedError extends Error {
  override readonly name = "OverloadedError";
  readonly code = "overloaded";
}

/** The client that asks for work. */
export interface Requester {
  /** Its network address. */
  readonly client: string;
  /** Aborted when its response has ended or its connection has: nobody works for it any more. */
  readonly signal: AbortSignal;
}

/** How long a request waits before it is refused. */
const maxWaitMs = 30_000;

/** How long a turn lasts whose end depends on the client: then others begin too. */
const maxHoldMs = 10_000;

/** The most clients whose last turn is remembered, unless more of them wait. */
const maxClients = 1000;

interface Client {
  /** The number of its last turn. */
  lastTurn: number;
  running: number;
  /** The functions that begin the turns of its waiting requests, in order. */
  readonly waiting: Set<() => void>;
}

/** The turns of one kind of work. */
export class Turns {
  readonly #maxRunning: number;
  readonly #maxPerClient: number;
  readonly #clients = new Map<string, Client>();
  readonly #holders = new WeakSet<AbortSignal>();
  #running = 0;
  #lastTurn = 0;
  /** Where the newest client is in the order of turns: before all others. */
  #newest = 0;

  /** @param maxPerClient how many turns at a time one client has: fewer than there are, if a client decides how long one lasts */
  constructor(maxRunning: number, maxPerClient = maxRunning) {
    this.#maxRunning = maxRunning;
    this.#maxPerClient = maxPerClient;
  }

  /**
   * Runs work in its turn.
   *
   * @throws {OverloadedError}; the reason of the signal if the client leaves
   * before its turn
   */
  async run<T>(requester: Requester, work: () => T | Promise<T>): Promise<T> {
    const client = await this.#begin(requester);
    try {
      return await work();
    } finally {
      this.#end(client);
    }
  }

  /** Waits for a turn that lasts until the signal is aborted, or for some seconds; throws like {@linkcode run}. */
  async hold(requester: Requester): Promise<void> {
    const { signal } = requester;
    if (this.#holders.has(signal)) return signal.throwIfAborted(); // processed again
    const client = await this.#begin(requester);
    this.#holders.add(signal);
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      this.#end(client);
    };
    const timer = setTimeout(end, maxHoldMs);
    signal.addEventListener("abort", end);
    if (signal.aborted) end();
    signal.throwIfAborted();
  }

  async #begin({ client: name, signal }: Requester): Promise<Client> {
    signal.throwIfAborted();
    const client = this.#find(name);
    if (this.#isNext(client)) this.#count(client);
    else {
      await new Promise<void>((resolve, reject) => {
        const leave = (settle: () => void) => {
          client.waiting.delete(start);
          clearTimeout(timer);
          signal.removeEventListener("abort", onAbort);
          settle();
        };
        const start = () => leave(resolve);
        const onAbort = () => leave(() => reject(signal.reason));
        const onTimeout = () => leave(() => reject(tooLong()));
        const timer = setTimeout(onTimeout, maxWaitMs);
        signal.addEventListener("abort", onAbort);
        client.waiting.add(start);
      });
    }
    return client;
  }

  /** Returns a client. Of two that had no turn yet the later goes first, so that a crowd of them does not delay those who come after it. */
  #find(name: string): Client {
    const client = this.#clients.get(name) ??
      { lastTurn: --this.#newest, running: 0, waiting: new Set() };
    this.#clients.set(name, client);
    if (this.#clients.size > maxClients) {
      for (const [each, { running, waiting }] of this.#clients) {
        if (running + waiting.size > 0 || each === name) continue;
        this.#clients.delete(each);
        break;
      }
    }
    return client;
  }

  #isNext({ running }: Client): boolean {
    return this.#running < this.#maxRunning && running < this.#maxPerClient;
  }

  #count(client: Client): void {
    this.#running++;
    client.running++;
    client.lastTurn = ++this.#lastTurn;
  }

  /** Ends a turn, and begins the next one in the same moment. */
  #end(client: Client): void {
    this.#running--;
    client.running--;
    let next: Client | undefined;
    for (const each of this.#clients.values()) {
      if (each.waiting.size === 0 || !this.#isNext(each)) continue;
      if (!next || each.lastTurn < next.lastTurn) next = each;
    }
    if (next === undefined) return;
    const [start] = next.waiting;
    this.#count(next);
    start?.();
  }
}

/** Creates the error of a request that has waited for too long. */
export function tooLong(): OverloadedError {
  return new OverloadedError(
    `The server is busy: the request has waited for ${
      maxWaitMs / 1000
    } s, and nothing was done.`,
  );
}

/** Slots for work that does not wait in a queue: a connection or a response holds one until it closes. */
export class Slots {
  readonly #max: number;
  readonly #message: string;
  /** The streams that hold a slot, the oldest first, with their clients. */
  readonly #held = new Map<Writable, string>();

  /** @param message the message of the error with which work is refused */
  constructor(max: number, message: string) {
    this.#max = max;
    this.#message = message;
  }

  /**
   * Gives a stream a slot. If none is free, the oldest stream of the client with
   * the most slots is destroyed, unless it would then have fewer than this
   * client.
   *
   * @throws {OverloadedError}
   */
  take(client: string, stream: Writable): void {
    if (this.#held.size >= this.#max) {
      const displaced = this.#findDisplaced(client);
      this.#held.delete(displaced);
      displaced.destroy();
    }
    this.#held.set(stream, client);
    stream.once("close", () => this.#held.delete(stream));
  }

  #findDisplaced(client: string): Writable {
    const counts = new Map([[client, 1]]);
    for (const each of this.#held.values()) {
      counts.set(each, (counts.get(each) ?? 0) + 1);
    }
    const most = Math.max(...counts.values());
    for (const [stream, each] of this.#held) {
      const count = counts.get(each) ?? 0;
      if (count === most && most > (counts.get(client) ?? 0)) return stream;
    }
    throw new OverloadedError(this.#message);
  }
}
