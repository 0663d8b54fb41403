/**
 * The command `locked`: serves in a process that Node's permission model lets
 * read only the program, the files that settings name and the data folder, and
 * write only the latter.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { realpathSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { constants } from "node:os";
import { extname, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import type { Commands, CommandSettings } from "../api/feature.ts";
import { UsageError } from "../usage.ts";
import { flagOf } from "./command-line.ts";

export const commands: Commands = { locked: [0, serveLocked] };

/** The settings that name a file or folder, as a flag or a variable. */
const paths = [
  "TLS_CERT",
  "TLS_KEY",
  "COLLECTIONS",
  "PUBLIC",
  "SEED",
  "ADMIN_PASSWORD_FILE",
  "JWT_SECRET_FILE",
  "ETCD_PASSWORD_FILE",
];

/** Returns the path of a file of the program, which is one folder up. */
const fileOf = (name: string) =>
  fileURLToPath(new URL(`../${name}`, import.meta.url));

/** Returns a path, and the one to which links in it lead. */
function withTarget(path: string): string[] {
  try {
    return [path, realpathSync(path)];
  } catch {
    return [path]; // the server reports it
  }
}

/**
 * Returns the flags of Node.js with which a server has the rights that its
 * settings need, and no others.
 *
 * @throws {UsageError} if a path has a wildcard
 */
export function permissionFlags(
  { dataDir, flags }: Pick<CommandSettings, "dataDir" | "flags">,
  env: Readonly<Record<string, string | undefined>>,
): string[] {
  const allowed = ["--permission", "--allow-net"]
    .filter((flag) => process.allowedNodeEnvironmentFlags.has(flag));
  if (allowed.length === 0) allowed.push("--experimental-permission");
  const named = paths.map((name) => flags.get(flagOf(name)) ?? env[name])
    .flatMap((path) => path ? withTarget(path) : []);
  const program = ["", "../package.json", "../data"].map(fileOf);
  // Node.js 20 fails if two flags name one file, however they spell it.
  const readable = new Set(
    [...program, ...named, dataDir].map((path) => resolve(path)),
  );
  const wildcard = [...readable].find((path) => path.includes("*"));
  if (wildcard !== undefined) {
    throw new UsageError(
      `locked: Node.js would give rights to more than ${wildcard}, as it takes * for any characters: choose a path without it`,
    );
  }
  return [
    ...allowed,
    ...[...readable].map((path) => `--allow-fs-read=${path}`),
    `--allow-fs-write=${resolve(dataDir)}`,
  ];
}

/** Serves until the process with few rights ends; passes on signals to it. */
async function serveLocked(settings: CommandSettings): Promise<number> {
  const { argv, env, execArgv, execPath } = process;
  const rights = permissionFlags(settings, env);
  await mkdir(settings.dataDir, { recursive: true, mode: 0o700 });
  const words = argv.slice(2);
  words.splice(words.indexOf("locked"), 1);
  const main = fileOf(`main${extname(import.meta.url)}`);
  const child = spawn(
    execPath,
    [...execArgv, ...rights, main, "serve", ...words],
    { stdio: "inherit" },
  );
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.on(signal, () => child.kill(signal));
  }
  const [code, signal] = await once(child, "exit") as [
    number | null,
    NodeJS.Signals | null,
  ];
  return code ?? 128 + constants.signals[signal ?? "SIGKILL"];
}
