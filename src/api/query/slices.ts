/**
 * Runs long work one after another, in the turns that admission.ts gives, and in
 * slices of time. Between two slices the event loop handles other requests.
 */

import { setImmediate as nextTurn } from "node:timers/promises";
import { type Requester, Turns } from "../../admission.ts";

/** Work in steps of less than a millisecond; it yields after each. */
export type Steps<T = void> = Generator<undefined, T>;

/** How long a slice lasts, in ms. */
const minSliceMs = 0.5;
const maxSliceMs = 25;

/** Runs steps until they end; throws an OverloadedError, or the reason of the requester's signal. */
type RunSteps = <T>(
  requester: Requester,
  steps: Iterator<undefined, T>,
) => Promise<T>;

/**
 * Creates a queue of work.
 *
 * @param share how long the queue runs, in relation to all else, while both have work
 */
export function createSliceQueue(share: number): RunSteps {
  const turns = new Turns(1);
  /** When the current slice ends: work that ends earlier leaves the rest to the next. */
  let sliceEnd = 0;
  return (requester, steps) =>
    turns.run(requester, async () => {
      while (true) {
        while (performance.now() < sliceEnd) {
          const { done, value } = steps.next();
          if (done) return value;
        }
        const start = performance.now();
        await nextTurn();
        const now = performance.now();
        const ms = (now - start) * share;
        sliceEnd = now + Math.min(Math.max(ms, minSliceMs), maxSliceMs);
      }
    }).finally(() => steps.return?.());
}
