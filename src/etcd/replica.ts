/** Keeps the state in memory up to date with the log in etcd, and appends to that log: see store.ts. */

import { performance } from "node:perf_hooks";
import {
  setImmediate as nextTick,
  setTimeout as delay,
} from "node:timers/promises";
import { type DurableCallback, errorCode, StoreError } from "../store/error.ts";
import type { StoreFolder } from "../store/log/folder.ts";
import { restore, stateOf } from "../store/memory/exchange.ts";
import { getOrCreateTable } from "../store/memory/table.ts";
import type { Logger, StoreLimits } from "../store/options.ts";
import type { Memory } from "../store/memory/limit.ts";
import type { TransactionQueue } from "../store/queue.ts";
import type { EtcdClient, KeyValue, Lease } from "./client.ts";
import { etcdError } from "./errors.ts";
import {
  applyBatch,
  divergedError,
  encodeBatch,
  keyOf,
  load,
  type Loaded,
  maxValueBytes,
  putParts,
  readLog,
  requireHead,
  seqOf,
  valueOf,
} from "./state.ts";
import { headAndTurns, turnKeys, Turns } from "./turns.ts";

/** How long a server that has committed counts as one that commits again. */
const rivalMs = 1000;
/** The longest pause between two batches of a server, in favor of others. */
const maxPauseMs = 50;

/** By how much the clocks of servers may differ. */
const maxClockGapMs = 10_000;
/** The time between two reports of a larger difference. */
const clockReportMs = 3_600_000;

/** The objects and options that all parts of an open store use. */
export interface EtcdParts {
  readonly client: EtcdClient;
  readonly lease: Lease;
  readonly loaded: Loaded;
  readonly folder: StoreFolder;
  readonly limits: StoreLimits;
  readonly log: Logger;
  readonly memory: Memory | undefined;
  /** True if reads may be answered from a state that is at most a second old. */
  readonly hasLocalReads: boolean;
  /** Aborted when the store closes. */
  readonly closing: AbortController;
  /** Releases the lock of the folder. */
  readonly release: () => Promise<void>;
  readonly serverId: string;
  readonly incarnation: string;
}

/** Throws unless the commit of another server explains why one was refused. */
function requireRival(head: string, found: string, isGone: boolean): void {
  // An earlier attempt may have been carried out, and its batch deleted.
  if (isGone) throw etcdError("its batch is gone");
  if (found !== head) return;
  // It would be tried for ever.
  throw etcdError("it refuses a write although nothing changed", "unreachable");
}

/** The state in memory, and the rounds that change it. */
export class Replica {
  readonly queue: TransactionQueue;
  readonly turns: Turns;
  /** Why etcd cannot be used now. */
  failure: StoreError | undefined;
  /** Why etcd has carried out no write since. */
  fullError: StoreError | undefined;
  /** When the last round began that has succeeded. */
  confirmedAt = performance.now();
  conflicts = 0;
  wake = () => {};
  /** The head of the last batch that was sent: what comes after it never was. */
  sentHead = "";
  /** When a batch of another server was applied last. */
  #rivalAt = -Infinity;
  /** When the next batch may be sent. */
  #nextCommitAt = 0;
  readonly #parts: EtcdParts;
  readonly #onAdvance: (syncMs: number) => void;
  readonly #compareClocks: (at: string) => void;
  /** Those who wait for a round. */
  #checks: DurableCallback[] = [];

  constructor(
    parts: EtcdParts,
    queue: TransactionQueue,
    onAdvance: (syncMs: number) => void,
  ) {
    this.#parts = parts;
    this.queue = queue;
    this.turns = new Turns(parts);
    this.#onAdvance = onAdvance;
    this.#compareClocks = clockComparison(parts);
  }

  /** Resolves once a round has succeeded that begins after this call. */
  nextRound(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#checks.push((error) => error ? reject(error) : resolve());
      this.wake();
    });
  }

  /** Makes rounds until the store closes. */
  async run(): Promise<void> {
    const { client, closing: { signal }, log } = this.#parts;
    const mayCommit = () => this.queue.length > 0 && !this.turns.isPaused;
    let mustRead = false;
    while (true) {
      this.turns.resume();
      if (this.#checks.length === 0 && !mayCommit()) {
        if (signal.aborted) return;
        await new Promise<void>((resolve) => this.wake = resolve);
        continue;
      }
      const pauseMs = this.#nextCommitAt - performance.now();
      if (pauseMs > 0 && mayCommit()) await delay(pauseMs);
      // All that comes in these turns of the event loop shares a round: 9 % more
      // reads a second by 64 readers. A write waits for one turn only.
      const ticks = mayCommit() ? 1 : 4;
      for (let tick = 0; tick < ticks; tick++) await nextTick();
      const checks = this.#checks.splice(0);
      const startedAt = performance.now();
      const isCommit = mayCommit() && !mustRead;
      mustRead = false;
      try {
        if (isCommit) await this.#commit();
        else if (checks.length > 0) {
          await this.#catchUp(await client.get(headAndTurns));
        } else continue;
        this.confirmedAt = startedAt;
        if (this.failure) log("info", "etcd can be reached again");
        this.failure = undefined;
        for (const check of checks) check();
      } catch (error) {
        mustRead = this.#fail(error, checks);
      }
    }
  }

  /** Returns whether the next round must be a read: only writes have failed. */
  #fail(error: unknown, checks: readonly DurableCallback[]): boolean {
    const reason = error instanceof StoreError ? error : etcdError(error);
    const { code, message, cause } = reason;
    const isFull = code === "disk-full";
    const failure = isFull
      ? reason
      : new StoreError("unreachable", message, { cause });
    const known = isFull ? this.fullError : this.failure;
    if (!known) this.#parts.log("error", message);
    const waiters = this.queue.rollBack(reason);
    // A full etcd can be read: see the next round.
    this.#checks.unshift(...checks);
    if (isFull) this.fullError = reason;
    else {
      this.failure = failure;
      for (const check of this.#checks.splice(0)) check(failure);
    }
    const sentSeq = code === "outcome-unknown" ? seqOf(this.sentHead) : -1;
    for (const { seq, callback } of waiters) {
      callback(seq <= sentSeq ? reason : failure);
    }
    return isFull;
  }

  async #commit(): Promise<void> {
    const { client, folder, loaded } = this.#parts;
    const { queue } = this;
    const durable = queue.durableSeq;
    const lastSeq = durable < loaded.endSeq ? loaded.endSeq : Infinity;
    const batch = queue.next(maxValueBytes, lastSeq);
    const last = durable + batch.length;
    const startedAt = performance.now();
    const { head, slices } = encodeBatch(folder, loaded.head, batch);
    const key = keyOf("log", durable + 1);
    const { value, bytes } = await putParts(client, key, slices);
    this.sentHead = head;
    const changes = [
      { keys: [key] as const, value },
      { keys: ["head"] as const, value: head },
      ...this.turns.changes(last),
    ];
    const { isDone, isRepeated, found } = await client
      .transact(["head", loaded.head], changes, key, [turnKeys]);
    const foundBatch = found.find((each) => each.key === key);
    const isOurs = foundBatch?.value.equals(value);
    if (!isDone && !isOurs) {
      const isGone = isRepeated && !foundBatch;
      requireRival(loaded.head, valueOf(found, "head"), isGone);
      return await this.#catchUp(found, foundBatch);
    }
    this.turns.update(found);
    loaded.head = head;
    loaded.logBytes += bytes;
    this.fullError = undefined;
    queue.advance(last);
    queue.callBack();
    const now = performance.now();
    const commitMs = now - startedAt;
    // A server that commits again at once could be the first each time, and
    // the requests of the others would be refused after ten attempts: so each
    // lets the others have about two attempts. With eight writers on three
    // servers, none needed more than six.
    const pauseMs = Math.min(commitMs * (4 + 2 * Math.random()), maxPauseMs);
    if (now < this.#rivalAt + rivalMs) this.#nextCommitAt = now + pauseMs;
    this.#onAdvance(commitMs);
  }

  /** Applies what is in etcd after the state in memory, up to the head that was found; `next` is the first batch of it, if it is known. */
  async #catchUp(found: readonly KeyValue[], next?: KeyValue): Promise<void> {
    const { client, loaded } = this.#parts;
    const { queue } = this;
    this.turns.update(found);
    const head = valueOf(found, "head");
    if (head === loaded.head) return;
    await requireHead(client, head);
    const callBacks: (() => void)[] = [];
    const rollBack = async () => {
      // Requests that were just judged must have begun to wait: see `durable`.
      await nextTick();
      this.conflicts += Math.sign(queue.length);
      const reason = overtakenError();
      const waiters = queue.rollBack(reason);
      callBacks.push(() => waiters.forEach(({ callback }) => callback(reason)));
    };
    try {
      for await (
        const batch of readLog(client, loaded.head, head, next, divergedError)
      ) {
        await rollBack();
        this.#rivalAt = performance.now();
        applyBatch(loaded, batch);
        this.#compareClocks(batch.at);
        queue.advance(seqOf(loaded.head));
      }
    } catch (error) {
      if (errorCode(error) !== "damaged") throw error;
      await this.#reload(rollBack);
    } finally {
      // Only now, as they begin again with the new state.
      for (const callBack of callBacks) callBack();
      queue.callBack();
      this.#onAdvance(0);
    }
  }

  /** Loads the store anew, after more was deleted than is applied here. */
  async #reload(rollBack: () => Promise<void>): Promise<void> {
    const { client, loaded, log } = this.#parts;
    const { tables, ...others } = await load(client, { tables: [] });
    await rollBack();
    for (const [name, table] of tables) {
      restore(getOrCreateTable(loaded.tables, name), stateOf(table));
    }
    const seq = seqOf(others.head);
    Object.assign(loaded, others);
    this.queue.advance(seq);
    log("info", "Loaded all records anew", { seq });
  }
}

/**
 * Returns a function that takes the time at which another server has written a
 * batch, and logs if it is in the future. So the servers whose clocks are behind
 * report it; a batch may be old for other reasons.
 */
function clockComparison({ folder, log }: EtcdParts): (at: string) => void {
  let reportedAt = -Infinity;
  return (at) => {
    const gapMs = Date.parse(at) - folder.now();
    const now = performance.now();
    if (gapMs <= maxClockGapMs || now < reportedAt + clockReportMs) return;
    reportedAt = now;
    log(
      "error",
      `The clock of this server is ${Math.round(gapMs / 1000)} s behind that ` +
        "of another one: sign-ins end too early or too late, and times of " +
        "records are wrong. Set the clocks of all servers",
    );
  };
}

function overtakenError(): StoreError {
  return new StoreError(
    "overtaken",
    "Other servers changed the state; nothing was changed",
  );
}
