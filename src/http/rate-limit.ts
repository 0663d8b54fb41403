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

  /** Counts one more for a key; returns its quota. */
  count(key: string): Quota {
    const quota = this.#find(key);
    const [next = ""] = this.#quotas.keys();
    if (quota.used === 0 && this.#quotas.size >= maxKeys) {
      this.#quotas.delete(next); // the one that ends next
    }
    quota.used++;
    this.#quotas.set(key, quota);
    return quota;
  }

  /** Resets the count of a key. */
  forget(key: string): void {
    this.#quotas.delete(key);
  }

  /**
   * Returns how many more may be counted for a key.
   *
   * @param problem the beginning of the message
   * @throws {ApiError} 42900 if none
   */
  check(key: string, problem: string): number {
    const quota = this.#find(key);
    if (quota.used < this.#limit) return this.#limit - quota.used;
    const seconds = this.secondsLeft(quota);
    throw new ApiError(42900, `${problem}: try again in ${seconds} s.`, {
      headers: ["Retry-After", String(seconds)],
    });
  }

  /** Returns when a quota ends. */
  secondsLeft({ endsAt }: Quota): number {
    return Math.max(1, Math.ceil((endsAt - this.#now()) / 1000));
  }

  /** Returns the quota of a key, perhaps a new one that is not stored yet; drops those that have ended. */
  #find(key: string): Quota {
    const endsAt = this.#now() + windowMs;
    for (const [oldest, quota] of this.#quotas) {
      const hasEnded = quota.endsAt > endsAt ||
        quota.endsAt <= endsAt - windowMs;
      if (!hasEnded) break;
      this.#quotas.delete(oldest);
    }
    return this.#quotas.get(key) ?? { used: 0, endsAt };
  }
}
