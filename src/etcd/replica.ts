/** How a server keeps up with the log in etcd, and adds to it: see store.ts. */

import { Buffer } from "node:buffer";
import { performance } from "node:perf_hooks";
import { setImmediate as nextTick } from "node:timers/promises";
import {
  closedError,
  type DurableCallback,
  errorCode,
  StoreError,
} from "../store/error.ts";
import { encodeEntries } from "../store/log/format.ts";
import { randomName } from "../store/log/folder.ts";
import { getOrCreateTable } from "../store/memory/table.ts";
import { bytesOf, type TransactionQueue } from "../store/queue.ts";
import { outcomeUnknown, put } from "./client.ts";
import type { EtcdParts } from "./parts.ts";
import {
  applyBatch,
  type Batch,
  load,
  maxValueBytes,
  pack,
  readLog,
  seqOf,
} from "./state.ts";

/** The state in memory, and the rounds that change it. */
export class Replica {
  readonly queue: TransactionQueue;
  /** The last sequence number in etcd, as far as it is known. */
  headSeq: number;
  /** Why etcd cannot be used now. */
  failure: StoreError | undefined;
  /** When the last round began that has succeeded. */
  confirmedAt = performance.now();
  /** The last transaction in the snapshot that is being written: no batch goes beyond it. */
  endSeq = 0;
  conflicts = 0;
  commitMs = 0;
  wake = () => {};
  readonly #parts: EtcdParts;
  readonly #onAdvance: (syncMs: number) => void;
  /** Those who wait for a round. */
  #checks: DurableCallback[] = [];
  #isClosed = false;

  constructor(
    parts: EtcdParts,
    queue: TransactionQueue,
    onAdvance: (syncMs: number) => void,
  ) {
    this.#parts = parts;
    this.queue = queue;
    this.#onAdvance = onAdvance;
    this.headSeq = queue.durableSeq;
  }

  /** Resolves once a round has succeeded that begins after this call. */
  nextRound(): Promise<void> {
    if (this.#isClosed) return Promise.reject(closedError());
    return new Promise((resolve, reject) => {
      this.#checks.push((error) => error ? reject(error) : resolve());
      this.wake();
    });
  }

  /** Makes rounds until the store closes. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted || this.queue.length > 0) {
      if (this.queue.length + this.#checks.length === 0) {
        await new Promise<void>((resolve) => this.wake = resolve);
      }
      await nextTick(); // all that comes in this turn shares a round
      const checks = this.#checks.splice(0);
      const startedAt = performance.now();
      try {
        if (this.queue.length > 0) await this.#commit();
        else if (checks.length > 0) await this.#readHead();
        else continue;
        this.#succeed(startedAt);
        for (const check of checks) check();
      } catch (error) {
        this.#fail(error, checks);
      }
    }
    this.#isClosed = true;
    for (const check of this.#checks) check(closedError());
  }

  #succeed(startedAt: number): void {
    this.confirmedAt = startedAt;
    if (this.failure === undefined) return;
    this.failure = undefined;
    this.#parts.log("info", "etcd can be reached again");
  }

  #fail(error: unknown, checks: readonly DurableCallback[]): void {
    const reason = error instanceof StoreError ? error : outcomeUnknown(error);
    const { code, message } = reason;
    const callBack = this.queue.rollBack(reason);
    // A full etcd can be read: see the next round.
    this.#checks.unshift(...checks);
    if (code !== "disk-full") {
      if (!this.failure) this.#parts.log("error", message);
      const failure = new StoreError("unreachable", message, { cause: error });
      this.failure = failure;
      for (const check of this.#checks.splice(0)) check(failure);
    }
    callBack();
  }

  async #readHead(): Promise<void> {
    const { client, head } = this.#parts.place;
    const [found] = await client.get([head]);
    await this.#catchUp(seqOf(found));
  }

  async #commit(): Promise<void> {
    const { place, folder } = this.#parts;
    const { queue } = this;
    const { durableSeq: durable } = queue;
    const first = durable + 1;
    const lastSeq = durable < this.endSeq ? this.endSeq : Infinity;
    const batch = queue.next(maxValueBytes, lastSeq);
    const last = durable + batch.length;
    const buffer = Buffer.allocUnsafe(bytesOf(batch));
    const length = encodeEntries(buffer, batch, { durable, seed: 0 });
    const name = randomName(folder);
    const slices = [buffer.subarray(0, length)];
    const startedAt = performance.now();
    const { value } = await pack(place, "log", { seq: first, name, slices });
    const { revision, found } = await place.client.transact(
      [place.head, this.#parts.loaded.revision],
      [put(place.key("log", first), value), put(place.head, String(last))],
    );
    if (revision === undefined) {
      // An earlier attempt may have been carried out.
      return await this.#catchUp(seqOf(found), name);
    }
    this.commitMs = performance.now() - startedAt;
    this.#advance({ last, revision, bytes: length });
    queue.callBack();
    this.#onAdvance(this.commitMs);
  }

  /**
   * Applies what is in etcd after the state in memory.
   *
   * @param own the batch that etcd may have although its answer was lost
   */
  async #catchUp(headSeq: number, own?: string): Promise<void> {
    this.headSeq = Math.max(this.headSeq, headSeq);
    const callBacks: (() => void)[] = [];
    try {
      while (own !== undefined || this.queue.durableSeq < headSeq) {
        await this.#applyNext(own, callBacks);
        own = undefined;
      }
    } finally {
      // Only now, as they begin again with the new state.
      for (const callBack of callBacks) callBack();
      this.queue.callBack();
      this.#onAdvance(0);
    }
  }

  /** Applies the next batches; adds the functions that call those who were overtaken. */
  async #applyNext(
    own: string | undefined,
    callBacks: (() => void)[],
  ): Promise<void> {
    const { place } = this.#parts;
    let batches: readonly Batch[];
    try {
      batches = await readLog(place, this.queue.durableSeq);
    } catch (error) {
      if (own !== undefined) throw outcomeUnknown(error);
      if (errorCode(error) !== "damaged") throw error;
      return void callBacks.push(await this.#reload());
    }
    // Requests that were just judged must have begun to wait: see `onDurable`.
    await nextTick();
    for (const batch of batches) {
      if (batch.name !== own) {
        this.conflicts += Math.sign(this.queue.length);
        callBacks.push(this.queue.rollBack(overtaken()));
        applyBatch(batch, this.#parts.loaded.tables);
      }
      this.#advance(batch);
    }
  }

  /** Loads the store anew, after more was deleted than is applied here. */
  async #reload(): Promise<() => void> {
    const { place, declared, log } = this.#parts;
    const loaded = await load(place, { tables: declared });
    await nextTick();
    const callBack = this.queue.rollBack(overtaken());
    for (const [name, { state }] of loaded.tables) {
      getOrCreateTable(this.#parts.loaded.tables, name).restore(state);
    }
    Object.assign(this.#parts.loaded, {
      ...loaded,
      tables: this.#parts.loaded.tables,
    });
    this.queue.advance(loaded.seq);
    log("info", "Loaded all records anew", { seq: loaded.seq });
    return callBack;
  }

  #advance(
    { last, revision, bytes }: Pick<Batch, "last" | "revision" | "bytes">,
  ): void {
    this.queue.advance(last);
    this.#parts.loaded.revision = revision;
    this.#parts.loaded.logBytes += bytes;
  }
}

function overtaken(): StoreError {
  return new StoreError(
    "overtaken",
    "Other servers changed the state; nothing was changed",
  );
}
