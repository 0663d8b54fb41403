/** The command line: finds the command, runs it, and ends with its exit code. */

import { readFileSync } from "node:fs";
import process from "node:process";
import { loadApi } from "./declaration/load-api.ts";
import type { Command, CommandSettings } from "../api/feature.ts";
import { CommandError, UsageError } from "../usage.ts";
import { etcdOf } from "../etcd/settings.ts";
import { loadFeatures } from "../features.ts";
import { parseCommandLine, readConfig } from "./command-line.ts";
import { errorCode, errorText } from "../store/error.ts";

/** The flags that are not settings, and the command of each. */
const commandFlags = {
  role: "user add",
  user: "log",
  "dry-run": "repair",
  "with-hashes": "export users",
  sample: "serve",
  from: "copy",
  to: "copy",
};

const { env } = process;
let isServing = false;

/** The commands that no feature adds, each imported when it is called. */
const coreCommands: Readonly<Record<string, Command>> = {
  serve: [0, serveCommand],
  check: [0, async (of) => (await import("./read.ts")).check(of)],
  repair: [
    0,
    async (of) => (await import("./repair.ts")).repairCommand(of),
  ],
  backup: [
    1,
    async (...of) => (await import("./backup.ts")).backupCommand(...of),
  ],
  copy: [0, async (of) => (await import("./backup.ts")).copyCommand(of)],
  user: [2, async (...of) => (await import("./user.ts")).userCommand(...of)],
  prune: [1, async (...of) => (await import("./prune.ts")).pruneCommand(...of)],
  export: [
    1,
    async (...of) => (await import("./read.ts")).exportCommand(...of),
  ],
  log: [1, async (...of) => (await import("./read.ts")).logCommand(...of)],
  help: [0, async () => (await import("./help.ts")).help()],
  version: [0, async () => (await import("./help.ts")).version()],
};

async function serveCommand({ flags, loadApi }: CommandSettings) {
  isServing = true;
  const config = { ...readConfig(flags, env) };
  const isOther = config.COLLECTIONS !== undefined || config.SEED !== undefined;
  const seed = flags.has("sample") && !isOther
    ? readFileSync(new URL("../../data/seed.json", import.meta.url), "utf8")
    : config.SEED;
  const { serve } = await import("../serve.ts");
  await serve({ ...config, SEED: seed }, await loadApi());
  // A signal that comes while Node.js itself shuts down would kill the process.
  process.exit(0);
}

/** Runs a command line and returns the exit code. */
async function run(words: readonly string[]): Promise<number> {
  const { positionals, flags } = parseCommandLine(
    words,
    Object.keys(commandFlags),
  );
  const [name = "serve", ...args] = positionals;
  const config = readConfig(flags, env);
  const { DATA_DIR: dataDir, COLLECTIONS } = config;
  const commandSettings = {
    dataDir,
    etcd: etcdOf(config),
    flags,
    loadApi: () => loadApi(COLLECTIONS),
  };
  const commands: Record<string, Command> = Object.assign(
    Object.create(null), // without the names that every object inherits
    coreCommands,
  );
  if (commands[name] === undefined) {
    const features = await loadFeatures(config.FEATURES);
    Object.assign(commands, ...features.map((each) => each.commands));
  }
  const command = commands[name];
  if (command === undefined) {
    throw new UsageError(
      `unknown command ${JSON.stringify(name)}: see "zoo-api help"`,
    );
  }
  const [maxArguments, execute] = command;
  for (const [flag, allowed] of Object.entries(commandFlags)) {
    const isAllowed = `${positionals.join(" ")} `.startsWith(`${allowed} `);
    if (flags.has(flag) && !isAllowed) {
      throw new UsageError(`--${flag} is only allowed with ${allowed}`);
    }
  }
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
  process.exitCode = await run(process.argv.slice(2));
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
