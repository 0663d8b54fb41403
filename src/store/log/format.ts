/**
 * The write-ahead log: a transaction is one line, readable with `jq`.
 *
 * ```
 * {"crc":"8d5c0af1","format":3,"store":"…","generation":3,"salt":"…","seq":200,"at":"…"}
 * {"crc":"eadecc66","seq":201,"durable":200,"at":"…","by":3,"tx":[["put","animals",{"id":7,…}],["del","zoos",4]]}
 * {"crc":"5b0f6a3e","seal":201,"at":"…"}
 * ```
 *
 * The first line is the header; its `seq` is the sequence number before the
 * first transaction. `seq` has no gaps. `durable` is the highest sequence
 * number that was on the disk when the line was written: a line with `durable`
 * ≥ n proves that n was acknowledged. A seal ends a finished log.
 *
 * The CRC covers every byte of its line that follows it, without the newline.
 * Except in the header it starts from the header's random salt, so that a stale
 * block of another file never passes for a line of this one.
 *
 * Zeros that were written ahead may follow the last line. A power cut during
 * the last write can leave any of its blocks; the others are zeros or beyond
 * the end of the file. JSON has no zero byte, so a torn write can be
 * distinguished from other damage.
 */

import { Buffer } from "node:buffer";
import { crc32 } from "node:zlib";
import { type Fault, StoreError } from "../error.ts";
import { type Line, type ReadableFile, readLines } from "./files.ts";
import type { Document, Json } from "../memory/row.ts";

/**
 * The version of the files that this store writes. It also reads version 2,
 * which differs in its number only: at first it had neither renamings nor a
 * remembered declaration.
 */
export const format = 3;

/**
 * A change of one record, with the owner of a private one that is deleted, so
 * that readers of the log know who may see that; or a renaming, which exchanges what is stored under
 * two names: the values of two properties in all records of a table, or two
 * tables. So nothing is overwritten, and the same renaming again undoes it.
 */
export type Mutation =
  | readonly ["put", string, Document]
  | readonly ["del", string, number]
  | readonly ["del", string, number, owner: Json]
  | readonly ["rename", table: string, from: string, to: string]
  | readonly ["rename", table: string, to: string];

/** Identifies a log and the state at its start. */
export interface LogStart {
  readonly store: string;
  readonly generation: number;
  /** The sequence number before the log's first transaction. */
  readonly seq: number;
}

/** The first line of a log. */
export interface LogHeader extends LogStart {
  readonly format: number;
  /** Random, in hexadecimal; the CRC of all other lines starts from it. */
  readonly salt: string;
  readonly at: string;
  /** In a snapshot: the highest id and the last sequence number of each table. */
  readonly last?: Readonly<Record<string, readonly [id: number, seq: number]>>;
}

/** A transaction to be written. */
export interface Entry {
  readonly seq: number;
  readonly at: string;
  /** The id of the user who made it; 0 is the server itself. */
  readonly by: number;
  /** The mutations as JSON. */
  readonly text: string;
  /** An upper bound of the length of its line. */
  readonly bytes: number;
}

/** The maximum length of a line without its mutations, in bytes. */
export const lineOverhead = 150;
/** The length of a line's beginning, which holds its CRC. */
const crcLength = '{"crc":"xxxxxxxx",'.length;
const sectorBytes = 512;
/** How many faults of a file are described. */
export const maxFaults = 100;

/** Formats a time in milliseconds as RFC 3339, in UTC. */
export function formatTime(time: number): string {
  return new Date(time).toISOString();
}

/** Returns the beginning of a line with the CRC of the bytes after it. */
function crcOf(rest: Uint8Array, seed: number): string {
  return `{"crc":"${crc32(rest, seed).toString(16).padStart(8, "0")}",`;
}

/** Encodes one line; `rest` is its JSON after the CRC. */
export function encodeLine(rest: string, seed = 0): Buffer {
  const line = Buffer.allocUnsafe(crcLength + Buffer.byteLength(rest) + 1);
  line.write(rest, crcLength);
  line.write(crcOf(line.subarray(crcLength, -1), seed), "latin1");
  line[line.length - 1] = 0x0a;
  return line;
}

/** Encodes the header, and derives the seed of the CRC of all other lines. */
export function encodeHeader(header: Omit<LogHeader, "format">) {
  const text = JSON.stringify({ format, ...header }).slice(1);
  return { line: encodeLine(text), seed: crc32(header.salt) };
}

/** Encodes transactions. */
export function encodeEntries(
  entries: readonly Entry[],
  log: { readonly durable: number; readonly seed: number },
): Buffer {
  return Buffer.concat(entries.map(({ seq, at, by, text }) =>
    encodeLine(
      `"seq":${seq},"durable":${log.durable},"at":"${at}","by":${by},"tx":${text}}`,
      log.seed,
    )
  ));
}

/** Returns whether a line (without its newline) matches its CRC. */
export function checkLine(line: Buffer, seed = 0): boolean {
  return line.toString("latin1", 0, crcLength) ===
    crcOf(line.subarray(crcLength), seed);
}

/** The content of a log or a snapshot, read from its first byte to its last. */
export class LogScan {
  readonly name: string;
  header: LogHeader | undefined;
  /** The seed of the CRC of its lines. */
  seed = 0;
  /** The last sequence number before the first bad line. */
  seq = 0;
  /** Where the good part ends. */
  end = 0;
  /** The length of the file without the zeros at its end. */
  size = 0;
  /** True if zeros follow, which were written ahead. */
  isPadded = false;
  /** How many lines of records there were. */
  parts = 0;
  isSealed = false;
  /** The last good line is complete except for its newline. */
  lacksNewline = false;
  /** The first faults. */
  readonly faults: Fault[] = [];
  /** True if a power cut during the last write explains all faults. */
  isTorn = true;
  /** The highest sequence number that lines after the first bad one prove durable. */
  provenSeq = 0;
  /** The highest sequence number in any line. */
  highestSeq = 0;

  constructor(name: string) {
    this.name = name;
  }

  addFault({ byte, line }: Line, message: string, isTorn = false): void {
    if (this.faults.length < maxFaults) {
      this.faults.push({ file: this.name, byte, line, message });
    }
    this.isTorn &&= isTorn;
  }
}

/** Receives the good lines of a log, in order, with their sequence number. */
export type ApplyLine = (line: LogLine, seq: number) => void;

/** A line after the header: a transaction, some records, or the seal. */
export interface LogLine {
  readonly seq?: number;
  readonly durable?: number;
  readonly at?: string;
  /** The id of the user; 0 is the server itself. */
  readonly by?: number;
  readonly tx?: readonly Mutation[];
  readonly of?: string;
  readonly rows?: readonly Document[];
  /** The number of this line of records; in the seal, how many there are. */
  readonly parts?: number;
  readonly seal?: number;
}

/** Reads a log, applies its good part, and checks every line of it. */
export async function scanLog(
  file: ReadableFile,
  name: string,
  apply: ApplyLine,
): Promise<LogScan> {
  const scan = new LogScan(name);
  for await (const lines of readLines(file)) scanLines(scan, lines, apply);
  return scan;
}

/** Reads the next lines of a log. */
export function scanLines(
  scan: LogScan,
  lines: readonly Line[],
  apply: ApplyLine,
): void {
  for (const each of lines) {
    const line = trimZeros(each);
    scan.size = line.end;
    scan.isPadded = line !== each;
    const isEmpty = scan.isPadded && line.bytes.length === 0;
    if (line.byte === 0) readHeader(scan, line);
    else if (scan.header === undefined || isEmpty) continue; // no salt, or only zeros
    else if (checkLine(line.bytes, scan.seed)) readLine(scan, line, apply);
    else {
      const isTorn = !line.hasNewline || holdsLostSector(line, scan.end);
      scan.addFault(line, "its checksum does not match", isTorn);
    }
  }
}

/**
 * Returns an unfinished last line without the zeros at its end, which were
 * written ahead.
 */
export function trimZeros(line: Line): Line {
  if (line.hasNewline || line.bytes.at(-1) !== 0) return line;
  const length = line.bytes.findLastIndex((byte) => byte !== 0) + 1;
  const bytes = line.bytes.subarray(0, length);
  return { ...line, bytes, end: line.byte + length };
}

/** Reads the header. It was on the disk before the file got its name, so it is never torn. */
function readHeader(scan: LogScan, line: Line): void {
  if (!line.hasNewline || !checkLine(line.bytes)) {
    scan.addFault(line, "its header's checksum does not match");
    return;
  }
  const header = JSON.parse(line.bytes.toString()) as LogHeader;
  checkFormat(scan.name, header.format);
  scan.header = header;
  scan.seed = crc32(header.salt);
  scan.seq = scan.highestSeq = header.seq;
  scan.end = scan.size;
}

/** Reads a line whose checksum matches. */
function readLine(scan: LogScan, line: Line, apply: ApplyLine): void {
  const parsed = JSON.parse(line.bytes.toString()) as LogLine;
  const { seq, seal, tx, rows, parts = 0 } = parsed;
  if (rows !== undefined) {
    if (!scan.isSealed) apply(parsed, scan.seq);
    const isNext = parts === ++scan.parts && !scan.isSealed;
    if (!isNext) scan.addFault(line, `it is not part ${scan.parts}`);
    return;
  }
  const last = seq ?? seal;
  if (last === undefined || (seal === undefined) === (tx === undefined)) {
    throw unknown(scan.name, `the kind of line ${line.line}`);
  }
  const expected = tx === undefined ? scan.seq : scan.seq + 1;
  const isNext = last === expected && parts === scan.parts && !scan.isSealed;
  const isGood = isNext && scan.faults.length === 0;
  if (isGood) {
    if (tx !== undefined) apply(parsed, last);
    scan.isSealed = tx === undefined;
    scan.seq = last;
    scan.end = scan.size;
    scan.lacksNewline = !line.hasNewline;
  } else {
    const durable = seal ?? parsed.durable ?? 0;
    scan.provenSeq = Math.max(scan.provenSeq, durable);
    // An intact line after a torn one is valid if it leaves a gap for it.
    const leavesGap = scan.faults.length > 0 && !scan.isSealed &&
      last > Math.max(expected, scan.highestSeq);
    if (!leavesGap) {
      scan.addFault(line, `it does not follow sequence ${scan.seq}`);
    }
  }
  scan.highestSeq = Math.max(scan.highestSeq, last);
}

/**
 * Returns whether a sector of 512 bytes within a line is all zeros, so that it
 * never reached the disk. In the sector where the good part ended, only the
 * bytes after that end count: an earlier write put those before it there.
 */
function holdsLostSector({ bytes, byte }: Line, goodEnd: number): boolean {
  let begin = byte === goodEnd
    ? byte
    : Math.ceil(byte / sectorBytes) * sectorBytes;
  while (begin < byte + bytes.length) {
    const end = (Math.floor(begin / sectorBytes) + 1) * sectorBytes;
    const part = bytes.subarray(begin - byte, end - byte);
    if (part.length === end - begin && part.every((each) => each === 0)) {
      return true;
    }
    begin = end;
  }
  return false;
}

/** Throws unless this version can read files of a format. */
export function checkFormat(name: string, found: unknown): void {
  if (found === 2 || found === format) return;
  if (found === 1) {
    throw new StoreError(
      "format",
      `Cannot read ${name}: it has format 1, which this version no longer reads. Nothing was changed. Start version 0.1.0 of this program once on the folder, which upgrades it`,
    );
  }
  throw unknown(name, `format ${String(found)}`);
}

/** Describes something that only a later version can have written. */
export function unknown(
  name: string,
  what: string,
  cause?: string,
): StoreError {
  return new StoreError(
    "format",
    `Cannot read ${name}: this version, which writes format ${format}, does not know ${what}. Nothing was changed`,
    { cause },
  );
}
