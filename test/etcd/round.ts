/** A round: clients at work while faults come, and what must hold afterwards. */

import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../torture/random.ts";
import type { Member, Servers } from "./cluster.ts";
import { type EtcdCluster, until } from "./etcd.ts";
import { type Fault, Nemesis } from "./faults.ts";
import { History } from "./history.ts";
import { Client, exported, linesPerImport, type Round } from "./workload.ts";

/** After this long all servers agree. */
const agreeMs = 5000;

export interface RoundOptions {
  readonly number: number;
  readonly etcd: EtcdCluster;
  readonly servers: Servers;
  readonly random: Random;
  readonly clients: number;
  readonly ms: number;
  /** Which faults there are; none without. */
  readonly faults: readonly Fault[];
  /** How old a state may be that a GET shows, in ms. */
  readonly staleMs: number;
}

/** The findings of a round. */
export interface RoundReport {
  readonly failures: readonly string[];
  readonly history: History;
  readonly nemesis: readonly string[];
  /** How long it took until all servers agreed, in ms. */
  readonly agreedMs: number;
}

/** Runs a round, repairs everything, and judges what the clients were told. */
export async function runRound(options: RoundOptions): Promise<RoundReport> {
  const { number, etcd, servers, random, ms, faults } = options;
  const { members } = servers;
  const history = new History(options.staleMs);
  const [first] = members;
  const admin = await first?.server?.signIn() ?? "";
  const round: Round = {
    ...{ number, history, members, admin },
    registers: [],
    names: new Map(),
    children: [],
    imports: [],
  };
  const clients = Array.from(
    { length: options.clients },
    (_, index) => new Client(round, random, index),
  );
  for (const client of clients) await client.prepare();
  await delay(options.staleMs); // all servers know the clients
  const nemesis = new Nemesis(etcd, servers, random);
  const signal = AbortSignal.timeout(ms);
  // All have ended before anything is repaired.
  const ends = await Promise.allSettled([
    ...clients.map((client) => client.run(signal)),
    faults.length > 0 && nemesis.run(signal, faults),
  ]);
  const failures = ends.flatMap((end) =>
    end.status === "rejected" ? [`A part of the round: ${end.reason}`] : []
  );
  let agreedMs = 0;
  try {
    await etcd.heal();
    await servers.heal();
    const tasks = await finishedTasks(first, admin);
    const healedAt = performance.now();
    const exports = await agreement(members, admin);
    agreedMs = performance.now() - healedAt;
    claimFinal(history, round, exports, healedAt);
    failures.push(...findDangling(exports));
    failures.push(...findHalfTold(round, tasks, exports));
    // Another process must load the same.
    const member = random.pick(members);
    await member.end(random.chance(0.5) ? "SIGTERM" : "SIGKILL");
    await member.start();
    await agreement(members, admin);
  } catch (error) {
    failures.push(String(error));
  }
  failures.push(...history.judge());
  return { failures, history, nemesis: nemesis.log, agreedMs };
}

type Exports = ReadonlyMap<string, string>;

/** Returns the exports of all collections once they are the same from each server. */
async function agreement(
  members: readonly Member[],
  admin: string,
): Promise<Exports> {
  const signal = AbortSignal.timeout(agreeMs);
  while (true) {
    const found = await Promise.all(
      members.map((member) => exportAll(member, admin, signal)),
    ).catch((error) => {
      throw new Error("The servers do not agree: no answer", { cause: error });
    });
    const [first = new Map<string, string>(), ...others] = found;
    const differing = exported.filter((name) =>
      others.some((each) => each.get(name) !== first.get(name))
    );
    if (differing.length === 0) return first;
    if (signal.aborted) {
      const all = JSON.stringify(found.map((each) => [...each]));
      throw new Error(`The servers do not agree on ${differing}: ${all}`);
    }
    await delay(50);
  }
}

async function exportAll(
  { origin }: Member,
  admin: string,
  signal: AbortSignal,
): Promise<Exports> {
  const found = new Map<string, string>();
  for (const name of exported) {
    const response = await fetch(`${origin}/v1/${name}`, {
      headers: {
        accept: "application/x-ndjson",
        authorization: `Bearer ${admin}`,
      },
      signal,
    });
    const etag = response.headers.get("etag");
    found.set(name, `${response.status}${etag}\n${await response.text()}`);
  }
  return found;
}

interface Task {
  readonly url: string;
  readonly status: string;
  readonly lines: number;
  readonly imported: number;
  readonly failure: string | null;
}

/** Returns the tasks of the round once all are finished, and deletes them. */
async function finishedTasks(
  member: Member | undefined,
  admin: string,
): Promise<Task[]> {
  const headers = {
    accept: "application/x-ndjson",
    authorization: `Bearer ${admin}`,
  };
  let tasks: Task[] = [];
  await until("all imports have ended", async () => {
    const response = await fetch(`${member?.origin}/v1/tasks`, { headers });
    const lines = (await response.text()).split("\n").filter(Boolean);
    tasks = lines.map((line) => JSON.parse(line));
    return response.ok &&
      tasks.every(({ status }) => /succeeded|failed/.test(status));
  });
  for (const { url } of tasks) {
    await fetch(`${member?.origin}${url}`, { method: "DELETE", headers });
  }
  return tasks;
}

/** Finds imports that are not what their tasks say, whether clients know of the task or not. */
function findHalfTold(
  { number, imports }: Round,
  tasks: readonly Task[],
  exports: Exports,
): string[] {
  const found = imports.filter((path) => !tasks.some(({ url }) => url === path))
    .map((path) => `${path} is gone`);
  for (const { url, status, lines, imported, failure } of tasks) {
    const isWhole = lines === linesPerImport && imported === lines;
    if (status === "succeeded" ? isWhole : failure !== null) continue;
    found.push(`${url} ${status} with ${imported} of ${lines}: ${failure}`);
  }
  const tags = recordsOf(exports, "lines").map(({ tag }) => tag)
    .filter((tag) => tag.startsWith(`r${number}c`));
  const sum = tasks.reduce((sum, { imported }) => sum + imported, 0);
  if (tags.length !== sum) {
    found.push(`${sum} lines are imported, and ${tags.length} are there`);
  }
  if (new Set(tags).size !== tags.length) found.push("A line is there twice");
  return found;
}

interface Exported {
  readonly id: number;
  readonly tag: string;
  readonly value: string;
  readonly name: string;
  readonly name_id: number;
}

function recordsOf(exports: Exports, name: string): Exported[] {
  const [, ...lines] = exports.get(name)?.split("\n") ?? [];
  return lines.filter((line) => line !== "").map((line) => JSON.parse(line));
}

/** Adds a read of everything to the history. */
function claimFinal(
  history: History,
  { number, children }: Round,
  exports: Exports,
  start: number,
): void {
  const times = { text: "the export", start, end: performance.now() };
  const found = new Map<string, string>();
  for (const { tag, value } of recordsOf(exports, "registers")) {
    found.set(`register ${tag}`, value);
  }
  for (const { name, tag } of recordsOf(exports, "names")) {
    const key = `name ${name}`;
    if (found.has(key)) history.faults.push(`${name} is there twice`);
    found.set(key, tag);
  }
  for (const { tag } of recordsOf(exports, "orders")) {
    const key = `order ${tag}`;
    if (found.has(key)) history.faults.push(`order ${tag} is there twice`);
    found.set(key, "made");
  }
  for (const key of found.keys()) {
    const isOurs = key.includes(` r${number}c`) || key.includes(` n${number}-`);
    if (isOurs && !history.operations.has(key)) {
      history.faults.push(`Nobody created ${key}`);
    }
  }
  for (const key of history.operations.keys()) {
    if (/^(?:token|user) /.test(key)) continue;
    history.claim({ key, requires: { is: found.get(key) ?? null } }, times);
  }
  const present = new Set(
    recordsOf(exports, "children").map(({ id }) => id),
  );
  for (const { id, parent: { key, requires } } of children) {
    const value = requires && "is" in requires ? requires.is : null;
    const claim = present.has(id) ? { is: value } : { isNot: value };
    const text = `child ${id} in the export`;
    history.claim({ key, requires: claim }, { ...times, text });
  }
}

/** Finds references to records that are not there. */
function findDangling(exports: Exports): string[] {
  const ids = new Set(recordsOf(exports, "names").map(({ id }) => id));
  return recordsOf(exports, "children")
    .filter(({ name_id }) => !ids.has(name_id))
    .map(({ id, name_id }) => `Child ${id} refers to no name: ${name_id}`);
}
