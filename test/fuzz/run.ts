/**
 * Fuzzes a running server: requests generated from its OpenAPI document, byte
 * mutations of them, and a shadow model of records that must stay exact. Ends
 * with exit code 1 and the bytes of the connection if anything is wrong.
 *
 *     npm run fuzz -- --duration 60
 */

import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { type Server, start } from "../harness.ts";
import { Connection } from "./connection.ts";
import { operationsOf } from "./document.ts";
import { type Lane, lanesOf, ModelLane, type Target } from "./lanes.ts";
import { lastBasicId, type Message } from "./messages.ts";
import { Pruner } from "./pruner.ts";
import { Sessions } from "./sessions.ts";
import { quantile, Watch } from "./watch.ts";

const { values } = parseArgs({
  options: {
    duration: { type: "string" },
    requests: { type: "string" },
    seed: { type: "string" },
  },
});

const seed = Number(values.seed ?? Date.now() % 1_000_000);
const maxRequests = Number(values.requests ?? Infinity);
const seconds = Number(values.duration ?? (values.requests ? Infinity : 30));

/** The run ends after this many different violations. */
const maxViolations = 10;

/** The memory may grow by half, and by this much for caches. */
const maxGrowthMegabytes = 64;

const violations = new Map<string, string>();

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Reports a violation once, with the bytes that led to it. */
function report(lane: Lane, step: number, error: unknown): void {
  const text = error instanceof Error ? error.message : String(error);
  const [key = ""] = text.replace(/\d+/g, "0").split("\n");
  if (violations.has(key)) return;
  violations.set(key, text);
  const folder = mkdtempSync(join(tmpdir(), "zoo-api-fuzz-"));
  const file = join(folder, "request.bin");
  const bytes = lane.sentBytes();
  writeFileSync(file, bytes);
  const shown = JSON.stringify(bytes.subarray(-2000).toString("latin1"));
  say(`VIOLATION in lane ${lane.name}, step ${step}, seed ${seed}: ${text}`);
  say(`  all bytes of the connection: ${file}; the last of them: ${shown}`);
}

/** Creates the records that the requests refer to. */
async function prepare(server: Server, sessions: Sessions): Promise<Target> {
  const { root, tokens } = sessions;
  const create = async (path: string, json: unknown) => {
    const created = await server.request("POST", path, { json, token: root });
    if (created.status !== 201) throw new Error(created.text);
  };
  for (let id = 1; id <= lastBasicId; id++) {
    await create("/v1/zoos", { name: `Z${id}`, city: "C", country: "DE" });
    const zoo = { zoo_id: id, name: `N${id}` };
    await create("/v1/animals", { ...zoo, animal_type_id: 1 });
    const email = `e${id}@example.com`;
    await create("/v1/employees", { ...zoo, job_title: "J", email });
  }
  const { body, text } = await server.request("GET", "/v1/openapi.json");
  return {
    port: server.port,
    origin: server.origin,
    document: body,
    operations: operationsOf(JSON.parse(text)),
    statuses: new Map(),
    tokens,
    root,
  };
}

function count(target: Target): number {
  return [...target.statuses.values()].reduce((sum, each) => sum + each, 0);
}

/** Repeats the steps of a lane until the time or the number of requests is over. */
async function play(lane: Lane, target: Target, end: number): Promise<void> {
  for (let step = 0; performance.now() < end; step++) {
    if (violations.size >= maxViolations || count(target) >= maxRequests) {
      return;
    }
    try {
      await lane.step();
    } catch (error) {
      report(lane, step, error);
      lane.reset();
      if (lane instanceof ModelLane) return; // it has lost track of the records
    }
  }
}

/** Kills the server, starts another one in its folder, and checks the models there. */
async function checkAfterRestart(
  server: Server,
  lanes: readonly Lane[],
): Promise<void> {
  await server.end("SIGKILL");
  const next = await start({ folder: server.folder });
  let records = 0;
  for (const lane of lanes) {
    if (!(lane instanceof ModelLane)) continue;
    const connection = new Connection(next.port, "127.0.0.1");
    const exchange = async (messages: readonly Message[]) => {
      await connection.send(messages.map(({ bytes }) => bytes));
      return await connection.receive(messages.length);
    };
    try {
      records += await lane.model.checkAll(exchange);
    } catch (error) {
      report(lane, -1, error);
    }
    connection.close();
  }
  await next.stop();
  say(`After kill -9 and a restart: ${records} records of the models checked`);
}

function summarize(target: Target, watch: Watch, elapsed: number): void {
  const requests = count(target);
  const rate = Math.round(requests / elapsed);
  say(`${requests} responses, ${rate} a second; by status:`);
  const sorted = [...target.statuses].sort(([a], [b]) => a - b);
  say(`  ${sorted.map(([status, n]) => `${status}: ${n}`).join(", ")}`);
  say(`  ${sessions.replacements} users were replaced, as others had ended`);
  say(`  ${pruner.deleted} records were deleted beside the requests`);
  const { healthMs } = watch;
  const times = [0.5, 0.99, 1].map((part) => quantile(healthMs, part));
  say(`GET /health beside it: p50, p99, max ${times.join(", ")} ms`);
  const { before, after } = watch.growth();
  say(`Memory: ${before} MB in the second quarter, ${after} MB in the last`);
  if (after > before * 1.5 + maxGrowthMegabytes) {
    violations.set("memory", `The memory grew from ${before} to ${after} MB`);
  }
}

say(`Seed ${seed}`);
const server = await start({ env: { LOG: "error" } });
const sessions = await Sessions.open(server);
const target = await prepare(server, sessions);
let isCrashed = false;
server.child.once("exit", () => isCrashed = true);
const lanes = lanesOf(target, seed);
const watch = new Watch(server.origin, server.child.pid);
const pruner = new Pruner(server, sessions);
const beside = Promise.all([sessions.run(), pruner.run()]);
const begin = performance.now();
const end = begin + seconds * 1000;
await Promise.all(lanes.map((lane) => play(lane, target, end)));
watch.stop();
sessions.stop();
pruner.stop();
await beside;
summarize(target, watch, (performance.now() - begin) / 1000);
for (const lane of lanes) lane.reset();
if (isCrashed) violations.set("crash", "The server process ended");
else await checkAfterRestart(server, lanes);
const output = server.output().split("\n").slice(1).join("\n");
if (/\S/.test(output)) say(`The server logged: ${output.slice(0, 3000)}`);
await server.stop();
for (const text of violations.values()) say(`Violated: ${text.slice(0, 500)}`);
if (violations.size > 0) process.exitCode = 1;
