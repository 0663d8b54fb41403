/**
 * What etcd holds of a store, and how it is read and written:
 *
 * - `head`: the last sequence number. Whoever appends to the log puts it in the
 *   same transaction, and compares the revision at which it was last put.
 * - `log/SEQ`: a batch of transactions from that sequence number on, as lines
 *   of a log file.
 * - `snapshot/SEQ`: a complete snapshot, as a snapshot file.
 * - `snapshot-lock`: who writes a snapshot, under a lease.
 * - `servers/ID`: a server that is there, under the same lease.
 * - `secret`, which signs tokens, and `incarnation`, a random name of this store.
 *
 * The first line of a batch or snapshot is its random name. What is too long
 * for one value is in parts, `log-parts/SEQ/NAME/N` and
 * `snapshot-parts/SEQ/NAME/N`, and the name is followed by their number.
 */

import { Buffer } from "node:buffer";
import { crc32 } from "node:zlib";
import { StoreError } from "../store/error.ts";
import {
  checkFormat,
  checkLine,
  type LogHeader,
  type LogLine,
} from "../store/log/format.ts";
import {
  createTables,
  getOrCreateTable,
  type Tables,
} from "../store/memory/table.ts";
import { applyTo, type FolderScanOptions } from "../store/recovery/scan.ts";
import {
  entry,
  type EtcdClient,
  type KeyRange,
  type KeyValue,
  put,
} from "./client.ts";

/** etcd accepts requests of 1.5 MiB by default. */
export const maxValueBytes = 1 << 20;

/** Values that are read at once. */
const valuesPerRead = 8;

type Kind = "log" | "snapshot";

/** A part of etcd that holds a store. */
export class Place {
  readonly client: EtcdClient;
  readonly prefix: string;
  readonly head: string;
  readonly secret: string;
  readonly incarnation: string;
  readonly lock: string;

  constructor(client: EtcdClient, prefix: string) {
    this.client = client;
    this.prefix = prefix;
    this.head = `${prefix}head`;
    this.secret = `${prefix}secret`;
    this.incarnation = `${prefix}incarnation`;
    this.lock = `${prefix}snapshot-lock`;
  }

  /** Returns a key; numbers have leading zeros, so that keys sort as they do. */
  key(kind: Kind | `${Kind}-parts`, seq: number): string {
    return `${this.prefix}${kind}/${String(seq).padStart(16, "0")}`;
  }

  /** Returns the keys from a number on, and below another one. */
  range(
    kind: Kind | `${Kind}-parts`,
    from = 0,
    below = Number.MAX_SAFE_INTEGER,
  ): KeyRange {
    return [this.key(kind, from), this.key(kind, below)];
  }

  /** Returns the key that is there while a server is. */
  server(id: string): string {
    return `${this.prefix}servers/${id}`;
  }
}

/** Puts a value that no other server has put before; returns the one that is there. */
export async function putOnce(
  { client }: Place,
  key: string,
  value: string,
): Promise<string> {
  const { found } = await client.transact([key, 0], [put(key, value)]);
  return found?.value.toString().trim() ?? value;
}

/** Transactions that were committed together. */
export interface Batch {
  /** The sequence number of the first one. */
  readonly first: number;
  readonly last: number;
  readonly name: string;
  /** The revision at which it was put, and the head with it. */
  readonly revision: number;
  readonly bytes: number;
  readonly lines: readonly LogLine[];
}

/** A store as it was loaded. */
export interface Loaded {
  readonly tables: Tables;
  seq: number;
  /** The revision of the head. */
  revision: number;
  snapshotSeq: number;
  snapshotBytes: number;
  logBytes: number;
}

type LoadOptions = Pick<FolderScanOptions, "tables" | "onTransaction">;

/** Reads a store. Begins anew if what it reads is deleted meanwhile. */
export async function load(
  place: Place,
  options: LoadOptions,
): Promise<Loaded> {
  for (let attempt = 1;; attempt++) {
    try {
      return await loadOnce(place, options);
    } catch (error) {
      const isDamaged = error instanceof StoreError && error.code === "damaged";
      if (!isDamaged || attempt === 5) throw error;
    }
  }
}

async function loadOnce(
  place: Place,
  { tables: declared, onTransaction }: LoadOptions,
): Promise<Loaded> {
  const tables = createTables(declared);
  const loaded = { seq: 0, snapshotSeq: 0, snapshotBytes: 0, logBytes: 0 };
  const snapshots = await place.client.get(place.range("snapshot"));
  const snapshot = snapshots.at(onTransaction ? 0 : -1);
  if (snapshot !== undefined) {
    loaded.snapshotBytes = await loadSnapshot(place, snapshot, tables);
    loaded.seq = loaded.snapshotSeq = numberIn(snapshot);
  }
  const [head] = await place.client.get([place.head]);
  let revision = head?.revision ?? 0;
  // Up to this head: a later one may move faster than this reads.
  while (loaded.seq < seqOf(head)) {
    for (const batch of await readLog(place, loaded.seq)) {
      applyBatch(batch, tables, onTransaction);
      loaded.seq = batch.last;
      loaded.logBytes += batch.bytes;
      revision = batch.revision;
    }
  }
  return { ...loaded, tables, revision };
}

/** Returns the sequence number in the head; 0 if there is none. */
export function seqOf(head: KeyValue | undefined): number {
  return Number(head?.value ?? 0);
}

/** Returns the sequence number in a key. */
export function numberIn({ key }: KeyValue): number {
  return Number(key.slice(-16));
}

/** Reads some batches after a sequence number; throws if the next one is not there any more. */
export async function readLog(place: Place, seq: number): Promise<Batch[]> {
  const range = place.range("log", seq + 1);
  const batches: Batch[] = [];
  for (const found of await place.client.get(range, valuesPerRead)) {
    batches.push(await decodeBatch(place, found));
  }
  if (batches[0]?.first !== seq + 1) throw gap(seq);
  return batches;
}

export function gap(seq: number): StoreError {
  return new StoreError("damaged", `etcd has no transaction after ${seq}`);
}

async function decodeBatch(place: Place, found: KeyValue): Promise<Batch> {
  const { revision, value } = found;
  const first = numberIn(found);
  const lines: LogLine[] = [];
  let bytes = 0;
  for await (const line of readLines(place, "log", found)) {
    lines.push(parseLine(line, 0));
    bytes += line.length;
  }
  const [name = ""] = value.toString("latin1", 0, 64).split(/[ \n]/, 1);
  const last = first + lines.length - 1;
  return { first, last, name, revision, bytes, lines };
}

export function applyBatch(
  { lines }: Batch,
  tables: Tables,
  onTransaction?: LoadOptions["onTransaction"],
): void {
  const apply = applyTo(tables, "etcd", onTransaction);
  for (const line of lines) apply(line, line.seq ?? 0);
}

/** Loads a snapshot into empty tables, and returns its length. */
async function loadSnapshot(
  place: Place,
  found: KeyValue,
  tables: Tables,
): Promise<number> {
  const apply = applyTo(tables, "etcd");
  let header: LogHeader | undefined;
  let seed = 0;
  let bytes = 0;
  for await (const line of readLines(place, "snapshot", found)) {
    bytes += line.length;
    const parsed = parseLine(line, seed);
    if (header === undefined) {
      header = parsed as LogLine & LogHeader;
      checkFormat("etcd", header.format);
      seed = crc32(header.salt);
    } else apply(parsed, header.seq);
  }
  for (const [name, last] of Object.entries(header?.last ?? {})) {
    getOrCreateTable(tables, name).advanceCounters(...last);
  }
  return bytes;
}

/** Returns the value of a batch or snapshot under a new name; puts what is too long for it before, in parts. */
export async function pack(
  place: Place,
  kind: Kind,
  { seq, name, slices }: {
    readonly seq: number;
    readonly name: string;
    readonly slices: Iterable<Buffer>;
  },
): Promise<{ readonly value: Buffer; readonly bytes: number }> {
  const path = `${place.key(`${kind}-parts`, seq)}/${name}`;
  let waiting: Buffer = Buffer.alloc(0);
  let bytes = 0;
  let parts = 0;
  const putPart = async () => {
    const key = `${path}/${String(parts++).padStart(8, "0")}`;
    const part = waiting.subarray(0, maxValueBytes);
    await place.client.call("kv/put", entry(key, part));
    waiting = waiting.subarray(maxValueBytes);
  };
  for (const slice of slices) {
    bytes += slice.length;
    waiting = Buffer.concat([waiting, slice]);
    while (waiting.length > maxValueBytes) await putPart();
  }
  if (parts > 0) await putPart();
  const first = Buffer.from(parts > 0 ? `${name} ${parts}\n` : `${name}\n`);
  return { value: Buffer.concat([first, waiting]), bytes };
}

/** Yields what was packed. */
async function* unpack(
  place: Place,
  kind: Kind,
  found: KeyValue,
): AsyncGenerator<Buffer> {
  const { value } = found;
  const end = value.indexOf("\n");
  const [name, count] = value.toString("latin1", 0, end).split(" ");
  yield value.subarray(end + 1);
  const seq = numberIn(found);
  const path = `${place.key(`${kind}-parts`, seq)}/${name}`;
  let from = `${path}/`;
  for (let done = 0; done < Number(count ?? 0);) {
    const some = await place.client.get([from, `${path}0`], valuesPerRead);
    for (const { key, value } of some) {
      yield value;
      from = `${key}\0`;
    }
    if (some.length === 0) throw gap(seq);
    done += some.length;
  }
}

/** Yields the lines of a batch or snapshot. */
async function* readLines(
  place: Place,
  kind: Kind,
  found: KeyValue,
): AsyncGenerator<Buffer> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const part of unpack(place, kind, found)) {
    const bytes = Buffer.concat([rest, part]);
    let start = 0;
    for (let end; (end = bytes.indexOf("\n", start)) >= 0; start = end + 1) {
      yield bytes.subarray(start, end);
    }
    rest = bytes.subarray(start);
  }
  if (rest.length > 0) {
    throw new StoreError("damaged", "etcd holds half a line");
  }
}

function parseLine(line: Buffer, seed: number): LogLine {
  if (checkLine(line, seed)) return JSON.parse(line.toString());
  throw new StoreError("damaged", "A line in etcd does not match its CRC");
}
