/**
 * Reserves memory and disk space, so that a full store refuses to grow, and
 * deletes free it. Without it, nothing that was acknowledged is lost either; but
 * V8 ends a server with too many records, and on a full disk no write succeeds,
 * not even a delete, until others free space.
 */

import type { Feature } from "../../api/feature.ts";
import { requireHeap } from "../../store/memory/limit.ts";
import { reserves } from "../../store/reserves.ts";

export const feature: Feature = {
  checkSettings: () => requireHeap(),
  storeOptions: reserves,
  open() {},
};
