/**
 * A store whose log is in etcd, so that any number of servers share it. Each
 * has all records in memory.
 *
 * A transaction is judged against the state in memory and applied there, as in
 * a folder. It is committed by one transaction of etcd that compares the head
 * of the log: if another server was first, all that waits here is rolled back
 * with `overtaken`, the other's transactions are applied, and the requests are
 * judged again. So every commit was judged against the state that it changes.
 *
 * This goes in rounds, one after the other. Each commits what waits or, if
 * nothing does, reads the head (linearizable), and then applies what others
 * have committed. A request is judged after a round that began after it came:
 * so it sees no older state than was shown to anybody before.
 *
 * Once etcd has not answered for some seconds, what waits is rolled back: with
 * `unreachable` if etcd cannot have it, otherwise with `outcome-unknown`.
 * Requests are refused until a round succeeds.
 */

import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { closedError, errorCode, StoreError } from "../store/error.ts";
import type { LogLine } from "../store/log/format.ts";
import type { Pending } from "../store/queue.ts";
import { SharedStore } from "../store/shared.ts";
import { renewMs, serverKey, toBase64 } from "./client.ts";
import { type EtcdParts, Replica } from "./replica.ts";
import { retryMs, writeSnapshot, writeSnapshotIfDue } from "./snapshots.ts";
import {
  foreignValue,
  keyOf,
  maxValueBytes,
  numberIn,
  putOnce,
  rangeOf,
  readBatch,
  seqOf,
} from "./state.ts";
import { Attempts } from "./turns.ts";

/** How old a state may be that is read without asking etcd. */
const maxAgeMs = 1000;
/** The time between two rounds while there are no requests. */
const pollMs = 300;
/** The time between two attempts to watch the head. */
const watchMs = 100;
/** A line of the log is longer than 64 bytes. */
const maxBatchLength = maxValueBytes / 64;

/** A store in etcd. */
export class EtcdStore extends SharedStore {
  readonly serverId: string;
  readonly incarnation: string;
  readonly #parts: EtcdParts;
  readonly #replica: Replica;
  readonly #background: Attempts;
  /** Why the operator must restart this server. */
  #suspension: StoreError | undefined;
  readonly #running: Promise<unknown>;

  constructor(parts: EtcdParts) {
    const { folder, loaded, memory, serverId } = parts;
    super(folder, {
      seq: seqOf(loaded.head),
      tables: loaded.tables,
      memory,
      maxQueueBytes: parts.limits.maxQueueBytes,
    });
    this.#parts = parts;
    this.serverId = serverId;
    this.incarnation = parts.incarnation;
    this.#replica = new Replica(parts, this.queue, (ms) => this.notify(ms));
    this.#background = this.attempts();
    this.#running = Promise.all([
      this.#replica.run(),
      this.#repeat(watchMs, () => this.#follow()),
      this.#repeat(pollMs, () => this.#replica.nextRound()),
      this.#repeat(renewMs, () => renew(parts)),
      this.#repeat(retryMs, () => writeSnapshotIfDue(parts, this)),
    ]);
  }

  get isWritable(): boolean {
    return this.#refusal === undefined;
  }

  /** Why no request can be processed now. */
  get #refusal(): StoreError | undefined {
    return this.#parts.closing.signal.aborted
      ? closedError()
      : this.#suspension ?? this.#replica.failure;
  }

  get notices(): readonly string[] {
    const reason = this.#refusal ?? this.#replica.fullError;
    if (!reason) return [];
    // Anybody may read it, and the text of another program could name machines.
    const state = reason.code === "disk-full" ? "is full" : "cannot be used";
    return [reason.cause ? `etcd ${state}: the log says more` : reason.message];
  }

  get log() {
    return { generation: 0, seed: 0, offset: this.#parts.loaded.logBytes };
  }

  get gauges() {
    return {
      etcd_contact_age_seconds: [
        "Time since the head was read.",
        (performance.now() - this.#replica.confirmedAt) / 1000,
      ],
      etcd_conflicts_total: [
        "Batches that were overtaken.",
        this.#replica.conflicts,
      ],
    } as const;
  }

  protected accept(pending: Pending): void {
    if (this.#refusal) throw this.#refusal;
    this.queue.add(pending);
    this.#replica.wake();
  }

  /** Resolves once the state in memory is no older than any that somebody was shown before; undefined if it is already. */
  confirm(isRead: boolean): Promise<void> | undefined {
    if (
      isRead && this.#parts.hasLocalReads && !this.#suspension &&
      performance.now() - this.#replica.confirmedAt < maxAgeMs
    ) return undefined;
    return this.#refusal
      ? Promise.reject(this.#refusal)
      : this.#replica.nextRound().then(() => {
        if (this.#suspension) throw this.#suspension; // by what it has brought
      });
  }

  /** Repeats work in the background until the store closes. */
  async #repeat(pauseMs: number, work: () => Promise<void>): Promise<void> {
    const { signal } = this.#parts.closing;
    while (!signal.aborted) {
      await work().catch(() => {}); // again after the pause
      await delay(pauseMs, undefined, { signal }).catch(() => {});
    }
  }

  /** Learns at once what other servers commit. */
  #follow(): Promise<void> {
    const { client, closing } = this.#parts;
    return client.watch("head", closing.signal, (text) => {
      if (text.includes(`"${toBase64(this.#replica.sentHead)}"`)) return; // its own
      this.#replica.nextRound().catch(() => {});
    });
  }

  async isServed(serverId: string): Promise<boolean> {
    const found = await this.#parts.client.get([serverKey(serverId)]);
    return found.length > 0;
  }

  /** Returns the secret that all servers of this store share, at first the one proposed; logs that if somebody has signed in with another one. */
  async shareSecret(proposed: string, isUsed = false): Promise<string> {
    const { client, log } = this.#parts;
    const secret = await putOnce(client, "secret", proposed);
    if (secret === proposed && isUsed) {
      const lost = 'The key "secret" below the prefix in etcd was missing';
      log(
        "error",
        `${lost}: everybody has to sign in again. Restart the other servers, which sign with the former one`,
      );
    }
    return secret;
  }

  /** Refuses all requests from now on, for a reason; or no longer. */
  suspend(reason: string | undefined): void {
    this.#suspension = reason === undefined
      ? undefined
      : new StoreError("unreachable", reason);
  }

  async transactionsAfter(seq: number): Promise<LogLine[]> {
    const { client } = this.#parts;
    const first = Math.max(0, seq - maxBatchLength); // etcd reads the whole range
    const [found] = await client.get(rangeOf("log", first, seq + 2), "last");
    const lines = found ? (await readBatch(client, found)).lines : [];
    const after = lines.filter(({ seq: each = 0 }) =>
      each > seq && each <= this.durableSeq
    );
    if (after[0]?.seq === seq + 1) return after;
    const [oldest] = await client.get(rangeOf("snapshot"), 1);
    if (seq < numberIn(oldest)) return []; // nobody needs it to load the store
    throw foreignValue(keyOf("log", seq + 1));
  }

  /** Begins to count the attempts of a request. */
  attempts(signal?: AbortSignal): Attempts {
    return new Attempts(this.#replica.turns, signal);
  }

  /** Waits as {@linkcode durable}, and if another server was first, counts the attempt and waits until the next one may begin. */
  async attempt(attempts: Attempts, seq: number): Promise<void> {
    attempts.seq = seq;
    try {
      await super.durable(seq);
    } catch (error) {
      const { durableSeq } = this;
      if (errorCode(error) === "overtaken") await attempts.lose(durableSeq);
      throw error;
    }
  }

  /** Waits as for a request, for all work in the background together. */
  override durable(seq: number): Promise<void> | undefined {
    if (seq <= this.durableSeq) return undefined;
    return this.attempt(this.#background, seq)
      .then(() => this.#background.end());
  }

  /** Runs the transaction again if another server was first. */
  override async settle<Result extends { readonly seq: number }>(
    run: () => Result | Promise<Result>,
  ): Promise<Result> {
    const attempts = this.attempts();
    try {
      while (true) {
        try {
          const result = await run();
          await this.attempt(attempts, result.seq);
          return result;
        } catch (error) {
          if (errorCode(error) !== "overtaken") throw error;
        }
      }
    } finally {
      attempts.end();
    }
  }

  checkpoint(): Promise<void> {
    return writeSnapshot(this.#parts, this);
  }

  protected async release(): Promise<void> {
    this.#parts.closing.abort();
    this.#replica.wake();
    await this.#running;
    await this.#parts.release();
  }
}

/** Tells the others that this server is there. */
async function renew({ lease, log }: EtcdParts): Promise<void> {
  if (await lease.renew() || lease.isReported) return;
  lease.isReported = true;
  log(
    "error",
    "Another server uses the name of this one, with a copy of its folder, and " +
      "they end each other's imports: restart this server, which then takes another name",
  );
}
