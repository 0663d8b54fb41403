/** Runs commands in the test's own process, for tests of what a command prints and changes. */

import { extname } from "node:path";
import process from "node:process";
import { PassThrough, Readable } from "node:stream";
import { text } from "node:stream/consumers";
import {
  commandEnvironment,
  run,
  type RunOptions,
  type RunResult,
} from "./harness.ts";

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
  const result = latest.then(() => runNow(args, options));
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
  const { exitCode } = process;
  const mask = process.umask();
  const listeners = signals.map((signal) => process.listeners(signal));
  const restore = replaceProperties({
    argv: [process.execPath, "zoo-api", ...args],
    env: { ...commandEnvironment(), ...env },
    stdin: Readable.from([input], { objectMode: false }),
    stdout,
    stderr,
    exit: (code: number) => {
      throw new Exit(code);
    },
  });
  let code: number;
  try {
    code = await load();
  } finally {
    restore();
    process.exitCode = exitCode;
    process.umask(mask);
    for (const [index, signal] of signals.entries()) {
      for (const listener of process.listeners(signal)) {
        if (!listeners[index]?.includes(listener)) {
          process.off(signal, listener);
        }
      }
    }
  }
  stdout.end();
  stderr.end();
  const [out, err] = await printed;
  return { code, stdout: out, stderr: err };
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
