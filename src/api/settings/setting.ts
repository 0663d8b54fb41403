/** How a setting is described: those of the server in config.ts, those of a feature in its folder. */

/** A setting; its name is that of its environment variable. */
export interface Setting {
  /** Set if the value is read from a file: one that the flag names, or both flag and variable. A variable `…_FILE` is like the flag. */
  readonly file?: "flag" | "both";
  readonly description: string;
  /** The allowed values, to follow "must be". */
  readonly expected: string;
  readonly default: unknown;
  /** The default as `help` shows it, if that differs; "none" if it is undefined. */
  readonly defaultText?: string;
  /** Returns undefined if the value is not allowed. */
  readonly parse: (value: string) => unknown;
}

/** Settings by name. */
export type Settings = Readonly<Record<string, Setting>>;

/** The values of settings. */
export type SettingValues<Table extends Settings> = {
  readonly [Name in keyof Table]:
    | Exclude<ReturnType<Table[Name]["parse"]>, undefined>
    | Table[Name]["default"];
};

/** The flags and the environment that a program was started with. */
export interface SettingReader {
  /** Returns whether a setting has a value, other than its default. */
  readonly isSet: (name: string) => boolean;
  /**
   * Returns the values of settings. Each is read when it is used, so that one
   * that a command does not need cannot prevent it; a copy, `{ ...values }`,
   * reads all. The object throws a UsageError where a value is not allowed.
   */
  readonly read: <Table extends Settings>(
    settings: Table,
  ) => SettingValues<Table>;
}

/** The attributes of a setting that may be any text, and is not set by default. */
export const text = {
  expected: "text",
  default: undefined,
  parse: (value: string) => value,
};

/** The allowed values of a setting that is a whole number. */
export function numberUpTo(max: number) {
  return {
    expected: `a number from 0 to ${max}`,
    parse: (value: string) =>
      /^\d{1,7}$/.test(value) && Number(value) <= max
        ? Number(value)
        : undefined,
  };
}

/** Returns the members of a list; undefined if one is not allowed. */
export function listOf(
  value: string,
  isAllowed: (member: string) => boolean,
): string[] | undefined {
  const members = value.split(/,|\r?\n/).map((member) => member.trim());
  return members.every(isAllowed) ? members : undefined;
}
