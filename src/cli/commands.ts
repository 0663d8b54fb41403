/** The command line: finds the command, runs it, and ends with its exit code. */

import { readFileSync } from "node:fs";
import process from "node:process";
import { loadApi } from "./declaration/load-api.ts";
import type { Command, CommandSettings } from "../api/feature.ts";
import { backupCommand, copyCommand } from "./backup.ts";
import {
  describeSettings,
  parseCommandLine,
  readConfig,
} from "./settings/command-line.ts";
import { print } from "./output.ts";
import { check, exportCommand, logCommand } from "./read.ts";
import { pruneCommand } from "./prune.ts";
import { repairCommand } from "./repair.ts";
import { userCommand } from "./user.ts";
import { CommandError, UsageError } from "../config.ts";
import { etcdOf } from "./settings/etcd.ts";
import { loadFeatures } from "../features.ts";
import { serve } from "../serve.ts";
import { errorCode, errorText } from "../store/error.ts";

const help = `zoo-api: a REST API on a durable store

Usage: zoo-api [COMMAND] [FLAGS]

Commands:
  serve [--sample]            serve the API until SIGTERM or SIGINT (the default);
                              --sample: the sample API with its sample records,
                              unless COLLECTIONS or SEED is set
  check                       read the whole data folder and report every fault;
                              exit code 0: none, 1: an incomplete last write, 2: damage
  repair [--dry-run]          make a damaged data folder usable, keeping a copy, and
                              report the losses; with --dry-run only report them:
                              exit code 0: nothing to repair, 2: damage
  copy --from STORE --to STORE
                              copy a store between a folder and etcd, everything in it
  backup DIR                  copy the store into an empty folder, even while it is served
  user add NAME [--role ROLE] create a user; reads the password from standard input
  user password NAME          change a password, read from standard input
  user list                   print id, name, role and time of creation
  export COLLECTION           print all records as NDJSON: one JSON object per line
  export users --with-hashes  print all users with their password hashes; redirect the
                              output only to a private file, after umask 077
  log [COLLECTION[/ID]] [--user NAME]
                              print who changed what and when, as far back as the
                              folder holds logs
  import COLLECTION FILE      create records from NDJSON (- is standard input);
                              exit code 0: all were created, 1: some were rejected;
                              for users: the output of export users --with-hashes
  prune COLLECTION[.PROPERTY] permanently delete data that is stored but not declared
  prune answers               forget all idempotency keys
  help, version               print this, or the version

Settings (a flag overrides its environment variable):
${describeSettings()}`;

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

/** The commands that no feature adds. */
const coreCommands: Readonly<Record<string, Command>> = {
  serve: [0, serveCommand],
  check: [0, check],
  repair: [0, repairCommand],
  backup: [1, backupCommand],
  copy: [0, copyCommand],
  user: [2, userCommand],
  prune: [1, pruneCommand],
  export: [1, exportCommand],
  log: [1, logCommand],
  help: [0, () => print(help)],
  version: [0, () => print(`${readVersion()}\n`)],
};

async function serveCommand({ flags, loadApi }: CommandSettings) {
  isServing = true;
  const config = { ...readConfig(flags, env) };
  const isOther = config.COLLECTIONS !== undefined || config.SEED !== undefined;
  const seed = flags.has("sample") && !isOther
    ? readFileSync(new URL("../../data/seed.json", import.meta.url), "utf8")
    : config.SEED;
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

function readVersion(): string {
  const file = new URL("../../package.json", import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")).version;
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
