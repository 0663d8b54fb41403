/**
 * Ordinary load: clients of one address that each send their next request once
 * they have the response to the one before, with each kind of request in turn,
 * each on a server of its own. Ends with exit code 1 if any response is not the
 * request's own success.
 *
 *     npm run ordinary -- --duration 5 --records 1000000 --connections 1,16,64,256
 *     npm run ordinary -- --kinds "sign-in,half writes" --report-only
 */

import { cp } from "node:fs/promises";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { parseArgs } from "node:util";
import { fill } from "../bench/fill.ts";
import { quantile } from "../fuzz/watch.ts";
import {
  adminPassword,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { Client, Tally } from "./client.ts";
import { type Kind, kinds } from "./kinds.ts";

const { values } = parseArgs({
  options: {
    duration: { type: "string", default: "5" },
    connections: { type: "string", default: "1,16,64,256" },
    records: { type: "string", default: "0" },
    kinds: { type: "string", default: Object.keys(kinds).join(",") },
    heap: { type: "string", default: "900" },
    "report-only": { type: "boolean", default: false },
  },
});

/** A server may refuse what would wait for longer. */
const maxWaitSeconds = 30;
/** What the requests of an empty start refer to. */
const minRecords = 100;

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Starts a server whose passwords cost what they do in production. */
function startServer(folder: string): Promise<Server> {
  const nodeArgs = [`--max-old-space-size=${values.heap}`];
  const env = { LOG: "error" };
  return start({ folder, env, nodeArgs, hashesFully: true });
}

/** Creates the data folder that each kind begins with. */
async function prepare(folder: string, records: number): Promise<void> {
  await fill(folder, records);
  const server = await startServer(folder);
  const json = { username: "boss", role: "admin", password: adminPassword };
  const token = await server.signIn();
  await server.request("POST", "/v1/users", { json, token });
  await server.stop();
}

/** Lets so many clients work at the same time; returns how many successes there were a second. */
async function work(
  port: number,
  { tally, connections, action, maxRequests = Infinity }: {
    readonly tally: Tally;
    readonly connections: number;
    readonly action: ReturnType<Kind["prepare"]>;
    readonly maxRequests: number | undefined;
  },
): Promise<number> {
  const begin = performance.now();
  const end = begin + Number(values.duration) * 1000;
  // The first request on a single connection may build an index.
  const minRequests = connections === 1 ? 3 : 0;
  const isOver = () =>
    tally.count >= minRequests &&
    (performance.now() >= end || tally.count >= maxRequests);
  await Promise.all(
    Array.from({ length: connections }, async () => {
      await new Client(port, tally).repeat(action, isOver);
    }),
  );
  return tally.durations.length / (performance.now() - begin) * 1000;
}

/** Measures a kind on one connection, then on more of them; returns whether all responses were successes. */
async function measure(server: Server, name: string): Promise<boolean> {
  const kind = kinds[name];
  if (kind === undefined) throw new Error(`No kind ${name}`);
  const token = await server.signIn("boss");
  let number = 0;
  const action = kind.prepare({ token, records, next: () => ++number });
  const { maxRequests } = kind;
  let isSuccess = true;
  let serviceMs = NaN;
  let bestRate = 0;
  for (const connections of allConnections) {
    const label = `${name.padEnd(26)} ${String(connections).padStart(4)}`;
    if (bestRate > 0 && connections / bestRate > maxWaitSeconds) {
      say(
        `${label}: left out, as some would wait for over ${maxWaitSeconds} s`,
      );
      continue;
    }
    const tally = new Tally();
    const rate = await work(server.port, {
      tally,
      connections,
      action,
      maxRequests,
    });
    if (connections === 1) serviceMs = quantile(tally.durations, 0.5) / 1000;
    bestRate = Math.max(bestRate, rate, serviceMs && 1000 / serviceMs);
    show(label, { tally, rate, fairMs: serviceMs * connections });
    isSuccess &&= tally.failures.size === 0;
    if (server.child.exitCode === null && server.child.signalCode === null) {
      continue;
    }
    say(`  the server ended: ${server.output().slice(-1000)}`);
    return false;
  }
  return isSuccess;
}

function show(
  label: string,
  { tally, rate, fairMs }: {
    readonly tally: Tally;
    readonly rate: number;
    /** The time on one connection, times the clients. */
    readonly fairMs: number;
  },
): void {
  const p50 = quantile(tally.durations, 0.5) / 1000;
  const p99 = quantile(tally.durations, 0.99) / 1000;
  const ratio = (p99 / fairMs).toFixed(2);
  if (tally.durations.length === 0) say(`${label}: no success`);
  else {say(
      `${label}: ${rate.toFixed(rate < 100 ? 1 : 0).padStart(7)}/s, ` +
        `p50 ${p50.toFixed(2)}, p99 ${p99.toFixed(2)} ms = ${ratio} × ` +
        `${fairMs.toFixed(2)} (service time × clients)`,
    );}
  for (const [failure, { count, example }] of tally.failures) {
    say(`  FAILED: ${count} × ${failure} ${example.slice(0, 200)}`);
  }
}

const records = Math.max(minRecords, Number(values.records));
// One comes first, as the times on the others are compared with it.
const allConnections = [
  ...new Set([1, ...values.connections.split(",").map(Number)]),
].sort((a, b) => a - b);
const folder = await temporaryFolder();
const template = join(folder, "template");
await prepare(template, records);
const failed: string[] = [];
for (const kind of values.kinds.split(",")) {
  const store = join(folder, "store");
  await cp(template, store, { recursive: true });
  const server = await startServer(store);
  if (!await measure(server, kind)) failed.push(kind);
  await server.end("SIGKILL"); // imports that are left would delay a stop
  await server.stop();
  await removeFolder(store);
}
await removeFolder(folder);
say(failed.length === 0 ? "ok" : `FAILED: ${failed.join(", ")}`);
if (failed.length > 0 && !values["report-only"]) process.exitCode = 1;
