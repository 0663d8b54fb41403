/** Installs and runs third-party programs in a temporary folder. */

import { execFile } from "node:child_process";
import { copyFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { root } from "../harness.ts";

/** Disables telemetry. */
export const silence = {
  REDOCLY_TELEMETRY: "off",
  REDOCLY_SUPPRESS_UPDATE_NOTICE: "true",
  SCARF_ANALYTICS: "false",
  DO_NOT_TRACK: "1",
  NO_COLOR: "1",
};

/** Runs a program until it ends, and returns its standard output; throws an error with all output if it fails. */
export function run(
  program: string,
  args: readonly string[],
  { cwd, input = "" }: { readonly cwd: string; readonly input?: string },
): Promise<string> {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, ...silence };
    const child = execFile(program, args, { cwd, env }, (error, out, err) => {
      if (error === null) resolve(out);
      else reject(new Error(`${program} ${args.join(" ")}: ${out}${err}`));
    });
    child.stdin?.end(input);
  });
}

export function say(what: string): void {
  const seconds = process.uptime().toFixed(0);
  process.stdout.write(`${seconds} s: ${what}\n`);
}

/** Installs packages, without running their scripts. */
export async function install(
  packages: readonly string[],
  cwd: string,
): Promise<void> {
  await writeFile(join(cwd, "package.json"), '{ "type": "module" }');
  const quiet = [
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--loglevel=error",
  ];
  await run("npm", ["install", ...quiet, ...packages], { cwd });
  say("the packages are installed");
}

/** Compiles a client of the folder `clients` into the folder `out`, under the strictest options. */
export async function compile(
  client: string,
  cwd: string,
  options: readonly string[] = ["--exactOptionalPropertyTypes"],
): Promise<void> {
  const source = join(root, "test/strangers/clients", client);
  await copyFile(source, join(cwd, client));
  await run("npx", [
    "tsc",
    "--strict",
    "--noUncheckedIndexedAccess",
    ...options,
    "--module",
    "nodenext",
    "--target",
    "es2023",
    "--allowImportingTsExtensions",
    "--rewriteRelativeImportExtensions",
    "--outDir",
    "out",
    client,
  ], { cwd });
}
