/**
 * The settings: for each its variable, its default, what it means and what it
 * may be. A flag beats the environment; a bad value stops the start.
 */

import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { featureNames } from "./features.ts";
import { users } from "./api/accounts/users.ts";

const { password } = users.properties; // one rule for every password

/** How much is logged: each level holds the ones before it. */
export const logLevels = ["silent", "error", "info", "debug"] as const;
export type LogLevel = (typeof logLevels)[number];

/** Where the API lives. */
export interface Base {
  /** `https://api.example.com`, or nothing: then addresses are path-absolute. */
  readonly origin: string;
  /** Begins and ends with a slash. */
  readonly path: string;
}

/** A command line that cannot be carried out; exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** One setting. */
interface Setting<T> {
  readonly variable: string;
  /** What names a file that holds the value: the flag alone, or both. */
  readonly file?: "flag" | "both";
  readonly description: string;
  /** What it may be, in words that follow "must be". */
  readonly expected: string;
  /** The default, and how `help` shows it where that is not the same. */
  readonly default: T;
  readonly shown?: string;
  /** Undefined where the value is not allowed. A method, so that a setting of any `T` is a setting. */
  parse(value: string): T | undefined;
}

function setting<T>(setting: Setting<T>): Setting<T> {
  return setting;
}

const settings = {
  host: setting({
    variable: "HOST",
    description: "address to listen on",
    expected: "a host name or an IP address",
    default: "127.0.0.1",
    parse: (value) => /^[\w.:%-]+$/.test(value) ? value : undefined,
  }),
  port: setting({
    variable: "PORT",
    description: "port to listen on; 0 picks a free one",
    expected: "a number from 0 to 65535",
    default: 3000,
    parse: (value) =>
      /^\d{1,5}$/.test(value) && Number(value) <= 65535
        ? Number(value)
        : undefined,
  }),
  base: setting<Base>({
    variable: "BASE_URL",
    description: "where the API lives: a path or a whole http(s) address",
    expected:
      "a path that begins with a slash, or a whole http(s) address, of letters, digits and -._~, without query",
    default: { origin: "", path: "/" },
    shown: "/",
    parse: parseBase,
  }),
  dataDir: setting({
    variable: "DATA_DIR",
    description: "the store's folder, made when missing",
    expected: "a path",
    default: "data/store",
    parse: (value) => value,
  }),
  /** The text of the seed file. */
  seed: setting<string | undefined>({
    variable: "SEED",
    file: "both",
    description: "JSON file of sample records, loaded into an empty store",
    expected: "JSON",
    default: undefined,
    shown: "none",
    parse: (value) => value,
  }),
  adminPassword: setting<string | undefined>({
    variable: "ADMIN_PASSWORD",
    file: "flag",
    description: "password of admin, used while there is no user yet",
    expected: password.expected,
    default: undefined,
    shown: "random, printed once",
    parse: (value) => password.check(value) ? undefined : value,
  }),
  /** The first signs, all verify; undefined: one that is kept in the data folder. */
  jwtSecrets: setting<readonly string[] | undefined>({
    variable: "JWT_SECRET",
    file: "flag",
    description: "secrets of 32 bytes or more: the first signs, all verify",
    expected:
      "one or more secrets of at least 32 bytes each, separated by commas (in a file: one a line)",
    default: undefined,
    shown: "random, kept in the data folder",
    parse: (value) =>
      listOf(value, (secret) => Buffer.byteLength(secret) >= 32),
  }),
  log: setting<LogLevel>({
    variable: "LOG",
    description: `how much is logged: ${logLevels.join(", ")}`,
    expected: `one of ${logLevels.join(", ")}`,
    default: "info",
    parse: (value) => logLevels.find((level) => level === value),
  }),
  /** The names of the features that are on. */
  features: setting<readonly string[]>({
    variable: "FEATURES",
    description: "optional capabilities: all, none, or a list by commas",
    expected: `all, none, or any of ${
      featureNames.join(", ")
    }, separated by commas`,
    default: featureNames,
    shown: "all",
    parse: (value) =>
      value === "all"
        ? featureNames
        : value === "none"
        ? []
        : listOf(value, (name) => featureNames.includes(name)),
  }),
  /** Origins whose scripts may read the answers; `*` is any. */
  corsOrigins: setting<readonly string[]>({
    variable: "CORS_ORIGINS",
    description: "origins whose scripts may read answers, by commas, or *",
    expected: "* or origins such as https://example.com, separated by commas",
    default: [],
    shown: "none",
    parse: (value) =>
      listOf(value, (origin) =>
        origin === "*" ||
        (URL.canParse(origin) && new URL(origin).origin === origin)),
  }),
  /** Whether a change of a record must have a precondition. */
  requireIfMatch: setting({
    variable: "REQUIRE_IF_MATCH",
    description: "1: changing a record takes a precondition such as If-Match",
    expected: "0 or 1",
    default: false,
    shown: "0",
    parse: (value) => ({ "0": false, "1": true })[value],
  }),
};

/** All settings, understood. */
export type Config = {
  readonly [Name in keyof typeof settings]: (typeof settings)[Name]["default"];
};

function listOf(
  value: string,
  isAllowed: (member: string) => boolean,
): string[] | undefined {
  const members = value.split(/,|\r?\n/).map((member) => member.trim());
  return members.every(isAllowed) ? members : undefined;
}

function parseBase(value: string): Base | undefined {
  const whole = /^(https?:\/\/(?:[\w.-]+|\[[\d:a-f]+\])(?::\d+)?)(.*)$/i
    .exec(value);
  const [, origin = "", rest = value] = whole ?? [];
  if (origin !== "" && !URL.canParse(origin)) return undefined;
  const path = rest.endsWith("/") ? rest : `${rest}/`;
  return /^\/(?:(?!\.\.?\/)[\w.~-]+\/)*$/.test(path)
    ? { origin: origin && new URL(origin).origin, path }
    : undefined;
}

/** `BASE_URL` is `base-url`, and `JWT_SECRET`, a file, `jwt-secret-file`. */
function flagOf({ variable, file }: Setting<unknown>): string {
  const name = variable.toLowerCase().replaceAll("_", "-");
  return file === "flag" ? `${name}-file` : name;
}

/** The words of a command line: its command with arguments, and its flags. */
export interface CommandLine {
  readonly words: readonly string[];
  readonly flags: ReadonlyMap<string, string>;
}

/**
 * Takes a command line apart.
 *
 * @param others flags beside those of the settings that take a value
 * @throws {UsageError} on an unknown flag, one given twice, or one without its value
 */
export function parseCommandLine(
  args: readonly string[],
  others: readonly string[],
): CommandLine {
  const names = [...Object.values(settings).map(flagOf), ...others];
  const string = { type: "string" as const };
  const { tokens } = parseArgs({
    args: [...args],
    options: {
      ...Object.fromEntries(names.map((name) => [name, string])),
      help: { type: "boolean", short: "h" },
      version: { type: "boolean" },
    },
    strict: false,
    tokens: true,
  });
  const words: string[] = [];
  const flags = new Map<string, string>();
  for (const token of tokens) {
    if (token.kind === "positional") words.push(token.value);
    if (token.kind !== "option") continue;
    const { name, rawName, inlineValue } = token;
    // `--host --port 1`: a flag is not the value of another.
    const next = token.value?.startsWith("--") && !inlineValue;
    const value = next ? undefined : token.value;
    if ((name === "help" || name === "version") && value === undefined) {
      words.unshift(name);
      continue;
    }
    const wrong = !names.includes(name)
      ? `is not known: allowed are ${
        names.map((name) => `--${name}`).join(", ")
      }, --help and --version`
      : !value
      ? "needs a value"
      : flags.has(name)
      ? "is given twice: give it once"
      : undefined;
    if (wrong) throw new UsageError(`the flag ${rawName} ${wrong}`);
    flags.set(name, value ?? "");
  }
  return { words, flags };
}

type Flags = ReadonlyMap<string, string>;
type Environment = Readonly<Record<string, string | undefined>>;

function read<T>(
  setting: Setting<T>,
  flags: Flags,
  environment: Environment,
): T {
  const { variable, file, expected, default: defaultValue } = setting;
  const flag = flagOf(setting);
  const given = flags.get(flag);
  const name = given === undefined ? variable : `--${flag}`;
  const text = given ?? environment[variable];
  if (!text) return defaultValue;
  const isFile = file === "both" || (file && given !== undefined);
  const parsed = setting.parse(isFile ? readText(name, text) : text);
  if (parsed !== undefined) return parsed;
  // A secret is not repeated.
  const shown = file ? "its value" : JSON.stringify(text);
  throw new UsageError(
    `${name}: ${shown} is not allowed: it must be ${expected}`,
  );
}

function readText(name: string, file: string): string {
  try {
    return readFileSync(file, "utf8").replace(/\r?\n$/, "");
  } catch (error) {
    const reason = error instanceof Error && "code" in error ? error.code : "";
    throw new UsageError(
      `${name}: cannot read ${
        JSON.stringify(file)
      } (${reason}): it must be a readable file`,
    );
  }
}

/** The data folder, which all commands need; no other setting is judged. */
export function readDataDir(flags: Flags, environment: Environment): string {
  return read(settings.dataDir, flags, environment);
}

/** The features that are on, some of which add commands. */
export function readFeatures(
  flags: Flags,
  environment: Environment,
): readonly string[] {
  return read(settings.features, flags, environment);
}

/**
 * All settings.
 *
 * @throws {UsageError} on the first bad value, with its name and what is allowed
 */
export function readConfig(flags: Flags, environment: Environment): Config {
  const values = Object.entries(settings).map(([name, setting]) => [
    name,
    read<unknown>(setting, flags, environment),
  ]);
  return Object.fromEntries(values);
}

/** All settings as lines of `help`. */
export function describeSettings(): string {
  return Object.values(settings).map((setting) => {
    const { file, variable, description, default: value, shown = value } =
      setting;
    const flag = `--${flagOf(setting)} ${file === "flag" ? "FILE" : "VALUE"}`;
    return `  ${flag.padEnd(28)}${description}\n${
      "".padEnd(30)
    }variable ${variable}, default: ${shown}\n`;
  }).join("");
}
