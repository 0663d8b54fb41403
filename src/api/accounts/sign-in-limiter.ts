/**
 * Limits how fast passwords can be guessed, by the address of the guesser: so
 * nobody can lock a user out who signs in from elsewhere.
 */

import { RateLimiter } from "../../http/rate-limit.ts";

/** How often a client may fail to sign in within a minute as one user, and in all. */
const maxFailuresPerUser = 10;
const maxFailuresPerClient = 50;

const problem = "Too many sign-ins have failed";

/**
 * Counts failed sign-ins. An attacker who could fill its memory would reset the
 * counts of others, but each entry has cost a hash within the last minute, or
 * waits for one: several times fewer than there is room for. Sign-ins that are
 * refused leave no entry.
 */
export class SignInLimiter {
  readonly #byUser: RateLimiter;
  readonly #byClient: RateLimiter;

  /** @param now returns milliseconds */
  constructor(now: () => number) {
    this.#byUser = new RateLimiter(maxFailuresPerUser, now);
    this.#byClient = new RateLimiter(maxFailuresPerClient, now);
  }

  /**
   * Runs a sign-in, which returns undefined if the password is wrong. It is
   * counted before the password is hashed, so that many at a time cannot pass
   * the limit together.
   *
   * @throws {ApiError} 42900
   */
  async limit<User>(
    client: string,
    username: string,
    check: () => Promise<User | undefined>,
  ): Promise<User | undefined> {
    const user = `${client} ${username.slice(0, 32)}`; // no name is longer
    const ofClient = this.#byClient.count(client);
    const ofUser = this.#byUser.count(user);
    let isFailed = false;
    try {
      this.#byClient.check(ofClient, problem);
      this.#byUser.check(ofUser, problem);
      const found = await check();
      isFailed = found === undefined;
      if (!isFailed) this.#byUser.forget(user);
      return found;
    } finally {
      // Also if it was refused before its password was hashed.
      if (!isFailed) {
        this.#byClient.uncount(client, ofClient);
        this.#byUser.uncount(user, ofUser);
      }
    }
  }
}
