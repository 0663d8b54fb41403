/**
 * The settings of the server without features: one table of variables, defaults,
 * descriptions and allowed values. A flag overrides its environment variable; an
 * invalid value prevents the start.
 */

import { canSign } from "./auth/jwt.ts";
import { featureNames } from "./features.ts";
import { password } from "./api/accounts/users.ts";
import {
  listOf,
  numberUpTo,
  type Settings,
  type SettingValues,
  text,
} from "./api/settings/setting.ts";
import { logLevels } from "./log.ts";

/**
 * The settings of features and of a store in etcd, which each describes in its
 * folder. One that nothing acts on is refused, not ignored.
 */
export const featureSettings = [
  "TLS_CERT",
  "TLS_KEY",
  "CORS_ORIGINS",
  "PUBLIC",
  "RATE_LIMIT",
  "TRUST_PROXY",
  "METRICS",
  "REQUIRE_IF_MATCH",
  "ETCD_USER",
  "READS",
];

/** The other flags of a store in etcd. */
export const etcdFlags = ["store", "etcd-password-file"];

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
  DATA_DIR: {
    description: "folder of the store, created if missing",
    expected: "the path of a folder, not a URL: STORE names a store in etcd",
    default: "data/store",
    parse: (value) => value.includes("://") ? undefined : value,
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
    expected: `${password.expected}, in one line, without control characters`,
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
      "one or more secrets, text of at least 32 bytes each, separated by commas (in a file: one per line)",
    default: undefined,
    defaultText: "random, stored in the data folder",
    parse: (value) => listOf(value, canSign),
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
} satisfies Settings;

/** The values of these settings. */
export type Config = SettingValues<typeof settings>;

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
