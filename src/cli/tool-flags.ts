/** The flags of the commands other than `serve`, and the mistakes in flags. */

import { UsageError } from "../usage.ts";
import { parseCommandLine, serveFlags } from "./command-line.ts";

/** The command of each flag that is not a setting. */
const commandOf = new Map(Object.entries({
  role: "user add",
  user: "log",
  "dry-run": "repair",
  "with-hashes": "export users",
  sample: "serve or locked",
  from: "copy or import",
  to: "copy or export",
}));

const text = { type: "string", multiple: true } as const;
const boolean = { type: "boolean" } as const;

const allFlags = {
  ...serveFlags,
  role: text,
  user: text,
  from: text,
  to: text,
  "dry-run": boolean,
  "with-hashes": boolean,
  help: { ...boolean, short: "h" },
  version: boolean,
};

/**
 * Parses the command line of any command.
 *
 * @throws {UsageError} on a flag that is unknown, repeated, lacks its value or
 * belongs to another command
 */
export function parseAnyCommandLine(args: readonly string[]) {
  const line = parseOrExplain(args);
  const { positionals, flags } = line;
  for (const name of flags.keys()) {
    if (name === "help" || name === "version") {
      return { positionals: [name], flags };
    }
    const command = commandOf.get(name);
    const isOf = (each: string) =>
      `${positionals.join(" ")} `.startsWith(`${each} `);
    if (command && !command.split(" or ").some(isOf)) {
      throw new UsageError(`--${name} is only allowed with ${command}`);
    }
  }
  return line;
}

function parseOrExplain(args: readonly string[]) {
  try {
    return parseCommandLine(args, allFlags);
  } catch (error) {
    throw explainFlag(error, Object.keys(allFlags));
  }
}

/**
 * Returns the error to report for one of `parseArgs`: without its advice about
 * `--`, and with the flag that was probably meant.
 *
 * @param names those of all flags
 */
function explainFlag(error: unknown, names: readonly string[]): unknown {
  if (!(error instanceof TypeError)) return error;
  const message = error.message.replace(/\.?\sTo specify.*/s, "")
    .replaceAll("\n", " ");
  const [, option] = /^Option '(?:-\w, )?--([\w-]+)/.exec(message) ?? [];
  if (option) {
    return new UsageError(
      boolean.type === Object(allFlags)[option].type
        ? `--${option} takes no value`
        : `--${option} must be given once, with a value: --${option}=… if it begins with "-"`,
    );
  }
  const [, unknown] = /^Unknown option '--(.*)'$/.exec(message) ?? [];
  const meant = unknown &&
    names.find((name) =>
      name.startsWith(unknown) || sortLetters(name) === sortLetters(unknown)
    );
  const hint = meant ? `: did you mean --${meant}?` : "";
  return new UsageError(message + hint);
}

/** Returns the letters of a word in alphabetical order. */
function sortLetters(word: string): string {
  return [...word].sort().join("");
}
