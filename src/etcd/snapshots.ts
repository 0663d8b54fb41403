/**
 * The snapshots of a store in etcd. One server at a time writes one, under a
 * lock that it loses with its lease, and deletes what is older than the one
 * before.
 */

import { performance } from "node:perf_hooks";
import { errorText } from "../store/error.ts";
import { encodeSnapshot, freezeTables } from "../store/log/snapshot.ts";
import type { Store } from "../store/transactions.ts";
import type { EtcdParts } from "./parts.ts";
import type { Replica } from "./replica.ts";
import { keyOf, numberIn, pack, parseHead, rangeOf, textOf } from "./state.ts";

/** The time between two attempts. */
const retryMs = 5000;
const lock = "snapshot-lock";

/** Writes the snapshots of an open store. */
export class Snapshots {
  readonly #parts: EtcdParts;
  readonly #store: Store;
  readonly #replica: Replica;
  #running: Promise<void> | undefined;
  #retryAt = 0;

  constructor(parts: EtcdParts, store: Store, replica: Replica) {
    this.#parts = parts;
    this.#store = store;
    this.#replica = replica;
  }

  /** Writes one if the log is longer than the last one. */
  runIfDue(): void {
    const { loaded, limits, log, closing } = this.#parts;
    const { logBytes, snapshotBytes } = loaded;
    const isLong = logBytes >= Math.max(limits.minLogBytes, snapshotBytes);
    if (!isLong || performance.now() < this.#retryAt) return;
    this.#retryAt = performance.now() + retryMs;
    this.run().catch((error) => {
      if (closing.signal.aborted) return;
      log("error", `Cannot write a snapshot: ${errorText(error)}`);
    });
  }

  /** Writes one, unless another server does or has done. */
  run(): Promise<void> {
    return this.#running ??= this.#runOnce().finally(() => {
      this.#running = undefined;
    });
  }

  /** Resolves once none is being written. */
  async idle(): Promise<void> {
    await this.#running?.catch(() => {});
  }

  async #runOnce(): Promise<void> {
    const { client, lease, loaded, serverId } = this.#parts;
    const [latest] = await client.get(rangeOf("snapshot"), "last");
    const snapshotSeq = numberIn(latest);
    if (snapshotSeq !== loaded.snapshotSeq) {
      return void Object.assign(loaded, { snapshotSeq, logBytes: 0 });
    }
    const { isDone, found: [holder] } = await client.transact([lock, ""], [
      { keys: [lock], value: serverId, lease: lease.id },
    ]);
    // It is still held after a failure.
    if (isDone || textOf(holder) === serverId) await this.#write();
  }

  async #write(): Promise<void> {
    const { client, folder, loaded, log, serverId } = this.#parts;
    const previous = loaded.snapshotSeq;
    const seq = this.#replica.endSeq = this.#store.seq;
    if (seq === previous) return;
    const tables = freezeTables(loaded.tables);
    await this.#store.durable(seq);
    const { logBytes, head } = loaded;
    const state = { store: "etcd", generation: 0, seq, tables };
    const { value, bytes } = await pack(client, {
      seq,
      after: parseHead(head).name,
      slices: encodeSnapshot(folder, state),
      signal: this.#parts.closing.signal,
    });
    // Nobody needs the log before the previous snapshot any more.
    const { isDone } = await client.transact([lock, serverId], [
      { keys: [keyOf("snapshot", seq)], value },
      { keys: rangeOf("log", 0, previous + 1) },
      { keys: rangeOf("snapshot", 0, previous) },
      { keys: rangeOf("parts", 0, previous) },
      { keys: [lock] },
    ]);
    if (!isDone) throw new Error("the lease has expired");
    log("info", "Wrote a snapshot", { seq, bytes });
    Object.assign(loaded, { snapshotSeq: seq, snapshotBytes: bytes });
    loaded.logBytes -= logBytes;
  }
}
