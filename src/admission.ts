/**
 * Waiting for work that takes long: a search, an index, a password hash, an
 * export, an import. One rule holds for all of it: a request waits for its
 * turn, and the clients take turns by address, the one whose last turn was the
 * longest ago first. So a client that asks for much waits behind its own
 * requests. The number of connections bounds how many wait; nobody is displaced,
 * and only a request that has waited for 30 s is refused.
 */

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
  /** The turns of the long work of the kernel, if a feature shares them among the clients. */
  readonly turns?: SharedTurns | undefined;
}

/** The turns of password hashes, and of large bodies that are received. */
export type SharedTurns = Readonly<Record<"hash" | "body", Turns>>;

/** How long a request waits before it is refused. */
const maxWaitMs = 30_000;

/** The most clients whose last turn is remembered. */
const maxClients = 1000;

/** A request that waits for its turn. */
interface Waiting {
  readonly client: string;
  readonly begin: () => void;
}

/** The turns of one kind of work. */
export class Turns {
  readonly #maxRunning: number;
  readonly #maxPerClient: number;
  /** The clients that have a turn, once for each. */
  readonly #running: string[] = [];
  /** The requests that wait, the first one first. */
  readonly #waiting = new Set<Waiting>();
  /** The number of the last turn of each client, the longest ago first. */
  readonly #lastTurns = new Map<string, number>();
  #count = 0;

  /** @param maxPerClient how many turns at a time one client has: fewer than there are, if a client decides how long one lasts */
  constructor(maxRunning: number, maxPerClient = maxRunning) {
    this.#maxRunning = maxRunning;
    this.#maxPerClient = maxPerClient;
  }

  /**
   * Runs work in its turn, never before the caller has continued.
   *
   * @throws {OverloadedError}; the reason of the signal if the client leaves
   * before its turn
   */
  async run<T>(
    { client, signal }: Requester,
    work: () => T | Promise<T>,
  ): Promise<T> {
    signal.throwIfAborted();
    await (this.#mayBegin(client)
      ? this.#begin(client)
      : this.#wait(client, signal));
    try {
      return await work();
    } finally {
      this.#running.splice(this.#running.indexOf(client), 1);
      this.#beginNext();
    }
  }

  #mayBegin(client: string): boolean {
    const own = this.#running.filter((each) => each === client);
    return this.#running.length < this.#maxRunning &&
      own.length < this.#maxPerClient;
  }

  #begin(client: string): void {
    this.#running.push(client);
    this.#lastTurns.delete(client);
    this.#lastTurns.set(client, ++this.#count);
    const [oldest = ""] = this.#lastTurns.keys();
    if (this.#lastTurns.size > maxClients) this.#lastTurns.delete(oldest);
  }

  #wait(client: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = (settle: () => void) => {
        this.#waiting.delete(waiting);
        clearTimeout(timer);
        signal.removeEventListener("abort", onAbort);
        settle();
      };
      const waiting = { client, begin: () => leave(resolve) };
      const onAbort = () => leave(() => reject(signal.reason));
      const onTimeout = () => leave(() => reject(tooLong()));
      const timer = setTimeout(onTimeout, maxWaitMs);
      signal.addEventListener("abort", onAbort);
      this.#waiting.add(waiting);
    });
  }

  /** Begins the next turn in the moment in which another ends. Of two clients that had none yet the later goes first, so that a crowd of them does not delay those who come after it. */
  #beginNext(): void {
    let next: Waiting | undefined;
    let nextTurn = Infinity;
    const seen = new Set<string>(); // of each client the first request counts
    for (const each of this.#waiting) {
      if (seen.has(each.client)) continue;
      seen.add(each.client);
      const turn = this.#lastTurns.get(each.client) ?? 0;
      const isSooner = turn === 0 || turn < nextTurn;
      if (isSooner && this.#mayBegin(each.client)) {
        next = each;
        nextTurn = turn;
      }
    }
    if (next === undefined) return;
    this.#begin(next.client);
    next.begin();
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
