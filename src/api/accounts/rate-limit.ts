/**
 * Counts what each client does in a minute, in bounded memory (RFC 6585 section
 * 4).
 */

import { ApiError } from "../../http/errors.ts";

export const windowMs = 60_000;

/** The most keys that are counted at a time: some 2 MB. The oldest is forgotten for another. */
const maxKeys = 10_000;

/** Counts by key. A minute is the same for all keys: it begins with the first use after another has ended. */
export class RateLimiter {
  readonly #limit: number;
  readonly #now: () => number;
  /** The oldest key first. */
  readonly #counts = new Map<string, number>();
  #endsAt = 0;

  /** @param now returns milliseconds; if the clock is set back, a new minute begins */
  constructor(limit: number, now: () => number) {
    this.#limit = limit;
    this.#now = now;
  }

  /** Counts one more for a key; returns the count. */
  count(key: string): number {
    const count = this.#find(key) + 1;
    const [oldest = ""] = this.#counts.keys();
    if (count === 1 && this.#counts.size >= maxKeys) {
      this.#counts.delete(oldest);
    }
    this.#counts.set(key, count);
    return count;
  }

  /** Resets the count of a key. */
  forget(key: string): void {
    this.#counts.delete(key);
  }

  /**
   * Returns how many more may be counted for a key.
   *
   * @param problem the beginning of the message
   * @throws {ApiError} 42900 if none
   */
  check(key: string, problem: string): number {
    const left = this.#limit - this.#find(key);
    if (left > 0) return left;
    const seconds = this.secondsLeft();
    throw new ApiError(42900, `${problem}: try again in ${seconds} s.`, {
      headers: ["Retry-After", String(seconds)],
    });
  }

  /** Returns when the minute ends. */
  secondsLeft(): number {
    return Math.max(1, Math.ceil((this.#endsAt - this.#now()) / 1000));
  }

  /** Returns the count of a key in the current minute, which may begin now. */
  #find(key: string): number {
    const startsAt = this.#endsAt - windowMs;
    const now = this.#now();
    if (now < startsAt || now >= this.#endsAt) {
      this.#counts.clear();
      this.#endsAt = now + windowMs;
    }
    return this.#counts.get(key) ?? 0;
  }
}
