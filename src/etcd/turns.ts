/**
 * Turns: keys with which servers that others overtake each time ask them to let
 * one commit after the other.
 *
 * A request that is judged slowly, such as a batch of 1,000 records, would never
 * be committed beside servers that write all the time. After some attempts its
 * server puts a key of its own, under its lease. All servers read these keys in
 * each of their rounds. The one that asked first has the turn, and the others
 * commit nothing until its key is gone, for three seconds at most. It is deleted
 * in the transaction that commits the request. Correctness does not depend on
 * it: a server that ignores the keys only commits sooner.
 */

import { performance } from "node:perf_hooks";
import type {
  Change,
  EtcdClient,
  KeyRange,
  KeyValue,
  Lease,
} from "./client.ts";

/** The keys begin so, and end with the id of the server. */
const prefix = "head/turn/";

/** All keys of turns. */
export const turnKeys: KeyRange = [prefix, `${prefix}~`];

/** The head, and all keys of turns. */
export const headAndTurns: KeyRange = ["head", `${prefix}~`];

/** After so many attempts the turn is asked for. */
const minLostAttempts = 4;

/** How long a key has an effect. */
const maxTurnMs = 3000;

interface TurnsParts {
  readonly client: EtcdClient;
  readonly lease: Lease;
  readonly serverId: string;
  readonly closing: AbortController;
}

/** The turns, as far as one server knows them. */
export class Turns {
  readonly #parts: TurnsParts;
  readonly #ownKey: string;
  /** The value of the own key when it was put last. */
  #ownValue = "";
  /** The turns in their order, each as the value of its key and the key, and when each was read first. */
  #seen: ReadonlyMap<string, number> = new Map();
  /** The requests of this server that need the turn, and when each asked last. */
  readonly #askers = new Map<Attempts, number>();
  /** The requests that wait for the turns of others. */
  readonly #waiting: (() => void)[] = [];

  constructor(parts: TurnsParts) {
    this.#parts = parts;
    this.#ownKey = prefix + parts.serverId;
  }

  /** True while another server has the turn, unless the store closes. */
  get isPaused(): boolean {
    const [first] = this.#current();
    return first !== undefined && !this.#isOwn(first) &&
      !this.#parts.closing.signal.aborted;
  }

  /** Resumes the requests that wait, once no other server has the turn; called after each round. */
  resume(): void {
    if (this.isPaused) return;
    for (const resume of this.#waiting.splice(0)) resume();
  }

  /** Resolves once no other server has the turn. */
  async whenFree(): Promise<void> {
    while (this.isPaused) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Returns the turns that have an effect. */
  #current(): string[] {
    const oldest = performance.now() - maxTurnMs;
    return [...this.#seen].filter(([, since]) => since > oldest)
      .map(([turn]) => turn);
  }

  #isOwn(turn: string): boolean {
    return turn.endsWith(this.#ownKey);
  }

  /** Remembers the turns among the keys that were read. */
  update(found: readonly KeyValue[]): void {
    const turns = found.filter(({ key }) => key.startsWith(prefix))
      .map(({ key, value }) => `${value} ${key}`);
    this.#remember(turns);
  }

  #remember(turns: string[]): void {
    const now = performance.now();
    this.#seen = new Map(
      turns.sort().map((turn) => [turn, this.#seen.get(turn) ?? now]),
    );
  }

  /** Asks for the turn, unless this server has done so; `seq` is the last transaction that it has seen. */
  async ask(asker: Attempts, seq: number): Promise<void> {
    this.#askers.set(asker, performance.now());
    if (this.#current().some((turn) => this.#isOwn(turn))) return;
    const { client, lease } = this.#parts;
    const value = this.#ownValue = String(seq).padStart(16, "0");
    this.#remember([...this.#seen.keys(), `${value} ${this.#ownKey}`]);
    try {
      await client.put(this.#ownKey, value, lease.id);
      await this.#deleteUnused();
    } catch {
      // The next round finds out what etcd lacks.
    }
  }

  /** Forgets a request that has ended. */
  end(asker: Attempts): void {
    if (this.#askers.delete(asker)) this.#deleteUnused().catch(() => {});
  }

  /** Returns the change that belongs in a commit up to `seq`: it ends the turn once nobody here needs it any more. */
  changes(seq: number): readonly Change[] {
    const isNeeded = this.#asking().some((each) => each.seq > seq);
    const isThere = [...this.#seen.keys()].some((turn) => this.#isOwn(turn));
    return isThere && !isNeeded ? [{ keys: [this.#ownKey] }] : [];
  }

  /** Returns the requests whose turn still has an effect: work in the background may never try again. */
  #asking(): Attempts[] {
    const oldest = performance.now() - maxTurnMs;
    return [...this.#askers].filter(([, since]) => since > oldest)
      .map(([asker]) => asker);
  }

  async #deleteUnused(): Promise<void> {
    if (this.#asking().length > 0) return;
    const changes = this.changes(0);
    if (changes.length === 0) return;
    await this.#parts.client
      .transact([this.#ownKey, this.#ownValue], changes);
  }
}

/** The attempts of a request, or of work of the server itself. */
export class Attempts {
  readonly #turns: Turns;
  readonly #signal: AbortSignal | undefined;
  /** How often another server was first. */
  lost = 0;
  /** The last transaction of the store when that happened last. */
  #lostAt = -1;
  /** The last transaction of this attempt, once it is judged. */
  seq = Infinity;

  /** @param signal aborted when nobody waits for the request any more */
  constructor(turns: Turns, signal?: AbortSignal) {
    this.#turns = turns;
    this.#signal = signal;
    signal?.addEventListener("abort", () => this.end());
  }

  /**
   * Counts an attempt in which another server was first; resolves when the next
   * one may begin, with the turn if many were lost.
   *
   * @throws the reason of the signal
   */
  async lose(durableSeq: number): Promise<void> {
    this.#signal?.throwIfAborted();
    this.seq = Infinity;
    // All transactions that were rolled back together are one attempt.
    if (durableSeq !== this.#lostAt) this.lost++;
    this.#lostAt = durableSeq;
    // While others have turns, it would wait for each new one of theirs.
    if (this.lost >= minLostAttempts || this.#turns.isPaused) {
      await this.#turns.ask(this, durableSeq);
    }
    await this.#turns.whenFree();
  }

  /** Gives the turn up, and counts from the beginning. */
  end(): void {
    this.lost = 0;
    this.#turns.end(this);
  }
}
