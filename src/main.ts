#!/usr/bin/env node
/** The command line. */

import { readFileSync } from "node:fs";
import process from "node:process";
import { backupCommand } from "./cli/backup.ts";
import { check } from "./cli/check.ts";
import { exportCollection } from "./cli/export.ts";
import { repairCommand } from "./cli/repair.ts";
import { userCommand } from "./cli/user.ts";
import {
  describeSettings,
  parseCommandLine,
  readConfig,
  readDataDir,
  readFeatures,
  UsageError,
} from "./config.ts";
import { CommandError } from "./data-folder.ts";
import { loadFeatures } from "./features.ts";
import { serve } from "./serve.ts";
import { StoreError } from "./store/store.ts";

const help = `zoo-api: a REST API on a durable store

Usage: zoo-api [COMMAND] [FLAGS]

Commands:
  serve                       answer requests until SIGTERM or SIGINT (the default)
  check                       read the whole data folder and report every fault;
                              exit code 0: none, 1: a torn last write, 2: damage
  repair                      make a damaged data folder usable, keeping a copy
  backup DIR                  copy the store into an empty folder, also while it runs
  user add NAME [--role ROLE] make a user; the password is read from standard input
  user password NAME          change a password; likewise
  user list                   print id, name, role and time of creation
  export COLLECTION           print all records as JSON lines
  import COLLECTION FILE      make records of JSON lines (- is standard input);
                              exit code 0: all went in, 1: some were rejected
  help, version               print this, or the version

Settings (a flag beats its variable):
${describeSettings()}`;

let serving = false;

/** Carries out a command line and returns the exit code. */
async function main(args: readonly string[]): Promise<number> {
  const { words, flags } = parseCommandLine(args, ["role"]);
  const [command = "serve", ...rest] = words;
  const { env } = process;
  if (flags.has("role") && (command !== "user" || rest[0] !== "add")) {
    throw new UsageError("--role is only allowed with user add");
  }
  const takesOne = command === "export" || command === "backup";
  const takesTwo = command === "user" || command === "import";
  const most = takesTwo ? 2 : takesOne ? 1 : 0;
  if (rest.length > most) {
    throw new UsageError(
      `${command}: ${JSON.stringify(rest.at(-1))} is one word too many`,
    );
  }
  switch (command) {
    case "serve":
      serving = true;
      await serve(readConfig(flags, env));
      // At once: a signal that comes while Node.js tidies up would kill us.
      return process.exit(0);
    case "check":
      return await check(readDataDir(flags, env));
    case "repair":
      await repairCommand(readDataDir(flags, env));
      return 0;
    case "backup":
      await backupCommand(readDataDir(flags, env), rest[0]);
      return 0;
    case "user":
      await userCommand(readDataDir(flags, env), rest, flags.get("role"));
      return 0;
    case "export":
      await exportCollection(readDataDir(flags, env), rest[0]);
      return 0;
    case "help":
      process.stdout.write(help);
      return 0;
    case "version":
      process.stdout.write(`${readVersion()}\n`);
      return 0;
    default: {
      const features = await loadFeatures(readFeatures(flags, env));
      for (const { commands = {} } of features) {
        if (!Object.hasOwn(commands, command)) continue;
        const dataDir = readDataDir(flags, env);
        return await commands[command]?.(rest, { dataDir }) ?? 0;
      }
      throw new UsageError(
        `the command ${
          JSON.stringify(command)
        } is not known: allowed are serve, check, repair, backup, user, export, import, help and version`,
      );
    }
  }
}

function readVersion(): string {
  const file = new URL("../package.json", import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")).version;
}

// What we make is for our eyes alone, the sockets of the lock too.
process.umask(0o077);

process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (serving) return; // its log may be lost, its answers may not
  // Who reads our output may stop reading: `export animals | head`.
  if (error.code === "EPIPE") process.exit(0);
  process.stderr.write(`zoo-api: cannot print: ${error.message}\n`);
  process.exit(1);
});

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  const expected = error instanceof UsageError ||
    error instanceof CommandError || error instanceof StoreError;
  if (!expected) throw error;
  process.stderr.write(`zoo-api: ${error.message}\n`);
  process.exitCode = error instanceof UsageError ? 2 : 1;
}
