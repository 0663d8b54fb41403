/** The command line: its parser, the settings that it and the environment give, and its part of `help`. */

import { parseArgs } from "node:util";
import { type Config, type Setting, settings } from "../config.ts";
import { featureSettings } from "../features.ts";
import { readText, UsageError } from "../usage.ts";

/**
 * Parses a command line into the command with its arguments, and the flags.
 *
 * @param others flags that are not settings
 * @throws {UsageError} on a flag that is unknown, repeated or lacks its value
 */
export function parseCommandLine(
  args: readonly string[],
  others: readonly string[],
): { readonly positionals: readonly string[]; readonly flags: Flags } {
  const names = [
    ...Object.entries(settings).map((each) => flagOf(...each)),
    ...others,
  ];
  const { values, positionals } = parse(args, names);
  const flags = new Map<string, string>();
  for (const [name, value] of Object.entries(values)) {
    const [text, ...more] = [value].flat();
    if (text === true && others.includes(name)) flags.set(name, "1");
    else if (typeof text !== "string") return { positionals: [name], flags }; // --help
    else if (text !== "" && more.length === 0) flags.set(name, text);
    else throw new UsageError(`--${name} must be given once, with a value`);
  }
  return { positionals, flags };
}

function parse(args: readonly string[], names: readonly string[]) {
  const option = { type: "string", multiple: true } as const;
  try {
    return parseArgs({
      args: [...args],
      options: {
        ...Object.fromEntries(names.map((name) => [name, option])),
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

/** Returns all settings as lines of `help`. */
export function describeSettings(): string {
  return Object.entries<Setting>(settings).map(([variable, setting]) => {
    const { file, description, default: value } = setting;
    const { defaultText = value ?? "none" } = setting;
    const flag = `--${flagOf(variable, setting)} ${
      file === "flag" ? "FILE" : "VALUE"
    }`;
    return `  ${flag.padEnd(28)}${description}\n${
      "".padEnd(30)
    }variable ${variable}, default: ${defaultText}\n`;
  }).join("");
}
