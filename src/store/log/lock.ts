/**
 * One process a folder: a unix socket in the folder itself, which the kernel
 * closes with its process, however that ends. Nothing stale stays that a
 * person must delete, no child process is started, and network namespaces and
 * containers that share the folder meet in it. (Machines that share a folder
 * over the network do not.)
 *
 * A starter listens under a fresh temporary name, only then renames the socket
 * to its published name `lock-<random>.sock`, and then looks at the others:
 *
 * - Safe. Names are never used again and a published socket listens until its
 *   owner withdraws or dies, so a refused connection means dead, and only such
 *   names are removed by others. Of two that publish, the later one lists the
 *   folder after the earlier one is in it, hence sees it as long as it lives.
 *   Nobody becomes owner while it sees another alive, whatever that one
 *   answers. So the later one cannot become owner beside the earlier one, and
 *   the earlier one, once owner, stays published.
 * - Live. Nobody publishes while it sees a living candidate, so those who
 *   compete are few and their number only falls; the one with the smallest
 *   name never retreats from them, the others do, and it goes on when they are
 *   gone. A socket that is alive but silent (a stopped process) counts as
 *   owner: better to give up than to share.
 */

import { Buffer } from "node:buffer";
import { connect, createServer, type Server } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { errorCode, StoreError } from "../error.ts";
import type { FileSystem } from "./files.ts";
import { randomName } from "../recovery/folder.ts";

/** What the lock needs besides its folder. */
export interface LockOptions {
  readonly files: FileSystem;
  readonly random: (bytes: number) => Uint8Array;
  /** How long another process may take to answer, in milliseconds. */
  readonly timeoutMs: number;
}

/** Holds a folder; rejects with `in-use` when another does. Returns the release. */
export async function acquireLock(
  folder: string,
  options: LockOptions,
): Promise<() => Promise<void>> {
  const handle = await options.files.open(folder, "read");
  const candidacy = new FolderLock(folder, handle.fd, options);
  const release = async () => {
    await candidacy.withdraw();
    await handle.close();
  };
  await candidacy.win().catch(async (error) => {
    await release();
    throw error;
  });
  return release;
}

type State = "candidate" | "owner";

class FolderLock {
  readonly #folder: string;
  readonly #descriptor: number;
  readonly #options: LockOptions;
  #state: State = "candidate";
  #name = "";
  #server: Server | undefined;

  constructor(folder: string, descriptor: number, options: LockOptions) {
    this.#folder = folder;
    this.#descriptor = descriptor;
    this.#options = options;
  }

  async win(): Promise<void> {
    while (true) {
      const rivals = await this.#living(".sock");
      if (rivals.length > 0) {
        if (rivals.some((name) => name < this.#name)) await this.withdraw();
        await delay(10 + Math.random() * 20);
      } else if (this.#server === undefined) {
        await this.#publish();
      } else {
        break;
      }
    }
    this.#state = "owner";
    await this.#living(".new"); // what died before it could publish goes
  }

  async withdraw(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    await this.#options.files.remove(join(this.#folder, this.#name));
    await new Promise((resolve) => server.close(resolve));
  }

  async #publish(): Promise<void> {
    const base = `lock-${randomName(this.#options)}`;
    const server = createServer((socket) => {
      socket.unref();
      socket.on("error", () => {});
      // Not left half open: a stopped asker would keep the release waiting.
      socket.end(this.#state, () => socket.destroy());
    });
    const path = this.#path(`${base}.new`);
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen({ path, exclusive: true }, resolve);
    });
    server.unref();
    this.#server = server;
    this.#name = `${base}.sock`;
    const from = join(this.#folder, `${base}.new`);
    const to = join(this.#folder, this.#name);
    await this.#options.files.rename(from, to).catch(async (error) => {
      // A new owner may have swept the draft away: look again.
      if (errorCode(error) !== "ENOENT") throw error;
      await this.withdraw();
    });
  }

  /** The sockets of other living candidates; those of the dead are removed. */
  async #living(ending: ".sock" | ".new"): Promise<string[]> {
    const living: string[] = [];
    for (const name of await this.#options.files.list(this.#folder)) {
      const other = name.startsWith("lock-") && name.endsWith(ending);
      if (!other || name === this.#name) continue;
      const answer = await this.#ask(name);
      if (answer === "dead") {
        await this.#options.files.remove(join(this.#folder, name));
      } else if (answer === "candidate") {
        living.push(name);
      } else if (this.#state === "candidate") {
        throw new StoreError(
          "in-use",
          `Cannot open ${this.#folder}: another process, such as a running server, is using it`,
        );
      }
    }
    return living;
  }

  #ask(name: string): Promise<State | "dead"> {
    return new Promise((resolve) => {
      let text = "";
      const socket = connect({ path: this.#path(name) });
      const decide = (answer: State | "dead") => {
        clearTimeout(timer);
        socket.destroy();
        resolve(answer);
      };
      const timer = setTimeout(decide, this.#options.timeoutMs, "owner");
      socket.setEncoding("latin1");
      socket.on("data", (part) => text += part);
      // Refused: its process is gone. Missing: it withdrew. Reset or ended
      // without an answer: it is about to, so ask again at the next look.
      socket.on("error", (error) => {
        const code = errorCode(error);
        const dead = code === "ECONNREFUSED" || code === "ENOENT";
        decide(dead ? "dead" : code === "ECONNRESET" ? "candidate" : "owner");
      });
      socket.on("end", () => {
        decide(text === "candidate" || text === "" ? "candidate" : "owner");
      });
    });
  }

  #path(name: string): string {
    const path = join(this.#folder, name);
    // The system's limit is 107 bytes on Linux and 103 elsewhere.
    if (Buffer.byteLength(path) <= 103) return path;
    if (process.platform !== "linux") {
      throw new Error(`Cannot lock ${this.#folder}: its path is too long`);
    }
    return `/proc/self/fd/${this.#descriptor}/${name}`;
  }
}
