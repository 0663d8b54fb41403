/** The command line: finds the command, runs it, and ends with its exit code. */

import process from "node:process";
import type { CommandSettings } from "../api/feature.ts";
import { settings } from "../config.ts";
import { loadFeatures } from "../features.ts";
import { UsageError } from "../usage.ts";
import { createReader, findEtcd, parseCommandLine } from "./command-line.ts";
import { loadApi } from "./declaration/load-api.ts";

let isServing = false;
let dataDir = "";

/** Parses the command line of a server; returns undefined if it is another one, or has a mistake. */
function parseServe(words: readonly string[]) {
  try {
    const line = parseCommandLine(words);
    const [name = "serve"] = line.positionals;
    return name === "serve" ? line : undefined;
  } catch {
    return undefined;
  }
}

/** Runs a command line and returns the exit code. */
async function run(words: readonly string[]): Promise<number> {
  const { positionals, flags } = parseServe(words) ??
    (await import("./tool-flags.ts")).parseAnyCommandLine(words);
  const [name = "serve", ...args] = positionals;
  isServing = name === "serve";
  const reader = createReader(flags, process.env);
  const config = reader.read(settings);
  dataDir = config.DATA_DIR;
  const options: CommandSettings = {
    dataDir,
    etcd: await findEtcd(reader),
    flags,
    reader,
    loadApi: (features) => loadApi(config.COLLECTIONS, features),
    loadFeatures: () => loadFeatures(config.FEATURES, reader.isSet),
  };
  const [maxArguments, execute] = isServing
    ? (await import("../serve.ts")).command
    : await (await import("./tools.ts")).loadCommand(name, options);
  if (args.length > maxArguments) {
    // npm consumes the flag of `npm start --port 4000`, and passes on only
    // 4000.
    const hint = process.env["npm_lifecycle_event"]
      ? "; flags come after --, as in npm start -- --port 4000"
      : "; values are given by flags, such as --data-dir or --port";
    throw new UsageError(
      `unexpected argument ${JSON.stringify(args[maxArguments])}${hint}`,
    );
  }
  return await execute(options, args) ?? 0;
}

// Files and the lock's socket are for their owner only.
process.umask(0o077);

process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (isServing) return; // the log may be lost, but not the responses
  // The reader of the output can end early: `export animals | head`.
  if (error.code === "EPIPE") process.exit(0);
  process.stderr.write(
    `zoo-api: cannot print what was done, so look before you repeat it: ${error.message}\n`,
  );
  process.exit(1);
});

try {
  process.exitCode = await run(process.argv.slice(2));
} catch (error) {
  const { printFailure } = await import("./output.ts");
  printFailure(error, dataDir);
  // A timer in a declaration file would keep the process alive.
  process.exit(error instanceof UsageError ? 2 : 1);
}
