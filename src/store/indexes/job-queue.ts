/**
 * Runs long jobs (searching many rows, building an index) one after another
 * in slices of time. Between two slices the event loop handles other requests,
 * so the queue takes one slice per turn of the event loop. The
 * unit of cost is the row: reading, testing and sorting one takes about 1 µs.
 */

import { StoreError } from "../error.ts";

/** The most rows that are searched or indexed at once, without a queue: less than about a millisecond. */
export const maxImmediateRows = 1000;

/** The rows, or changes, that a job processes in one step, between two checks of the clock. */
export const rowsPerStep = 128;

/** The longest time that a job runs before other requests are handled, in ms. A response can wait for two of them. */
const sliceMs = 1.5;

/** The most jobs that wait in a queue: beyond that a wait would take seconds. */
const maxWaitingJobs = 32;

/** A job in steps of less than a millisecond; it yields after each. */
export type Steps<T = void> = Generator<undefined, T>;

export interface JobOptions<T> {
  /** The number of rows that the job processes. */
  readonly cost: number;
  /** Returns the job's result; runs in the same turn of the event loop as the last step. */
  readonly finish: () => T;
  /** Called between slices; throws if nobody waits for the result any more. */
  readonly throwIfAborted: () => void;
}

export class JobQueue {
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  /**
   * Runs a job: a small one at once, a larger one after those that wait.
   *
   * @throws {StoreError} `overloaded` if too many jobs are waiting
   */
  run<T>(steps: Steps, options: JobOptions<T>): T | Promise<T> {
    if (options.cost <= maxImmediateRows) {
      for (const _ of steps); // without a pause
      return options.finish();
    }
    if (this.#waiting === maxWaitingJobs) {
      throw new StoreError(
        "overloaded",
        "Too many searches are waiting; try again later.",
      );
    }
    this.#waiting++;
    const result = this.#last.then(() => {
      this.#waiting--;
      return runInSlices(steps, options);
    });
    this.#last = result.catch(() => {});
    return result;
  }
}

async function runInSlices<T>(
  steps: Steps,
  { finish, throwIfAborted }: JobOptions<T>,
): Promise<T> {
  throwIfAborted();
  let end = performance.now() + sliceMs;
  for (const _ of steps) {
    if (performance.now() < end) continue;
    await new Promise((resolve) => setImmediate(resolve));
    throwIfAborted();
    end = performance.now() + sliceMs;
  }
  return finish();
}
