/**
 * Admission: decides who may start long work, such as hashing a password,
 * building an index or sending an export, and who waits. One rule holds for all
 * of it: the client that has asked for the least is served first, and the one
 * that has asked for the most is refused first. So nobody is shut out, however
 * much others ask for, and neither queues nor slots grow without bound.
 */

import { performance } from "node:perf_hooks";
import type { Writable } from "node:stream";

/** Too many are waiting already; nothing was done. */
export class OverloadedError extends Error {
  override readonly name = "OverloadedError";
  readonly code = "overloaded";
}

/** The client that asks for work. */
export interface Requester {
  /** Its network address. */
  readonly client: string;
  /** Throws if it has disconnected. */
  throwIfAborted(): void;
}

/** The time after which a request counts only half. */
const halfLifeMs = 60_000;

/** The most clients whose requests are counted; the longest idle one is forgotten first. */
const maxClients = 10_000;

interface Waiter {
  readonly requester: Requester;
  /** The number of the client's recent requests. */
  readonly load: number;
  readonly start: () => void;
  readonly refuse: (error: unknown) => void;
}

export interface AdmissionLimits {
  readonly maxRunning: number;
  readonly maxWaiting: number;
  /** The message of the error with which a request is refused. */
  readonly message: string;
}

/** The queue for one kind of work. */
export class Admission {
  readonly #limits: AdmissionLimits;
  /** The same error for every refusal: creating one takes a sixth of the time of a refused request. */
  readonly #refusal: OverloadedError;
  #running = 0;
  /** The next one first. */
  readonly #waiting: Waiter[] = [];
  /** The number of recent requests of each client, as of a time; the longest idle client first. */
  readonly #loads = new Map<
    string,
    { readonly load: number; readonly at: number }
  >();

  constructor(limits: AdmissionLimits) {
    this.#limits = limits;
    this.#refusal = new OverloadedError(limits.message);
  }

  get isFull(): boolean {
    return this.#waiting.length >= this.#limits.maxWaiting;
  }

  /**
   * Throws if a request would be refused now. Called before the body of a
   * request is read, so that a refused one costs little.
   *
   * @throws {OverloadedError}
   */
  check({ client }: Requester): void {
    if (!this.isFull || this.#findDisplaced(this.#loadOf(client))) return;
    this.#countRequest(client); // otherwise asking again and again would help
    throw this.#refusal;
  }

  /**
   * Runs work as soon as a slot is free.
   *
   * @throws {OverloadedError}
   */
  async run<T>(
    requester: Requester,
    work: () => T | Promise<T>,
  ): Promise<T> {
    const load = this.#countRequest(requester.client);
    if (this.#running < this.#limits.maxRunning) this.#running++;
    else await this.#wait(requester, load);
    try {
      requester.throwIfAborted();
      return await work();
    } finally {
      // The slot passes to the next waiter without being free in between.
      const next = this.#waiting.shift();
      if (next === undefined) this.#running--;
      else next.start();
    }
  }

  #wait(requester: Requester, load: number): Promise<void> {
    const waiting = this.#waiting;
    if (this.isFull) {
      const displaced = this.#findDisplaced(load);
      if (displaced === undefined) throw this.#refusal;
      waiting.splice(waiting.indexOf(displaced), 1);
      displaced.refuse(this.#refusal);
    }
    return new Promise((start, refuse) => {
      const next = waiting.findIndex((each) => each.load > load);
      const at = next < 0 ? waiting.length : next;
      waiting.splice(at, 0, { requester, load, start, refuse });
    });
  }

  /** Returns the waiter that must give way to a client with this load, if there is one. */
  #findDisplaced(load: number): Waiter | undefined {
    return this.#waiting.find(isAborted) ??
      this.#waiting.findLast((each) => each.load > load);
  }

  /**
   * Returns the load of a client: at least that of its waiting requests, so
   * that none of these gives way to a later one.
   */
  #loadOf(client: string): number {
    const { load, at } = this.#loads.get(client) ?? { load: 0, at: 0 };
    const halfLives = (performance.now() - at) / halfLifeMs;
    const last = this.#waiting.findLast(({ requester }) =>
      requester.client === client
    );
    return Math.max(last?.load ?? 0, Math.round(load * 0.5 ** halfLives));
  }

  /** Counts a request of a client; returns the client's load without it. */
  #countRequest(client: string): number {
    const load = this.#loadOf(client);
    this.#loads.delete(client);
    const [longestIdle = ""] = this.#loads.keys();
    if (this.#loads.size >= maxClients) this.#loads.delete(longestIdle);
    this.#loads.set(client, { load: load + 1, at: performance.now() });
    return load;
  }
}

function isAborted({ requester }: Waiter): boolean {
  try {
    requester.throwIfAborted();
    return false;
  } catch {
    return true;
  }
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
