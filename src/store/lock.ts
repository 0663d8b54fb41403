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
import { errorCode, StoreError } from "./error.ts";
import type { FileSystem, OpenFile } from "./files.ts";

/** What the lock needs besides its folder. */
export interface LockOptions {
  readonly files: FileSystem;
  readonly random: (bytes: number) => Uint8Array;
  /** How long another process may take to answer, in milliseconds. */
  readonly patience: number;
}

/** A folder that is held. */
export interface Lock {
  release(): Promise<void>;
}

type State = "candidate" | "owner";
type Answer = State | "dead";

// The system's limit for a socket's path is 107 bytes, elsewhere 103.
const longestPath = 103;

/** Holds a folder until released; rejects with `in-use` when another does. */
export async function acquireLock(
  folder: string,
  options: LockOptions,
): Promise<Lock> {
  const handle = await options.files.open(folder, "read");
  const candidacy = new Candidacy(folder, handle, options);
  try {
    await candidacy.win();
  } catch (error) {
    await candidacy.withdraw();
    await handle.close();
    throw error;
  }
  return {
    async release() {
      await candidacy.withdraw();
      await handle.close();
    },
  };
}

class Candidacy {
  readonly #folder: string;
  readonly #handle: OpenFile;
  readonly #options: LockOptions;
  #state: State = "candidate";
  #name = "";
  #server: Server | undefined;

  constructor(folder: string, handle: OpenFile, options: LockOptions) {
    this.#folder = folder;
    this.#handle = handle;
    this.#options = options;
  }

  async win(): Promise<void> {
    while (true) {
      const rivals = await this.#rivals();
      if (rivals.length === 0) {
        if (this.#server !== undefined) break;
        await this.#publish();
      } else {
        if (rivals.some((name) => name < this.#name)) await this.withdraw();
        await delay(10 + Math.random() * 20);
      }
    }
    this.#state = "owner";
    await this.#sweep();
  }

  async withdraw(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    await this.#options.files.remove(join(this.#folder, this.#name));
    await new Promise((resolve) => server.close(resolve));
  }

  async #publish(): Promise<void> {
    const { files, random } = this.#options;
    const base = `lock-${Buffer.from(random(8)).toString("hex")}`;
    const draft = `${base}.new`;
    const server = createServer((socket) => {
      socket.unref();
      socket.on("error", () => {});
      socket.end(this.#state);
    });
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen({ path: this.#path(draft), exclusive: true }, resolve);
    });
    server.unref();
    this.#name = `${base}.sock`;
    this.#server = server;
    try {
      await files.rename(
        join(this.#folder, draft),
        join(this.#folder, this.#name),
      );
    } catch (error) {
      // A new owner may have swept the draft away: look again.
      if (errorCode(error) !== "ENOENT") throw error;
      await this.withdraw();
    }
  }

  /** The names of all other candidates. Throws when there is an owner. */
  async #rivals(): Promise<string[]> {
    const rivals: string[] = [];
    for (const name of await this.#options.files.list(this.#folder)) {
      if (!/^lock-.*\.sock$/.test(name) || name === this.#name) continue;
      const answer = await this.#ask(name);
      if (answer === "owner") throw inUse(this.#folder);
      if (answer === "candidate") rivals.push(name);
      else await this.#options.files.remove(join(this.#folder, name));
    }
    return rivals;
  }

  /** Removes what starters left that died before they could publish. */
  async #sweep(): Promise<void> {
    for (const name of await this.#options.files.list(this.#folder)) {
      if (!/^lock-.*\.new$/.test(name)) continue;
      if (await this.#ask(name) !== "dead") continue;
      await this.#options.files.remove(join(this.#folder, name));
    }
  }

  #ask(name: string): Promise<Answer> {
    return new Promise((resolve) => {
      let text = "";
      const socket = connect({ path: this.#path(name) });
      const decide = (answer: Answer) => {
        clearTimeout(timer);
        socket.destroy();
        resolve(answer);
      };
      const timer = setTimeout(decide, this.#options.patience, "owner");
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
    if (Buffer.byteLength(path) <= longestPath) return path;
    if (process.platform === "linux") {
      return `/proc/self/fd/${this.#handle.fd}/${name}`;
    }
    throw new Error(`Cannot lock ${this.#folder}: its path is too long`);
  }
}

function inUse(folder: string): StoreError {
  return new StoreError(
    "in-use",
    `Cannot open ${folder}: another process, such as a running server, is using it`,
    { folder },
  );
}
