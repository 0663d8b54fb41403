/**
 * Counts what each client does in a minute, in bounded memory (RFC 6585 section
 * 4).
 */

import { ApiError } from "./errors.ts";

export const windowMs = 60_000;

/** The most keys that are counted at a time: some 2 MB. */
const maxKeys = 10_000;

/** The count for a key, in a minute that began with the first request. */
export interface Quota {
  used: number;
  readonly endsAt: number;
}

/** Counts by key. */
export class RateLimiter {
  readonly #limit: number;
  readonly #now: () => number;
  /** In the order in which they end. */
  readonly #quotas = new Map<string, Quota>();

  /** @param now returns milliseconds; if the clock is set back, new minutes begin */
  constructor(limit: number, now: () => number) {
    this.#limit = limit;
    this.#now = now;
  }

  /** Counts one more for a key; drops quotas that have ended and, if there are too many, the one that ends next. */
  count(key: string): Quota {
    const endsAt = this.#now() + windowMs;
    const isKnown = this.#quotas.has(key);
    for (const [oldest, quota] of this.#quotas) {
      const hasEnded = quota.endsAt > endsAt ||
        quota.endsAt <= endsAt - windowMs;
      if (!hasEnded && (isKnown || this.#quotas.size < maxKeys)) break;
      this.#quotas.delete(oldest);
    }
    const quota = this.#quotas.get(key) ??
      { used: 0, endsAt };
    quota.used++;
    this.#quotas.set(key, quota);
    return quota;
  }

  /** Undoes a count. A key for which nothing is counted takes no memory. */
  uncount(key: string, quota: Quota): void {
    quota.used--;
    if (quota.used === 0 && this.#quotas.get(key) === quota) this.forget(key);
  }

  /** Resets the count of a key. */
  forget(key: string): void {
    this.#quotas.delete(key);
  }

  /**
   * Checks that a quota is not exceeded.
   *
   * @param problem the beginning of the message
   * @throws {ApiError} 42900
   */
  check(quota: Quota, problem: string): void {
    if (quota.used <= this.#limit) return;
    const seconds = this.secondsLeft(quota);
    throw new ApiError(42900, `${problem}: try again in ${seconds} s.`, {
      headers: ["Retry-After", String(seconds)],
    });
  }

  /** Returns when a quota ends. */
  secondsLeft({ endsAt }: Quota): number {
    return Math.max(1, Math.ceil((endsAt - this.#now()) / 1000));
  }
}
