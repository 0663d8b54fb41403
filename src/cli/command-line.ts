/** The command line: its parser, and the settings that it and the environment give. */

import { parseArgs } from "node:util";
import type { Setting, SettingReader } from "../api/setting.ts";
import { etcdFlags, featureSettings, settings } from "../config.ts";
import type { EtcdOptions } from "../store/shared.ts";
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
export async function parseCommandLine(
  args: readonly string[],
): Promise<{ readonly positionals: readonly string[]; readonly flags: Flags }> {
  const { values, positionals } = await parse([...args]);
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

async function parse(args: string[]) {
  const names = [
    ...Object.entries<Setting>(settings).map((each) => flagOf(...each)),
    ...featureSettings.map((each) => flagOf(each)),
    ...etcdFlags,
    ...commandOf.keys(),
  ];
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
    const { explainFlag } = await import("./unknown-flag.ts");
    throw explainFlag(error, names);
  }
}

/** Returns the flag of a setting: `base-url`, or `jwt-secret-file` for a file. */
export function flagOf(
  variable: string,
  setting?: Setting,
): string {
  const name = variable.toLowerCase().replaceAll("_", "-");
  return setting?.file === "flag" ? `${name}-file` : name;
}

/** The values of flags by name. */
export type Flags = ReadonlyMap<string, string>;

type Environment = Readonly<Record<string, string | undefined>>;

/** Creates the reader of the settings that flags and variables give. */
export function createReader(
  flags: Flags,
  environment: Environment,
): SettingReader {
  const readSetting = (variable: string, setting: Setting) => {
    const { file, expected, parse, default: defaultValue } = setting;
    const flag = flagOf(variable, setting);
    const isFlag = flags.has(flag);
    const name = isFlag ? `--${flag}` : variable;
    const text = isFlag ? flags.get(flag) : environment[variable];
    if (!text) return defaultValue;
    const isFile = file === "both" || (file && isFlag);
    const parsed = parse(isFile ? readText(name, text) : text);
    if (parsed !== undefined) return parsed;
    // A message must not repeat a secret, such as a password in a URL.
    const shown = isFile
      ? `what ${JSON.stringify(text)} contains`
      : file
      ? "its value"
      : JSON.stringify(text.replace(/(\/\/).*@/s, "$1…@"));
    throw new UsageError(
      `${name}: ${shown} is not allowed: it must be ${expected}`,
    );
  };
  return {
    isSet: (name) => flags.has(flagOf(name)) || Boolean(environment[name]),
    read(settings) {
      const getters = Object.entries(settings).map((each) => [
        each[0],
        { enumerable: true, get: () => readSetting(...each) },
      ]);
      return Object.create(null, Object.fromEntries(getters));
    },
  };
}

/** Returns where the store in etcd is; undefined for one of files. */
export async function findEtcd(
  { isSet, read }: SettingReader,
): Promise<EtcdOptions | undefined> {
  if (!isSet("STORE")) return undefined;
  const { etcdOf, etcdSettings } = await import("../etcd/settings.ts");
  return etcdOf(read(etcdSettings));
}
