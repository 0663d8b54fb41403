/**
 * Runs long jobs (searching many rows, building an index) one after another, in
 * the turns that admission.ts gives, and in slices of time. Between two slices
 * the event loop handles other requests. The unit of cost is the row: reading,
 * testing and sorting one takes about 1 µs.
 */

import { setImmediate as nextTurn } from "node:timers/promises";
import { type Requester, Turns } from "../../admission.ts";

/** The most rows that are searched at once, without a queue: that takes a quarter of a millisecond. */
const maxImmediateRows = 250;

/** The rows, or changes, that a job processes in one step, between two checks of the clock. */
export const rowsPerStep = 128;

/** The rows that are tested in one step, as the text of one can be long. */
export const testsPerStep = 16;

/** How long a slice lasts, in ms. */
const minSliceMs = 0.5;
const maxSliceMs = 25;

/** How long a small job may run before it waits in the queue for the rest: rarely, as its rows must be large. */
const immediateMs = 5;

/** A job in steps of less than a millisecond; it yields after each. */
export type Steps<T = void> = Generator<undefined, T>;

/** A queue of jobs, which run one after another. */
export class JobQueue {
  readonly #turns = new Turns(1);
  readonly #share: number;
  /** When the current slice began, and when it ends: a job that ends earlier leaves the rest to the next one. */
  #sliceEnd = 0;

  /** @param share how long the queue runs, in relation to all else, while both have work */
  constructor(share: number) {
    this.#share = share;
  }

  /**
   * Runs a job: a small one at once, a larger one in its turn.
   *
   * @param cost the number of rows that it processes
   * @param start begins it, when its turn has come
   * @param isShared true if others need it too: once begun it is finished,
   * though its client leaves
   * @throws {OverloadedError}; the reason of the requester's signal
   */
  run<T>(
    requester: Requester,
    { cost, isShared = false, start }: {
      readonly cost: number;
      readonly isShared?: boolean;
      readonly start: () => Steps<T>;
    },
  ): T | Promise<T> {
    let steps: Iterator<undefined, T> | undefined;
    if (cost <= maxImmediateRows) {
      steps = start();
      const { done, value } = runUntil(performance.now() + immediateMs, steps);
      if (done) return value;
    }
    return this.#turns.run(requester, async () => {
      steps ??= start();
      while (true) {
        if (performance.now() >= this.#sliceEnd) await this.#nextSlice();
        if (!isShared) requester.signal.throwIfAborted();
        const { done, value } = runUntil(this.#sliceEnd, steps);
        if (done) return value;
      }
    }).finally(() => steps?.return?.());
  }

  /** Lets the event loop handle all that waits; begins a slice in proportion to the time that this took. */
  async #nextSlice(): Promise<void> {
    const start = performance.now();
    await nextTurn();
    const now = performance.now();
    const ms = (now - start) * this.#share;
    this.#sliceEnd = now + Math.min(Math.max(ms, minSliceMs), maxSliceMs);
  }
}

/** Runs steps until a time; returns the result of the last one. */
function runUntil<T>(end: number, steps: Iterator<undefined, T>) {
  while (true) {
    const result = steps.next();
    if (result.done || performance.now() >= end) return result;
  }
}
