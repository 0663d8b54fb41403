/**
 * The keys of a store in etcd, and how they are read and written:
 *
 * - `head`: the last sequence number, and the name of its batch. Whoever appends
 *   to the log puts it in the same transaction, if it is still the one known.
 * - `head/turn/ID`: a server that the others wait for: see turns.ts.
 * - `log/SEQ`: a batch of transactions from that sequence number on, as a log
 *   file.
 * - `snapshot/SEQ`: a complete snapshot, as a snapshot file.
 * - `parts/SEQ/NAME/N`: the rest of a file that is too long for one value. Only
 *   its last part is shorter than the others.
 * - `snapshot-lock`: who writes a snapshot.
 * - `copy`: there while a store is copied to where none is, and no server may begin
 *   an empty one.
 * - `servers/ID`: a server that is there, under a lease.
 * - `secret`, which signs tokens, and `incarnation`, a random name of this store.
 *
 * In the header of a file, `salt` is its random name, and `store` the head
 * before the batch, or the one of the snapshot: so whoever applies a batch finds
 * out that it does not continue what was applied, as after a restore of etcd.
 */

import { Buffer } from "node:buffer";
import { errorText, StoreError } from "../store/error.ts";
import type { ReadableFile } from "../store/log/files.ts";
import { randomName, type StoreFolder } from "../store/log/folder.ts";
import {
  type ApplyLine,
  encodeEntries,
  encodeHeader,
  type Entry,
  formatTime,
  type LogLine,
  scanLog,
} from "../store/log/format.ts";
import { restoreCounters, Tables } from "../store/memory/table.ts";
import { applyTo, type FolderScanOptions } from "../store/recovery/scan.ts";
import {
  type EtcdClient,
  type KeyRange,
  type KeyValue,
  tooLong,
} from "./client.ts";

/** etcd accepts requests of 1.5 MiB by default. */
export const maxValueBytes = 1 << 20;

/** Batches that are read at once: an answer with so many is never too long. */
const batchesPerRead = 8;
/** The most batches that are read at once, if those before were short. */
const maxBatchesPerRead = 64;

type Kind = "log" | "snapshot" | "parts";

/** Returns a key; numbers have leading zeros, so that keys sort as they do. */
export function keyOf(kind: Kind, seq: number): string {
  return `${kind}/${String(seq).padStart(16, "0")}`;
}

/** Returns the keys from a number on, and below another one. */
export function rangeOf(
  kind: Kind,
  from = 0,
  below = Number.MAX_SAFE_INTEGER,
): KeyRange {
  return [keyOf(kind, from), keyOf(kind, below)];
}

/** Returns the sequence number in a key; 0 without one. */
export function numberIn(found: KeyValue | undefined): number {
  return Number(found?.key.slice(-16) ?? 0);
}

/** Returns the sequence number in a head, which is empty before the first batch. */
export function seqOf(head: string): number {
  return Number.parseInt(head) || 0;
}

/** Returns a value as text; nothing without one. */
export function textOf(found: KeyValue | undefined): string {
  return String(found?.value ?? "").trim();
}

/** Returns the value of a key among those that were read; "" if it is missing. */
export function valueOf(found: readonly KeyValue[], key: string): string {
  return String(found.find((each) => each.key === key)?.value ?? "");
}

/** The error of a value that is none that a server writes, or is missing. */
export function foreignValue(key: string): StoreError {
  return new StoreError(
    "damaged",
    `The key "${key}" below the prefix in etcd is missing or holds what no ` +
      "server has written; nothing was changed: restore etcd, or copy a backup to another prefix",
  );
}

/** The form of a head: the last sequence number and the salt of its batch. */
const headForm = /^\d{1,16} [\da-f]{16}$/;

/** Returns the head; "" if there is no store. */
export async function readHead(client: EtcdClient): Promise<string> {
  // These are put together with a head, so they are read before it.
  const others = [
    ...await client.get(rangeOf("log"), 1),
    ...await client.get(rangeOf("snapshot"), 1),
  ];
  const [found] = await client.get(["head"]);
  const head = String(found?.value ?? "");
  if (headForm.test(head) || !found && others.length === 0) return head;
  throw foreignValue("head");
}

/** The key that is there while a store is copied. */
export const copyKey = "copy";

/** The form of the names that servers give themselves. */
export const nameForm = /^[\da-f]{16}$/;

/** Puts a value that no other server has put before; returns the one that is there. */
export async function putOnce(
  client: EtcdClient,
  key: string,
  value: string,
): Promise<string> {
  const { found: [found] } = await client.transact([key, ""], [
    { keys: [key], value },
  ]);
  return requireUsable(key, found === undefined ? value : textOf(found));
}

/** Returns a value that all servers share; throws if they cannot use it. */
export function requireUsable(key: string, text: string): string {
  const isText = !/[\p{Cc}\uFFFD]/u.test(text); // as auth/jwt.ts demands
  const [isUsable, expected] = key === "secret"
    ? [isText && Buffer.byteLength(text) >= 32, "text of at least 32 bytes"]
    : [nameForm.test(text), "16 hexadecimal digits"];
  if (isUsable) return text;
  throw new StoreError(
    "damaged",
    `Cannot use the key "${key}" below the prefix in etcd: it must hold ` +
      `${expected}; delete it, and the next start creates another`,
  );
}

/** A store as it was loaded. */
export class Loaded {
  readonly tables: Tables;
  /** The head when the last batch that is applied was put. */
  head = "";
  snapshotSeq = 0;
  /** The last transaction in the snapshot that is being written: no batch goes beyond it. */
  endSeq = 0;
  snapshotBytes = 0;
  logBytes = 0;

  constructor(tables: Tables) {
    this.tables = tables;
  }
}

/** Reads a store. */
export async function load(
  client: EtcdClient,
  options: Omit<FolderScanOptions, "files">,
): Promise<Loaded> {
  const { tables, onTransaction } = options;
  const loaded = new Loaded(new Tables(tables, options));
  const apply = applyTo(loaded.tables, "etcd", options);
  const snapshots = await client.get(rangeOf("snapshot"));
  const snapshot = snapshots.at(onTransaction ? 0 : -1);
  if (snapshot !== undefined) {
    const scan = await readFile(client, snapshot, apply);
    const { last = {} } = scan.header;
    const isOwn = Object.values(last ?? [last]).every((each) =>
      Array.isArray(each) && each.length === 2 &&
      each.every((count) => Number.isSafeInteger(count) && count >= 0)
    );
    if (!scan.isSealed || !isOwn) throw foreignValue(snapshot.key);
    restoreCounters(loaded.tables, scan.header);
    loaded.head = scan.header.store;
    loaded.snapshotSeq = scan.seq;
    loaded.snapshotBytes = scan.size;
  }
  const head = await readHead(client);
  if (head === "" && (await client.get([copyKey])).length > 0) {
    throw new StoreError(
      "damaged",
      "Cannot open the store in etcd: a copy to it is not finished. Wait for its end, or " +
        'if it was interrupted, run "zoo-api copy" again, or delete the key "copy" below the prefix',
    );
  }
  for await (const batch of readLog(client, loaded.head, head)) {
    applyBatch(loaded, batch, apply);
  }
  const [beyond] = await client.get(rangeOf("log", seqOf(head) + 1), 1);
  // Each batch is put together with the next head.
  if (beyond && await readHead(client) === head) throw foreignValue("head");
  return loaded;
}

/** Transactions that were committed together. */
interface Batch {
  /** The head before it, and the one with which it was put. */
  readonly after: string;
  readonly head: string;
  /** When it was written, by the clock of its server. */
  readonly at: string;
  readonly bytes: number;
  readonly lines: readonly LogLine[];
}

/**
 * Yields the batches from one head to another.
 *
 * @param first the next one, if it is known
 * @param refuse returns the error of a key that does not continue the log
 * @throws {StoreError} damaged if the next one is deleted
 */
export async function* readLog(
  client: EtcdClient,
  from: string,
  to: string,
  first?: KeyValue,
  refuse = foreignValue,
): AsyncGenerator<Batch> {
  let next = first ? [first] : [];
  let longest = maxValueBytes;
  for (let head = from; head !== to;) {
    const seq = seqOf(head);
    if (seq >= seqOf(to)) throw refuse("head");
    if (next.length === 0) {
      const keys = rangeOf("log", seq + 1);
      const limit = Math.min(
        Math.ceil(batchesPerRead * maxValueBytes / longest),
        maxBatchesPerRead,
      );
      next = await client.get(keys, limit).catch((error) => {
        if (!errorText(error).includes(tooLong)) throw error;
        return client.get(keys, batchesPerRead);
      });
      longest = Math.max(...next.map(({ value }) => value.length));
    }
    const found = next.shift();
    if (!found || numberIn(found) !== seq + 1) {
      throw foreignValue(keyOf("log", seq + 1));
    }
    const batch = await readBatch(client, found);
    if (batch.after !== head) throw refuse(found.key);
    yield batch;
    head = batch.head;
  }
}

export function applyBatch(
  loaded: Loaded,
  { lines, bytes, head }: Batch,
  apply = applyTo(loaded.tables, "etcd"),
): void {
  for (const line of lines) {
    const { seq = 0 } = line;
    try {
      apply(line, seq);
    } catch (error) {
      throw error instanceof StoreError
        ? error
        : foreignValue(keyOf("log", seq));
    }
  }
  loaded.logBytes += bytes;
  loaded.head = head;
}

/** Packs transactions that follow a head; returns the file and the next head. */
export function encodeBatch(
  folder: StoreFolder,
  store: string,
  entries: readonly Entry[],
) {
  const salt = randomName(folder);
  const durable = seqOf(store);
  const { line, seed } = encodeHeader({
    store,
    generation: 0,
    seq: durable,
    salt,
    at: formatTime(folder.now()),
  });
  return {
    slices: [line, encodeEntries(entries, { durable, seed })],
    head: `${durable + entries.length} ${salt}`,
  };
}

export function divergedError(): StoreError {
  return new StoreError(
    "unreachable",
    "etcd holds another history than this server has applied: it was set back " +
      "to an older state. Restart this server to serve that one",
  );
}

/** Throws unless a head is of a form that servers put. */
export async function requireHead(
  client: EtcdClient,
  head: string,
): Promise<void> {
  if (headForm.test(head)) return;
  await readHead(client); // throws, unless the store is gone
  throw new StoreError(
    "unreachable",
    "etcd has no store below this prefix any more: start the right etcd or, if its data " +
      "is lost, stop all servers and copy the last backup into it",
  );
}

export async function readBatch(
  client: EtcdClient,
  found: KeyValue,
): Promise<Batch> {
  const lines: LogLine[] = [];
  const { seq, size, header: { store: after, salt, at } } = await readFile(
    client,
    found,
    (line) => void lines.push(line),
  );
  return { after, head: `${seq} ${salt}`, at, bytes: size, lines };
}

/** Reads a file, whose first part was found. */
async function readFile(
  client: EtcdClient,
  { key, value }: KeyValue,
  apply: ApplyLine,
) {
  let part = value;
  let number = 0;
  let start = 0;
  const file: ReadableFile = {
    async read(into) {
      if (start === maxValueBytes) {
        const next = partKey(key, value, number++);
        const [found] = await client.get([next]);
        if (!found) throw foreignValue(next);
        part = found.value;
        start = 0;
      }
      const bytesRead = part.copy(into, 0, start);
      start += bytesRead;
      return { bytesRead };
    },
  };
  const scan = await scanLog(file, key, apply).catch((error) => {
    throw error.cause ??
      (error instanceof StoreError ? error : foreignValue(key));
  });
  const { header, faults: [fault] } = scan;
  if (header && !fault) return Object.assign(scan, { header });
  throw new StoreError(
    "damaged",
    `${key} in etcd is damaged: ${fault?.message ?? "it is empty"}`,
  );
}

/** Puts all parts of a file but the first one, which it returns with the length of all. */
export async function putParts(
  client: EtcdClient,
  key: string,
  slices: Iterable<Buffer>,
  signal?: AbortSignal,
) {
  let first: Buffer | undefined;
  let number = 0;
  let waiting: Buffer[] = [];
  let length = 0;
  const put = async (part: Buffer) => {
    signal?.throwIfAborted();
    if (first === undefined) first = part;
    else await client.put(partKey(key, first, number++), part);
    return first;
  };
  for (const slice of slices) {
    waiting.push(slice);
    length += slice.length;
    if (length < maxValueBytes) continue;
    let rest: Buffer = Buffer.concat(waiting);
    for (; rest.length >= maxValueBytes; rest = rest.subarray(maxValueBytes)) {
      await put(rest.subarray(0, maxValueBytes));
    }
    waiting = [rest];
    length = rest.length;
  }
  return {
    value: await put(Buffer.concat(waiting)),
    bytes: number * maxValueBytes + length,
  };
}

/** Returns the key of a later part of a file. */
function partKey(key: string, first: Buffer, number: number): string {
  const digits = key.slice(-16);
  const [, salt] = /"salt":"(\w+)/.exec(first.toString("latin1", 0, 512)) ?? [];
  return `parts/${digits}/${salt}/${number}`;
}
