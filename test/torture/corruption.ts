/**
 * Damages a small store in every way, byte by byte, and opens it. It must be
 * recovered exactly as it was at some sequence number that the damage allows,
 * or be refused with the place of the damage and without a changed byte; then a
 * repair must make it usable, and it must contain nothing that was never
 * written.
 */

import { Buffer } from "node:buffer";
import { readStore } from "../../src/cli/read.ts";
import { repairStore } from "../../src/cli/repair.ts";
import { FastWrites } from "../../src/store/log/fast-writes.ts";
import * as marker from "../../src/store/log/marker.ts";
import { openStore, type Store, StoreError } from "../../src/store/store.ts";
import { Disk } from "./disk.ts";
import { change } from "./oracle.ts";
import { tables } from "./scene.ts";
import { commit } from "../commit.ts";

/** A store to be damaged, and its known states. */
export interface Specimen {
  readonly name: string;
  readonly files: Map<string, Buffer>;
  /** The state at each sequence number, as text. */
  readonly states: readonly string[];
  /** The last log, if it ends with a seal: only zeros may follow that. */
  readonly sealed?: string;
}

/** One way to damage a store. */
export interface Damage {
  readonly file: string;
  readonly what: string;
  /** Where the damage begins; undefined if it has no single place. */
  readonly byte: number | undefined;
  /** The damaged file; undefined if it was removed. */
  readonly bytes: Buffer | undefined;
}

const limits = { reserveBytes: 0 };

/**
 * Creates stores: with and without an earlier generation, with and without a
 * marker; one that was killed, so that zeros follow its last line; one whose
 * last log is sealed, as a power cut leaves it before the next log has its
 * name; and some that never wrote a snapshot.
 */
export async function makeSpecimens(folder: string): Promise<Specimen[]> {
  const disk = new Disk({ folder });
  const fastWrites = new FastWrites(); // for zeros after the last line
  const options = { folder, files: disk, tables, limits, marker, fastWrites };
  let store = await openStore(options);
  const states = [stateOf(store)];
  const step = async (key: number, version: number) => {
    const done = commit(store, change(key, version), key);
    states.push(stateOf(store));
    return await done;
  };
  for (const key of [1, 2]) await step(key, key);
  await store.close();
  const first = { files: disk.contents(), states: [...states] };
  first.files.delete("reserve");
  store = await openStore(options);
  await store.checkpoint();
  for (const key of [1, 2]) await step(key, key + 2);
  const sealed = [...states];
  await store.checkpoint();
  await step(1, 6);
  await Promise.all([step(2, 7), step(3, 1), step(4, 3)]);
  await step(1, 9);
  const killed = disk.contents();
  await store.close();
  const whole = disk.contents();
  whole.delete("reserve");
  const only = (pattern: RegExp, files = whole) =>
    new Map([...files].filter(([name]) => pattern.test(name)));
  const last = /^(meta\.json|mark|.*-3\..*)$/;
  return [
    { name: "two generations and a mark", files: whole, states },
    { name: "two generations", files: only(/^[^m]|^meta/), states },
    { name: "one generation and a mark", files: only(last), states },
    {
      name: "one generation",
      files: only(/^(meta\.json|.*-3\..*)$/),
      states,
    },
    {
      name: "zeros ahead of the next lines",
      files: only(/^(meta\.json|.*-3\..*)$/, killed),
      states,
    },
    {
      name: "a sealed last log",
      files: only(/^(meta\.json|.*-2\..*)$/),
      states: sealed,
      sealed: "wal-2.jsonl",
    },
    { ...first, name: "no snapshot and a mark" },
    {
      ...first,
      name: "no snapshot",
      files: new Map([...first.files].filter(([name]) => name !== "mark")),
    },
  ];
}

/** Yields every damage of the given kinds, but only every `stride`th flipped bit. */
export function* damages(
  specimen: Specimen,
  stride: number,
): Generator<Damage> {
  for (const [file, bytes] of specimen.files) {
    yield { file, what: "is gone", byte: undefined, bytes: undefined };
    for (let size = 0; size < bytes.length; size += Math.ceil(stride / 8)) {
      const cut = bytes.subarray(0, size);
      yield { file, what: `is cut at ${size}`, byte: size, bytes: cut };
    }
    for (let bit = 0; bit < bytes.length * 8; bit += stride) {
      const flipped = Buffer.from(bytes);
      const byte = bit >> 3;
      flipped[byte] = (flipped[byte] ?? 0) ^ (1 << (bit & 7));
      yield { file, what: `has bit ${bit} flipped`, byte, bytes: flipped };
    }
    for (let begin = 0; begin < bytes.length; begin += 512) {
      const zeroed = Buffer.from(bytes);
      zeroed.subarray(begin, begin + 512).fill(0);
      const what = `has zeros from ${begin}`;
      yield { file, what, byte: begin, bytes: zeroed };
    }
    const lines = bytes.toString("latin1").split(/(?<=\n)/);
    let byte = 0;
    for (const [index, line] of lines.entries()) {
      const place = { file, byte };
      const join = (next: string[]) => Buffer.from(next.join(""), "latin1");
      const what = `line ${index + 1}`;
      yield {
        ...place,
        what: `lacks ${what}`,
        bytes: join(lines.toSpliced(index, 1)),
      };
      yield {
        ...place,
        what: `has ${what} twice`,
        bytes: join(lines.toSpliced(index, 0, line)),
      };
      const swapped = lines.toSpliced(
        index,
        2,
        ...lines.slice(index, index + 2).reverse(),
      );
      yield { ...place, what: `has ${what} swapped`, bytes: join(swapped) };
      byte += line.length;
    }
    for (const [what, text] of appended) {
      const longer = Buffer.concat([bytes, Buffer.from(text)]);
      yield { file, what, byte: bytes.length, bytes: longer };
    }
    for (const text of file === "meta.json" ? notMeta : []) {
      yield { file, what: `is ${text}`, byte: 0, bytes: Buffer.from(text) };
    }
  }
}

/** Bytes that may follow the end of a file. */
const appended = [
  ["has an unknown line after its end", "{}\n"],
  ["has an unfinished line after its end", '{"crc":"00000000","seq":'],
  ["has zeros after its end", "\0".repeat(1024)],
  ["has a line of zeros after its end", `${"\0".repeat(1024)}\n`],
] as const;

/** JSON that has nothing to do with a store. */
const notMeta = [
  "null",
  "1",
  '"store"',
  "[]",
  "{}",
  '{"format":1,"store":null}',
];

/** Opens a damaged store and throws if the outcome is wrong. */
export async function verifyDamage(
  folder: string,
  specimen: Specimen,
  damage: Damage,
): Promise<"recovered" | "refused" | "cut"> {
  const { file, what, bytes } = damage;
  const files = new Map(specimen.files);
  if (bytes === undefined) files.delete(file);
  else files.set(file, bytes);
  if (bytes?.equals(specimen.files.get(file) ?? Buffer.alloc(0))) {
    return "recovered"; // a swap of equal lines, zeros over zeros
  }
  const fail = (message: string): never => {
    throw new Error(`${specimen.name}: ${file} ${what}: ${message}`);
  };
  const disk = Disk.of(folder, files);
  const reading = await readStore(folder, { files: disk, tables });
  const options = { folder, files: disk, tables, limits, marker };
  let store: Store;
  try {
    store = await openStore(options);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    if (reading.refusal?.message !== error.message) {
      return fail(`a check says ${reading.refusal?.message}`);
    }
    for (const [name, now] of disk.contents()) {
      if (!files.get(name)?.equals(now)) fail(`${name} was changed`);
    }
    if (disk.contents().size !== files.size) fail("a file was changed");
    if (!isRightPlace(error, specimen, damage)) fail(error.message);
    if (error.code === "damaged") await verifyRepair(disk, specimen, fail);
    return "refused";
  }
  const { seq } = store;
  const found = stateOf(store);
  await store.close();
  const atEnd = what.endsWith("after its end") &&
    what !== "has zeros after its end";
  if (file === specimen.sealed && atEnd) fail("it was opened");
  const last = specimen.states.length - 1;
  const marked = files.has("mark") && file !== "mark" ? last : 0;
  const known = Math.max(marked, provenBy(specimen, damage));
  if (found !== specimen.states[seq]) fail("the state is wrong");
  if (seq < known) fail(`it went back to sequence ${seq}`);
  if (seq < last) return "cut";
  const harmless = file === "mark" || reading.tornWrite !== undefined ||
    bytes === undefined || isEnd(damage, specimen);
  if (reading.faults.length === 0 && !harmless) fail("a check finds no fault");
  return "recovered";
}

/** Repairs a refused store and throws if it is not usable then, or contains something that nobody wrote. */
async function verifyRepair(
  disk: Disk,
  { files, states }: Specimen,
  fail: (message: string) => never,
): Promise<void> {
  const { folder } = disk;
  const { salvage } = await repairStore(folder, { files: disk, tables });
  const store = await openStore({
    folder,
    files: disk,
    tables,
    limits,
    marker,
  });
  for (const { name } of tables) {
    for (const { document } of store.table(name).rows()) {
      const text = JSON.stringify(document);
      const isKnown = states.some((state) => state.includes(text));
      if (!isKnown) fail(`a repair invents ${text}`);
    }
  }
  const last = states.length - 1;
  const isMarked = files.has("mark");
  if (isMarked && store.seq < last) fail(`${store.seq} is used twice`);
  if ((salvage?.lostTransactions ?? 0) > last + 1) fail("it counts too many");
  await store.close();
}

/** The state that the intact lines of a damaged log prove to have been on the disk. */
function provenBy(specimen: Specimen, { file, bytes }: Damage): number {
  if (bytes === undefined || !file.startsWith("wal-")) return 0;
  const linesOf = (from?: Buffer) => from?.toString("latin1").split("\n") ?? [];
  const left = new Set(linesOf(bytes));
  const whole = linesOf(specimen.files.get(file)).filter((line) =>
    line.startsWith("{") && left.has(line)
  );
  return Math.max(
    0,
    ...whole.map((line) => Number(JSON.parse(line).durable ?? 0)),
  );
}

/** Returns whether the files differ only in zeros or the newline at the end, or in white space of the frame. */
function isEnd(damage: Damage, specimen: Specimen): boolean {
  const whole = specimen.files.get(damage.file);
  if (damage.file === "meta.json") return true;
  if (damage.bytes === undefined || whole === undefined) return false;
  // A missing seal is not a loss: the log just continues.
  const isLog = damage.file.startsWith("wal-");
  const lines = isLog ? withoutZeros(whole) : whole;
  const found = isLog ? withoutZeros(damage.bytes) : damage.bytes;
  const { length } = found;
  return (length >= lines.length - 1 || damage.file === specimen.sealed) &&
    lines.subarray(0, length).equals(found);
}

function withoutZeros(bytes: Buffer): Buffer {
  return bytes.subarray(0, bytes.findLastIndex((each) => each > 0) + 1);
}

/** Returns whether an error names the damaged file and a place at or before the damage. */
function isRightPlace(
  error: StoreError,
  specimen: Specimen,
  damage: Damage,
): boolean {
  const { fault } = error;
  if (error.code === "format") return error.message.includes(damage.file);
  if (error.code !== "damaged" || fault === undefined) return false;
  // A wrong store id in the meta file is noticed where it is compared; a
  // missing file may be noticed in the file that needs it.
  if (damage.file === "meta.json" || damage.bytes === undefined) return true;
  if (fault.file !== damage.file) return false;
  if (damage.byte === undefined || !damage.file.startsWith("wal")) return true;
  const whole = specimen.files.get(damage.file) ?? Buffer.alloc(0);
  const begin = whole.lastIndexOf("\n", damage.byte - 1) + 1;
  // If a newline is damaged, the line before it may be named, and a swap or a
  // cut is noticed in the next line.
  const end = whole.indexOf("\n", damage.byte) + 1 || whole.length;
  const next = whole.indexOf("\n", end) + 1 || whole.length;
  return fault.byte >= Math.min(begin, damage.byte) && fault.byte <= next ||
    fault.line === 0;
}

function stateOf(store: Store): string {
  return JSON.stringify(
    ["zoos", "animals"].map((name) => {
      const table = store.table(name);
      const rows = Array.from(table.rows(), (row) => row.document);
      return [name, table.lastId, rows];
    }),
  );
}
