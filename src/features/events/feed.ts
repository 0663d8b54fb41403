/**
 * The change feed: every transaction in order, each exactly once, and never
 * one that is not on the disk.
 *
 * All of it is read from the logs: each listener has a cursor into them, and
 * nobody reads beyond what the writer says is durable, so between reading what
 * was and following what comes there is no gap. The transactions read last are
 * kept for all, so a thousand listeners who are up to date share one read and
 * one decoded transaction; who is behind has them read again, by one reader
 * that all take turns at. A listener that does not ask costs a cursor.
 *
 * The logs hold the earlier generation and the one that is written. Who wants
 * more, or whose log is removed while he reads, is told so (a reset) and goes
 * on from now.
 */

import { join } from "node:path";
import { crc32 } from "node:zlib";
import { errorCode } from "../../store/error.ts";
import {
  type Line,
  type OpenFile,
  readLines,
  withFile,
} from "../../store/log/files.ts";
import {
  checkLine,
  type LogHeader,
  type Mutation,
} from "../../store/log/format.ts";
import type { LogPosition, Store } from "../../store/file-store.ts";
import { generationsOf, names } from "../../store/recovery/scan.ts";

/** What was written as one: all of it, or nothing. */
export interface Transaction {
  readonly seq: number;
  readonly at: string;
  /** The id of the user who caused it; 0 is the server itself. */
  readonly by: number;
  readonly operations: readonly Mutation[];
}

/** What was asked for is not kept any more: it goes on behind this sequence. */
export interface Reset {
  readonly reset: number;
}

/** Transactions as they come; ends when it is returned or the store closes. */
export interface Feed extends AsyncIterableIterator<Transaction | Reset> {
  /** Ends it, also while a `next` waits. */
  return(): Promise<IteratorResult<Transaction | Reset>>;
}

/** Where in the logs the transaction `seq` ends. */
type Cursor = LogPosition;

/** Any line of a log. */
type Logged =
  | LogHeader
  | Omit<Transaction, "operations"> & { readonly tx: Mutation[] }
  | { readonly seal: number };

interface Kept {
  readonly transaction: Transaction;
  readonly bytes: number;
  readonly end: Cursor;
}

interface Listener {
  ended: boolean;
  wake: () => void;
}

const keptTransactions = 1000;
const keptBytes = 1 << 20;
// Decoded within a millisecond or so, and a fraction of what is kept.
const part = 1 << 16;
// So many are given before the event loop goes on.
const turnLength = 512;

/** Lets any number of listeners follow one store. */
export class ChangeFeed {
  readonly #store: Store;
  readonly #failed: (error: unknown) => void;
  readonly #listeners = new Set<Listener>();
  /** What was read last, by sequence, the oldest read first. */
  readonly #kept = new Map<number, Kept>();
  #keptBytes = 0;
  #given = 0;
  #pause: Promise<void> | undefined;
  /** The end of what is durable. */
  #head: Cursor;
  #turn: Promise<unknown> = Promise.resolve();
  #closed = false;

  /** @param failed called with the error when a log cannot be read back */
  constructor(store: Store, failed: (error: unknown) => void = () => {}) {
    this.#store = store;
    this.#head = store.position;
    this.#failed = failed;
    store.watch({
      onAdvance: () => this.#advance(),
      close: () => this.#close(),
    });
  }

  #advance(): void {
    this.#head = this.#store.position;
    for (const listener of this.#listeners) listener.wake();
  }

  changes(after?: number): Feed {
    const listener = { ended: false, wake: () => {} };
    const items = this.#follow(listener, after ?? this.#head);
    return {
      [Symbol.asyncIterator]() {
        return this;
      },
      next: () => items.next(),
      return: () => {
        listener.ended = true;
        listener.wake();
        return items.return(undefined);
      },
    };
  }

  /** Ends all feeds. */
  async #close(): Promise<void> {
    this.#closed = true;
    for (const listener of this.#listeners) listener.wake();
    await this.#turn;
  }

  async *#follow(
    listener: Listener,
    from: number | Cursor,
  ): AsyncGenerator<Transaction | Reset, undefined> {
    this.#listeners.add(listener);
    try {
      let at = typeof from === "number"
        ? await this.#alone(() => this.#find(from))
        : from;
      while (!listener.ended && !this.#closed) {
        if (at === undefined) {
          at = this.#head;
          yield { reset: at.seq };
        } else if (at.seq === this.#head.seq) {
          at = this.#head; // its log may be removed, the head's never is
          await new Promise<void>((resolve) => listener.wake = resolve);
        } else {
          const kept: Kept | undefined = this.#kept.get(at.seq + 1) ??
            await this.#readBehind(at);
          at = kept?.end;
          await this.#giveWay();
          if (kept !== undefined) yield kept.transaction;
        }
      }
    } finally {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) {
        this.#kept.clear();
        this.#keptBytes = 0;
      }
    }
  }

  /** What another read in the meantime need not be read again. */
  #readBehind(at: Cursor): Promise<Kept | undefined> {
    return this.#alone(async () =>
      this.#kept.get(at.seq + 1) ?? await this.#read(at)
    );
  }

  /** Lets others in now and then, when many listeners have much to take. */
  async #giveWay(): Promise<void> {
    if (++this.#given % turnLength === 0) {
      this.#pause = new Promise((resolve) => {
        setImmediate(() => {
          this.#pause = undefined;
          resolve();
        });
      });
    }
    while (this.#pause !== undefined) await this.#pause;
  }

  /** One reader for all; undefined when it found that something has gone. */
  #alone<Result>(
    work: () => Promise<Result | undefined>,
  ): Promise<Result | undefined> {
    const done = this.#turn.then(() => this.#closed ? undefined : work())
      .catch((error) => {
        if (errorCode(error) !== "ENOENT") this.#failed(error);
        return undefined;
      });
    this.#turn = done;
    return done;
  }

  /** Reads the transaction behind a cursor, and those near it. */
  async #read(at: Cursor): Promise<Kept> {
    let { generation, seed, offset, seq } = at;
    while (true) {
      const name = names.log(generation);
      let first: Kept | undefined;
      const take = ({ bytes, byte }: Line) => {
        if (!checkLine(bytes, byte === 0 ? 0 : seed)) {
          throw new Error(`${name} is damaged at byte ${byte}`);
        }
        const parsed = JSON.parse(bytes.toString()) as Logged;
        if ("seal" in parsed) return;
        if (parsed.seq !== ("salt" in parsed ? seq : seq + 1)) {
          throw new Error(`${name} does not continue sequence ${seq}`);
        }
        seq = parsed.seq;
        offset = byte + bytes.length + 1;
        if ("salt" in parsed) {
          seed = crc32(parsed.salt);
          return;
        }
        const { at, by, tx: operations } = parsed;
        const transaction = { seq, at, by, operations };
        const end = { generation, seed, offset, seq };
        const kept = { transaction, bytes: bytes.length, end };
        this.#keep(kept);
        first ??= kept;
      };
      const end = this.#endOf(generation);
      await this.#withLog(generation, async (file) => {
        for await (
          const lines of readLines(file, {
            start: offset,
            end,
            chunkBytes: part,
          })
        ) {
          lines.forEach(take);
          if (first !== undefined) return;
        }
      });
      if (first !== undefined) return first;
      // Behind the seal: it goes on in the next log.
      generation++;
      offset = 0;
    }
  }

  #keep(kept: Kept): void {
    const { seq } = kept.end;
    if (this.#kept.has(seq)) return;
    this.#kept.set(seq, kept);
    this.#keptBytes += kept.bytes;
    for (const [old, { bytes }] of this.#kept) {
      const { size } = this.#kept;
      const fits = size <= keptTransactions && this.#keptBytes <= keptBytes;
      if (fits || size === 1) break;
      this.#kept.delete(old);
      this.#keptBytes -= bytes;
    }
  }

  /** The cursor behind a transaction; undefined when that is not kept. */
  async #find(after: number): Promise<Cursor | undefined> {
    const head = this.#head;
    const kept = this.#kept.get(after);
    if (after === head.seq) return head;
    if (kept !== undefined || after > head.seq) return kept?.end;
    const { files, folder } = this.#store.folder;
    const present = await files.list(folder);
    for (const generation of generationsOf(present, "wal").reverse()) {
      if (generation > head.generation) continue;
      const found = await this.#withLog(
        generation,
        (file) => this.#search(file, generation, after),
      );
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** Finds a transaction's end by halving: every line tells its sequence. */
  async #search(
    file: OpenFile,
    generation: number,
    after: number,
  ): Promise<Cursor | undefined> {
    const end = Math.min(this.#endOf(generation), (await file.stat()).size);
    const [first] = await nextLines(file, 0, end);
    if (first === undefined) return undefined;
    const { salt, seq } = JSON.parse(first.bytes.toString()) as LogHeader;
    if (seq > after) return undefined;
    let low = first.bytes.length + 1;
    for (let high = end; high - low > part;) {
      const middle = Math.floor((low + high) / 2);
      // The first is the rest of the line that the middle is in.
      const [, line] = await nextLines(file, middle, end);
      if (line === undefined || seqOf(line) > after) high = middle;
      else low = line.byte;
    }
    for await (
      const lines of readLines(file, { start: low, end, chunkBytes: part })
    ) {
      const next = lines.find((line) => seqOf(line) > after);
      if (next === undefined) continue;
      return { generation, seed: crc32(salt), offset: next.byte, seq: after };
    }
    return undefined;
  }

  /** Where the durable part of a log ends; one that is not written on is whole. */
  #endOf(generation: number): number {
    const head = this.#head;
    return generation === head.generation ? head.offset : Infinity;
  }

  #withLog<Result>(
    generation: number,
    use: (file: OpenFile) => Promise<Result>,
  ): Promise<Result> {
    const { files, folder } = this.#store.folder;
    return withFile(files, join(folder, names.log(generation)), use);
  }
}

/** The next two lines from a place on. */
async function nextLines(
  file: OpenFile,
  start: number,
  end: number,
): Promise<Line[]> {
  const found: Line[] = [];
  for await (const lines of readLines(file, { start, end, chunkBytes: 4096 })) {
    found.push(...lines.slice(0, 2));
    if (found.length > 1) break;
  }
  return found;
}

/** The sequence of a transaction's line; a seal is behind all. */
function seqOf({ bytes }: Line): number {
  const begin = bytes.toString("latin1", 0, 64);
  return Number(/^\{"crc":"\w{8}","seq":(\d+),/.exec(begin)?.[1] ?? Infinity);
}
