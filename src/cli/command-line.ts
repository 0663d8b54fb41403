/** The command line: its parser, and the settings that it and the environment give. */

import { parseArgs } from "node:util";
import { type Config, type Setting, settings } from "../config.ts";
import { featureSettings } from "../features.ts";
import { readText, UsageError } from "../usage.ts";

/** The flags that are not settings, and the command of each. */
const commandOf = new Map(Object.entries({
  role: "user add",
  user: "log",
  "dry-run": "repair",
  "with-hashes": "export users",
  sample: "serve",
  from: "copy or import",
  to: "copy or export",
}));

/**
 * Parses a command line into the command with its arguments, and the flags; one
 * without a value has the value 1.
 *
 * @throws {UsageError} on a flag that is unknown, repeated, lacks its value or
 * belongs to another command
 */
export function parseCommandLine(
  args: readonly string[],
): { readonly positionals: readonly string[]; readonly flags: Flags } {
  const { values, positionals } = parse([...args]);
  const flags = new Map<string, string>();
  for (const [name, value] of Object.entries(values)) {
    const command = commandOf.get(name);
    if (value === true && !command) return { positionals: [name], flags }; // --help
    const [text, ...more] = value === true ? ["1"] : [value].flat();
    if (typeof text !== "string" || text === "" || more.length > 0) {
      throw new UsageError(`--${name} must be given once, with a value`);
    }
    const isOf = (each: string) =>
      `${positionals.join(" ")} `.startsWith(`${each} `);
    if (command && !command.split(" or ").some(isOf)) {
      throw new UsageError(`--${name} is only allowed with ${command}`);
    }
    flags.set(name, text);
  }
  return { positionals, flags };
}

function parse(args: string[]) {
  const settingFlags = Object.entries(settings).map((each) => flagOf(...each));
  const names = [...settingFlags, ...commandOf.keys()];
  const text = { type: "string", multiple: true } as const;
  try {
    return parseArgs({
      args,
      options: {
        ...Object.fromEntries(names.map((name) => [name, text])),
        "dry-run": { type: "boolean" },
        "with-hashes": { type: "boolean" },
        sample: { type: "boolean" },
        help: { type: "boolean", short: "h" },
        version: { type: "boolean" },
      },
      allowPositionals: true,
    });
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    const message = error.message.replace(/\.?\sTo specify.*/s, "")
      .replaceAll("\n", " ");
    const [, unknown] = /^Unknown option '--(.*)'$/.exec(message) ?? [];
    const meant = unknown &&
      names.find((name) =>
        name.startsWith(unknown) || sortLetters(name) === sortLetters(unknown)
      );
    const hint = meant ? `: did you mean --${meant}?` : "";
    throw new UsageError(message + hint);
  }
}

/** Returns the letters of a word in alphabetical order. */
function sortLetters(word: string): string {
  return [...word].sort().join("");
}

/** Returns the flag of a setting: `base-url`, or `jwt-secret-file` for a file. */
export function flagOf(variable: string, { file }: Setting): string {
  const name = variable.toLowerCase().replaceAll("_", "-");
  return file === "flag" ? `${name}-file` : name;
}

/** The values of flags by name. */
export type Flags = ReadonlyMap<string, string>;

type Environment = Readonly<Record<string, string | undefined>>;

function readSetting(
  [variable, setting]: readonly [string, Setting],
  flags: Flags,
  environment: Environment,
): unknown {
  const { file, expected, default: defaultValue } = setting;
  const flag = flagOf(variable, setting);
  const isFlag = flags.has(flag);
  const name = isFlag ? `--${flag}` : variable;
  const text = isFlag ? flags.get(flag) : environment[variable];
  if (!text) return defaultValue;
  if (setting.needsFeature && !featureSettings.includes(variable)) {
    throw new UsageError(`${name}: this server lacks the feature for it`);
  }
  const isFile = file === "both" || (file && isFlag);
  const parsed = setting.parse(isFile ? readText(name, text) : text);
  if (parsed !== undefined) return parsed;
  // A message must not repeat a secret.
  const shown = file ? "its value" : JSON.stringify(text);
  throw new UsageError(
    `${name}: ${shown} is not allowed: it must be ${expected}`,
  );
}

/**
 * Returns the settings. Each is read when it is used, so that one that a command
 * does not need cannot prevent it. A copy, `{ ...config }`, reads all.
 *
 * The object throws a {@linkcode UsageError} where a value is not allowed, with
 * the name of the setting and what is allowed.
 */
export function readConfig(flags: Flags, environment: Environment): Config {
  const getters = Object.entries(settings).map((each) => [
    each[0],
    { enumerable: true, get: () => readSetting(each, flags, environment) },
  ]);
  return Object.create(null, Object.fromEntries(getters));
}
