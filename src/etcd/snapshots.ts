/**
 * The snapshots of a store in etcd. One server at a time writes one, under a
 * lock that another one may take once this server is gone, and deletes what is
 * older than the one before.
 */

import { errorText } from "../store/error.ts";
import { encodeSnapshot, freezeTables } from "../store/log/snapshot.ts";
import type { Store } from "../store/transactions.ts";
import type { EtcdParts } from "./parts.ts";
import type { Replica } from "./replica.ts";
import { keyOf, numberIn, putParts, rangeOf, textOf } from "./state.ts";

/** The time between two attempts. */
export const retryMs = 5000;
const lock = "snapshot-lock";

/** Writes the snapshots of an open store. */
export class Snapshots {
  readonly #parts: EtcdParts;
  readonly #store: Store;
  readonly #replica: Replica;

  constructor(parts: EtcdParts, store: Store, replica: Replica) {
    this.#parts = parts;
    this.#store = store;
    this.#replica = replica;
  }

  /** Writes one if the log is longer than the last one. */
  async runIfDue(): Promise<void> {
    const { loaded, limits, log, closing } = this.#parts;
    const { logBytes, snapshotBytes } = loaded;
    if (logBytes < Math.max(limits.minLogBytes, snapshotBytes)) return;
    await this.run().catch((error) => {
      if (closing.signal.aborted) return;
      log("error", `Cannot write a snapshot: ${errorText(error)}`);
    });
  }

  /** Writes one, unless another server does or has done. */
  async run(): Promise<void> {
    const { client, loaded, serverId } = this.#parts;
    const [latest] = await client.get(rangeOf("snapshot"), "last");
    const snapshotSeq = numberIn(latest);
    if (snapshotSeq !== loaded.snapshotSeq) {
      return void Object.assign(loaded, { snapshotSeq, logBytes: 0 });
    }
    const [found] = await client.get([lock]);
    const holder = textOf(found);
    // It is still held after a failure.
    const isHeld = holder !== "" && holder !== serverId &&
      await this.#store.isServed(holder);
    if (isHeld) return;
    const { isDone } = await client.transact([lock, holder], [
      { keys: [lock], value: serverId },
    ]);
    if (isDone) await this.#write();
  }

  async #write(): Promise<void> {
    const { client, closing, folder, loaded, log, serverId } = this.#parts;
    const previous = loaded.snapshotSeq;
    const seq = this.#replica.endSeq = this.#store.seq;
    if (seq === previous) return;
    const tables = freezeTables(loaded.tables);
    await this.#store.durable(seq);
    const { logBytes, head: store } = loaded;
    const key = keyOf("snapshot", seq);
    const slices = encodeSnapshot(folder, {
      store,
      generation: 0,
      seq,
      tables,
    });
    const { signal } = closing;
    const { value, bytes } = await putParts(client, key, slices, signal);
    // Nobody needs the log before the previous snapshot any more.
    const { isDone } = await client.transact([lock, serverId], [
      { keys: [key], value },
      { keys: rangeOf("log", 0, previous + 1) },
      { keys: rangeOf("snapshot", 0, previous) },
      { keys: rangeOf("parts", 0, previous) },
      { keys: [lock] },
    ]);
    if (!isDone) throw new Error("another server has taken the lock");
    log("info", "Wrote a snapshot", { seq, bytes });
    Object.assign(loaded, { snapshotSeq: seq, snapshotBytes: bytes });
    loaded.logBytes -= logBytes;
  }
}
