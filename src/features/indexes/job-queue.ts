/**
 * Builds indexes and brings them up to date, one after another, in the turns
 * that admission.ts gives, and in slices of time. Once such a job has begun it
 * is finished, although its client leaves: others may need it too.
 */

import { setImmediate as nextTurn } from "node:timers/promises";
import { type Requester, Turns } from "../../admission.ts";
import type { Steps } from "../../api/query/slices.ts";

/** How long a slice lasts, in ms. */
const minSliceMs = 0.5;
const maxSliceMs = 25;

/** A queue of jobs. */
export class JobQueue {
  readonly #turns = new Turns(1);
  readonly #share: number;
  /** When the current slice ends: a job that ends earlier leaves the rest to the next one. */
  #sliceEnd = 0;

  /** @param share how long the queue runs, in relation to all else, while both have work */
  constructor(share: number) {
    this.#share = share;
  }

  /**
   * Runs a job in its turn.
   *
   * @throws {OverloadedError}; the reason of the requester's signal
   */
  run<T>(requester: Requester, job: Steps<T>): Promise<T> {
    const steps: Iterator<undefined, T> = job;
    return this.#turns.run(requester, async () => {
      while (true) {
        if (performance.now() >= this.#sliceEnd) await this.#nextSlice();
        const { done, value } = steps.next();
        if (done) return value;
      }
    });
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
