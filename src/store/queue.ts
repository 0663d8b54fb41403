/** The transactions that are applied in memory and not yet durable, and the callbacks of those who wait for them. */

import { type DurableCallback, StoreError } from "./error.ts";
import type { Entry } from "./log/format.ts";
import { rollBack, type Undo } from "./memory/table.ts";

/** A transaction that is applied in memory and waits to be durable. */
export interface Pending extends Entry {
  readonly undo: readonly Undo[];
  /** How many records it stores. */
  readonly puts: number;
  readonly allowWhenFull: boolean;
}

interface Waiter {
  readonly seq: number;
  readonly callback: DurableCallback;
}

/** Transactions in order. */
export class TransactionQueue {
  durableSeq: number;
  /** An upper bound of the bytes that wait to be written. */
  bytes = 0;
  #pending: Pending[] = [];
  #waiters: Waiter[] = [];
  /** Why transactions were rolled back last. */
  #reason: StoreError | undefined;

  /** The most bytes that may wait. */
  readonly #maxBytes: number;

  constructor(durableSeq: number, maxBytes: number) {
    this.durableSeq = durableSeq;
    this.#maxBytes = maxBytes;
  }

  /** True if requests should wait before they add more. */
  get isHalfFull(): boolean {
    return this.bytes > this.#maxBytes / 2;
  }

  get length(): number {
    return this.#pending.length;
  }

  /** The sequence number of the last transaction added, durable or not. */
  get lastSeq(): number {
    return this.#pending.at(-1)?.seq ?? this.durableSeq;
  }

  /** Adds a transaction; throws if too many bytes wait. One that is larger than the whole queue is accepted alone. */
  add(pending: Pending): void {
    if (this.bytes > 0 && this.bytes + pending.bytes > this.#maxBytes) {
      throw new StoreError(
        "overloaded",
        "Too many writes are waiting; nothing was changed",
      );
    }
    this.#pending.push(pending);
    this.bytes += pending.bytes;
  }

  /** Calls back when `seq` is durable or rolled back; at once if it is already. The callback must not throw. */
  onDurable(seq: number, callback: DurableCallback): void {
    if (seq <= this.durableSeq) callback();
    else if (seq <= this.lastSeq) this.#waiters.push({ seq, callback });
    else callback(this.#reason);
  }

  /** Returns the transactions of the next write, up to a sequence number: as many as fit, but at least one. */
  next(maxBytes: number, lastSeq: number): readonly Pending[] {
    let bytes = 0;
    const end = this.#pending.findIndex((each, at) => {
      bytes += each.bytes;
      return at > 0 && bytes > maxBytes || each.seq > lastSeq;
    });
    return this.#pending.slice(0, end < 0 ? undefined : end);
  }

  /** Removes the transactions that are durable now. */
  advance(seq: number): void {
    const done = this.#pending.splice(0, seq - this.durableSeq);
    for (const { bytes } of done) this.bytes -= bytes;
    this.durableSeq = seq;
  }

  /** Calls those who wait for what is durable now. */
  callBack(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const { seq, callback } of waiters) this.onDurable(seq, callback);
  }

  /** Rolls back all that is not durable; returns those who wait for it, to be called with the reason. */
  rollBack(reason: StoreError): readonly Waiter[] {
    rollBack(this.#pending.flatMap(({ undo }) => undo));
    const waiters = this.#waiters;
    this.#pending = [];
    this.#waiters = [];
    this.bytes = 0;
    this.#reason = reason;
    return waiters;
  }
}
