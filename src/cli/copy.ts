/** The command `copy`: copies a store between a folder and etcd. */

import { resolve } from "node:path";
import process from "node:process";
import type { CommandSettings } from "../api/feature.ts";
import { etcdOf, type Flags, readConfig, UsageError } from "../config.ts";
import { backupStore, readCopy, readSource } from "./backup.ts";
import { print } from "./output.ts";
import type { Place } from "./read.ts";

/**
 * Copies everything, with the secret that signs tokens, and reads the copy back.
 *
 * @throws {StoreError} not-empty, damaged; {UsageError}
 */
export async function copyCommand({ flags }: CommandSettings): Promise<void> {
  const [from, to] = [placeOf("from", flags), placeOf("to", flags)];
  if (to.etcd) {
    const { scan, secret } = await readSource(from);
    const { copyToEtcd } = await import("../etcd/open.ts");
    await copyToEtcd(scan, secret, to.etcd);
  }
  const { records, seq } = to.etcd
    ? await readCopy(to)
    : await backupStore(from, to.dataDir);
  await print(
    `copied ${records} records up to sequence ${seq}, and read them back\n`,
  );
}

/** Returns the place that a flag names. */
function placeOf(flag: string, flags: Flags): Place {
  const store = flags.get(flag);
  if (!store) throw new UsageError(`copy: name a store with --${flag}`);
  if (!/^etcds?:/.test(store)) return { dataDir: resolve(store) };
  const named = new Map([...flags, ["store", store]]);
  return { dataDir: "", etcd: etcdOf(readConfig(named, process.env)) };
}
