/** The command line: finds the command, runs it, and ends with its exit code. */

import process from "node:process";
import { loadApi } from "./declaration/load-api.ts";
import type { Feature } from "../api/feature.ts";
import { CommandError, UsageError } from "../usage.ts";
import { etcdOf } from "../etcd/settings.ts";
import { loadFeatures } from "../features.ts";
import { parseCommandLine, readConfig } from "./command-line.ts";
import { errorCode, errorText } from "../store/error.ts";

const read = () => import("./read.ts");
const copy = () => import("./backup.ts");
const help = () => import("./help.ts");

/** Imports the module of each command that no feature adds. */
const modules = new Map(
  Object.entries<() => Promise<Pick<Feature, "commands">>>({
    serve: () => import("./serve.ts"),
    check: read,
    repair: () => import("./repair.ts"),
    backup: copy,
    copy,
    user: () => import("./user.ts"),
    prune: () => import("./prune.ts"),
    export: read,
    log: read,
    help,
    version: help,
  }),
);

const { argv, env } = process;
let isServing = false;

/** Runs a command line and returns the exit code. */
async function run(words: readonly string[]): Promise<number> {
  const { positionals, flags } = parseCommandLine(words);
  const [name = "serve", ...args] = positionals;
  isServing = name === "serve";
  const config = readConfig(flags, env);
  const { DATA_DIR: dataDir, COLLECTIONS } = config;
  const load = modules.get(name);
  const features = () => loadFeatures(config.FEATURES);
  const sources = load ? [await load()] : await features();
  const [, command] = sources
    .flatMap(({ commands = {} }) => Object.entries(commands))
    .find(([each]) => each === name) ?? [];
  if (command === undefined) {
    throw new UsageError(
      `unknown command ${JSON.stringify(name)}: see "zoo-api help"`,
    );
  }
  const [maxArguments, execute] = command;
  if (args.length > maxArguments) {
    // npm consumes the flag of `npm start --port 4000`, and passes on only
    // 4000.
    const hint = env["npm_lifecycle_event"]
      ? "; flags come after --, as in npm start -- --port 4000"
      : "";
    throw new UsageError(
      `unexpected argument ${JSON.stringify(args[maxArguments])}${hint}`,
    );
  }
  const commandSettings = {
    dataDir,
    etcd: etcdOf(config),
    flags,
    loadApi: () => loadApi(COLLECTIONS),
    loadFeatures: features,
  };
  return await execute(commandSettings, args) ?? 0;
}

// Files and the lock's socket are for their owner only.
process.umask(0o077);

process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (isServing) return; // the log may be lost, but not the responses
  // The reader of the output can end early: `export animals | head`.
  if (error.code === "EPIPE") process.exit(0);
  process.stderr.write(`zoo-api: cannot print: ${error.message}\n`);
  process.exit(1);
});

try {
  process.exitCode = await run(argv.slice(2));
} catch (error) {
  // A StoreError and the errors of the operating system have a code.
  const isExpected = error instanceof UsageError ||
    error instanceof CommandError || errorCode(error) !== "";
  if (!isExpected) throw error;
  const lines = errorText(error).split("\n");
  process.stderr.write(lines.map((line) => `zoo-api: ${line}\n`).join(""));
  // A timer in a declaration file would keep the process alive.
  process.exit(error instanceof UsageError ? 2 : 1);
}
