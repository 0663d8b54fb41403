/**
 * Speed as a ratio: requests a second of this server, divided by those of a
 * bare node:http server that answers the same bytes, both on one core, in
 * rounds that take turns. Medians of the rounds.
 *
 *     npm run bench [-- --rounds 5 --seconds 3 --connections 64]
 *
 * With `wrk` on the machine the load comes from it; else from this process,
 * which is slower than the servers and so flatters the slower one: it says so.
 */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { command, request, root, start } from "../harness.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "3" },
    connections: { type: "string", default: "64" },
  },
});
const rounds = Number(values.rounds);
const seconds = Number(values.seconds);
const connections = Number(values.connections);

function has(tool: string): boolean {
  try {
    execFileSync("which", [tool], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

const withWrk = has("wrk");
const pin = (core: number) =>
  has("taskset") ? ["taskset", "-c", `${core}`] : [];

/** Requests a second, measured over some seconds. */
async function load(address: string): Promise<number> {
  if (!withWrk) return await ownLoad(new URL(address));
  const [tool = "", ...args] = [
    ...pin(1),
    "wrk",
    "-t1",
    `-c${connections}`,
    `-d${seconds}s`,
    address,
  ];
  const wrk = spawn(tool, args, { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  wrk.stdout.setEncoding("utf8").on("data", (text) => output += text);
  await once(wrk, "close");
  if (/Non-2xx|Socket errors/.test(output)) throw new Error(output);
  const found = /Requests\/sec:\s+([\d.]+)/.exec(output);
  if (!found) throw new Error(output);
  return Number(found[1]);
}

/** The same from this process: each connection sends its next request when the answer is there. */
async function ownLoad({ hostname, port, pathname }: URL): Promise<number> {
  let answers = 0;
  const message = `GET ${pathname} HTTP/1.1\r\nHost: ${hostname}\r\n\r\n`;
  const sockets = Array.from({ length: connections }, () => {
    const socket = connect(Number(port), hostname);
    socket.write(message);
    // An answer of a few hundred bytes arrives in one piece.
    socket.on("data", () => {
      answers++;
      socket.write(message);
    });
    return socket;
  });
  const begin = performance.now();
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const rate = answers / ((performance.now() - begin) / 1000);
  for (const socket of sockets) socket.destroy();
  return rate;
}

function median(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? NaN;
}

/** Keeps a server on one core, so that the load has the other. */
function pinProcess({ pid }: ChildProcess): void {
  if (!has("taskset")) return;
  const args = ["-a", "-c", "-p", "0", String(pid)];
  execFileSync("taskset", args, { stdio: "ignore" });
}

async function startBare(body: string): Promise<[ChildProcess, string]> {
  const loader = command.slice(0, -1);
  const child = spawn(
    process.execPath,
    [...loader, join(root, "test/bench/bare.ts")],
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  child.stdin.end(body);
  const [line] = await once(child.stdout.setEncoding("utf8"), "data");
  return [child, /http:\S+/.exec(String(line))?.[0] ?? ""];
}

const server = await start({
  args: ["--seed", join(root, "data/seed.json")],
});
const path = "/v1/zoos/1";
const { text } = await request("GET", server.origin + path);
const [bare, bareOrigin] = await startBare(text);
try {
  pinProcess(server.child);
  pinProcess(bare);
  const measured = { ours: [] as number[], bare: [] as number[] };
  await load(server.origin + path); // warm up, not counted
  await load(bareOrigin + path);
  for (let round = 0; round < rounds; round++) {
    measured.ours.push(await load(server.origin + path));
    measured.bare.push(await load(bareOrigin + path));
  }
  const ours = median(measured.ours);
  const ceiling = median(measured.bare);
  const ratio = median(
    measured.ours.map((rate, round) => rate / (measured.bare[round] ?? NaN)),
  );
  const by = withWrk ? "wrk" : "this process (wrk is not installed)";
  process.stdout.write(
    `Node.js ${process.version}, load by ${by}, ${connections} connections, ` +
      `${rounds} rounds of ${seconds} s, medians\n` +
      `GET ${path}: ${Math.round(ours)} requests/s; bare node:http with the ` +
      `same ${text.length} characters: ${Math.round(ceiling)}; ` +
      `ratio ${ratio.toFixed(2)}\n`,
  );
} finally {
  bare.kill();
  await server.stop();
}
