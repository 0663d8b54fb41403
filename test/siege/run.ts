/**
 * Besieges a server: a thousand hostile connections of each kind in turn, next
 * to one well-behaved client whose requests are timed. Ends with exit code 1 if
 * a limit is exceeded.
 *
 *     npm run siege -- --duration 20 --connections 1000 --records 100000
 */

import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { fill } from "../bench/fill.ts";
import { residentMegabytes } from "../fuzz/watch.ts";
import {
  adminPassword,
  loader,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { Client } from "./client.ts";
import type { Orders } from "./hostile.ts";
import { kinds } from "./kinds.ts";
import type { Counts } from "./load.ts";

const { values } = parseArgs({
  options: {
    duration: { type: "string", default: "20" },
    connections: { type: "string", default: "1000" },
    records: { type: "string", default: "100000" },
    kinds: { type: "string", default: Object.keys(kinds).join(",") },
    heap: { type: "string" },
    "report-only": { type: "boolean", default: false },
  },
});

/** The limits of a run. */
const maxGetMs = 1000;
const maxSignInMs = 5000;
const maxMemoryFactor = 1.25;

/** The result of one kind of attack. */
interface Report {
  readonly client: Client;
  readonly counts: Counts;
  readonly megabytes: {
    readonly before: number;
    readonly highest: number;
    readonly after: number;
  };
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Creates an admin and a keeper whose passwords are hashed as usual; returns the keeper's token. */
async function addUsers(server: Server): Promise<string> {
  const token = await server.signIn();
  const password = adminPassword;
  for (const [username, role] of [["boss", "admin"], ["keeper", "keeper"]]) {
    const json = { username, role, password };
    await server.request("POST", "/v1/users", { json, token });
  }
  return await server.signIn("keeper");
}

/** Ends the imports that a kind of attack has left. */
async function cancelTasks(server: Server, token: string): Promise<void> {
  const url = "/v1/tasks?status:in=queued,running&limit=100&fields=id";
  for (;;) {
    const { body } = await server.request("GET", url, { token });
    if (!Array.isArray(body) || body.length === 0) return;
    for (const { id } of body) {
      await server.request("DELETE", `/v1/tasks/${id}`, { token });
    }
  }
}

async function besiege(
  server: Server,
  orders: Orders,
  { seconds, settlingSeconds }: {
    readonly seconds: number;
    /** The time that the server has to release memory afterwards. */
    readonly settlingSeconds: number;
  },
): Promise<Report> {
  const { pid } = server.child;
  const before = residentMegabytes(pid);
  const client = new Client(server.port);
  const running = client.run();
  await delay(1000); // its connections are open before the others
  const hostile: ChildProcess = fork(
    fileURLToPath(new URL("hostile.ts", import.meta.url)),
    { execArgv: [...loader] },
  );
  hostile.send(orders);
  let highest = before;
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end && server.child.exitCode === null) {
    highest = Math.max(highest, residentMegabytes(pid));
    await delay(200);
  }
  client.stop();
  hostile.send("stop");
  const [counts] = await once(hostile, "message");
  await running;
  await delay(settlingSeconds * 1000);
  const after = residentMegabytes(pid);
  const megabytes = { before, highest, after };
  return { client, counts: counts as Counts, megabytes };
}

/** Returns the limits that were exceeded. */
function findExceeded(
  { client, megabytes }: Report,
  isAlive: boolean,
): string[] {
  const { get, page, signIn } = client;
  const failed = get.failed + page.failed + signIn.failed;
  const missed = [
    get.quantile(0.99) <= maxGetMs || `GET p99 over ${maxGetMs} ms`,
    page.quantile(0.99) <= maxGetMs || `sorted page p99 over ${maxGetMs} ms`,
    signIn.quantile(0.99) <= maxSignInMs ||
    `sign-in p99 over ${maxSignInMs} ms`,
    failed === 0 || `${failed} requests of the well-behaved client failed`,
    megabytes.after <= megabytes.before * maxMemoryFactor ||
    `memory grew by over ${Math.round((maxMemoryFactor - 1) * 100)} %`,
    isAlive || "the server ended",
  ];
  return missed.filter((each) => typeof each === "string");
}

function show(name: string, { client, counts, megabytes }: Report): void {
  const { get, page, signIn } = client;
  const times = [0.5, 0.99, 1].map((fraction) => get.quantile(fraction));
  const { before, highest, after } = megabytes;
  say(`${name}: ${kinds[name]?.description}`);
  say(
    `  well-behaved, ms: GET p50, p99, max ${times.join(", ")}; ` +
      `sorted page p99 ${page.quantile(0.99)}; ` +
      `sign-in median, max ${signIn.quantile(0.5)}, ${signIn.quantile(1)}; ` +
      `failed ${get.failed}, ${page.failed}, ${signIn.failed}`,
  );
  for (const { failures } of [get, page, signIn]) {
    for (const [failure, count] of failures) say(`  ${count} × ${failure}`);
  }
  say(`  memory, MB: ${before} before, ${highest} highest, ${after} after`);
  const statuses = Object.entries(counts.statuses).sort().map(
    ([status, count]) => `${status}: ${count}`,
  );
  say(
    `  hostile: ${counts.opened} connections, ${counts.closed} closed; ` +
      `responses ${statuses.join(", ") || "none"}`,
  );
}

const folder = await temporaryFolder();
const store = join(folder, "store");
await fill(store, Number(values.records));
const heap = values.heap;
const startServer = () =>
  start({
    hashesFully: true,
    folder: store,
    env: { LOG: "error" },
    nodeArgs: heap === undefined ? [] : [`--max-old-space-size=${heap}`],
  });
let server = await startServer();
let token = await addUsers(server);
const warmUp = { kind: "floods", port: server.port, connections: 10, token };
await besiege(server, warmUp, { seconds: 3, settlingSeconds: 3 });
let missedLimits = 0;
for (const kind of values.kinds.split(",")) {
  if (kinds[kind] === undefined) throw new Error(`No kind ${kind}`);
  const connections = Number(values.connections);
  const orders = { kind, port: server.port, connections, token };
  const seconds = Number(values.duration);
  const report = await besiege(server, orders, {
    seconds,
    settlingSeconds: 20,
  });
  show(kind, report);
  const isAlive = server.child.exitCode === null &&
    server.child.signalCode === null;
  const missed = findExceeded(report, isAlive);
  missedLimits += missed.length;
  say(missed.length === 0 ? "  ok" : `  MISSED: ${missed.join("; ")}`);
  if (!isAlive) {
    say(server.output().slice(-1000));
    server = await startServer();
    token = await addUsers(server);
  }
  if (kind === "imports") await cancelTasks(server, token);
}
await server.stop();
await removeFolder(folder);
if (missedLimits > 0 && !values["report-only"]) process.exitCode = 1;
