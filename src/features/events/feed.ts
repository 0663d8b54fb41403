/**
 * The change feed: every transaction in order, each exactly once, and only
 * once it is durable.
 *
 * Each subscriber has a cursor into the logs and never reads past what the
 * writer reports as durable, so there is no gap between catching up and
 * following the tail. The transactions read last are cached for all: a thousand
 * subscribers at the tail share one read and one decoded transaction. Slower
 * ones read the log again, one at a time. An idle subscriber costs only its
 * cursor.
 *
 * The logs hold the earlier generation and the current one. A subscriber whose
 * cursor is older, or whose log is removed while it reads, gets a reset and
 * continues from the tail.
 */

import { setImmediate as nextTick } from "node:timers/promises";
import type { LogPosition } from "../../store/file-store.ts";
import { errorCode } from "../../store/error.ts";
import type { Store } from "../../store/store.ts";
import {
  type DurableLogs,
  findPosition,
  readTransactions,
  type Transaction,
} from "./log-reader.ts";

/** The cursor is too old or unknown: the feed continues after this sequence number. */
export interface Reset {
  readonly seq: number;
  readonly operations?: undefined;
}

/** Transactions as they become durable, until the subscriber has ended or the store closes. */
export type Feed = AsyncGenerator<Transaction | Reset, undefined>;

/** A reader of the feed. To end it, even while it waits, set `isEnded` and call `wake`. */
export interface Subscriber {
  isEnded: boolean;
  /** Set by whoever makes the subscriber wait. */
  wake: () => void;
}

const maxCachedTransactions = 1000;
const maxCachedBytes = 1 << 20;

/** Lets any number of subscribers follow one store. */
export class ChangeFeed {
  readonly #logs: DurableLogs;
  readonly #onError: (error: unknown) => void;
  readonly #subscribers = new Set<Subscriber>();
  /** The transactions read last, by sequence number, the oldest read first. */
  readonly #cache = new Map<number, Transaction>();
  #cachedBytes = 0;
  /** Settles when no read is in progress. */
  #lastRead: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  /** @param onError called with the error when a log cannot be read */
  constructor(store: Store, onError: (error: unknown) => void) {
    this.#logs = { folder: store.folder, head: store.position };
    this.#onError = onError;
    const wakeAll = () => {
      this.#logs.head = store.position;
      for (const { wake } of this.#subscribers) wake();
    };
    store.watch({
      onAdvance: wakeAll,
      close: async () => {
        this.#isClosed = true;
        wakeAll();
        await this.#lastRead;
      },
    });
  }

  /**
   * Follows the store from a position; after a reset, from the tail, if that is
   * unknown.
   *
   * @throws an EMFILE or ENFILE error if too many files are open
   */
  async *changes(
    subscriber: Subscriber,
    from: LogPosition | undefined,
  ): Feed {
    this.#subscribers.add(subscriber);
    try {
      let cursor = from;
      while (!subscriber.isEnded && !this.#isClosed) {
        if (cursor === undefined) {
          cursor = this.#logs.head;
          yield { seq: cursor.seq };
        } else if (cursor.seq === this.#logs.head.seq) {
          cursor = this.#logs.head; // its log may be removed, the head's never is
          await new Promise<void>((resolve) => subscriber.wake = resolve);
        } else {
          const next: Transaction | undefined =
            this.#cache.get(cursor.seq + 1) ?? await this.#read(cursor);
          // A pause from time to time, so that other work is not delayed.
          if (cursor.seq % 4 === 0) await nextTick();
          cursor = next?.end;
          if (next !== undefined) yield next;
        }
      }
    } finally {
      this.#subscribers.delete(subscriber);
      if (this.#subscribers.size === 0) {
        this.#cache.clear();
        this.#cachedBytes = 0;
      }
    }
  }

  /**
   * Returns the position after a transaction; undefined if it is not in the logs.
   *
   * @throws an EMFILE or ENFILE error if too many files are open
   */
  find(seq: number): Promise<LogPosition | undefined> {
    return this.#serialize(() => {
      const { head } = this.#logs;
      if (seq >= head.seq) return seq === head.seq ? head : undefined;
      return this.#cache.get(seq)?.end ?? findPosition(this.#logs, seq);
    });
  }

  /** Reads the transaction at a cursor, unless another read has cached it meanwhile. */
  #read(cursor: LogPosition): Promise<Transaction | undefined> {
    return this.#serialize(async () => {
      const cached = this.#cache.get(cursor.seq + 1);
      if (cached !== undefined) return cached;
      const found = await readTransactions(this.#logs, cursor);
      for (const transaction of found) this.#addToCache(transaction);
      return found[0];
    });
  }

  /** Runs one read at a time. Returns undefined if the log is gone, damaged or closed. */
  #serialize<Result>(
    read: () => Promise<Result> | Result,
  ): Promise<Result | undefined> {
    const result = this.#lastRead
      .then(() => this.#isClosed ? undefined : read())
      .catch((error) => {
        const code = errorCode(error);
        // Nothing is lost: the subscriber can try again.
        if (code === "EMFILE" || code === "ENFILE") throw error;
        if (code !== "ENOENT") this.#onError(error);
        return undefined;
      });
    this.#lastRead = result.catch(() => {});
    return result;
  }

  /** Caches a transaction, and evicts the oldest ones beyond the limits. */
  #addToCache(transaction: Transaction): void {
    const { seq } = transaction;
    if (this.#cache.has(seq)) return;
    this.#cache.set(seq, transaction);
    this.#cachedBytes += transaction.bytes;
    for (const [oldest, { bytes }] of this.#cache) {
      const { size } = this.#cache;
      const fits = size <= maxCachedTransactions &&
        this.#cachedBytes <= maxCachedBytes;
      if (fits || size === 1) break;
      this.#cache.delete(oldest);
      this.#cachedBytes -= bytes;
    }
  }
}
