/**
 * The users who send the requests. Requests change passwords, and delete users
 * and sessions, after which only 401 would be left to see: then another user
 * with the same role takes over.
 */

import { setTimeout as delay } from "node:timers/promises";
import type { Server } from "../harness.ts";

/** The tokens of the users who send the requests. */
export interface Tokens {
  viewer: string;
  keeper: string;
  admin: string;
}

/** How often the tokens are checked, and so how often a user signs in. */
const checkMs = 500;

const password = "long enough to hash";

/** Keeps one user of each role signed in. */
export class Sessions {
  /** The present tokens; each can be replaced at any time. */
  readonly tokens: Tokens = { viewer: "", keeper: "", admin: "" };
  /** The token of an admin whom no request of the lanes can reach. */
  readonly root: string;
  /** The names of those users. */
  readonly #names = { root: "root", viewer: "", keeper: "", admin: "" };
  readonly #server: Server;
  #users = 0;
  #isRunning = true;

  private constructor(server: Server, root: string) {
    this.#server = server;
    this.root = root;
  }

  /** Creates the users of a new server. */
  static async open(server: Server): Promise<Sessions> {
    // Requests can reach the first user, because its id has odd spellings.
    const first = await server.signIn();
    const json = { username: "root", password, role: "admin" };
    await server.request("POST", "/v1/users", { json, token: first });
    const root = await server.signIn("root", password);
    const sessions = new Sessions(server, root);
    await sessions.#renew();
    return sessions;
  }

  /** The number of users who took over from others. */
  get replacements(): number {
    return this.#users - Object.keys(this.tokens).length;
  }

  /** Returns whether the user of this name sends requests now. */
  isInUse(username: string): boolean {
    return Object.values(this.#names).includes(username);
  }

  /** Replaces users until {@linkcode stop} is called. */
  async run(): Promise<void> {
    while (this.#isRunning) {
      await delay(checkMs);
      // A server that has ended is reported by the requests that fail.
      await this.#renew().catch(() => {});
    }
  }

  stop(): void {
    this.#isRunning = false;
  }

  async #renew(): Promise<void> {
    for (const role of ["viewer", "keeper", "admin"] as const) {
      const token = this.tokens[role];
      const { body } = await this.#server.request("GET", "/v1/user", { token });
      if (body?.["role"] !== role) this.tokens[role] = await this.#add(role);
    }
  }

  /** Creates a user, and returns its token. */
  async #add(role: "viewer" | "keeper" | "admin"): Promise<string> {
    const username = `fuzz-${role}-${++this.#users}`;
    this.#names[role] = username;
    const json = { username, password, role };
    const token = this.root;
    await this.#server.request("POST", "/v1/users", { json, token });
    return await this.#server.signIn(username, password);
  }
}
