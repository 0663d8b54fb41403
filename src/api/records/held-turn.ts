/** Turns for work whose end depends on the client: an export. */

import { setTimeout as delay } from "node:timers/promises";
import type { Requester, Turns } from "../../admission.ts";

/** How long such a turn lasts at most: then others begin too. */
const maxHoldMs = 10_000;

/** Waits for a turn that lasts until the signal is aborted, or for some seconds; throws like `run`. */
export function holdTurn(turns: Turns, requester: Requester): Promise<void> {
  const { signal } = requester;
  return new Promise((resolve, reject) => {
    turns.run(requester, () => {
      resolve();
      return delay(maxHoldMs, undefined, { signal }).catch(() => {});
    }).catch(reject);
  });
}
