/** Loads a declaration file. */

import { Console } from "node:console";
import { basename, resolve } from "node:path";
import process from "node:process";
import { setImmediate as nextTurn } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import {
  type ApiDeclaration,
  type ApiFile,
  declareApi,
} from "../../api/declaration/api.ts";
import { readText, UsageError } from "../../usage.ts";
import { errorCode, errorText } from "../../store/error.ts";
import { statOf } from "../../store/log/files.ts";
import { withCheckedRule } from "./checked-rule.ts";
import { vocabulary } from "./checked-vocabulary.ts";
import { findMistakes } from "./mistakes.ts";
import { isClass } from "./shape.ts";

/**
 * Loads an API from a file.
 *
 * @throws {UsageError} with a line for each mistake in the file
 */
export async function loadFile(file: string): Promise<ApiDeclaration> {
  let mistakes: readonly string[];
  // Its output must not be in an export or in the log.
  Object.assign(console, new Console(process.stderr));
  try {
    if (!/\.[cm]?[jt]s$/.test(file)) {
      throw new UsageError("it must be a .js, .mjs or .ts file");
    }
    const stats = await statOf(file).catch(() => {});
    if (stats?.isDirectory()) {
      throw new UsageError("it is a folder: name a file in it");
    }
    // Node.js would replace other bytes, also in texts and patterns.
    if (stats) readText("COLLECTIONS", file);
    const api = await watch(async () => {
      const { default: declare } = await import(
        pathToFileURL(resolve(file)).href
      );
      if (typeof declare !== "function" || isClass(declare)) {
        throw new UsageError("its default export must be a function");
      }
      const api: ApiFile | Promise<unknown> = declare(vocabulary);
      if (!(api instanceof Promise)) return api;
      api.catch(() => {}); // the async function itself is the mistake to report
      throw new UsageError("its function must not be async");
    });
    mistakes = findMistakes(api);
    if (mistakes.length === 0) {
      const collections = api.collections.map(withCheckedRule);
      return declareApi({ ...api, collections });
    }
  } catch (error) {
    throw new UsageError(`${file}${explain(error, file)}`);
  }
  throw new UsageError(
    mistakes.map((mistake) => `${file}: ${mistake}`).join("\n"),
  );
}

/**
 * Waits until a file is loaded. Also rejects if the file throws in a timer or
 * in a promise that nobody handles, waits for something that never happens, or
 * would end the process.
 */
async function watch<Result>(load: () => Promise<Result>): Promise<Result> {
  let onError = (_error: unknown) => {};
  const failure = new Promise<never>((_, reject) => {
    onError = reject;
  });
  // The event loop is empty, but the file is not loaded.
  const onIdle = () =>
    onError(new Error("it waits for something that never happens"));
  process.on("uncaughtException", onError).on("beforeExit", onIdle);
  const { exit } = process;
  process.exit = () => {
    throw new Error("it must not call process.exit");
  };
  try {
    // A rejection counts as unhandled only in the next turn.
    return await Promise.race([load().finally(nextTurn), failure]);
  } finally {
    process.off("uncaughtException", onError).off("beforeExit", onIdle);
    process.exit = exit;
  }
}

/** Returns a path as one word of a shell's command. */
export function inShell(path: string): string {
  const quoted = path.replaceAll("'", String.raw`'\''`);
  return /^[\w./+-]+$/.test(path) ? path : `'${quoted}'`;
}

/** Returns why a file cannot be loaded; begins with the line of the error if that is known. */
function explain(error: unknown, path: string): string {
  if (errorCode(error) === "ERR_UNKNOWN_FILE_EXTENSION") {
    return `: is TypeScript, which Node.js ${process.version} cannot run without tsx: use .js or .mjs, or Node.js 22.18 or later`;
  }
  if (errorCode(error) === "ERR_ACCESS_DENIED") {
    return `: ${
      errorText(error)
    }: under "locked" it can read no other file: put all into one, or start Node.js with the flags of the service in README and --allow-fs-read for each`;
  }
  try {
    const { stack = "" } = error instanceof Error ? error : {};
    const line = Number.parseInt(stack.split(`${basename(path)}:`)[1] ?? "");
    const message = errorText(error).replace(/ imported from .*/s, "")
      .replaceAll(/\s+/g, " ");
    // The former under "locked", where Node.js cannot read package.json.
    const isScript = errorCode(error) === "ERR_REQUIRE_CYCLE_MODULE" ||
      error instanceof SyntaxError &&
        /'(?:ex|im)port'|import statement/.test(message);
    const advice = isScript
      ? '; Node.js reads it as a script: name it .mjs, or set "type": "module" in its package.json'
      : error instanceof SyntaxError && Number.isNaN(line)
      ? `; "node --check ${inShell(path)}" shows where`
      : "";
    const place = Number.isNaN(line) ? "" : `:${line}`;
    return `${place}: ${message}${advice}`;
  } catch { // anything may be thrown
    return ": it throws a value that cannot be described";
  }
}
