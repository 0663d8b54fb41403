/** The reserves of memory and disk space, without which a full store cannot be freed by deletes. */

import { FullDisk } from "./full-disk.ts";
import { Memory } from "./memory/limit.ts";
import { defaultLimits } from "./options.ts";

/** Returns the options with which a store keeps reserves. What waits in memory must be small beside what is stored there. */
export function reserves() {
  const memory = new Memory();
  const { maxQueueBytes: max } = defaultLimits;
  const maxQueueBytes = Math.min(max, memory.limit / 16);
  return { memory, fullDisk: FullDisk, limits: { maxQueueBytes } };
}
