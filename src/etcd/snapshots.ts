/**
 * The snapshots of a store in etcd. One server at a time writes one, under a
 * lock that it loses with its lease, and deletes what is older than the one
 * before.
 */

import { performance } from "node:perf_hooks";
import { closedError, errorText } from "../store/error.ts";
import { randomName } from "../store/log/folder.ts";
import { encodeSnapshot, freezeTables } from "../store/log/snapshot.ts";
import type { Store } from "../store/transactions.ts";
import { put, rangeOf } from "./client.ts";
import type { EtcdParts } from "./parts.ts";
import type { Replica } from "./replica.ts";
import { numberIn, pack } from "./state.ts";

/** The time between two attempts. */
const retryMs = 5000;

/** Writes the snapshots of an open store. */
export class Snapshots {
  readonly #parts: EtcdParts;
  readonly #store: Store;
  readonly #replica: Replica;
  #running: Promise<void> | undefined;
  #retryAt = 0;
  #isClosed = false;

  constructor(parts: EtcdParts, store: Store, replica: Replica) {
    this.#parts = parts;
    this.#store = store;
    this.#replica = replica;
  }

  /** Writes one if the log is longer than the last one. */
  runIfDue(): void {
    const { loaded: { logBytes, snapshotBytes }, limits, log } = this.#parts;
    const isLong = logBytes >= Math.max(limits.minLogBytes, snapshotBytes);
    if (!isLong || performance.now() < this.#retryAt) return;
    this.#retryAt = performance.now() + retryMs;
    this.run().catch((error) => {
      if (!this.#isClosed) {
        log("error", `Cannot write a snapshot: ${errorText(error)}`);
      }
    });
  }

  /** Writes one, unless another server does or has done. */
  run(): Promise<void> {
    return this.#running ??= this.#lockAndWrite().finally(() => {
      this.#running = undefined;
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#running?.catch(() => {});
  }

  async #lockAndWrite(): Promise<void> {
    const { place, lease, loaded, serverId } = this.#parts;
    const { client, lock } = place;
    const mine = put(lock, serverId, lease.id);
    const { revision } = await client.transact([lock, 0], [mine]);
    if (revision === undefined) return;
    try {
      const [latest] = await client.get(place.range("snapshot"), "last");
      const seq = latest ? numberIn(latest) : 0;
      if (seq === loaded.snapshotSeq) await this.#write(revision);
      else Object.assign(loaded, { snapshotSeq: seq, logBytes: 0 });
    } finally {
      const unlock = { request_delete_range: rangeOf([lock]) };
      await client.transact([lock, revision], [unlock]);
    }
  }

  async #write(lockRevision: number): Promise<void> {
    const { place, folder, loaded, log } = this.#parts;
    const { client, lock } = place;
    const previous = loaded.snapshotSeq;
    const seq = this.#replica.endSeq = this.#store.seq;
    if (seq === previous) return;
    const tables = freezeTables(loaded.tables);
    await this.#store.durable(seq);
    const { logBytes } = loaded;
    const name = randomName(folder);
    const state = { store: "etcd", generation: 0, seq, tables };
    const slices = this.#untilClosed(encodeSnapshot(folder, state));
    const { value, bytes } = await pack(place, "snapshot", {
      seq,
      name,
      slices,
    });
    const { revision } = await client.transact([lock, lockRevision], [
      put(place.key("snapshot", seq), value),
    ]);
    if (revision === undefined) throw new Error("the lease has expired");
    log("info", "Wrote a snapshot", { seq, bytes });
    Object.assign(loaded, { snapshotSeq: seq, snapshotBytes: bytes });
    loaded.logBytes -= logBytes;
    // What is before the previous snapshot is needed by nobody any more.
    for (
      const range of [
        place.range("log", 0, previous + 1),
        place.range("log-parts", 0, previous + 1),
        place.range("snapshot", 0, previous),
        place.range("snapshot-parts", 0, previous),
      ]
    ) await client.call("kv/deleterange", rangeOf(range));
  }

  *#untilClosed<T>(slices: Iterable<T>): Generator<T> {
    for (const slice of slices) {
      if (this.#isClosed) throw closedError();
      yield slice;
    }
  }
}
