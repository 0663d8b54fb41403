/**
 * The snapshots of a store in etcd. One server at a time writes one, under a
 * lock that another one may take once this server is gone, and deletes what is
 * older than the one before.
 */

import { errorText, StoreError } from "../store/error.ts";
import { encodeSnapshot, freezeTables } from "../store/log/snapshot.ts";
import type { SharedStore } from "../store/shared.ts";
import type { EtcdParts } from "./replica.ts";
import {
  keyOf,
  numberIn,
  putParts,
  rangeOf,
  readHead,
  requireUsable,
  seqOf,
  textOf,
} from "./state.ts";

/** The time between two attempts. */
export const retryMs = 5000;
const lock = "snapshot-lock";

/** Writes a snapshot if the log is longer than the last one. */
export async function writeSnapshotIfDue(
  parts: EtcdParts,
  store: SharedStore,
): Promise<void> {
  const { loaded: { logBytes, snapshotBytes }, limits, log, closing } = parts;
  if (logBytes < Math.max(limits.minLogBytes, snapshotBytes)) return;
  await writeSnapshot(parts, store).catch((error) => {
    if (closing.signal.aborted) return;
    log("error", `Cannot write a snapshot: ${errorText(error)}`);
  });
}

/** Writes a snapshot, unless another server does or has done. */
export async function writeSnapshot(
  parts: EtcdParts,
  store: SharedStore,
): Promise<void> {
  const { client, loaded, serverId } = parts;
  const [latest] = await client.get(rangeOf("snapshot"), "last");
  const snapshotSeq = numberIn(latest);
  if (latest && snapshotSeq > seqOf(await readHead(client))) {
    throw new StoreError(
      "damaged",
      `The key "${latest.key}" below the prefix in etcd names a later state than the head: no server has written it; delete it`,
    );
  }
  if (snapshotSeq !== loaded.snapshotSeq) {
    return void Object.assign(loaded, { snapshotSeq, logBytes: 0 });
  }
  const [found] = await client.get([lock]);
  const holder = found ? requireUsable(lock, String(found.value)) : "";
  // After a failure this server still holds it.
  if (
    holder !== "" && holder !== serverId && await store.isServed(holder)
  ) return;
  const { isDone, found: [taken] } = await client.transact([lock, holder], [
    { keys: [lock], value: serverId },
  ]);
  if (isDone || textOf(taken) === serverId) await replaceOldest(parts, store);
}

/** Writes a snapshot, and deletes what is before the previous one. */
async function replaceOldest(
  { client, closing, folder, loaded, log, serverId }: EtcdParts,
  store: SharedStore,
): Promise<void> {
  const previous = loaded.snapshotSeq;
  const state = await store.settle(() => {
    const seq = loaded.endSeq = store.seq;
    return { seq, generation: 0, tables: freezeTables(loaded.tables) };
  });
  const { seq } = state;
  if (seq === previous) return;
  const { logBytes, head } = loaded;
  const key = keyOf("snapshot", seq);
  const slices = encodeSnapshot(folder, { ...state, store: head });
  const { value, bytes } = await putParts(client, key, slices, closing.signal);
  // Nobody needs the log before the previous snapshot any more.
  const { isDone, found: [taken] } = await client.transact([lock, serverId], [
    { keys: [key], value },
    { keys: rangeOf("log", 0, previous + 1) },
    { keys: rangeOf("snapshot", 0, previous) },
    { keys: rangeOf("parts", 0, previous) },
    { keys: [lock] },
  ]);
  if (!isDone && taken) throw new Error("another server has taken the lock");
  log("info", "Wrote a snapshot", { seq, bytes });
  Object.assign(loaded, { snapshotSeq: seq, snapshotBytes: bytes });
  loaded.logBytes -= logBytes;
}
