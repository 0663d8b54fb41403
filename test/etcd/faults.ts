/** Faults that come while the clients are at work. */

import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../torture/random.ts";
import type { Servers } from "./cluster.ts";
import type { EtcdCluster, EtcdNode } from "./etcd.ts";

export const directFaults = [
  "kill a server",
  "freeze a server",
  "kill the leader",
  "freeze the leader",
  "lose the quorum",
] as const;

/** With servers that reach etcd through relays. */
export const allFaults = [...directFaults, "lose answers"] as const;

export type Fault = (typeof allFaults)[number];

/** Causes faults, one or two at a time, and repairs each after a while. */
export class Nemesis {
  readonly #etcd: EtcdCluster;
  readonly #servers: Servers;
  readonly #random: Random;
  /** The faults that it caused, with times. */
  readonly log: string[] = [];

  constructor(etcd: EtcdCluster, servers: Servers, random: Random) {
    this.#etcd = etcd;
    this.#servers = servers;
    this.#random = random;
  }

  async run(
    signal: AbortSignal,
    chosen: readonly Fault[],
  ): Promise<void> {
    const random = this.#random;
    let next = random.below(chosen.length);
    while (!signal.aborted) {
      await pause(300 + random.below(1500), signal);
      if (signal.aborted) return;
      await this.#cause(chosen[next++ % chosen.length], signal);
    }
  }

  async #cause(fault: Fault | undefined, signal: AbortSignal): Promise<void> {
    if (fault === "kill a server") await this.#killServer(signal);
    if (fault === "freeze a server") await this.#freezeServer(signal);
    if (fault === "kill the leader") await this.#killNode(signal);
    if (fault === "freeze the leader") await this.#freezeNode(signal);
    if (fault === "lose the quorum") await this.#loseQuorum(signal);
    if (fault === "lose answers") await this.#loseAnswers(signal);
  }

  #note(text: string): void {
    this.log.push(`${performance.now().toFixed(1)} ${text}`);
  }

  async #killServer(signal: AbortSignal): Promise<void> {
    const member = this.#random.pick(this.#servers.members);
    this.#note(`kill ${member.name}`);
    await member.end("SIGKILL");
    await pause(this.#random.below(1000), signal);
    const isLost = this.#random.chance(0.4);
    if (isLost) member.forget();
    this.#note(`start ${member.name}${isLost ? " without its folder" : ""}`);
    // Where etcd has no leader, it cannot start yet.
    await member.start().catch(() => this.#note(`${member.name} ended`));
  }

  async #freezeServer(signal: AbortSignal): Promise<void> {
    const member = this.#random.pick(this.#servers.members);
    if (member.server === undefined) return;
    this.#note(`freeze ${member.name}`);
    member.freeze();
    // Longer than a lease in half of all cases.
    await pause(500 + this.#random.below(4000), signal);
    this.#note(`thaw ${member.name}`);
    member.thaw();
  }

  /** Returns the leader, or any node if there is none. */
  async #leader(): Promise<EtcdNode> {
    return await this.#etcd.leader() ?? this.#random.pick(this.#etcd.nodes);
  }

  async #killNode(signal: AbortSignal): Promise<void> {
    const node = await this.#leader();
    this.#note(`kill the leader ${node.name}`);
    await node.kill();
    await pause(this.#random.below(3000), signal);
    this.#note(`start ${node.name}`);
    node.start();
  }

  async #freezeNode(signal: AbortSignal): Promise<void> {
    const node = await this.#leader();
    this.#note(`freeze the leader ${node.name}`);
    node.freeze();
    await pause(500 + this.#random.below(4000), signal);
    this.#note(`thaw ${node.name}`);
    node.thaw();
  }

  async #loseQuorum(signal: AbortSignal): Promise<void> {
    const leader = await this.#leader();
    const others = this.#etcd.nodes.filter((node) => node !== leader);
    const other = this.#random.pick(others);
    const isKilled = this.#random.chance(0.3);
    const killed = isKilled ? [leader] : [];
    // A leader without followers appends what it is sent, and may commit it later.
    const isAlone = this.#random.chance(0.6);
    const frozen = isKilled ? [other] : isAlone ? others : [leader, other];
    const namesOf = (nodes: readonly EtcdNode[]) =>
      nodes.map(({ name }) => name).join(" and ");
    this.#note(`freeze ${namesOf(frozen)}, kill ${namesOf(killed)}`);
    for (const node of frozen) node.freeze();
    for (const node of killed) await node.kill();
    // Longer than a request waits in half of all cases.
    await pause(1000 + this.#random.below(7000), signal);
    this.#note("repair both");
    for (const node of killed) node.start();
    for (const node of frozen) node.thaw();
  }

  async #loseAnswers(signal: AbortSignal): Promise<void> {
    this.#note("lose answers");
    this.#etcd.loseAnswers(true);
    await pause(500 + this.#random.below(3000), signal);
    this.#note("lose none");
    this.#etcd.loseAnswers(false);
  }
}

/** Waits; not longer than the round. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => {});
}
