/** The errors of etcd as an operator reads them: what was wrong, whether anything was changed, and what helps. */

import { errorText, StoreError } from "../store/error.ts";

/** The gRPC code of an etcd that has reached a limit. */
const exhausted = 8;

/** The text of the error if it is the quota of its database. */
const databaseFull = "space exceeded";

/** Returns the code of the StoreError for an error of etcd, with its gRPC code, after which nothing was changed. */
export function codeOf(error: unknown, code: number) {
  const isFull = errorText(error).includes(databaseFull);
  return isFull && code === exhausted ? "disk-full" : "unreachable";
}

/** Returns an error that says whether anything was changed, with the first 200 characters of its cause: a proxy may send a page. */
export function etcdError(
  cause: unknown,
  code: "disk-full" | "unreachable" | "outcome-unknown" = "outcome-unknown",
): StoreError {
  const end = code === "outcome-unknown"
    ? "the write may have been carried out"
    : "nothing was changed";
  return new StoreError(
    code,
    `etcd: ${describe(cause)}; ${end}`,
    { cause },
  );
}

const withoutTls = "etcd:// is for a port without TLS";
const ownAuthority = "NODE_EXTRA_CA_CERTS names the file of your own authority";

/** The advice about some of etcd's errors. */
const advices = [
  ["before secure TLS", withoutTls],
  ["EPROTO", withoutTls],
  ["self-signed certificate", ownAuthority],
  ["unable to verify", ownAuthority],
  ["unable to get", ownAuthority],
  ["user name is empty", "set ETCD_USER and ETCD_PASSWORD"],
  [
    "permission denied",
    "grant the user of ETCD_USER a role with readwrite on all keys that begin with the prefix in STORE",
  ],
  [
    databaseFull,
    'compact and defragment etcd, raise its quota, then run "etcdctl alarm disarm"',
  ],
] as const;

function describe(cause: unknown): string {
  const text = errorText(cause).slice(0, 200).trim();
  const [, advice] = advices.find(([reported]) => text.includes(reported)) ??
    [];
  return advice ? `${text}: ${advice}` : text;
}
