/**
 * Limits how fast passwords can be guessed from an address. So nobody can lock
 * out a user who signs in from another address.
 */

import { EventEmitter, once } from "node:events";
import type { LimitSignIns } from "../../api/request-types.ts";
import { RateLimiter } from "../../api/accounts/rate-limit.ts";

/** How often a client may fail to sign in within a minute, and as one user. */
const maxFailuresPerClient = 50;
const maxFailuresPerUser = 10;

/**
 * Counts failed sign-ins. An attacker who could fill its memory would displace
 * the counts of others. But each failure has cost a hash within the last minute,
 * so there are several times fewer counts than there is room for.
 *
 * @param now returns milliseconds
 */
export function createSignInLimiter(now: () => number): LimitSignIns<string> {
  const byClient = new RateLimiter(maxFailuresPerClient, now);
  const byUser = new RateLimiter(maxFailuresPerUser, now);
  /** How many passwords are being hashed, by the keys of their limits. */
  const hashing = new Map<string, number>();
  const ends = new EventEmitter().setMaxListeners(0);

  /**
   * Runs a sign-in, which returns undefined if the password is wrong. It is
   * refused only after as many failures as are allowed: before it waits, or when
   * its password is about to be hashed. There it waits for sign-ins that are
   * being checked if these would exceed the limit together. So many wrong
   * passwords at a time cannot, and right ones are never refused.
   *
   * @param check calls and awaits `beforeHash` when it begins to hash the password
   * @throws {ApiError} 42900
   */
  return async <User>(
    client: string,
    username: string,
    check: (beforeHash: () => Promise<void>) => Promise<User | undefined>,
  ): Promise<User | undefined> => {
    const user = `${client} ${username.slice(0, 32)}`; // no name is longer
    /** Returns whether it may fail, whatever becomes of those being checked. */
    const mayFail = () => {
      const left = (limiter: RateLimiter, key: string) =>
        limiter.check(key, "Too many sign-ins have failed") -
        (hashing.get(key) ?? 0);
      return left(byClient, client) > 0 && left(byUser, user) > 0;
    };
    const countHash = (change: number) => {
      for (const key of [client, user]) {
        const count = (hashing.get(key) ?? 0) + change;
        if (count > 0) hashing.set(key, count);
        else hashing.delete(key);
      }
    };
    let isHashing = false;
    mayFail();
    try {
      const found = await check(async () => {
        while (!mayFail()) await once(ends, "end");
        countHash(1);
        isHashing = true;
      });
      if (found !== undefined) byUser.forget(user);
      else {
        byClient.count(client);
        byUser.count(user);
      }
      return found;
    } finally {
      if (isHashing) {
        countHash(-1);
        ends.emit("end");
      }
    }
  };
}
