/**
 * The settings: for each its variable, its flag, its default, what it means and
 * what it may be. A flag beats the environment; a bad value stops the start.
 */

import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { users } from "./api/users.ts";

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

/** All settings, understood. */
export interface Config {
  readonly host: string;
  readonly port: number;
  readonly base: Base;
  readonly dataDir: string;
  /** The text of the seed file. */
  readonly seed: string | undefined;
  readonly adminPassword: string | undefined;
  /** The first signs, all verify; undefined: one that is kept in the data folder. */
  readonly jwtSecrets: readonly string[] | undefined;
  readonly log: LogLevel;
  /** Origins whose scripts may read the answers; `*` is any. */
  readonly corsOrigins: readonly string[];
  /** Whether a change of a record must have a precondition. */
  readonly requireIfMatch: boolean;
}

/** A command line that cannot be carried out; exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** A setting as `help` shows it. */
interface Setting {
  readonly variable: string;
  readonly flag: string;
  /** Whether the flag names a file that holds the value. */
  readonly file?: true;
  readonly standard: string;
  readonly meaning: string;
}

const settings = {
  host: {
    variable: "HOST",
    flag: "host",
    standard: "127.0.0.1",
    meaning: "address to listen on",
  },
  port: {
    variable: "PORT",
    flag: "port",
    standard: "3000",
    meaning: "port to listen on; 0 picks a free one",
  },
  base: {
    variable: "BASE_URL",
    flag: "base-url",
    standard: "/",
    meaning: "where the API lives: a path or a whole http(s) address",
  },
  dataDir: {
    variable: "DATA_DIR",
    flag: "data-dir",
    standard: "data/store",
    meaning: "the store's folder, made when missing",
  },
  seed: {
    variable: "SEED",
    flag: "seed",
    standard: "none",
    meaning: "JSON file of sample records, loaded into an empty store",
  },
  adminPassword: {
    variable: "ADMIN_PASSWORD",
    flag: "admin-password-file",
    file: true,
    standard: "random, printed once",
    meaning: "password of admin, used while there is no user yet",
  },
  jwtSecrets: {
    variable: "JWT_SECRET",
    flag: "jwt-secret-file",
    file: true,
    standard: "random, kept in the data folder",
    meaning: "secrets of 32 bytes or more: the first signs, all verify",
  },
  log: {
    variable: "LOG",
    flag: "log",
    standard: "info",
    meaning: `how much is logged: ${logLevels.join(", ")}`,
  },
  corsOrigins: {
    variable: "CORS_ORIGINS",
    flag: "cors-origins",
    standard: "none",
    meaning: "origins whose scripts may read answers, by commas, or *",
  },
  requireIfMatch: {
    variable: "REQUIRE_IF_MATCH",
    flag: "require-if-match",
    standard: "0",
    meaning: "1: changing a record takes a precondition such as If-Match",
  },
} as const satisfies Record<keyof Config, Setting>;

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
  const known = Object.values(settings).map(({ flag }): string => flag);
  const names = [...known, ...others];
  const { tokens } = parseArgs({
    args: [...args],
    options: {
      ...Object.fromEntries(
        names.map((name) => [name, { type: "string" as const }]),
      ),
      help: { type: "boolean", short: "h" },
      version: { type: "boolean" },
    },
    allowPositionals: true,
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
    if (!names.includes(name)) {
      throw new UsageError(
        `the flag ${rawName} is not known: allowed are ${
          names.map((name) => `--${name}`).join(", ")
        }, --help and --version`,
      );
    }
    if (value === undefined || value === "") {
      throw new UsageError(`the flag ${rawName} needs a value`);
    }
    if (flags.has(name)) {
      throw new UsageError(`the flag ${rawName} is given twice: give it once`);
    }
    flags.set(name, value);
  }
  return { words, flags };
}

type Environment = Readonly<Record<string, string | undefined>>;

/** A setting's value, from the flag or the variable, with the name to blame for it. */
function find(
  { variable, flag, file }: Setting,
  flags: ReadonlyMap<string, string>,
  environment: Environment,
): { readonly name: string; readonly value: string | undefined } {
  const given = flags.get(flag);
  const name = given === undefined ? variable : `--${flag}`;
  if (given === undefined) {
    return { name, value: environment[variable] || undefined };
  }
  return { name, value: file ? readText(name, given) : given };
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

/**
 * The data folder, which all commands need; no other setting is judged.
 *
 * @throws {UsageError}
 */
export function readDataDir(
  flags: ReadonlyMap<string, string>,
  environment: Environment,
): string {
  return find(settings.dataDir, flags, environment).value ??
    settings.dataDir.standard;
}

/**
 * All settings.
 *
 * @throws {UsageError} on the first bad value, with its name and what is allowed
 */
export function readConfig(
  flags: ReadonlyMap<string, string>,
  environment: Environment,
): Config {
  const read = <T>(
    setting: Setting,
    parse: (value: string) => T | undefined,
    allowed: string,
  ): T | undefined => {
    const { name, value } = find(setting, flags, environment);
    if (value === undefined) return undefined;
    const parsed = parse(value);
    if (parsed !== undefined) return parsed;
    // A secret is not repeated.
    const shown = setting.file ? "its value" : JSON.stringify(value);
    throw new UsageError(
      `${name}: ${shown} is not allowed: it must be ${allowed}`,
    );
  };
  const seed = find(settings.seed, flags, environment);
  return {
    host: read(settings.host, parseHost, "a host name or an IP address") ??
      settings.host.standard,
    port: read(settings.port, parsePort, "a number from 0 to 65535") ??
      Number(settings.port.standard),
    base: read(
      settings.base,
      parseBase,
      "a path that begins with a slash, or a whole http(s) address, of letters, digits and -._~, without query",
    ) ?? { origin: "", path: settings.base.standard },
    dataDir: readDataDir(flags, environment),
    seed: seed.value && readText(seed.name, seed.value),
    adminPassword: read(
      settings.adminPassword,
      parsePassword,
      password.allowed,
    ),
    jwtSecrets: read(
      settings.jwtSecrets,
      parseSecrets,
      "one or more secrets of at least 32 bytes each, separated by commas (in a file: one a line)",
    ),
    log: read(
      settings.log,
      (value) => logLevels.find((level) => level === value),
      `one of ${logLevels.join(", ")}`,
    ) ?? settings.log.standard,
    corsOrigins: read(
      settings.corsOrigins,
      parseOrigins,
      "* or origins such as https://example.com, separated by commas",
    ) ?? [],
    requireIfMatch: read(
      settings.requireIfMatch,
      (value) => value === "1" ? true : value === "0" ? false : undefined,
      "0 or 1",
    ) ?? false,
  };
}

function parseHost(value: string): string | undefined {
  return /^[\w.:%-]+$/.test(value) ? value : undefined;
}

function parsePort(value: string): number | undefined {
  return /^\d{1,5}$/.test(value) && Number(value) <= 65535
    ? Number(value)
    : undefined;
}

function parseBase(value: string): Base | undefined {
  const whole = /^(https?:\/\/(?:[\w.-]+|\[[\d:a-f]+\])(?::\d+)?)(.*)$/i
    .exec(value);
  const origin = whole?.[1] ?? "";
  if (origin !== "" && !URL.canParse(origin)) return undefined;
  const rest = whole?.[2] ?? value;
  const path = rest.endsWith("/") ? rest : `${rest}/`;
  const segments = path.split("/").slice(1, -1);
  const plain = segments.every((segment) =>
    /^[\w.~-]+$/.test(segment) && !/^\.\.?$/.test(segment)
  );
  return path.startsWith("/") && plain
    ? { origin: origin && new URL(origin).origin, path }
    : undefined;
}

function parseOrigins(value: string): string[] | undefined {
  const origins = value.split(",").map((origin) => origin.trim());
  const known = origins.every((origin) =>
    origin === "*" ||
    (URL.canParse(origin) && new URL(origin).origin === origin)
  );
  return known ? origins : undefined;
}

function parsePassword(value: string): string | undefined {
  return password.check(value) === undefined ? value : undefined;
}

function parseSecrets(value: string): string[] | undefined {
  const secrets = value.split(/,|\r?\n/).map((secret) => secret.trim());
  return secrets.every((secret) => Buffer.byteLength(secret) >= 32)
    ? secrets
    : undefined;
}

/** All settings as lines of `help`. */
export function describeSettings(): string {
  return Object.values(settings).map((
    { variable, flag, meaning, standard, ...rest },
  ) => {
    const value = "file" in rest ? "FILE" : "VALUE";
    return `  ${`--${flag} ${value}`.padEnd(28)}${meaning}\n${
      "".padEnd(30)
    }variable ${variable}, default: ${standard}\n`;
  }).join("");
}
