/**
 * The settings: one table of variables, defaults, descriptions and allowed
 * values. A flag overrides its environment variable; an invalid value prevents
 * the start.
 */

import { Buffer } from "node:buffer";
import { isIP } from "node:net";
import { etcdSettings } from "./etcd/settings.ts";
import { featureNames } from "./features.ts";
import { password } from "./api/accounts/users.ts";
import { logLevels } from "./log.ts";

/** A setting; its name is that of its environment variable. */
export interface Setting {
  /** Set if the value is read from a file: one that the flag names, or both flag and variable. */
  readonly file?: "flag" | "both";
  /** Set if it needs a feature of its own. */
  readonly needsFeature?: true;
  readonly description: string;
  /** The allowed values, to follow "must be". */
  readonly expected: string;
  readonly default: unknown;
  /** The default as `help` shows it, if that differs; "none" if it is undefined. */
  readonly defaultText?: string;
  /** Returns undefined if the value is not allowed. */
  readonly parse: (value: string) => unknown;
}

/** The attributes of a setting that may be any text, and is not set by default. */
const text = {
  expected: "text",
  default: undefined,
  parse: (value: string) => value,
};

function numberUpTo(max: number) {
  return {
    expected: `a number from 0 to ${max}`,
    parse: (value: string) =>
      /^\d{1,7}$/.test(value) && Number(value) <= max
        ? Number(value)
        : undefined,
  };
}

/** The values of a setting that is off by default, or on. */
function oneOf(off: string, on: string) {
  return {
    expected: `${off} or ${on}`,
    default: false,
    defaultText: off,
    parse: (value: string) =>
      value === on || value === off ? value === on : undefined,
  };
}

export const settings = {
  HOST: {
    description: "address to listen on",
    expected: "a host name or an IP address",
    default: "127.0.0.1",
    parse: (value) => /^[\w.:%-]+$/.test(value) ? value : undefined,
  },
  PORT: {
    description: "port to listen on; 0 picks a free one",
    default: 3000,
    ...numberUpTo(65_535),
  },
  BASE_URL: {
    description: "URL of the API: a path, or a complete http(s) URL",
    expected:
      "a path that begins with a slash, or a complete http(s) URL, of letters, digits and -._~, without a query",
    default: { origin: "", path: "/" },
    defaultText: "/",
    parse: parseBase,
  },
  ...etcdSettings,
  DATA_DIR: {
    description: "folder of the store, created if missing",
    ...text,
    default: "data/store",
  },
  /** Loaded by cli/declaration/load-api.ts. */
  COLLECTIONS: {
    description:
      "file that declares the API, a TypeScript or JavaScript module",
    ...text,
    defaultText: "the sample API, src/collections.ts",
  },
  /** The text of the seed file. */
  SEED: {
    file: "both",
    description: "JSON file of sample records, loaded into an empty store",
    ...text,
  },
  ADMIN_PASSWORD: {
    file: "flag",
    description: "password of the user admin, if there is no user yet",
    expected: password.expected,
    default: undefined,
    defaultText: "random, shown once",
    parse: (value) => password.check(value) ? undefined : value,
  },
  /** The first signs new tokens, all are accepted; undefined: the one in the data folder. */
  JWT_SECRET: {
    file: "flag",
    description:
      "secrets of 32 bytes or more: the first signs, all are accepted",
    expected:
      "one or more secrets of at least 32 bytes each, separated by commas (in a file: one per line)",
    default: undefined,
    defaultText: "random, stored in the data folder",
    parse: (value) =>
      listOf(value, (secret) => Buffer.byteLength(secret) >= 32),
  },
  LOG: {
    description: `level of the JSON log: ${logLevels.join(", ")}`,
    expected: `one of ${logLevels.join(", ")}`,
    default: undefined,
    defaultText: "info, as text on a terminal",
    parse: (value) => logLevels.find((level) => level === value),
  },
  /** The names of the features that are on. */
  FEATURES: {
    description: "optional features: all, none, or names separated by commas",
    expected: `all, none, or any of ${
      featureNames.join(", ")
    }, separated by commas`,
    default: featureNames,
    defaultText: "all",
    parse: (value) =>
      value === "all"
        ? featureNames
        : value === "none"
        ? []
        : listOf(value, (name) => featureNames.includes(name)),
  },
  /** Where the certificate is: it is read again on SIGHUP. */
  TLS_CERT: {
    needsFeature: true,
    description: "PEM file of a certificate with its chain, for HTTPS",
    ...text,
  },
  TLS_KEY: {
    needsFeature: true,
    description: "PEM file of the certificate's private key",
    ...text,
  },
  /** Origins whose scripts may read responses; `*` means any. */
  CORS_ORIGINS: {
    needsFeature: true,
    description: "origins whose scripts may read responses, or *",
    expected: "* or origins such as https://example.com, separated by commas",
    default: undefined,
    parse: (value) =>
      listOf(value, (origin) => origin === "*" || isOrigin(origin)),
  },
  /** How many requests a client may send in a minute. */
  RATE_LIMIT: {
    needsFeature: true,
    description: "requests per minute for each client; 0 for no limit",
    default: 0,
    ...numberUpTo(1_000_000),
  },
  TRUST_PROXY: {
    needsFeature: true,
    description: "proxies whose Forwarded or X-Forwarded-For is trusted",
    expected:
      "IP addresses or networks such as 10.0.0.0/8, separated by commas",
    default: undefined,
    parse: (value) => listOf(value, isNetwork),
  },
  /** True if a change of a record must have a precondition. */
  REQUIRE_IF_MATCH: {
    description: "1: a change must have a precondition such as If-Match",
    ...oneOf("0", "1"),
  },
  METRICS: {
    description:
      "local: programs on this machine read /metrics without a token",
    ...oneOf("off", "local"),
  },
} satisfies Record<string, Setting>;

/** The values of all settings. */
export type Config = {
  readonly [Name in keyof typeof settings]:
    | Exclude<ReturnType<(typeof settings)[Name]["parse"]>, undefined>
    | (typeof settings)[Name]["default"];
};

function listOf(
  value: string,
  isAllowed: (member: string) => boolean,
): string[] | undefined {
  const members = value.split(/,|\r?\n/).map((member) => member.trim());
  return members.every(isAllowed) ? members : undefined;
}

function parseBase(value: string) {
  const match = /^(https?:\/\/(?:[\w.-]+|\[[\d:a-f]+\])(?::\d+)?)(.*)$/i
    .exec(value);
  const [, origin = "", rest = value] = match ?? [];
  if (origin !== "" && !URL.canParse(origin)) return undefined;
  const path = rest.endsWith("/") ? rest : `${rest}/`;
  return /^\/(?:(?!\.\.?\/)[\w.~-]+\/)*$/.test(path)
    ? { origin: origin && new URL(origin).origin, path }
    : undefined;
}

/** Returns whether a text is an address, or a network such as `10.0.0.0/8`. */
function isNetwork(text: string): boolean {
  const [, address = "", length = "0"] =
    /^([\da-f.:]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? [];
  const maxLength = isIP(address) === 6 ? 128 : 32;
  return isIP(address) !== 0 && Number(length) <= maxLength;
}

function isOrigin(url: string): boolean {
  return URL.canParse(url) && new URL(url).origin === url;
}
