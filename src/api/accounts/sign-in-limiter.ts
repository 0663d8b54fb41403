/**
 * Limits how fast passwords can be guessed from an address. So nobody can lock
 * out a user who signs in from another address.
 */

import { type Requester, Turns } from "../../admission.ts";
import { RateLimiter } from "../../http/rate-limit.ts";

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
export function createSignInLimiter(now: () => number) {
  const byClient = new RateLimiter(maxFailuresPerClient, now);
  const byUser = new RateLimiter(maxFailuresPerUser, now);
  const turns = new Turns(Infinity, 1);

  /**
   * Runs a sign-in, which returns undefined if the password is wrong. It is
   * refused only after as many failures as are allowed: before it waits, or in
   * its turn. Those of one client run one at a time, so many wrong passwords at a
   * time cannot exceed the limit together, and right ones are never refused.
   *
   * @throws {ApiError} 42900; {OverloadedError}; the reason of the requester's
   * signal
   */
  return async <User>(
    requester: Requester,
    username: string,
    signIn: () => Promise<User | undefined>,
  ): Promise<User | undefined> => {
    const { client } = requester;
    const user = `${client} ${username.slice(0, 32)}`; // no name is longer
    const check = () => {
      byClient.check(client, "Too many sign-ins have failed");
      byUser.check(user, "Too many sign-ins have failed");
    };
    check();
    return await turns.run(requester, async () => {
      check();
      const found = await signIn();
      if (found !== undefined) byUser.forget(user);
      else {
        byClient.count(client);
        byUser.count(user);
      }
      return found;
    });
  };
}

export type LimitSignIns = ReturnType<typeof createSignInLimiter>;
