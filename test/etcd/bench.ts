/**
 * How fast a store in etcd is, beside one in a folder: all on this machine and
 * in one run, three nodes of etcd on the same disk. Prints medians and ratios;
 * asserts nothing.
 *
 *     node --import tsx test/etcd/bench.ts [--seconds 3] [--rounds 3]
 */

import { Buffer } from "node:buffer";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { parseArgs } from "node:util";
import { type Load, measure, withWrk } from "../bench/load.ts";
import { removeFolder, temporaryFolder } from "../harness.ts";
import { buildInto, type Servers, startServers } from "./cluster.ts";
import { type EtcdCluster, requireEtcd, startEtcd } from "./etcd.ts";
import { collections } from "./workload.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "3" },
    rounds: { type: "string", default: "3" },
    writes: { type: "string", default: "200" },
  },
});

const connections = 64;

interface Subject {
  readonly name: string;
  readonly origin: string;
  readonly token: string;
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

function medianOf(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? NaN;
}

/** Prints a median of each subject, and its ratio to that of the first one. */
function print(
  what: string,
  unit: string,
  results: ReadonlyMap<string, readonly number[]>,
): void {
  const medians = [...results].map(([name, all]) =>
    [name, medianOf(all)] as const
  );
  const [[, first] = ["", NaN]] = medians;
  for (const [name, median] of medians) {
    const ratio = (median / first).toFixed(2);
    say(
      `${what}, ${name}: ${median.toFixed(2)} ${unit}, ${ratio} of the first`,
    );
  }
}

/** Measures requests a second of each subject in turn, several times. */
async function compareRates(
  what: string,
  subjects: readonly Subject[],
  loadFor: (subject: Subject) => Load,
  folder: string,
): Promise<void> {
  const results = new Map(subjects.map(({ name }) => [name, [] as number[]]));
  for (let round = 0; round < Number(values.rounds); round++) {
    for (const subject of subjects) {
      const seconds = Number(values.seconds);
      const setting = { origin: subject.origin, seconds, folder };
      const { rate, failures } = await measure(loadFor(subject), setting);
      if (failures > 0) throw new Error(`${failures} requests failed`);
      results.get(subject.name)?.push(rate);
    }
  }
  print(what, "requests/s", results);
}

/** Returns how long a request takes, in ms. */
async function timeOf(
  url: string,
  body: object,
  headers: Record<string, string> = {},
): Promise<number> {
  const start = performance.now();
  const init = { method: "POST", headers, body: JSON.stringify(body) };
  const response = await fetch(url, init);
  await response.arrayBuffer();
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return performance.now() - start;
}

/** A transaction of etcd as the store commits a batch. */
function transactionOf(serial: number): object {
  const encode = (text: string) => Buffer.from(text).toString("base64");
  const key = encode("bench-head");
  const put = (key: string, value: string) => ({
    request_put: { key, value: encode(value) },
  });
  return {
    compare: [{ key, target: "MOD", result: "GREATER", mod_revision: "-1" }],
    success: [
      put(encode(`bench-log/${serial}`), "x".repeat(250)),
      put(key, String(serial)),
    ],
  };
}

/**
 * Compares a lone write with a transaction of etcd, in turn, at the node that
 * the servers use. Their code is compiled by then: see the loads before.
 */
async function compareLoneWrites(
  etcd: EtcdCluster,
  subjects: readonly Subject[],
): Promise<void> {
  const url = `${etcd.nodes[0]?.url}/v3/kv/txn`;
  const results = new Map<string, number[]>([["etcd itself", []]]);
  for (const { name } of subjects) results.set(name, []);
  for (let serial = 0; serial < Number(values.writes); serial++) {
    const ms = await timeOf(url, transactionOf(serial));
    results.get("etcd itself")?.push(ms);
    for (const { name, origin, token } of subjects) {
      const body = { tag: `lone-${serial}` };
      const ms = await timeOf(`${origin}/v1/orders`, body, {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
      });
      results.get(name)?.push(ms);
    }
  }
  print("a lone write", "ms", results);
}

async function subjectOf(name: string, servers: Servers): Promise<Subject> {
  const server = servers.members[0]?.server;
  if (server === undefined) throw new Error(`${name} does not run`);
  const token = await server.signIn();
  await timeOf(`${server.origin}/v1/orders`, { tag: "first" }, {
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
  });
  return { name, origin: server.origin, token };
}

requireEtcd();
if (!withWrk) say("wrk is missing: this process generates the load itself");
const folder = await temporaryFolder();
const etcd = await startEtcd(3, { isOnDisk: true });
const started: Servers[] = [];
try {
  const main = await buildInto(folder, []);
  const options = { main, collections, count: 1 };
  const env = { LOG: "error" };
  const subjects: Subject[] = [];
  for (
    const [name, store, more] of [
      ["a folder", "file", {}],
      ["etcd", etcd.store("one"), {}],
      ["etcd, READS=local", etcd.store("two"), { READS: "local" }],
    ] as const
  ) {
    const servers = await startServers({
      ...options,
      store,
      env: { ...env, ...more },
    });
    started.push(servers);
    subjects.push(await subjectOf(name, servers));
  }
  const get: Load = {
    messages: [{ method: "GET", path: "/v1/orders/1" }],
    connections,
  };
  const post = ({ token }: Subject): Load => ({
    messages: [{
      ...{ method: "POST", path: "/v1/orders", token },
      body: JSON.stringify({ tag: "bench" }),
    }],
    connections,
  });
  await compareRates("GET one", subjects, () => get, folder);
  await compareRates("POST by 64 writers", subjects, post, folder);
  await compareLoneWrites(etcd, subjects);
} finally {
  await Promise.all(started.map((servers) => servers.stop()));
  await etcd.stop();
  await removeFolder(folder);
}
