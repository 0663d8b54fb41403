/** Opens a store in etcd. */

import { randomBytes } from "node:crypto";
import { join, resolve } from "node:path";
import {
  defaultLimits,
  type EtcdOptions,
  type StoreOptions,
} from "../store/options.ts";
import {
  readSmallFile,
  realFiles,
  writeSmallFile,
} from "../store/log/files.ts";
import {
  makeFolder,
  randomName,
  type StoreFolder,
} from "../store/log/folder.ts";
import { acquireLock } from "../store/log/lock.ts";
import { StoreError } from "../store/error.ts";
import { encodeSnapshot, freezeTables } from "../store/log/snapshot.ts";
import { FolderScan, type FolderScanOptions } from "../store/recovery/scan.ts";
import { EtcdClient, put } from "./client.ts";
import { Lease } from "./parts.ts";
import { load, pack, Place, putOnce } from "./state.ts";
import { EtcdStore } from "./store.ts";

/** Opens a store in etcd. The folder is for files that are not records. */
export async function openEtcdStore(
  {
    folder: path,
    tables: declared,
    log = () => {},
    limits,
    files = realFiles,
    now = Date.now,
    random = randomBytes,
  }: StoreOptions,
  options: EtcdOptions,
): Promise<EtcdStore> {
  const folder = { folder: resolve(path), files, now, random };
  const allLimits = { ...defaultLimits, ...limits };
  await makeFolder(files, folder.folder);
  const release = await acquireLock(folder, allLimits.lockTimeoutMs);
  try {
    const serverId = await loadServerId(folder);
    const place = placeOf(options);
    const lease = new Lease(place, serverId);
    await lease.renew();
    return new EtcdStore({
      hasLocalReads: options.hasLocalReads,
      serverId,
      incarnation: await putOnce(place, place.incarnation, randomName(folder)),
      place,
      lease,
      declared,
      loaded: await load(place, { tables: declared }),
      folder,
      limits: allLimits,
      log,
      release,
    });
  } catch (error) {
    await release();
    throw error;
  }
}

function placeOf(options: EtcdOptions): Place {
  return new Place(new EtcdClient(options), options.prefix);
}

/** Returns the name of the server with this folder. */
async function loadServerId(place: StoreFolder): Promise<string> {
  const { files, folder } = place;
  const stored = await readSmallFile(files, folder, "server");
  if (stored !== undefined) return stored.toString().trim();
  const name = randomName(place);
  await writeSmallFile(files, join(folder, "server"), `${name}\n`);
  return name;
}

/** Reads a store without opening it. */
export async function scanEtcd(
  etcd: EtcdOptions,
  options: FolderScanOptions,
): Promise<FolderScan> {
  const place = placeOf(etcd);
  const { tables, seq } = await load(place, options);
  const scan = new FolderScan("etcd", options);
  const [secret] = await place.client.get([place.secret]);
  const storeId = randomName(realFolder);
  const found = { tables, seq, exists: seq > 0, storeId, generation: 1 };
  return Object.assign(scan, found, { secret: secret?.value });
}

const realFolder = {
  folder: "",
  files: realFiles,
  now: Date.now,
  random: randomBytes,
};

/**
 * Writes a store that was read into etcd.
 *
 * @throws {StoreError} not-empty
 */
export async function copyToEtcd(
  { seq, tables }: FolderScan,
  secret: Buffer | undefined,
  etcd: EtcdOptions,
): Promise<void> {
  const place = placeOf(etcd);
  const { client, head } = place;
  const notEmpty = () => {
    const message =
      `Cannot copy: there is a store in etcd under ${etcd.prefix}`;
    return new StoreError("not-empty", message);
  };
  if ((await client.get([head])).length > 0) throw notEmpty();
  const frozen = freezeTables(tables);
  const state = { store: "etcd", generation: 0, seq, tables: frozen };
  const { value } = await pack(place, "snapshot", {
    seq,
    name: randomName(realFolder),
    slices: encodeSnapshot(realFolder, state),
  });
  const { revision } = await client.transact([head, 0], [
    put(place.key("snapshot", seq), value),
    put(head, String(seq)),
    ...secret ? [put(place.secret, secret)] : [],
  ]);
  if (revision === undefined) throw notEmpty();
}
