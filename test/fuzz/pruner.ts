/**
 * Deletes what the requests have created, so that the number of records stays
 * about the same: then memory that grows is a leak.
 */

import { setTimeout as delay } from "node:timers/promises";
import type { Server } from "../harness.ts";
import { lastBasicId } from "./messages.ts";
import { modelZooName } from "./model.ts";
import type { Sessions } from "./sessions.ts";

const pauseMs = 500;

/** A record, with the properties that decide whether it is deleted. */
interface Found {
  readonly id: number;
  readonly name?: string;
  readonly username?: string;
}

/** Deletes records of a server while others send it requests. */
export class Pruner {
  readonly #server: Server;
  readonly #sessions: Sessions;
  #isRunning = true;
  /** How many records it has deleted. */
  deleted = 0;

  constructor(server: Server, sessions: Sessions) {
    this.#server = server;
    this.#sessions = sessions;
  }

  /** Deletes records until {@linkcode stop} is called. */
  async run(): Promise<void> {
    while (this.#isRunning) {
      await delay(pauseMs);
      // A server that has ended is reported by the requests that fail.
      await this.#prune().catch(() => {});
    }
  }

  stop(): void {
    this.#isRunning = false;
  }

  async #prune(): Promise<void> {
    for (const { id, name = "" } of await this.#find("zoos", "id,name")) {
      if (name.startsWith(modelZooName)) continue; // it deletes what it created
      await this.#delete("zoos", id, "?cascade=true");
    }
    for (const { id } of await this.#find("animals", "id")) {
      await this.#delete("animals", id);
    }
    const others = `id&zoo_id:lte=${lastBasicId}`;
    for (const { id } of await this.#find("employees", others)) {
      await this.#delete("employees", id);
    }
    for (
      const { id, username = "" } of await this.#find("users", "id,username")
    ) {
      if (!this.#sessions.isInUse(username)) await this.#delete("users", id);
    }
  }

  /** Returns the records that no valid request names, the oldest first. */
  async #find(collection: string, fields: string): Promise<readonly Found[]> {
    const url = `/v1/${collection}?id:gt=${lastBasicId}&fields=${fields}` +
      "&sortby=id&limit=100";
    const found: Found[] = [];
    for (let offset = 0; this.#isRunning; offset += 100) {
      const token = this.#sessions.root;
      const page = `${url}&offset=${offset}`;
      const { body } = await this.#server.request("GET", page, { token });
      if (!Array.isArray(body)) break;
      found.push(...body);
      if (body.length < 100) break;
    }
    return found;
  }

  async #delete(collection: string, id: number, query = ""): Promise<void> {
    if (!this.#isRunning) return;
    const url = `/v1/${collection}/${id}${query}`;
    const token = this.#sessions.root;
    const { status } = await this.#server.request("DELETE", url, { token });
    if (status === 204) this.deleted++;
  }
}
