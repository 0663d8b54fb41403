/**
 * The keys of a store in etcd, and how they are read and written:
 *
 * - `head`: the last sequence number, and the name of its batch. Whoever appends
 *   to the log puts it in the same transaction, if it is still the one known.
 * - `log/SEQ`: a batch of transactions from that sequence number on, as lines
 *   of a log file.
 * - `snapshot/SEQ`: a complete snapshot, as a snapshot file.
 * - `parts/SEQ/NAME/N`: what is too long for one value, without its end.
 * - `snapshot-lock`: who writes a snapshot, under a lease.
 * - `servers/ID`: a server that is there, under the same lease.
 * - `secret`, which signs tokens, and `incarnation`, a random name of this store.
 *
 * The first line of a batch or snapshot is its random name, the number of its
 * parts, and the name of the batch before: so whoever applies it finds out
 * that it does not continue what was applied, as after a restore of etcd.
 */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
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
  restoreCounters,
  type Tables,
} from "../store/memory/table.ts";
import { applyTo, type FolderScanOptions } from "../store/recovery/scan.ts";
import type { EtcdClient, KeyRange, KeyValue } from "./client.ts";

/** etcd accepts requests of 1.5 MiB by default. */
export const maxValueBytes = 1 << 20;

/** Batches that are read at once. */
const batchesPerRead = 8;

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

/** Returns the head after a batch. */
export function headOf(seq: number, name: string): string {
  return `${seq} ${name}`;
}

/** Returns the sequence number and the name in a head, which is empty before the first batch. */
export function parseHead(head: string) {
  const [seq, name = ""] = head.split(" ");
  return { seq: Number(seq), name };
}

/** Puts a value that no other server has put before; returns the one that is there. */
export async function putOnce(
  client: EtcdClient,
  key: string,
  value: string,
): Promise<string> {
  const { found: [found] } = await client.transact([key, ""], [
    { keys: [key], value },
  ]);
  return textOf(found) || value;
}

/** Transactions that were committed together. */
interface Batch {
  /** The head with which it was put. */
  readonly head: string;
  readonly bytes: number;
  readonly lines: readonly LogLine[];
}

/** A store as it was loaded. */
export interface Loaded {
  readonly tables: Tables;
  /** The head when the last batch that is applied was put. */
  head: string;
  snapshotSeq: number;
  snapshotBytes: number;
  logBytes: number;
}

type LoadOptions = Pick<FolderScanOptions, "tables" | "onTransaction">;

/** Reads a store. Begins anew if what it reads is deleted meanwhile. */
export async function load(
  client: EtcdClient,
  options: LoadOptions,
): Promise<Loaded> {
  for (let attempt = 1;; attempt++) {
    try {
      return await loadOnce(client, options);
    } catch (error) {
      const isDamaged = error instanceof StoreError && error.code === "damaged";
      if (!isDamaged || attempt === 5) throw error;
    }
  }
}

async function loadOnce(
  client: EtcdClient,
  { tables, onTransaction }: LoadOptions,
): Promise<Loaded> {
  const loaded: Loaded = {
    tables: createTables(tables),
    head: "",
    snapshotSeq: 0,
    snapshotBytes: 0,
    logBytes: 0,
  };
  const snapshots = await client.get(rangeOf("snapshot"));
  const snapshot = snapshots.at(onTransaction ? 0 : -1);
  if (snapshot !== undefined) await loadSnapshot(client, snapshot, loaded);
  const apply = applyTo(loaded.tables, "etcd", onTransaction);
  const [head] = await client.get(["head"]);
  for await (const batches of readLog(client, loaded.head, textOf(head))) {
    applyBatches(loaded, batches, apply);
  }
  return loaded;
}

/** Returns a value as text; nothing without one. */
export function textOf(found: KeyValue | undefined): string {
  return String(found?.value ?? "").trim();
}

/**
 * Yields the batches from one head to another, some at a time.
 *
 * @param first the next one, if it is known
 * @throws {StoreError} damaged if the next one is deleted; unreachable if it
 * does not continue the last one
 */
export async function* readLog(
  client: EtcdClient,
  from: string,
  to: string,
  first?: KeyValue,
): AsyncGenerator<readonly Batch[]> {
  for (let head = from; head !== to;) {
    const { seq } = parseHead(head);
    if (seq >= parseHead(to).seq) throw divergedError();
    const batches: Batch[] = [];
    const range = rangeOf("log", seq + 1);
    const next = first ? [first] : await client.get(range, batchesPerRead);
    first = undefined;
    for (const found of next) {
      const last = parseHead(head);
      if (numberIn(found) !== last.seq + 1) break;
      if (parseBeginning(found).after !== last.name) throw divergedError();
      const batch = await readBatch(client, found);
      batches.push(batch);
      head = batch.head;
      if (head === to) break;
    }
    if (batches.length === 0) throw gapError(seq);
    yield batches;
  }
}

export function applyBatches(
  loaded: Loaded,
  batches: readonly Batch[],
  apply = applyTo(loaded.tables, "etcd"),
): void {
  for (const { lines, bytes, head } of batches) {
    for (const line of lines) apply(line, line.seq ?? 0);
    loaded.logBytes += bytes;
    loaded.head = head;
  }
}

function divergedError(): StoreError {
  const message = "etcd holds another history than this server has applied: " +
    "it was set back to an older state. Restart this server to serve that one";
  return new StoreError("unreachable", message);
}

export function gapError(seq: number): StoreError {
  return new StoreError("damaged", `etcd has no transaction after ${seq}`);
}

export async function readBatch(
  client: EtcdClient,
  found: KeyValue,
): Promise<Batch> {
  const lines: LogLine[] = [];
  let bytes = 0;
  for await (const line of readLines(client, found)) {
    lines.push(parseLine(line));
    bytes += line.length;
  }
  const last = numberIn(found) + lines.length - 1;
  return { head: headOf(last, parseBeginning(found).name), bytes, lines };
}

/** Loads a snapshot into empty tables. */
async function loadSnapshot(
  client: EtcdClient,
  found: KeyValue,
  loaded: Loaded,
): Promise<void> {
  const { tables } = loaded;
  const seq = loaded.snapshotSeq = numberIn(found);
  loaded.head = headOf(seq, parseBeginning(found).after);
  const apply = applyTo(tables, "etcd");
  let header: LogHeader | undefined;
  let seed = 0;
  for await (const line of readLines(client, found)) {
    loaded.snapshotBytes += line.length;
    const parsed = parseLine(line, seed);
    if (header === undefined) {
      header = parsed as LogLine & LogHeader;
      checkFormat("etcd", header.format);
      seed = crc32(header.salt);
    } else apply(parsed, seq);
  }
  restoreCounters(tables, header ?? {});
}

/** A batch or snapshot to be put. */
interface Content {
  readonly seq: number;
  /** The name of the batch before it; of a snapshot, the last one in it. */
  readonly after: string;
  readonly slices: Iterable<Buffer>;
  /** Ends the work. */
  readonly signal?: AbortSignal;
}

/** Names a batch or snapshot, and puts what is too long for one value in parts. */
export async function pack(
  client: EtcdClient,
  { seq, after, slices, signal }: Content,
) {
  const name = randomBytes(8).toString("hex");
  let rest: Buffer = Buffer.alloc(0);
  let parts = 0;
  for (const slice of slices) {
    rest = Buffer.concat([rest, slice]);
    for (; rest.length > maxValueBytes; parts++) {
      signal?.throwIfAborted();
      const part = rest.subarray(0, maxValueBytes);
      await client.put(partKey(seq, name, parts), part);
      rest = rest.subarray(maxValueBytes);
    }
  }
  const beginning = Buffer.from(`${name} ${parts} ${after}\n`);
  const value = Buffer.concat([beginning, rest]);
  return { name, value, bytes: parts * maxValueBytes + rest.length };
}

function partKey(seq: number, name: string, part: number): string {
  return `${keyOf("parts", seq)}/${name}/${part}`;
}

/**
 * Parses the first line of a batch or snapshot.
 *
 * @throws {StoreError} format if another version has put it
 */
export function parseBeginning({ value }: KeyValue) {
  const end = value.indexOf("\n");
  const line = value.toString("latin1", 0, end);
  const [, name, parts, after = ""] = /^(\w+) (\d+) (\w*)$/.exec(line) ?? [];
  if (name === undefined) throw new StoreError("format", otherVersion);
  return { name, parts: Number(parts), after, rest: value.subarray(end + 1) };
}

const otherVersion =
  "Another version has put the records into etcd: copy them to a folder with that version, and with this one to another prefix. Nothing was changed";

/** Yields the lines of a batch or snapshot. */
async function* readLines(
  client: EtcdClient,
  found: KeyValue,
): AsyncGenerator<Buffer> {
  const { name, parts, rest: end } = parseBeginning(found);
  const seq = numberIn(found);
  let rest: Buffer = Buffer.alloc(0);
  for (let each = 0; each <= parts; each++) {
    const [part] = each < parts
      ? await client.get([partKey(seq, name, each)], 1)
      : [{ value: end }];
    if (part === undefined) throw gapError(seq);
    rest = Buffer.concat([rest, part.value]);
    let start = 0;
    for (let at; (at = rest.indexOf("\n", start)) >= 0; start = at + 1) {
      yield rest.subarray(start, at);
    }
    rest = rest.subarray(start);
  }
  if (rest.length > 0) yield rest;
}

function parseLine(line: Buffer, seed = 0): LogLine {
  if (checkLine(line, seed)) return JSON.parse(line.toString());
  throw new StoreError("damaged", "A line in etcd does not match its CRC");
}
