/**
 * Reserves memory and disk space, so that a full store refuses to grow, and
 * deletes free it. Without it, nothing that was acknowledged is lost either; but
 * V8 ends a server with too many records, and on a full disk no write succeeds,
 * not even a delete, until others free space.
 */

import type { Feature } from "../../api/feature.ts";
import type { Operation } from "../../api/operation.ts";
import { healthOf } from "../../api/routes.ts";
import { requireHeap } from "../../store/memory/limit.ts";
import { reserves } from "../../store/reserves.ts";
import type { Memory, Store } from "../../store/store.ts";

const mebibyte = 1 << 20;

export const feature: Feature = {
  checkSettings: () => requireHeap(),
  storeOptions: reserves,
  open({ add, base, store }) {
    add(`${base.path}health`, { methods: { GET: healthWithReserves(store) } });
  },
};

/** Returns the operation that also says how full the memory and the disk are. */
function healthWithReserves(store: Store): Operation {
  return {
    access: "anyone",
    run: (context) =>
      context.afterWaiting(noticesOf(store), (notices) => {
        const { isWritable, memory } = store;
        return healthOf(isWritable, {
          ...(isWritable && memory?.isFull && { status: "memory-full" }),
          memory: memory && { used: rounded(memory), limit: memory.limit },
          ...(notices.length > 0 && { notices }),
        });
      }),
  };
}

/** Returns about how many bytes are used: the exact number would tell everybody the length of each private write. */
function rounded({ used, limit }: Memory): number {
  return Math.min(Math.ceil(used / mebibyte) * mebibyte, limit);
}

/** Returns what had to be repaired at startup, and problems of the disk and the memory at present. */
async function noticesOf({ notices, fullDisk, memory }: Store) {
  const ofDisk = await fullDisk?.notices() ?? [];
  return [...notices, ...ofDisk, ...(memory?.notices ?? [])];
}
