/** Opens a store in etcd. */

import { join, resolve } from "node:path";
import type { StoreOptions } from "../store/file-store.ts";
import { defaultLimits } from "../store/options.ts";
import type { EtcdOptions } from "../store/shared.ts";
import { writeSmallFile } from "../store/log/files.ts";
import {
  makeFolder,
  randomName,
  type StoreFolder,
  storeFolder,
} from "../store/log/folder.ts";
import {
  holdsStore,
  identityFile,
  readIdentity,
} from "../store/log/identity.ts";
import { acquireLock } from "../store/log/lock.ts";
import { StoreError } from "../store/error.ts";
import { encodeSnapshot, freezeTables } from "../store/log/snapshot.ts";
import { FolderScan, type FolderScanOptions } from "../store/recovery/scan.ts";
import { EtcdClient, Lease, serverKey } from "./client.ts";
import {
  copyKey,
  keyOf,
  load,
  nameForm,
  putOnce,
  putParts,
  rangeOf,
  readHead,
  requireUsable,
  seqOf,
  textOf,
} from "./state.ts";
import { EtcdStore } from "./store.ts";
import type { Store } from "../store/transactions.ts";

/** Opens a store in etcd. The folder is for files that are not records. */
export async function openEtcdStore(
  all: StoreOptions,
  options: EtcdOptions,
): Promise<EtcdStore> {
  const { tables, log = () => {}, memory, ...place } = all;
  const folder = storeFolder({ ...place, folder: resolve(place.folder) });
  const limits = { ...defaultLimits, ...all.limits };
  await makeFolder(folder.files, folder.folder);
  const { release } = await acquireLock(folder);
  try {
    const client = new EtcdClient(options);
    const { prefix } = options;
    const isEmpty = await isEmptyEtcd(options, client);
    const begun = await client.get(["incarnation"]);
    const isNew = isEmpty && begun.length === 0;
    const notice = await compareFolder(folder, { prefix, isEmpty, isNew });
    if (notice) log("error", notice);
    const begin = () => putOnce(client, "incarnation", randomName(folder));
    if (isNew) await begin(); // before the folder says that it uses this store
    const { lease, serverId } = await announce(client, folder, prefix);
    const loaded = await loadWhole(client, { tables, memory });
    memory?.requireFit(options.prefix);
    const incarnation = await begin();
    return new EtcdStore({
      hasLocalReads: options.hasLocalReads,
      serverId,
      incarnation,
      client,
      lease,
      loaded,
      folder,
      limits,
      log,
      memory,
      closing: new AbortController(),
      release,
    });
  } catch (error) {
    memory?.close();
    await release();
    throw error;
  }
}

/**
 * Announces a server under the name in its folder, where its imports are; under
 * another name if the folder is a copy, as of a whole machine: it has no imports.
 */
async function announce(
  client: EtcdClient,
  place: StoreFolder,
  prefix: string,
) {
  const { files, folder } = place;
  const [known = "", , ...earlierProcesses] = await readIdentity(place);
  const write = (name: string, ...processes: readonly string[]) =>
    writeSmallFile(
      files,
      join(folder, identityFile),
      `${[name, prefix, ...processes].join(" ")}\n`,
    );
  const lease = new Lease(client);
  let serverId = known;
  let process = randomName(place);
  if (nameForm.test(known)) {
    const last = earlierProcesses.at(-1) ?? process;
    await write(known, ...earlierProcesses.slice(-7), process) // before etcd has it, or a restart would not know it
      .catch(() => process = last); // the disk may be full
    if (await lease.claim(known, process, earlierProcesses)) {
      return { lease, serverId };
    }
  }
  serverId = randomName(place);
  await write(serverId, process);
  await lease.claim(serverId, process, []);
  return { lease, serverId };
}

/**
 * Returns what is to be said of a folder beside a store in etcd.
 *
 * @throws {StoreError} not-empty if an empty store would begin there by mistake:
 * somebody forgot to copy the one in the folder, mistyped the prefix, or etcd has
 * lost the one that was there; or if request bodies would be lost that only
 * another store names
 */
async function compareFolder(
  place: StoreFolder,
  { prefix, isEmpty, isNew }: {
    readonly prefix: string;
    readonly isEmpty: boolean;
    /** True if no server has begun one there, either. */
    readonly isNew: boolean;
  },
): Promise<string | undefined> {
  const { files, folder } = place;
  const [, last] = await readIdentity(place);
  const isUsed = holdsStore(await files.list(folder));
  if (!isEmpty) {
    const spooled = last === undefined || last === prefix
      ? []
      : await files.list(join(folder, "spool")).catch(() => []); // there may be none
    if (spooled.some((name) => name.endsWith(".spool"))) {
      throw new StoreError(
        "not-empty",
        `The folder ${folder} may hold request bodies of imports into the store under ${last} that are not finished, and a server with another one would delete them: ` +
          "start this server with that one until they have ended, or name another folder with --data-dir",
      );
    }
    return isUsed
      ? `The folder ${folder} holds a store that is not used, as etcd has one, but commands without --store use it: stop this server and move meta.json, mark, secret, snapshot-* and wal-* away, or name another folder with --data-dir`
      : undefined;
  }
  if (isUsed) {
    throw new StoreError(
      "not-empty",
      `The folder ${folder} holds a store, and etcd has none under ${prefix}: ` +
        'copy it with "zoo-api copy --from FOLDER --to STORE", or name another folder with --data-dir',
    );
  }
  if (last === undefined || last === prefix && !isNew) return undefined;
  const [used, advice] = last === prefix
    ? ["it", 'start the right etcd, copy a backup with "zoo-api copy"']
    : [`the one under ${last}`, "correct STORE"];
  throw new StoreError(
    "not-empty",
    `etcd has no store under ${prefix}, and this server last used ${used}: ` +
      `${advice} or, to begin an empty store, name another folder with --data-dir`,
  );
}

/** Loads a store; again if servers have replaced its snapshots meanwhile. */
async function loadWhole(
  client: EtcdClient,
  options: Omit<FolderScanOptions, "files">,
) {
  for (let attempt = 1;; attempt++) {
    const snapshots = () => client.get(rangeOf("snapshot"));
    const before = String((await snapshots()).map(({ key }) => key));
    try {
      return await load(client, options);
    } catch (error) {
      const after = String((await snapshots()).map(({ key }) => key));
      if (after === before || attempt === 5) throw error;
    }
  }
}

/** Reads a store without opening it; if it is thorough, also what servers need beside the records. */
export async function scanEtcd(
  etcd: EtcdOptions,
  options: FolderScanOptions,
  isThorough = false,
): Promise<FolderScan> {
  const client = new EtcdClient(etcd);
  const { tables, head } = await loadWhole(client, options);
  const seq = seqOf(head);
  for (const key of isThorough ? ["incarnation", "secret"] : []) {
    const [found] = await client.get([key]);
    if (found) requireUsable(key, textOf(found));
  }
  return Object.assign(new FolderScan("etcd", options), {
    tables,
    seq,
    exists: seq > 0,
    storeId: randomName(realFolder),
    generation: 1,
  });
}

/** Returns whether there is no store, nor one that is being copied, which whoever loads it refuses. */
export async function isEmptyEtcd(
  etcd: EtcdOptions,
  client = new EtcdClient(etcd),
): Promise<boolean> {
  return await readHead(client) === "" &&
    (await client.get([copyKey])).length === 0;
}

/** Reads the secret that signs the tokens of all servers. */
export async function readSharedSecret(
  etcd: EtcdOptions,
): Promise<Buffer | undefined> {
  const [secret] = await new EtcdClient(etcd).get(["secret"]);
  return secret?.value;
}

/** Returns whether a server uses a store, or did in the last minute. */
export async function isServed(etcd: EtcdOptions): Promise<boolean> {
  const servers = [serverKey(""), serverKey("g")] as const; // their names are hexadecimal
  return (await new EtcdClient(etcd).get(servers, 1)).length > 0;
}

const realFolder = storeFolder({ folder: "" });

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
  const client = new EtcdClient(etcd);
  const head = `${seq} ${randomName(realFolder)}`;
  const key = keyOf("snapshot", seq);
  if (await readHead(client) !== "") throw notEmpty(etcd);
  await client.put(copyKey, head);
  const slices = encodeSnapshot(realFolder, {
    store: head,
    generation: 0,
    seq,
    tables: freezeTables(tables),
  });
  const { value } = await putParts(client, key, slices);
  const { isDone, found: [found] } = await client.transact(["head", ""], [
    { keys: [key], value },
    { keys: ["head"], value: head },
    { keys: [copyKey] },
    ...secret ? [{ keys: ["secret"] as const, value: secret }] : [],
  ]);
  // The answer to an earlier attempt may have been lost.
  if (isDone || textOf(found) === head) return;
  throw notEmpty(etcd);
}

function notEmpty({ prefix }: EtcdOptions): StoreError {
  return new StoreError(
    "not-empty",
    `Cannot copy: there is a store in etcd under ${prefix}. Name another prefix, or ` +
      `stop its servers and delete it with "etcdctl del --prefix ${prefix}"`,
  );
}

/**
 * Stops serving while another server has the store follow another declaration:
 * its records may not fit this one, or be for others to see. Access and retention
 * are compared as far as the feature evolution has remembered them.
 */
export function suspendOnOtherDeclaration(
  store: Store,
  declarationTable: string,
): void {
  if (!(store instanceof EtcdStore)) return;
  const remembered = store.table(declarationTable);
  let inForce: Readonly<Record<string, unknown>> = {
    ...remembered.get(1)?.document,
  };
  // Whatever the order in which they are declared.
  const sorted = (texts: unknown) => Object.entries(Object(texts)).sort();
  const { policies: known } = inForce;
  const rules = () => {
    const { names, policies } = inForce;
    const shown = sorted(policies)
      .filter(([each]) => Object.hasOwn(Object(names), each));
    return JSON.stringify([sorted(names), known && shown]);
  };
  const own = rules();
  remembered.listeners.add((_before, after) => {
    // A server of an older version leaves the policies out.
    inForce = { ...inForce, ...after?.document };
    store.suspend(
      rules() === own
        ? undefined
        : "Another server has changed the declaration in force: " +
          "restart this server with that one",
    );
  });
}
