/** Runs commands in the test's own process, for tests of what a command prints and changes. */

import { writeFile } from "node:fs/promises";
import { extname, join } from "node:path";
import process from "node:process";
import { PassThrough, Readable } from "node:stream";
import { text } from "node:stream/consumers";
import {
  clientOf,
  commandEnvironment,
  createFolder,
  documentKey,
  removeFolder,
  run,
  type RunOptions,
  type RunResult,
  type Server,
  serverSecrets,
  start,
  type StartOptions,
  temporaryFolder,
} from "./harness.ts";
import { forgetServer } from "./replay.ts";

/** Thrown instead of ending the process. */
class Exit extends Error {
  readonly code: number;

  constructor(code: number) {
    super(`exit with ${code}`);
    this.code = code;
  }
}

/** The signals to which commands listen. */
const signals = ["SIGHUP", "SIGINT", "SIGTERM"] as const;

let runs = 0;
let latest: Promise<unknown> = Promise.resolve();

/**
 * Runs a command of the project as `run` does, but in this process, which takes
 * a tenth of the processor time. Commands run one after the other, because each
 * uses the streams, settings and exit code of the process. A declaration file
 * is loaded only once, even if it is changed. Other runtimes than Node.js run a
 * command in a process of its own.
 */
export function runHere(
  args: readonly string[],
  options: Omit<RunOptions, "cwd"> = {},
): Promise<RunResult> {
  if (process.env["RUNTIME"]) return run(args, options);
  return inTurn(() => runNow(args, options));
}

/** Does some work once all that was asked for earlier is done. */
function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const result = latest.then(work);
  latest = result.catch(() => {});
  return result;
}

async function runNow(
  args: readonly string[],
  { env, input = "" }: RunOptions,
): Promise<RunResult> {
  const stdout = new PassThrough();
  const stderr = new PassThrough();
  const printed = Promise.all([text(stdout), text(stderr)]);
  const leave = enter({
    argv: [process.execPath, "zoo-api", ...args],
    env: { ...commandEnvironment(), ...env },
    stdin: Readable.from([input], { objectMode: false }),
    stdout,
    stderr,
    exit,
  });
  const code = await load().finally(() => leave());
  stdout.end();
  stderr.end();
  const [out, err] = await printed;
  return { code, stdout: out, stderr: err };
}

/** A server that the command `serve` runs in this process. */
export type ServerHere =
  & Pick<
    Server,
    "folder" | "origin" | "port" | "output" | "request" | "signIn" | "stop"
  >
  & { end(): Promise<number | null> };

/** How to start a server in this process. */
export type HereOptions = Pick<
  StartOptions,
  "args" | "env" | "folder" | "isNew" | "seed"
>;

/**
 * Starts a server as `start` does, but in this process, which takes a tenth of
 * the processor time: for tests that start one again and again. If it ends
 * instead, throws an error with all its output.
 */
export function startHere(options: HereOptions = {}): Promise<ServerHere> {
  const { RUNTIME, ETCD } = process.env;
  return RUNTIME || ETCD ? start(options) : inTurn(() => startNow(options));
}

async function startNow(options: HereOptions): Promise<ServerHere> {
  const own = await temporaryFolder();
  const { folder = join(own, "store") } = options;
  await createFolder(folder, options);
  const args = ["serve", "--port", "0", "--data-dir", folder];
  if (options.seed !== undefined) {
    args.push("--seed", join(own, "seed.json"));
    await writeFile(join(own, "seed.json"), JSON.stringify(options.seed));
  }
  const stdout = new PassThrough();
  const leave = enter({
    argv: [process.execPath, "zoo-api", ...args, ...options.args ?? []],
    env: { ...commandEnvironment(), ...serverSecrets, ...options.env },
    stdout,
    stderr: stdout,
    exit,
  });
  let output = "";
  const ended = load();
  let listeners: readonly Listener[] = [];
  const port = await new Promise<number>((resolve, reject) => {
    stdout.setEncoding("utf8").on("data", (part) => {
      output += part;
      const found = /listening on http:\/\/\S*?:(\d+)/.exec(output);
      if (found) resolve(Number(found[1]));
    });
    const fail = (reason: unknown) =>
      reject(new Error(`The server ended with code ${reason}: ${output}`));
    ended.then((code) => setImmediate(fail, code), fail);
  }).finally(() => listeners = leave());
  const origin = `http://127.0.0.1:${port}`;
  const end = async () => {
    let code = 0;
    const leave = enter({ exit: (given: number) => code ||= given });
    for (const stop of listeners) stop("SIGTERM");
    const failed = await ended.finally(leave);
    forgetServer(origin);
    return failed || code;
  };
  return {
    ...clientOf(origin, documentKey(options)),
    port,
    folder,
    output: () => output,
    end: () => inTurn(end),
    async stop() {
      await inTurn(end);
      await removeFolder(own);
    },
  };
}

type Listener = NodeJS.SignalsListener;

/**
 * Replaces properties of the process. Returns a function that restores them, the
 * exit code, the console and the umask, and removes and returns the new listeners to SIGTERM.
 */
function enter(values: Readonly<Record<string, unknown>>) {
  const { exitCode } = process;
  const methods = { ...console };
  const mask = process.umask();
  const before = signals.map((signal) => process.listeners(signal));
  const restore = replaceProperties(values);
  return (): readonly Listener[] => {
    restore();
    process.exitCode = exitCode;
    Object.assign(console, methods); // a declaration file gets others
    process.umask(mask);
    const added = signals.map((signal, index) => {
      const listeners = process.listeners(signal) as Listener[];
      return listeners.filter((each) => !before[index]?.includes(each));
    });
    for (const [index, signal] of signals.entries()) {
      for (const listener of added[index] ?? []) process.off(signal, listener);
    }
    return added[signals.indexOf("SIGTERM")] ?? [];
  };
}

function exit(code: number): never {
  throw new Exit(code);
}

/** Replaces properties of the process, and returns a function that restores them. */
function replaceProperties(values: Readonly<Record<string, unknown>>) {
  const names = Object.keys(values);
  const before = names.map((name) =>
    Object.getOwnPropertyDescriptor(process, name)
  );
  for (const [name, value] of Object.entries(values)) {
    const how = { writable: true, configurable: true, enumerable: true };
    Object.defineProperty(process, name, { value, ...how });
  }
  return () => {
    for (const [index, descriptor] of before.entries()) {
      Object.defineProperty(process, names[index] ?? "", descriptor ?? {});
    }
  };
}

/** Loads the command line once more, which runs it; returns the exit code. */
async function load(): Promise<number> {
  const file = `../src/cli/commands${extname(import.meta.url)}?run=${++runs}`;
  try {
    await import(new URL(file, import.meta.url).href);
    return Number(process.exitCode);
  } catch (error) {
    if (error instanceof Exit) return error.code;
    throw error;
  }
}
