/** The settings of the store in etcd, which are parsed only if STORE is one. */

import type { EtcdOptions } from "../store/shared.ts";

const text = {
  expected: "text",
  default: undefined,
  parse: (value: string) => value,
};

export const etcdSettings = {
  /** Where the records are. */
  STORE: {
    description: "file: in DATA_DIR; or etcd://HOST:PORT,HOST:PORT/PREFIX",
    expected:
      "file, or etcd://HOST:PORT,HOST:PORT/PREFIX (etcds:// with TLS) with letters, digits and -._~/ in PREFIX; the port is 2379 by default, and a user belongs in ETCD_USER and ETCD_PASSWORD",
    default: undefined,
    defaultText: "file",
    parse: parseStore,
  },
  ETCD_USER: {
    description: "user name for etcd",
    ...text,
  },
  ETCD_PASSWORD: {
    file: "flag" as const,
    description: "password for etcd",
    ...text,
  },
  /** True if reads may be answered from a state that is a second old. */
  READS: {
    description:
      "with etcd, local: answer reads from memory, at most a second old",
    expected: "linearizable or local",
    default: false,
    defaultText: "linearizable",
    parse: (value: string) =>
      /^(?:linearizable|local)$/.test(value) ? value === "local" : undefined,
  },
};

/** Parses the URL of a store in etcd; null stands for files. */
function parseStore(value: string) {
  if (value === "file") return null;
  const [, tls, hosts = "", prefix] =
    /^etcd(s?):\/\/([\w.,:[\]-]+)\/([\w.~-]+(?:\/[\w.~-]+)*)\/?$/.exec(value) ??
      [];
  const endpoints = hosts.split(",").map((host) => {
    const port = /:\d+$/.test(host) ? "" : ":2379"; // etcd's own default
    return `http${tls}://${host}${port}`;
  });
  if (prefix === undefined || !endpoints.every((each) => URL.canParse(each))) {
    return undefined;
  }
  return { endpoints, prefix: `${prefix}/` };
}

/** Returns where the store in etcd is; undefined for one of files. Reads the other settings only then. */
export function etcdOf(
  config: {
    readonly STORE: ReturnType<typeof parseStore>;
    readonly ETCD_USER: string | undefined;
    readonly ETCD_PASSWORD: string | undefined;
    readonly READS: boolean;
  },
): EtcdOptions | undefined {
  const { STORE: location } = config;
  if (!location) return undefined;
  return {
    ...location,
    user: config.ETCD_USER,
    password: config.ETCD_PASSWORD,
    hasLocalReads: config.READS,
  };
}
