/**
 * Keeps a marker beside the log. Without it, a start after a clean stop copies
 * the log, and the loss of the last writes is not noticed if the disk lost
 * exactly what an interrupted write may lose; and an empty store begins in the
 * folder of a server whose store is in etcd.
 */

import type { Feature } from "../../api/feature.ts";
import * as marker from "../../store/log/marker.ts";

export const feature: Feature = {
  storeOptions: () => ({ marker }),
  open() {},
};
