/**
 * Counts from outside what three servers over etcd lose, do twice or show too
 * late, while servers and nodes of etcd stop, die and freeze, and answers of etcd
 * are lost: `npm run torture:etcd -- ROUNDS NODES`.
 */

import assert from "node:assert/strict";
import { once } from "node:events";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { beside, fileOf, outputOf, send, serve, stop } from "../server.ts";
import { skip, startNodes } from "./nodes.ts";

if (skip) {
  console.log(`${skip}: skipped`);
  process.exit();
}
const [, , rounds = "200", size = "3"] = process.argv;

const nodes = await startNodes(+size);
type Node = typeof nodes[number];

const COLLECTIONS = fileOf(
  "notes.mjs",
  `export default ({ collection, string }) => ({ collections: [collection({
    name: "notes",
    singular: "note",
    access: { read: "anyone", write: "anyone", delete: "anyone" },
    properties: { text: string({ maxLength: 1000 }) },
  })] });`,
);
const hosts = nodes.map(({ host }) => host);
const environment = { STORE: `etcd://${hosts}/notes`, COLLECTIONS };

/** What should never be seen. */
const faults: string[] = [];
async function start() {
  const NODE_OPTIONS = `--import=${beside("etcd/lossy")}`;
  const run = await serve({ ...environment, NODE_OPTIONS });
  run.exit.then((code) => code && faults.push(run.output));
  return run;
}
const servers = await Promise.all(
  ["", "", ""].map(async () => ({ run: await start() })),
);
type Server = typeof servers[number];

const acknowledged: string[] = [];
/** Those that were acknowledged, or may have been carried out. */
const sent = new Set<string>();
let leader: Server | undefined;
let count = 0;
/** The highest number of notes that was shown. */
let shown = 0;
/** When a write was last acknowledged, and the longest time without one. */
let last = 0;
let longest = 0;

/** Writes one text after the other. */
async function write(server: Server) {
  for (;; await delay(10)) {
    const text = `${count++}`.padEnd(1000, "x");
    const { status } = await send(server.run.origin, "/v1/notes", {
      body: { text },
    }).catch(({ code }) => ({ status: code === "ECONNREFUSED" ? 503 : 500 }));
    if (status !== 503) sent.add(text);
    if (status !== 201) continue;
    leader = server;
    acknowledged.push(text);
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }
}

/** Reads how many there are: at least those that were acknowledged, or shown, before it asked. */
async function read({ run }: Server) {
  const before = Math.max(acknowledged.length, shown);
  const response = await send(run.origin, "/v1/notes").catch(() => undefined);
  if (response?.status !== 200) return;
  const total = Number(response.headers["x-total-count"]);
  if (total < before) faults.push(`stale: ${total} of ${before}`);
  shown = Math.max(shown, total);
}

async function freeze({ run: { child } }: Server | Node, ms: number) {
  child.kill("SIGSTOP");
  await delay(ms);
  child.kill("SIGCONT");
}
async function end(server: Server, signal: NodeJS.Signals) {
  await stop(server.run, signal);
  server.run = await start();
}
async function restart({ run, start }: Node) {
  run.child.kill("SIGKILL");
  await once(run.child, "exit"); // it has its ports until then
  run.child = start();
}
const kinds: ((leader: Server, node: Node) => unknown)[] = [
  (leader) => end(leader, "SIGTERM"),
  (leader) => end(leader, "SIGKILL"),
  (leader) => leader.run.child.kill("SIGUSR2"),
  (leader) => freeze(leader, 8000),
  (_, node) => freeze(node, 6000),
  (_, node) => restart(node),
  (leader) => freeze(leader, 30_000),
];

[...servers, ...servers].forEach(write);
setInterval(() => servers.forEach(read), 100);
while (!leader) await delay(20);
for (let round = 0; round < +rounds && !faults[0];) {
  const work = kinds[round % kinds.length];
  const node = nodes[round++ % nodes.length];
  longest = 0;
  if (node) await work?.(leader, node);
  for (const { length } = acknowledged; acknowledged.length < length + 20;) {
    await delay(20);
  }
  console.log(`${round}: ${work}: ${Math.round(longest)} ms without a write`);
}
for (const { run } of servers) await stop(run);
const output = await outputOf(["export", "notes"], environment);
const texts = Array.from(
  output.matchAll(/"text":"(\w+)/g),
  ([, text = ""]) => text,
);
const stored = new Set(texts);
faults.push(
  ...acknowledged.filter((text) => !stored.has(text)),
  ...texts.filter((text) => !sent.delete(text)), // refused, or twice
);
assert.deepEqual(faults, []);
console.log(`${stored.size}: none lost, written twice or shown too late`);
process.exit();
