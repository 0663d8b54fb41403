/**
 * Speed as ratios: requests per second of this server, divided by those of a
 * bare node:http server that sends the same bytes (or appends what it receives,
 * with one fdatasync for all that waits), of one on node:sqlite, if this
 * Node.js has it, and of one on Bun and bun:sqlite, if npx can get it; those do
 * the same work (see `sqlite.ts`). All run on one core, in rounds that take
 * turns; the figures are medians. Failures are responses other than 2xx and
 * errors of connections, in all rounds.
 *
 *     npm run bench [-- --rounds 5 --seconds 3 --sizes 1000,100000,1000000
 *                       --loads "GET one,POST on 16"]
 *
 * If the machine has `wrk`, it generates the load; otherwise this process does,
 * which is slower than the servers and so flatters the slower one: it says so.
 */

import {
  type ChildProcess,
  execFile,
  execFileSync,
  spawn,
  spawnSync,
} from "node:child_process";
import { once } from "node:events";
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { parseArgs, promisify } from "node:util";
import {
  command,
  removeFolder,
  request,
  root,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { fill } from "./fill.ts";
import {
  type Load,
  measure,
  type Outcome,
  pin,
  withTaskset,
  withWrk,
} from "./load.ts";
import type { Message } from "./message.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "3" },
    sizes: { type: "string", default: "1000,100000,1000000" },
    loads: { type: "string", default: "" },
  },
});
const roundCount = Number(values.rounds);
const seconds = Number(values.seconds);
const sizes = values.sizes.split(",").map(Number);
const withSqlite =
  process.getBuiltinModule("node:sqlite" as "node:fs") !== undefined;
const bun = findBun();

/** Returns the path of Bun; undefined if there is no network to get it from. */
function findBun(): string | undefined {
  const options = { encoding: "utf8", stdio: "pipe" } as const;
  const which = ["-y", "-p", "bun@1", "-c", "command -v bun"];
  const { status, stdout } = spawnSync("npx", which, options);
  return status === 0 ? stdout.trim() : undefined;
}

/** Returns so many messages, which are sent in turn. */
function several(
  count: number,
  message: (place: number) => Message,
): Message[] {
  return Array.from({ length: count }, (_, place) => message(place));
}

function loadsFor(size: number, token: string): Map<string, Load> {
  const get = (path: string) => ({ method: "GET", path: `/v1/${path}` });
  const json = (method: string, path: string, body: unknown) => ({
    method,
    path: `/v1/${path}`,
    token,
    body: JSON.stringify(body),
  });
  // As if at random.
  const idOf = (place: number) => 1 + (place * 7919) % size;
  const zooOf = (place: number) => 1 + place % Math.min(size, 193);
  const one = (place: number) => get(`animals/${idOf(place)}`);
  const list = get("animals?limit=20");
  const zoo = (place: number) =>
    get(`animals?zoo_id=${zooOf(place)}&sortby=name&limit=20`);
  const post = (place: number) =>
    json("POST", "animals", {
      zoo_id: zooOf(place),
      animal_type_id: 1,
      name: `Zora ${place}`,
      species: "Equus quagga",
      sex: "female",
      born_on: "2020-02-29",
      weight_kg: 250,
    });
  // Two names for each, because a PATCH that changes nothing writes nothing.
  const patch = (place: number) =>
    json("PATCH", `animals/${place % 500 + 1}`, {
      name: `Zora ${place} ${Math.random()}`,
    });
  const nineToOne = (place: number) =>
    [list, zoo(place), post(place)][place % 10] ?? one(place);
  const last = Math.floor(size * 0.9);
  const all: [string, Load["messages"], number?][] = [
    ["GET one", several(1000, one)],
    ["list of 20", [list]],
    ["zoo by name", several(193, zoo)],
    ["last by name", [
      get(`animals?sortby=name&order=desc&offset=${last}&limit=20`),
    ]],
    ["weight range", [
      get("animals?weight_kg:gte=100&sortby=weight_kg&limit=20"),
    ]],
    ["POST", several(1000, post)],
    ["POST on 16", several(1000, post), 16],
    ["POST on 1", several(1000, post), 1],
    ["PATCH", several(1000, patch)],
    ["nine reads per POST", several(1000, nineToOne)],
  ];
  const chosen = values.loads === "" ? undefined : values.loads.split(",");
  return new Map(
    all.filter(([name]) => chosen?.includes(name) ?? true)
      .map(([name, messages, connections = 64]) => [
        name,
        { messages, connections },
      ]),
  );
}

function median(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? NaN;
}

/** Runs TypeScript. */
const node = [process.execPath, ...command.slice(0, -1)];

/** A server of this folder, ready to listen. */
async function startOther(
  file: string,
  { runtime = node, input = "", args = [] }: {
    readonly runtime?: readonly string[];
    readonly input?: string;
    readonly args?: readonly string[];
  },
): Promise<{ child: ChildProcess; origin: string }> {
  const [program = "", ...flags] = runtime;
  const child = spawn(
    program,
    [...flags, join(root, "test/bench", file), ...args],
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  child.stdin.end(input);
  const [line] = await once(child.stdout.setEncoding("utf8"), "data");
  return { child, origin: /http:\S+/.exec(String(line))?.[0] ?? "" };
}

function mebibytes(bytes: number): number {
  return Math.round(bytes / 2 ** 20);
}

/** Resident memory of a process, in bytes. */
async function memory({ pid }: ChildProcess): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024;
}

/** The memory of a server without records, in bytes. */
async function emptyMemory(main: string | undefined): Promise<number> {
  const server = await start(main === undefined ? {} : { main });
  await (await fetch(`${server.origin}/v1/animals`)).text();
  const bytes = await settledMemory(server.child);
  await server.stop();
  return bytes;
}

/** The memory of the smallest possible node:http server, in bytes. */
async function bareMemory(): Promise<number> {
  const script = `import { createServer } from "node:http";
    createServer((_, response) => response.end("{}"))
      .listen(0, function () { console.log(this.address().port); });`;
  const args = ["--input-type=module", "-e", script];
  const child = spawn(process.execPath, args, { stdio: "pipe" });
  const [port] = await once(child.stdout.setEncoding("utf8"), "data");
  await (await fetch(`http://127.0.0.1:${Number(port)}/`)).text();
  const bytes = await settledMemory(child);
  child.kill();
  return bytes;
}

/** The minimum within a second, because memory that a start needed only for a moment is released. */
async function settledMemory(child: ChildProcess): Promise<number> {
  let least = Infinity;
  for (let time = 0; time < 1000; time += 100) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    least = Math.min(least, await memory(child));
  }
  return least;
}

/** How long a new process takes to parse the snapshot of a folder as one JSON text, in ms. */
async function parseTime(folder: string): Promise<number> {
  let largest = { file: "", size: 0 };
  for (const name of await readdir(folder, { recursive: true })) {
    const file = join(folder, name);
    const { size } = await stat(file);
    if (/^snapshot-/.test(name) && size > largest.size) {
      largest = { file, size };
    }
  }
  const script = `const { readFileSync } = require("node:fs");
    const lines = readFileSync(process.argv[1], "utf8").trim().split("\\n");
    const text = "[" + lines.join() + "]";
    const begin = performance.now();
    JSON.parse(text);
    console.log(performance.now() - begin);`;
  const args = ["--max-old-space-size=4096", "-e", script];
  const times: number[] = [];
  for (let round = 0; round < 3; round++) {
    const command = [...args, largest.file];
    const { stdout } = await promisify(execFile)(process.execPath, command);
    times.push(Number(stdout));
  }
  return median(times);
}

/** The result of one server under a load. */
interface Measured extends Outcome {
  /** The time of the processor that a request took, in µs: it depends less than the rate on what else runs on the machine. */
  readonly processorUs: number;
}

/** By load and server. */
type Results = Map<string, Map<string, Measured>>;

/** Returns how long all threads of a process have run, in µs. */
async function processorTime({ pid }: ChildProcess): Promise<number> {
  const text = await readFile(`/proc/${pid}/stat`, "utf8");
  const fields = text.slice(text.lastIndexOf(")")).split(" ");
  return (Number(fields[12]) + Number(fields[13])) * 10_000; // ticks of 10 ms
}

async function compare(
  server: Server,
  { size, folder }: { readonly size: number; readonly folder: string },
): Promise<Results> {
  const token = await server.signIn();
  pin(server.child.pid);
  const args = [folder, String(size)];
  const peers = new Map<string, Awaited<ReturnType<typeof startOther>>>();
  if (withSqlite) peers.set("sqlite", await startOther("sqlite.ts", { args }));
  if (bun !== undefined) {
    peers.set("bun", await startOther("sqlite.ts", { runtime: [bun], args }));
  }
  for (const { child } of peers.values()) pin(child.pid);
  const results: Results = new Map();
  try {
    for (const [name, load] of loadsFor(size, token)) {
      const answers = await Promise.all(
        ["GET", "POST", "PATCH"].map(async (method) => {
          const message = load.messages.find((each) => each.method === method);
          if (message === undefined) return undefined;
          const { path, body } = message;
          const json = body && { token, json: JSON.parse(body) };
          const { origin } = server;
          const answer = await request(method, origin + path, json || {});
          const fields = [...answer.headers].filter(([name]) =>
            !["connection", "date", "transfer-encoding"].includes(name)
          );
          return { fields: Object.fromEntries(fields), body: answer.text };
        }),
      );
      const [read, posted, patched] = answers;
      const file = join(folder, "bare.log");
      const input = JSON.stringify({ file, read, written: posted || patched });
      const bare = await startOther("bare.ts", { input });
      pin(bare.child.pid);
      const servers = [["ours", server], ["bare", bare], ...peers] as const;
      const rounds = new Map<string, Measured[]>();
      const failures = new Map<string, number>();
      try {
        for (let round = -1; round < roundCount; round++) {
          for (const [who, { origin, child }] of servers) {
            const before = await processorTime(child);
            const setting = { origin, seconds, folder };
            const outcome = await measure(load, setting);
            const rate = Math.max(outcome.rate, 1 / seconds);
            const took = await processorTime(child) - before;
            // A server that is still busy with earlier requests would take time
            // from the next one.
            await (await fetch(`${origin}/v1/animals/1`)).text();
            const processorUs = took / (rate * seconds);
            failures.set(who, outcome.failures + (failures.get(who) ?? 0));
            if (round < 0) rounds.set(who, []); // to warm up, not counted
            else rounds.get(who)?.push({ ...outcome, rate, processorUs });
          }
        }
      } finally {
        bare.child.kill();
      }
      const medians = Array.from(rounds, ([who, each]): [string, Measured] => [
        who,
        {
          rate: median(each.map(({ rate }) => rate)),
          processorUs: median(each.map(({ processorUs }) => processorUs)),
          failures: failures.get(who) ?? 0,
        },
      ]);
      results.set(name, new Map(medians));
    }
  } finally {
    for (const { child } of peers.values()) child.kill();
  }
  return results;
}

/** Compares a figure of this server with that of the others. */
function ratios(
  measured: ReadonlyMap<string, Measured>,
  figure: "rate" | "processorUs",
): string[] {
  const ours = measured.get("ours")?.[figure] ?? NaN;
  return [...measured].filter(([who]) => who !== "ours")
    .map(([who, other]) => `${(ours / other[figure]).toFixed(2)} × ${who}`);
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

const by = withWrk ? "wrk" : "this process (wrk is not installed)";
print(
  `Node.js ${process.version}, load by ${by}, 64 connections if not named, ` +
    `${roundCount} rounds of ${seconds} s, medians, requests a second; ` +
    (withTaskset ? "each server on one core, wrk on another" : "no taskset"),
);
if (!withSqlite) print("This Node.js has no node:sqlite to compare with.");
if (bun === undefined) print("There is no Bun to compare with.");
execFileSync("npm", ["run", "build"], { cwd: root, stdio: "pipe" });
const mains = [join(root, "src/main.ts"), join(root, "build/main.js")];
const [empty = NaN, built = NaN] = [
  await emptyMemory(mains[0]),
  await emptyMemory(mains[1]),
];
print(
  `empty: ${mebibytes(empty)} MiB from the source, ${mebibytes(built)} MiB ` +
    `built; a bare server ${mebibytes(await bareMemory())} MiB`,
);
let first: Results | undefined;
for (const size of sizes) {
  const folder = await temporaryFolder();
  try {
    const data = join(folder, "data");
    await fill(data, size);
    const begin = performance.now();
    const server = await start({ folder: data });
    try {
      await (await fetch(`${server.origin}/v1/animals?limit=1`)).text();
      const started = performance.now() - begin;
      const bytes = await memory(server.child);
      const parsed = await parseTime(data);
      print(
        `\n${size} animals: ${
          Math.round((bytes - empty) / size)
        } bytes each; ` +
          `first answer after ${Math.round(started)} ms, ` +
          `${(started / parsed).toFixed(2)} of JSON.parse of the snapshot`,
      );
      const results = await compare(server, { size, folder });
      for (const [name, measured] of results) {
        const { rate = NaN, processorUs = NaN } = measured.get("ours") ?? {};
        const before = first?.get(name)?.get("ours")?.rate;
        const growth = before && `  cost grew ${(before / rate).toFixed(2)}`;
        const requests = String(Math.round(rate)).padStart(8);
        const time = processorUs.toFixed(1).padStart(8);
        print(
          `${name.padEnd(20)} ${requests}/s  ` +
            `${ratios(measured, "rate").join("  ")}${growth ?? ""}\n` +
            `${"".padEnd(20)} ${time} µs of the processor  ` +
            `${ratios(measured, "processorUs").join("  ")}\n` +
            `${"".padEnd(20)} failures: ` +
            [...measured].map(([who, { failures }]) => `${failures} ${who}`)
              .join("  "),
        );
      }
      first ??= results;
    } finally {
      await server.stop();
    }
  } finally {
    await removeFolder(folder);
  }
}
