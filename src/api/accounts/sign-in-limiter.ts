/**
 * Limits how fast passwords can be guessed from an address. So nobody can lock
 * out a user who signs in from another address.
 */

import { RateLimiter } from "../../http/rate-limit.ts";

/** How often a client may fail to sign in within a minute as one user, and in all. */
const maxFailuresPerUser = 10;
const maxFailuresPerClient = 50;

const problem = "Too many sign-ins have failed";

/**
 * Counts failed sign-ins. An attacker who could fill its memory would displace
 * the counts of others. But each entry has cost a hash within the last minute,
 * or waits for one, so there are several times fewer entries than there is room
 * for. Sign-ins that are refused leave no entry.
 *
 * @param now returns milliseconds
 */
export function createSignInLimiter(now: () => number) {
  const byUser = new RateLimiter(maxFailuresPerUser, now);
  const byClient = new RateLimiter(maxFailuresPerClient, now);

  /**
   * Runs a sign-in, which returns undefined if the password is wrong. It is
   * counted just before the password is hashed, so that many wrong passwords at
   * a time cannot exceed the limit together, and right ones that wait do not
   * count.
   *
   * @param check calls `beforeHash` when it begins to hash the password
   * @throws {ApiError} 42900
   */
  return async <User>(
    client: string,
    username: string,
    check: (beforeHash: () => void) => Promise<User | undefined>,
  ): Promise<User | undefined> => {
    const user = `${client} ${username.slice(0, 32)}`; // no name is longer
    const count = () => {
      const ofClient = byClient.count(client);
      const ofUser = byUser.count(user);
      const uncount = () => {
        byClient.uncount(client, ofClient);
        byUser.uncount(user, ofUser);
      };
      try {
        byClient.check(ofClient, problem);
        byUser.check(ofUser, problem);
        return uncount;
      } catch (error) {
        uncount();
        throw error;
      }
    };
    count()(); // refused before it waits
    let uncount: (() => void) | undefined;
    let isFailed = false;
    try {
      const found = await check(() => uncount = count());
      isFailed = found === undefined;
      if (!isFailed) byUser.forget(user);
      return found;
    } finally {
      if (!isFailed) uncount?.();
    }
  };
}

export type LimitSignIns = ReturnType<typeof createSignInLimiter>;
