/** Three nodes of etcd as child processes, which tests kill, freeze and restart. */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import {
  freePort,
  removeAtExit,
  removeFolder,
  temporaryFolder,
} from "../harness.ts";
import { Relay } from "./relay.ts";

/** After this long something hangs. */
export const patienceMs = 60_000;

/** Ends the program, loudly, if etcd is not installed. */
export function requireEtcd(): void {
  const { error } = spawnSync("etcd", ["--version"]);
  if (error === undefined) return;
  process.stderr.write(
    "!!! etcd is missing: NOTHING WAS TESTED. Install it (Debian: etcd-server).\n",
  );
  process.exit(1);
}

/** Waits until something is the case. */
export async function until(
  what: string,
  isCase: () => Promise<boolean> | boolean,
  limitMs = patienceMs,
): Promise<void> {
  const deadline = performance.now() + limitMs;
  while (!await isCase()) {
    if (performance.now() > deadline) throw new Error(`Not in time: ${what}`);
    await delay(25);
  }
}

/** Sends a call to etcd's gateway; undefined if it fails. */
async function call(
  url: string,
  path: string,
  body: object,
): Promise<Record<string, unknown> | undefined> {
  try {
    const signal = AbortSignal.timeout(1000);
    const init = { method: "POST", body: JSON.stringify(body), signal };
    const response = await fetch(`${url}/v3/${path}`, init);
    return response.ok
      ? await response.json() as Record<string, unknown>
      : undefined;
  } catch {
    return undefined;
  }
}

/** A node of etcd. */
export class EtcdNode {
  readonly name: string;
  readonly url: string;
  readonly #args: readonly string[];
  #child: ChildProcess | undefined;
  isFrozen = false;

  constructor(name: string, url: string, args: readonly string[]) {
    this.name = name;
    this.url = url;
    this.#args = args;
  }

  get isRunning(): boolean {
    return this.#child !== undefined;
  }

  start(): void {
    // It must not outlive the test, however that ends.
    const args = ["--pdeathsig", "KILL", "etcd", ...this.#args];
    const stdio = ["ignore", "ignore", "inherit"] as const;
    this.#child = spawn("setpriv", args, { stdio: [...stdio] });
    this.isFrozen = false;
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    this.#child = undefined;
    const exited = once(child, "exit");
    child.kill("SIGKILL");
    await exited;
  }

  freeze(): void {
    this.isFrozen = this.#child?.kill("SIGSTOP") ?? false;
  }

  thaw(): void {
    this.#child?.kill("SIGCONT");
    this.isFrozen = false;
  }

  /** Returns true if it can read and write. */
  async isHealthy(): Promise<boolean> {
    const key = Buffer.from("health").toString("base64");
    return await call(this.url, "kv/range", { key }) !== undefined;
  }

  /** Returns true if it believes itself to be the leader. */
  async isLeader(): Promise<boolean> {
    const status = await call(this.url, "maintenance/status", {});
    const header = status?.["header"] as { member_id?: string } | undefined;
    return header !== undefined && status?.["leader"] === header.member_id;
  }
}

/** A cluster of etcd on free ports, with its data in a temporary folder. */
export class EtcdCluster {
  readonly nodes: readonly EtcdNode[];
  readonly #folder: string;
  readonly #relays: readonly Relay[];

  constructor(
    folder: string,
    nodes: readonly EtcdNode[],
    relays: readonly Relay[],
  ) {
    this.#folder = folder;
    this.nodes = nodes;
    this.#relays = relays;
  }

  /** The value of `STORE` for a prefix; with relays, answers can be lost. */
  store(prefix: string, hasRelays = false): string {
    const hosts = hasRelays
      ? this.#relays.map(({ host }) => host)
      : this.nodes.map(({ url }) => new URL(url).host);
    return `etcd://${hosts.join()}/${prefix}`;
  }

  /** Makes the relays lose answers, or no longer. */
  loseAnswers(losesAnswers: boolean): void {
    for (const relay of this.#relays) relay.losesAnswers = losesAnswers;
  }

  /** Returns the leader; undefined if there is none. */
  async leader(): Promise<EtcdNode | undefined> {
    for (const node of this.nodes) {
      if (node.isRunning && !node.isFrozen && await node.isLeader()) {
        return node;
      }
    }
    return undefined;
  }

  /** Starts or resumes all nodes, and waits until each answers. */
  async heal(): Promise<void> {
    this.loseAnswers(false);
    for (const node of this.nodes) {
      if (node.isFrozen) node.thaw();
      if (!node.isRunning) node.start();
    }
    for (const node of this.nodes) {
      await until(`${node.name} is healthy`, () => node.isHealthy());
    }
  }

  async stop(): Promise<void> {
    for (const relay of this.#relays) relay.stop();
    await Promise.all(this.nodes.map((node) => node.kill()));
    await removeFolder(this.#folder);
  }
}

/** Where data is in memory, and yet survives kill -9 of a node. */
const memory = "/dev/shm";

/** Starts a cluster, and waits until it can be used. Its data is in memory if it can be. */
export async function startEtcd(
  count = 3,
  { isOnDisk = !existsSync(memory) } = {},
): Promise<EtcdCluster> {
  const folder = isOnDisk
    ? await temporaryFolder()
    : removeAtExit(await mkdtemp(join(memory, "zoo-api-test-")));
  const places: { name: string; client: string; peer: string }[] = [];
  for (let number = 1; number <= count; number++) {
    const client = `http://127.0.0.1:${await freePort()}`;
    const peer = `http://127.0.0.1:${await freePort()}`;
    places.push({ name: `etcd-${number}`, client, peer });
  }
  const all = places.map(({ name, peer }) => `${name}=${peer}`).join();
  const nodes = places.map(({ name, client, peer }) =>
    new EtcdNode(name, client, [
      ...["--name", name, "--data-dir", join(folder, name)],
      ...["--listen-client-urls", client, "--advertise-client-urls", client],
      ...["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer],
      ...["--initial-cluster", all, "--logger", "zap", "--log-level", "fatal"],
    ])
  );
  const relays = nodes.map(({ url }) => Relay.start(Number(new URL(url).port)));
  const cluster = new EtcdCluster(folder, nodes, await Promise.all(relays));
  await cluster.heal();
  return cluster;
}
