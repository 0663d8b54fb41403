/**
 * The change feed: every transaction in order, each exactly once, and only
 * once it is durable.
 *
 * Each subscriber has a cursor into the logs and never reads past what the
 * writer reports as durable, so there is no gap between catching up and
 * following the tail. The transactions read last are cached for all
 * subscribers: a thousand of them at the tail share one read and one decoded
 * transaction. Slower subscribers read the log again, one at a time. An idle
 * subscriber costs only its cursor.
 *
 * The logs hold the earlier generation and the current one. If the cursor of a
 * subscriber is older, or its log is removed while it reads, it gets a reset
 * and continues from the tail.
 */

import { join } from "node:path";
import { setImmediate as nextTick } from "node:timers/promises";
import { crc32 } from "node:zlib";
import { errorCode } from "../../store/error.ts";
import {
  type Line,
  type OpenFile,
  readLines,
  withFile,
} from "../../store/log/files.ts";
import { names, type StoreFolder } from "../../store/log/folder.ts";
import {
  checkLine,
  type LogHeader,
  type LogLine,
  type Mutation,
} from "../../store/log/format.ts";
import { asShared, type SharedStore } from "../../store/shared.ts";
import type { Store } from "../../store/store.ts";

/** The end of a transaction in a log. */
export interface LogPosition {
  readonly generation: number;
  /** The start value of the CRC of the log's lines. */
  readonly seed: number;
  readonly offset: number;
  readonly seq: number;
}

/** Returns the end of the durable part of the log. */
export function positionOf(
  { durableSeq: seq, log: { generation, seed, offset } }: Store,
): LogPosition {
  return { generation, seed, offset, seq };
}

/** A committed transaction. */
export interface Transaction {
  readonly seq: number;
  readonly mutations: readonly Mutation[];
  /** The length of its line in the log. */
  readonly bytes: number;
  /** The position after it. */
  readonly end: LogPosition;
}

/** The logs up to the end of what is durable. */
interface DurableLogs {
  readonly folder: StoreFolder;
  head: LogPosition;
}

/** The cursor is too old or unknown: the feed continues after this sequence number. */
export interface Reset {
  readonly seq: number;
  readonly mutations?: undefined;
}

/** A reader of the feed. To end it, even while it waits, set `isEnded` and call `wake`. */
export interface Subscriber {
  isEnded: boolean;
  /** Resumes the subscriber; set by the code that makes it wait. */
  wake: () => void;
}

const maxCachedTransactions = 1000;
const maxCachedBytes = 1 << 20;

/** A change feed that any number of subscribers can follow. */
export class ChangeFeed {
  readonly #shared: SharedStore | undefined;
  readonly #logs: DurableLogs;
  readonly #onError: (error: unknown) => void;
  readonly #subscribers = new Set<Subscriber>();
  /** The transactions read last, by sequence number, the oldest read first. */
  readonly #cache = new Map<number, Transaction>();
  #cachedBytes = 0;
  /** Settles when no read is in progress. */
  #lastRead: Promise<unknown> = Promise.resolve();
  #isClosed = false;

  /** @param onError called with the error if a log cannot be read */
  constructor(store: Store, onError: (error: unknown) => void) {
    this.#shared = asShared(store);
    this.#logs = { folder: store.folder, head: positionOf(store) };
    this.#onError = onError;
    store.advanceListeners.add(() => {
      this.#logs.head = positionOf(store);
      this.#wakeAll();
    });
  }

  /** Ends all subscribers; to be called before the store closes. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#wakeAll();
    await this.#lastRead;
  }

  #wakeAll(): void {
    for (const { wake } of this.#subscribers) wake();
  }

  /**
   * Yields transactions from a position on as they become durable, until the
   * subscriber has ended or the feed closes; if the position is unknown, first
   * a reset, and then from the tail.
   *
   * @throws an EMFILE or ENFILE error if too many files are open
   */
  async *changes(
    subscriber: Subscriber,
    from: LogPosition | undefined,
  ): AsyncGenerator<Transaction | Reset, undefined> {
    this.#subscribers.add(subscriber);
    try {
      let cursor = from;
      while (!subscriber.isEnded && !this.#isClosed) {
        if (cursor === undefined) {
          cursor = this.#logs.head;
          yield { seq: cursor.seq };
        } else if (cursor.seq === this.#logs.head.seq) {
          cursor = this.#logs.head; // its log may be removed, unlike that of the head
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
      const cached = this.#cache.get(seq);
      if (cached !== undefined) return cached.end;
      const lines = this.#shared?.transactionsAfter(seq);
      if (lines === undefined) return findPosition(this.#logs, seq);
      return lines.then(([next]) => next && { ...head, seq });
    });
  }

  /** Reads the transaction at a cursor, unless another read has cached it meanwhile. */
  #read(cursor: LogPosition): Promise<Transaction | undefined> {
    return this.#serialize(async () => {
      const cached = this.#cache.get(cursor.seq + 1);
      if (cached !== undefined) return cached;
      const lines = await this.#shared?.transactionsAfter(cursor.seq);
      const found = lines?.map(({ seq = 0, tx: mutations = [] }) => ({
        seq,
        mutations,
        bytes: JSON.stringify(mutations).length,
        end: { ...cursor, seq },
      })) ?? await readTransactions(this.#logs, cursor);
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
        // No position is lost, so the subscriber can try again.
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

/**
 * Reads the transaction at a position and the next ones in the same part of the
 * file.
 *
 * @throws an ENOENT error if the log is gone; an Error if it is damaged
 */
async function readTransactions(
  logs: DurableLogs,
  start: LogPosition,
): Promise<Transaction[]> {
  const found: Transaction[] = [];
  let { generation, seed, offset, seq } = start;
  const parse = ({ bytes: line, byte, end: next }: Line) => {
    const name = names.log(generation);
    if (!checkLine(line, byte === 0 ? 0 : seed)) {
      throw new Error(`${name} is damaged at byte ${byte}`);
    }
    const parsed: LogHeader & LogLine = JSON.parse(line.toString());
    const { salt, tx, seal } = parsed;
    if (seal !== undefined) return;
    if (parsed.seq !== (tx ? seq + 1 : seq)) {
      throw new Error(`${name} does not continue sequence ${seq}`);
    }
    offset = next;
    if (tx === undefined) {
      seed = crc32(salt);
      return;
    }
    const end = { generation, seed, offset, seq: ++seq };
    found.push({ seq, mutations: tx, bytes: line.length, end });
  };
  while (true) {
    await withLog(logs, generation, async (file, end) => {
      for await (const lines of readLines(file, { start: offset, end })) {
        lines.forEach(parse);
        if (found.length > 0) return;
      }
    });
    if (found.length > 0) return found;
    // The log is sealed: the next one continues it.
    generation++;
    offset = 0;
  }
}

/**
 * Returns the position after a transaction.
 *
 * @throws an ENOENT error if no log contains it any more
 */
async function findPosition(
  logs: DurableLogs,
  seq: number,
): Promise<LogPosition> {
  for (let { generation } = logs.head;; generation--) {
    const found = await withLog(
      logs,
      generation,
      (file, end) => searchLog(file, end, seq),
    );
    if (found !== undefined) return { generation, ...found, seq };
  }
}

/** Finds the first line after a sequence number by binary search. */
async function searchLog(
  file: OpenFile,
  end: number,
  seq: number,
) {
  const [first] = await readPart(file, 0, end);
  if (first === undefined) return undefined;
  const header = JSON.parse(first.bytes.toString()) as LogHeader;
  if (header.seq > seq) return undefined;
  // The line at `low` is the first one or at most `seq`, and the first line
  // that begins after `high` is later than `seq`, or there is none.
  let low = first.end;
  for (let high = end; low < high;) {
    const middle = Math.floor((low + high) / 2);
    // The rest of the line at `middle` comes before the next one.
    const [, next] = await readPart(file, middle, end);
    if (next === undefined || seqOf(next) > seq) high = middle;
    else low = next.byte;
  }
  const next = (await readPart(file, low, end))
    .find((line) => seqOf(line) > seq);
  return next && { seed: crc32(header.salt), offset: next.byte };
}

/** Reads lines from an offset on: at least two, if there are that many. */
async function readPart(
  file: OpenFile,
  start: number,
  end: number,
): Promise<Line[]> {
  const found: Line[] = [];
  for await (const lines of readLines(file, { start, end })) {
    found.push(...lines);
    if (found.length > 1) break;
  }
  return found;
}

/** Returns the sequence number of a transaction; a seal is after all of them. */
function seqOf({ bytes }: Line): number {
  const begin = bytes.toString("latin1", 0, 64);
  return Number(/^\{"crc":"\w{8}","seq":(\d+),/.exec(begin)?.[1] ?? Infinity);
}

/** Opens a log, with the offset at which its durable part ends. */
function withLog<Result>(
  { folder: { files, folder }, head }: DurableLogs,
  generation: number,
  use: (file: OpenFile, end: number) => Promise<Result>,
): Promise<Result> {
  return withFile(files, join(folder, names.log(generation)), async (file) => {
    const isCurrent = generation === head.generation;
    return use(file, isCurrent ? head.offset : (await file.stat()).size);
  });
}
