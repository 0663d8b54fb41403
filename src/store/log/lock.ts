/**
 * One process per folder: each listens on a unix socket in the folder itself,
 * which the kernel closes with the process, however that ends. So no stale lock
 * has to be deleted by hand, and containers and network namespaces that share
 * the folder see each other's locks. (Machines that share it over a network do
 * not.) The usual way would be flock, which Node.js offers only through a child
 * process; a file with a process id would have to be cleaned up, and could name
 * the wrong process in another container.
 *
 * A process listens under a temporary name, then renames the socket to its
 * published name `lock-<random>.sock`, and then connects to all others. (One
 * that dies in between leaves an empty file that nobody looks at.)
 *
 * - Safe. Names are never reused, and a published socket listens until its
 *   process withdraws or dies. So a refused connection means a dead process,
 *   and others remove only such names. When two processes publish, the later
 *   one lists the folder after the earlier name is in it, so it sees the
 *   earlier process as long as that lives. No process becomes the owner while
 *   it sees another one alive, whatever that one responds. So the later process
 *   cannot become a second owner; and the earlier one, once owner, stays
 *   published.
 * - Live. Nobody publishes while it sees a living candidate, so the candidates
 *   are few and become fewer. The one with the smallest name never withdraws
 *   for another; the others do, and when they are gone it continues. A socket
 *   that is alive but silent (a stopped process) counts as the owner: better to
 *   give up than to share.
 */

import { Buffer } from "node:buffer";
import { once } from "node:events";
import { connect, createServer, type Server } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { errorCode, StoreError } from "../error.ts";
import { randomName, type StoreFolder } from "./folder.ts";

// 107 on Linux, 103 elsewhere.
const maxSocketPathBytes = 103;

/**
 * Locks a folder, and returns the function that releases it; rejects with
 * `in-use` if another process has it, or does not respond for `timeoutMs`.
 */
export async function acquireLock(
  place: StoreFolder,
  timeoutMs: number,
): Promise<() => Promise<void>> {
  const handle = await place.files.open(place.folder, "read");
  const lock = new FolderLock(place, handle.fd, timeoutMs);
  const release = async () => {
    await lock.withdraw();
    await handle.close();
  };
  await lock.acquire().catch(async (error) => {
    await release();
    throw error;
  });
  return release;
}

type Role = "candidate" | "owner";

class FolderLock {
  readonly #place: StoreFolder;
  readonly #descriptor: number;
  readonly #timeoutMs: number;
  #role: Role = "candidate";
  #name = "";
  #server: Server | undefined;

  constructor(place: StoreFolder, descriptor: number, timeoutMs: number) {
    this.#place = place;
    this.#descriptor = descriptor;
    this.#timeoutMs = timeoutMs;
  }

  async acquire(): Promise<void> {
    while (true) {
      const rivals = await this.#findRivals();
      if (rivals.length > 0) {
        if (rivals.some((name) => name < this.#name)) await this.withdraw();
        await delay(10 + Math.random() * 20);
      } else if (this.#server === undefined) {
        await this.#publish();
      } else {
        this.#role = "owner";
        return;
      }
    }
  }

  async withdraw(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    const { files, folder } = this.#place;
    await files.remove(join(folder, this.#name));
    await new Promise((resolve) => server.close(resolve));
  }

  async #publish(): Promise<void> {
    const { files, folder } = this.#place;
    const base = `lock-${randomName(this.#place)}`;
    const server = createServer((socket) => {
      socket.unref();
      socket.on("error", () => {});
      // Not half open: a client that has been stopped would delay the release.
      socket.end(this.#role, () => socket.destroy());
    });
    const draft = `${base}.new`;
    server.listen({ path: this.#socketPath(draft), exclusive: true });
    await once(server, "listening");
    server.unref();
    this.#server = server;
    this.#name = `${base}.sock`;
    await files.rename(join(folder, draft), join(folder, this.#name));
  }

  /** Returns the other living candidates, and removes the dead ones; throws if there is an owner. */
  async #findRivals(): Promise<string[]> {
    const { files, folder } = this.#place;
    const living: string[] = [];
    for (const name of await files.list(folder)) {
      const isSocket = name.startsWith("lock-") && name.endsWith(".sock");
      if (!isSocket || name === this.#name) continue;
      const role = await this.#askRole(name);
      if (role === "dead") {
        await files.remove(join(folder, name));
      } else if (role === "candidate") {
        living.push(name);
      } else {
        throw new StoreError(
          "in-use",
          `Cannot open ${folder}: another process, such as a running ` +
            "server, is using it: stop it first",
        );
      }
    }
    return living;
  }

  async #askRole(name: string): Promise<Role | "dead"> {
    const socket = connect({ path: this.#socketPath(name) });
    socket.setTimeout(this.#timeoutMs, () => socket.destroy());
    try {
      // One that is withdrawing may end it without a word, and is asked again.
      return await text(socket) === "owner" ? "owner" : "candidate";
    } catch (error) {
      const code = errorCode(error);
      // Its process has died, or it has withdrawn.
      if (code === "ECONNREFUSED" || code === "ENOENT") return "dead";
      return code === "ECONNRESET" ? "candidate" : "owner";
    }
  }

  #socketPath(name: string): string {
    const path = join(this.#place.folder, name);
    const isShort = Buffer.byteLength(path) <= maxSocketPathBytes;
    return isShort || process.platform !== "linux"
      ? path
      : `/proc/self/fd/${this.#descriptor}/${name}`;
  }
}
