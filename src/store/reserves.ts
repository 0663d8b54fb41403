/** The reserves of memory and disk space, without which a full store cannot be freed by deletes. */

import { FullDisk } from "./full-disk.ts";
import { Memory } from "./memory/limit.ts";

/** Returns the options with which a store keeps reserves. */
export function reserves() {
  return { memory: new Memory(), fullDisk: FullDisk };
}
