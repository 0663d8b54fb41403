/**
 * Runs long work one after another, in the turns that admission.ts gives, and in
 * slices of time. Between two slices the event loop handles other requests.
 */

import { setImmediate as nextTurn } from "node:timers/promises";
import { type Requester, Turns } from "../../admission.ts";

/** Work in steps of less than a millisecond; it yields after each. */
export type Steps<T = void> = Generator<undefined, T>;

/** How long a slice lasts: about a quarter of the time while 64 connections are busy. */
const sliceMs = 1;

const turns = new Turns(1);

/** Runs steps until they end; throws an OverloadedError, or the reason of the signal if the client leaves. */
export function runInSlices<T>(
  steps: Iterator<undefined, T>,
  requester: Requester,
): Promise<T> {
  return turns.run(requester, async () => {
    let end = 0;
    while (true) {
      if (performance.now() >= end) {
        await nextTurn();
        requester.signal.throwIfAborted();
        end = performance.now() + sliceMs;
      }
      const { done, value } = steps.next();
      if (done) return value;
    }
  }).finally(() => steps.return?.());
}
