/**
 * Refuses to grow before the memory is full: all records are in V8's heap, and
 * V8 ends the process if that overflows. Without it, nothing that was
 * acknowledged is lost then either, but a server with too many records ends, and
 * starts only with more memory.
 */

import type { Feature } from "../../api/feature.ts";
import { Memory, requireHeap } from "../../store/memory/limit.ts";

export const feature: Feature = {
  checkSettings: () => requireHeap(),
  createMemory: () => new Memory(),
  open() {},
};
