/** The output of the commands: text, messages that several of them share, and a progress bar. */

import { once } from "node:events";
import process from "node:process";
import type { Misfit } from "../api/declaration/evolution.ts";
import { type Config, UsageError } from "../config.ts";
import { errorCode, errorText } from "../store/error.ts";
import { megabytes } from "../store/memory/limit.ts";
import type { Fault, Store } from "../store/store.ts";
import { reservedCollectionNames } from "./declaration/reserved-names.ts";

/** Prints text to standard output, and waits while its buffer is full. */
export async function print(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, "drain");
}

/** Formats a fault as one line. */
export function describeFault({ file, byte, line, message }: Fault): string {
  return `${file}, byte ${byte}, line ${line}: ${message}`;
}

/** The most entries that a list shows. */
const maxListed = 20;

/** Formats a list: the number of its entries, then the first ones, one per line; "" if there are none. */
export function describeList(
  title: string,
  entries: readonly string[],
): string {
  if (entries.length === 0) return "";
  const listed = entries.slice(0, maxListed);
  return [`${title}: ${entries.length}`, ...listed].join("\n  ") + "\n";
}

/** Creates the error of a command that names no collection, or an unknown one. */
export function unknownCollection(
  command: string,
  name: string | undefined,
  known: readonly string[],
): UsageError {
  const problem = name === undefined
    ? "name a collection"
    : `unknown collection ${JSON.stringify(name)}`;
  return new UsageError(`${command}: ${problem}: one of ${known.join(", ")}`);
}

/** Describes records that do not fit, in one line. */
export function describeMisfit({ name, ids, message }: Misfit): string {
  const count = ids.size === 1 ? "1 record does" : `${ids.size} records do`;
  const first = [...ids].slice(0, 20).join(", ");
  const more = ids.size > 20 ? ", …" : "";
  return `${name}: ${count} not fit (id ${first}${more}): ${message}`;
}

/** Explains why a store cannot be opened with a declaration, and what to do. */
export function explainMisfits(misfits: readonly Misfit[]): string {
  const lines = misfits.map((misfit) => {
    const { code, name } = misfit;
    const isBuiltIn = reservedCollectionNames.includes(
      name.split(".")[0] ?? "",
    );
    const advice = code === "required"
      ? 'make it optional, give it a default, or give its former name with renamed: "…"'
      : "correct them with the previous declaration" +
        (code === "rule" || isBuiltIn
          ? ""
          : ", or remove it from the declaration, start, and delete its values with " +
            `"zoo-api prune ${name}"`);
    return `\n${describeMisfit(misfit)} You can ${advice}`;
  });
  return "cannot open the store, because its records do not fit the declaration; " +
    `nothing was changed:${lines.join("")}`;
}

/** Explains why a command refuses a declaration that no server has used, and what to do. */
export function explainOtherDeclaration(
  differences: readonly string[],
): string {
  const names = new Set(differences.map((text) => text.split(/[. ]/, 1)[0]));
  return `the declaration of ${
    [...names].join(", ")
  } is not the one with which the data folder was last served: ` +
    "start the server with it once, or name the other file with --collections";
}

/** Describes where the server listens, its process and its Node.js. */
export function describeServer(
  { HOST, TLS_CERT }: Config,
  port: number,
  store: Pick<Store, "memory" | "tables">,
): string {
  const { pid, version } = process;
  const { used, limit } = store.memory;
  let records = 0;
  for (const { size } of store.tables.values()) records += size;
  const scheme = TLS_CERT === undefined ? "http" : "https";
  const name = HOST.includes(":") ? `[${HOST}]` : HOST;
  return `listening on ${scheme}://${name}:${port} as process ${pid} on Node.js ${version}` +
    `; ${records} records take ${megabytes(used)} of ${megabytes(limit)}`;
}

/** Explains why the server cannot listen, and what to do. */
export function explainListenError(
  { HOST, PORT }: Config,
  error: unknown,
): string {
  const code = errorCode(error);
  const reason = code === "EADDRINUSE"
    ? "the port is in use: choose another one with --port"
    : code === "EACCES"
    ? "only root may open it: choose a --port from 1024 on"
    : /^(?:EADDRNOTAVAIL|EAI_AGAIN|ENOTFOUND)$/.test(code)
    ? "HOST or --host must name an address of this machine, such as 127.0.0.1"
    : errorText(error);
  return `cannot listen on ${HOST} port ${PORT}: ${reason}`;
}

const intervalMs = 200;
const width = 40;

/**
 * Draws a progress bar on standard error if that is a terminal.
 *
 * @param fraction returns how much is done, from 0 to 1
 * @returns a function that draws the bar a last time and ends its line
 */
export function showProgress(fraction: () => number): () => void {
  const { stderr } = process;
  if (!stderr.isTTY) return () => {};
  const draw = () => {
    const done = Math.min(fraction() || 0, 1);
    const bar = "#".repeat(done * width).padEnd(width);
    stderr.write(`\r[${bar}] ${Math.floor(done * 100)} %`);
  };
  const timer = setInterval(draw, intervalMs);
  return () => {
    clearInterval(timer);
    draw();
    stderr.write("\n");
  };
}
