/** Servers that share a store in etcd, which tests kill, freeze and restart. */

import { execFileSync } from "node:child_process";
import { cp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import {
  copyAssets,
  removeFolder,
  root,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { patienceMs, until } from "./etcd.ts";

/** A change of the built code: the first text occurs once. */
export interface Patch {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** Limits that are lower than in production, so that they are reached often. */
const small: readonly Patch[] = [
  {
    file: "etcd/client.js",
    from: "const leaseSeconds = 60;",
    to: "const leaseSeconds = 2;",
  },
  {
    file: "etcd/client.js",
    from: "const renewMs = 20_000;",
    to: "const renewMs = 600;",
  },
  {
    file: "features/imports/worker.js",
    from: "const lookMs = 20_000;",
    to: "const lookMs = 500;",
  },
  {
    file: "store/options.js",
    from: "minLogBytes: 8 << 20",
    to: "minLogBytes: 32 << 10",
  },
];

/** Builds the project into a folder; returns the path of `main.js`. */
export async function buildInto(
  folder: string,
  patches: readonly Patch[] = small,
): Promise<string> {
  const build = join(folder, "build");
  const compiler = join(root, "node_modules/typescript/bin/tsc");
  const args = [compiler, "-p", "src", "--outDir", build];
  execFileSync(process.execPath, args, { cwd: root });
  await copyAssets(join(root, "src"), build);
  await cp(join(root, "package.json"), join(folder, "package.json"));
  for (const patch of patches) await applyPatch(build, patch);
  return join(build, "main.js");
}

/** Copies a build, with changes; returns the path of `main.js`. */
export async function patchBuild(
  folder: string,
  copy: string,
  patches: readonly Patch[],
): Promise<string> {
  const build = join(folder, copy);
  await cp(join(folder, "build"), build, { recursive: true });
  for (const patch of patches) await applyPatch(build, patch);
  return join(build, "main.js");
}

async function applyPatch(
  build: string,
  { file, from, to }: Patch,
): Promise<void> {
  const path = join(build, file);
  const text = await readFile(path, "utf8");
  if (text.split(from).length !== 2) {
    throw new Error(`${file} does not have this once: ${from}`);
  }
  await writeFile(path, text.replace(from, () => to));
}

/** How to start the servers. */
export interface ServersOptions {
  readonly count?: number;
  /** The value of `STORE`. */
  readonly store: string;
  readonly main?: string;
  /** The text of a declaration file. */
  readonly collections?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** One of the servers: another process after each restart. */
export class Member {
  readonly name: string;
  readonly #start: (folder: string) => Promise<Server>;
  /** How often it was replaced by a server without a folder. */
  #generation = 1;
  server: Server | undefined;
  isFrozen = false;
  /** Where it was last. */
  origin = "";

  constructor(name: string, start: (folder: string) => Promise<Server>) {
    this.name = name;
    this.#start = start;
  }

  async start(): Promise<Server> {
    const folder = `${this.name}-${this.#generation}`;
    this.server = await this.#start(folder);
    this.origin = this.server.origin;
    return this.server;
  }

  /** Forgets its folder: the next start is that of a server that joins. */
  forget(): void {
    this.#generation++;
  }

  freeze(): void {
    this.isFrozen = this.server?.child.kill("SIGSTOP") ?? false;
  }

  thaw(): void {
    this.server?.child.kill("SIGCONT");
    this.isFrozen = false;
  }

  /** Ends it with a signal, and removes what was made for it. */
  async end(signal: NodeJS.Signals): Promise<void> {
    const { server } = this;
    this.server = undefined;
    if (this.isFrozen) server?.child.kill("SIGCONT");
    this.isFrozen = false;
    await server?.end(signal);
    await server?.stop();
  }
}

/** Servers with one store. */
export class Servers {
  readonly members: readonly Member[];
  readonly #folder: string;

  constructor(folder: string, members: readonly Member[]) {
    this.#folder = folder;
    this.members = members;
  }

  /** Starts or resumes all servers, and waits until each can be used. */
  async heal(): Promise<void> {
    for (const member of this.members) {
      if (member.isFrozen) member.thaw();
      if (member.server === undefined) await member.start();
    }
    for (const { name, origin } of this.members) {
      const isHealthy = async () => {
        const signal = AbortSignal.timeout(patienceMs);
        const response = await fetch(`${origin}/health`, { signal });
        await response.arrayBuffer();
        return response.ok;
      };
      await until(`${name} is healthy`, isHealthy);
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.members.map((member) => member.end("SIGKILL")));
    await removeFolder(this.#folder);
  }
}

/** Starts servers: the first one creates the store. */
export async function startServers(
  { count = 3, store, main, collections, env }: ServersOptions,
): Promise<Servers> {
  const folder = await temporaryFolder();
  const file = join(folder, "collections.mjs");
  if (collections !== undefined) await writeFile(file, collections);
  const members = Array.from({ length: count }, (_, index) => {
    const name = `server-${index + 1}`;
    return new Member(name, (own) =>
      start({
        folder: join(folder, own),
        isNew: true,
        ...main && { main },
        env: {
          STORE: store,
          ...collections && { COLLECTIONS: file },
          ...env,
        },
      }));
  });
  const servers = new Servers(folder, members);
  await servers.heal();
  return servers;
}
