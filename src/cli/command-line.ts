/** The command line: its parser, and the settings that it and the environment give. */

import { parseArgs, type ParseArgsConfig } from "node:util";
import type { Setting, SettingReader } from "../api/settings/setting.ts";
import { etcdFlags, featureSettings, settings } from "../config.ts";
import type { EtcdOptions } from "../store/shared.ts";
import { readText, UsageError } from "../usage.ts";

const text = { type: "string", multiple: true } as const;

/** The flags of `serve`; the settings among them are those of every command. */
export const serveFlags: NonNullable<ParseArgsConfig["options"]> = {
  ...Object.fromEntries([
    ...Object.entries<Setting>(settings).map((each) => flagOf(...each)),
    ...featureSettings.map((each) => flagOf(each)),
    ...etcdFlags,
  ].map((name) => [name, text])),
  sample: { type: "boolean" },
};

/**
 * Parses a command line into the command with its arguments, and the flags; one
 * without a value has the value 1.
 *
 * @throws {UsageError} on a flag that is repeated or lacks its value; a
 * TypeError of `parseArgs` on one that is unknown
 */
export function parseCommandLine(
  args: readonly string[],
  options = serveFlags,
) {
  const { values, positionals } = parseArgs({
    args: [...args],
    options,
    allowPositionals: true,
  });
  const flags = new Map<string, string>();
  for (const [name, value] of Object.entries(values)) {
    const [text, ...more] = value === true ? ["1"] : [value].flat();
    if (typeof text !== "string" || text === "" || more.length > 0) {
      throw new UsageError(`--${name} must be given once, with a value`);
    }
    flags.set(name, text);
  }
  return { positionals, flags };
}

/** Returns the flag of a setting: `base-url`, or `jwt-secret-file` if it names a file. */
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
    // The variable like the flag: that of the setting, or JWT_SECRET_FILE.
    const sameName = flag.toUpperCase().replaceAll("-", "_");
    const name = flags.has(flag)
      ? `--${flag}`
      : environment[sameName]
      ? sameName
      : variable;
    const text = flags.get(flag) ?? environment[name];
    if (!text) return defaultValue;
    const isFile = file === "both" || (file && name !== variable);
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
