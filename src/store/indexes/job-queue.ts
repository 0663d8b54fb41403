/**
 * Runs long jobs (searching many rows, building an index) one after another, in
 * the order that admission.ts decides, and in slices of time. Between two
 * slices the event loop handles other requests, so the queue runs one slice per
 * turn of the event loop. The unit of cost is the row: reading, testing and
 * sorting one takes about 1 µs.
 */

import { Admission, type Requester } from "../../admission.ts";

/**
 * The most rows that are searched or indexed at once, without a queue: that
 * takes a quarter of a millisecond, and a thousand clients may ask for it in
 * each turn.
 */
const maxImmediateRows = 250;

/** The rows, or changes, that a job processes in one step, between two checks of the clock. */
export const rowsPerStep = 128;

/** The rows that are tested in one step, as the text of one can be long. */
export const testsPerStep = 16;

/**
 * How long a job runs before other requests are handled, in ms: an eighth of the
 * time that these took in the last turn, within these limits. A response can
 * wait for two such slices.
 */
const minSliceMs = 0.1;
const maxSliceMs = 1.5;

/** How long a small job may run before it waits in the queue for the rest: rarely, as its rows must be large. */
const immediateMs = 5;

/** The most jobs that wait in a queue: beyond that a wait would take seconds. */
const maxWaitingJobs = 32;

/** A job in steps of less than a millisecond; it yields after each. */
export type Steps<T = void> = Generator<undefined, T>;

export class JobQueue {
  readonly #admission = new Admission({
    maxRunning: 1,
    maxWaiting: maxWaitingJobs,
    message: "Too many searches are waiting; try again later.",
  });

  /**
   * Runs a job: a small one at once, a larger one in its turn. It ends if its
   * client disconnects.
   *
   * @param cost the number of rows that it processes
   * @param start begins it, when its turn has come
   * @throws {OverloadedError} if too many jobs are waiting
   */
  run<T>(
    requester: Requester,
    cost: number,
    start: () => Steps<T>,
  ): T | Promise<T> {
    let steps: Iterator<undefined, T> | undefined;
    if (cost <= maxImmediateRows) {
      steps = start();
      const { done, value } = runSlice(steps, immediateMs);
      if (done) return value;
    }
    return this.#admission.run(requester, async () => {
      steps ??= start();
      let ms = minSliceMs;
      while (true) {
        const { done, value } = runSlice(steps, ms);
        if (done) return value;
        const end = performance.now();
        await new Promise((resolve) => setImmediate(resolve));
        requester.throwIfAborted();
        const otherMs = performance.now() - end;
        ms = Math.min(Math.max(otherMs / 8, minSliceMs), maxSliceMs);
      }
    }).finally(() => steps?.return?.());
  }
}

/** Runs steps for some time; returns the result of the last one. */
function runSlice<T>(steps: Iterator<undefined, T>, ms: number) {
  const end = performance.now() + ms;
  while (true) {
    const result = steps.next();
    if (result.done || performance.now() >= end) return result;
  }
}
