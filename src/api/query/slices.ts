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

/** A queue of work. */
export class SliceQueue {
  readonly #turns = new Turns(1);
  readonly #share: number;
  /** When the current slice ends: work that ends earlier leaves the rest to the next. */
  #sliceEnd = 0;

  /** @param share how long the queue runs, in relation to all else, while both have work */
  constructor(share: number) {
    this.#share = share;
  }

  /**
   * Runs steps until they end.
   *
   * @param isShared true if others need the result too: once begun it is
   * finished, though its client leaves
   * @throws {OverloadedError}; the reason of the requester's signal
   */
  run<T>(
    requester: Requester,
    steps: Iterator<undefined, T>,
    isShared = false,
  ): Promise<T> {
    return this.#turns.run(requester, async () => {
      while (true) {
        if (performance.now() >= this.#sliceEnd) await this.#nextSlice();
        if (!isShared) requester.signal.throwIfAborted();
        const { done, value } = steps.next();
        if (done) return value;
      }
    }).finally(() => steps.return?.());
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
