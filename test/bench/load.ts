/**
 * Measures requests per second: with `wrk` if the machine has it, otherwise
 * from this process, which is slower and says so.
 */

import { Buffer } from "node:buffer";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { headersOf, type Message, textOf } from "./message.ts";

/** Returns whether a program is on the machine. */
export function has(tool: string): boolean {
  try {
    execFileSync("which", [tool], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** True if `wrk` generates the load. */
export const withWrk = has("wrk");
/** True if processes can be bound to a core. */
export const withTaskset = has("taskset");

/** The requests that are sent repeatedly. */
export interface Load {
  /** In turn. */
  readonly messages: readonly Message[];
  readonly connections: number;
}

/** How a load is generated. */
export interface Setting {
  readonly origin: string;
  readonly seconds: number;
  /** For scripts of wrk. */
  readonly folder: string;
}

/** What came of a load. */
export interface Outcome {
  /** Requests a second. */
  readonly rate: number;
  /** Responses that were no success, and errors of connections. */
  readonly failures: number;
}

/** Generates a load for some seconds. */
export async function measure(load: Load, setting: Setting): Promise<Outcome> {
  return withWrk
    ? await byWrk(load, setting)
    : await byOurselves(load, setting);
}

/**
 * Returns the Lua script that tells wrk what to send. A single message is
 * created once, without a call for each request.
 */
function scriptOf(messages: readonly Message[]): string {
  const [first] = messages;
  if (messages.length === 1 && first !== undefined) {
    const { method, path, body } = first;
    const fields = Object.entries(headersOf(first)).map(([name, value]) =>
      `wrk.headers[${JSON.stringify(name)}] = ${JSON.stringify(value)}\n`
    );
    return `wrk.method, wrk.path = "${method}", ${JSON.stringify(path)}\n` +
      fields.join("") +
      (body ? `wrk.body = ${JSON.stringify(body)}\n` : "");
  }
  const texts = messages.map((message) => JSON.stringify(textOf(message)));
  return `local texts = {${texts.join(",")}}
local at = 0
request = function()
  at = at % #texts + 1
  return texts[at]
end
`;
}

async function byWrk(
  { messages, connections }: Load,
  { origin, seconds, folder }: Setting,
): Promise<Outcome> {
  const script = join(folder, "load.lua");
  await writeFile(script, scriptOf(messages));
  const [tool = "", ...args] = [
    ...(withTaskset ? ["taskset", "-c", "1"] : []),
    ...[
      "wrk",
      "-t1",
      `-c${connections}`,
      `-d${seconds}s`,
      "-s",
      script,
      origin,
    ],
  ];
  const wrk = spawn(tool, args, { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  wrk.stdout.setEncoding("utf8").on("data", (text) => output += text);
  await once(wrk, "close");
  const rate = /Requests\/sec:\s+([\d.]+)/.exec(output)?.[1];
  if (rate === undefined) throw new Error(output);
  const [lines = ""] = /(?:Non-2xx|Socket errors)[^]*/.exec(output) ?? [];
  const counts = lines.match(
    /(?<=(?:responses:|connect|read|write|timeout) )\d+/g,
  );
  const failures = (counts ?? []).reduce((sum, text) => sum + Number(text), 0);
  return { rate: Number(rate), failures };
}

/** Each connection sends its next request once the response has arrived. */
async function byOurselves(
  { messages, connections }: Load,
  { origin, seconds }: Setting,
): Promise<Outcome> {
  const { hostname, port } = new URL(origin);
  const texts = messages.map(textOf);
  let sent = 0;
  let answers = 0;
  let failures = 0;
  const sockets = Array.from({ length: connections }, () => {
    const socket = connect(Number(port), hostname);
    const next = () => socket.write(texts[sent++ % texts.length] ?? "");
    let missing = 0;
    socket.on("data", (chunk: Buffer) => {
      missing -= chunk.length;
      if (missing < 0) {
        const head = chunk.toString("latin1");
        if (!head.startsWith("HTTP/1.1 2")) failures++;
        const length = /content-length: (\d+)/i.exec(head)?.[1];
        missing = head.indexOf("\r\n\r\n") + 4 + Number(length) - chunk.length;
      }
      if (missing > 0) return;
      missing = 0;
      answers++;
      next();
    });
    next();
    return socket;
  });
  const begin = performance.now();
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const rate = answers / ((performance.now() - begin) / 1000);
  for (const socket of sockets) socket.destroy();
  return { rate, failures };
}

/** Binds a process to one core, so that the load has the other. */
export function pin(pid: number | undefined): void {
  if (!withTaskset || pid === undefined) return;
  const args = ["-a", "-c", "-p", "0", String(pid)];
  execFileSync("taskset", args, { stdio: "ignore" });
}
