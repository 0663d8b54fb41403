/**
 * The write-ahead log: one line a transaction, readable with `jq`.
 *
 * ```
 * {"crc":"8d5c0af1","format":1,"store":"…","generation":3,"salt":"…","seq":200,"at":"…"}
 * {"crc":"eadecc66","seq":201,"dur":200,"at":"…","by":3,"tx":[["put","animals",{"id":7,…}],["del","zoos",4]]}
 * {"crc":"5b0f6a3e","seal":201,"at":"…"}
 * ```
 *
 * The first line is the header; its `seq` is the one before the first
 * transaction. `seq` has no gaps. `dur` is the highest seq that was on the
 * disk when the line was written: a later line with `dur` ≥ n proves that n
 * was acknowledged. A seal ends a finished log. The CRC covers all bytes of
 * its line after itself, without the newline; of every line but the first it
 * begins with the header's random salt, so that no stale block of another file
 * passes for a line of this one.
 *
 * What an honest power cut leaves of the last write: any of its blocks, the
 * others zeros or beyond the end of the file. JSON has no zero byte, so such
 * damage can be told from rot.
 */

import { Buffer } from "node:buffer";
import { crc32 } from "node:zlib";
import { type Fault, StoreError } from "../error.ts";
import { type Line, type OpenFile, readLines } from "./files.ts";
import type { Document } from "../memory/row.ts";

/** The version of the files that this store writes and reads. */
export const format = 1;

/** A change of one record. */
export type Mutation =
  | readonly ["put", string, Document]
  | readonly ["del", string, number];

/** What begins a log. */
export interface LogStart {
  readonly store: string;
  readonly generation: number;
  /** The sequence before the log's first transaction. */
  readonly seq: number;
}

/** The first line of a log. */
export interface LogHeader extends LogStart {
  readonly format: number;
  /** Random, in hexadecimal; goes into the CRC of all other lines. */
  readonly salt: string;
  readonly at: string;
  /** Of a snapshot: of each table the highest id and the last sequence. */
  readonly last?: Readonly<Record<string, readonly [id: number, seq: number]>>;
}

/** A transaction as it waits to be written. */
export interface Entry {
  readonly seq: number;
  readonly at: string;
  /** The id of the user who caused it; 0 is the server itself. */
  readonly by: number;
  /** The operations as JSON. */
  readonly text: string;
  /** An upper bound of the length of its line. */
  readonly bytes: number;
}

/** All of a line but its operations, at most. */
export const lineOverhead = 150;
const crcLength = '{"crc":"xxxxxxxx",'.length;
const sector = 512;

let formatted = { time: NaN, text: "" };

/** A time in milliseconds as RFC 3339 writes it, in UTC. Many a millisecond has more than one write. */
export function formatTime(time: number): string {
  if (time !== formatted.time) {
    formatted = { time, text: new Date(time).toISOString() };
  }
  return formatted.text;
}

/** A CRC as the files write it. */
export function hexadecimal(crc: number): string {
  return crc.toString(16).padStart(8, "0");
}

/** Writes a line into a buffer and returns where it ends. */
function writeLine(into: Buffer, at: number, rest: string, seed: number) {
  const begin = at + crcLength;
  const end = begin + into.write(rest, begin);
  const crc = hexadecimal(crc32(into.subarray(begin, end), seed));
  into.write(`{"crc":"${crc}",`, at, "latin1");
  into[end] = 0x0a;
  return end + 1;
}

/** A line of its own; `rest` is what follows the CRC. */
export function encodeLine(rest: string, seed = 0): Buffer {
  const into = Buffer.alloc(crcLength + Buffer.byteLength(rest) + 1);
  writeLine(into, 0, rest, seed);
  return into;
}

/** The first line, and where the CRC of all others begins. */
export function encodeHeader(
  header: Omit<LogHeader, "format">,
): { readonly line: Buffer; readonly seed: number } {
  const text = JSON.stringify({ format, ...header }).slice(1);
  return { line: encodeLine(text), seed: crc32(header.salt) };
}

/** Writes transactions into a buffer that is large enough; returns the length. */
export function encodeEntries(
  into: Buffer,
  entries: readonly Entry[],
  log: { readonly durable: number; readonly seed: number },
): number {
  let end = 0;
  for (const { seq, at, by, text } of entries) {
    const rest =
      `"seq":${seq},"dur":${log.durable},"at":"${at}","by":${by},"tx":${text}}`;
    end = writeLine(into, end, rest, log.seed);
  }
  return end;
}

/** Whether a line's bytes (without the newline) agree with their CRC. */
export function checkLine(line: Buffer, seed = 0): boolean {
  if (line.length <= crcLength) return false;
  const crc = hexadecimal(crc32(line.subarray(crcLength), seed));
  return line.toString("latin1", 0, crcLength) === `{"crc":"${crc}",`;
}

/** What a log says from its first byte to its last. */
export class LogScan {
  header: LogHeader | undefined;
  /** Where the CRC of its lines begins. */
  seed = 0;
  /** The last sequence before the first bad line. */
  seq = 0;
  /** Where the good part ends. */
  end = 0;
  size = 0;
  /** How many lines of records there were. */
  parts = 0;
  isSealed = false;
  /** The last good line lacks only its newline. */
  lacksNewline = false;
  /** Every line that cannot be what was written there. */
  readonly faults: Fault[] = [];
  /** Whether a power cut during the last write explains all of them. */
  isTorn = true;
  /** What lines behind the first bad one prove to have been durable. */
  provenSeq = 0;
  /** The highest sequence in any line. */
  highestSeq = 0;
}

/** Takes the good lines of a log, in order, with their sequence. */
export type ApplyLine = (line: LogLine, seq: number) => void;

/** A line behind the header: a transaction, some records, or the end. */
export interface LogLine {
  readonly seq?: number;
  readonly dur?: number;
  readonly tx?: readonly Mutation[];
  readonly of?: string;
  readonly rows?: readonly Document[];
  /** Of a line of records its number; of the end how many there are. */
  readonly parts?: number;
  readonly seal?: number;
}

/** Reads a log, applies its good part, and judges every line of it. */
export async function scanLog(
  file: OpenFile,
  name: string,
  apply: ApplyLine,
): Promise<LogScan> {
  const scan = new LogScan();
  const blame = ({ byte, line }: Line, message: string, torn = false) => {
    scan.faults.push({ file: name, byte, line, message });
    scan.isTorn &&= torn;
  };
  const judge = (line: Line): string | undefined => {
    const parsed = JSON.parse(line.bytes.toString()) as LogLine;
    const { seq, seal, tx, rows, parts } = parsed;
    if (rows !== undefined) {
      // What a damaged snapshot has behind the damage can be saved.
      if (!scan.isSealed) apply(parsed, scan.seq);
      const good = parts === ++scan.parts && !scan.isSealed;
      return good ? undefined : `it is not part ${scan.parts}`;
    }
    const last = seq ?? seal;
    if (last === undefined || (seal === undefined) === (tx === undefined)) {
      throw unknown(name, `line ${line.line} is of a kind`);
    }
    if (scan.parts !== (parts ?? 0)) return `it is not behind part ${parts}`;
    const before = scan.highestSeq;
    scan.highestSeq = Math.max(scan.highestSeq, last);
    const expected = tx === undefined ? scan.seq : scan.seq + 1;
    const good = last === expected && !scan.isSealed;
    if (scan.faults.length > 0 || !good) {
      scan.provenSeq = Math.max(scan.provenSeq, seal ?? parsed.dur ?? 0);
      if (scan.isSealed) return "it follows the line that ends the log";
      // Behind a torn line a whole one is honest if it leaves a gap for it.
      const beyond = scan.faults.length > 0 && last > expected && last > before;
      return beyond ? undefined : `its sequence is ${last}, not ${expected}`;
    }
    if (tx === undefined) scan.isSealed = true;
    else apply(parsed, last);
    scan.seq = last;
    scan.end = line.byte + line.bytes.length + (line.hasNewline ? 1 : 0);
    scan.lacksNewline = !line.hasNewline;
    return undefined;
  };
  for await (const lines of readLines(file)) {
    for (const line of lines) {
      scan.size = line.byte + line.bytes.length + (line.hasNewline ? 1 : 0);
      if (line.line === 1) {
        // Written whole before the file got its name: it cannot be torn.
        if (!line.hasNewline || !checkLine(line.bytes)) {
          blame(line, "its header's checksum does not match");
          continue;
        }
        const header = JSON.parse(line.bytes.toString()) as LogHeader;
        refuseNewer(name, header.format);
        scan.header = header;
        scan.seed = crc32(header.salt);
        scan.seq = scan.highestSeq = header.seq;
        scan.end = scan.size;
      } else if (scan.header === undefined) {
        continue; // without the salt nothing can be judged
      } else if (checkLine(line.bytes, scan.seed)) {
        const message = judge(line);
        if (message !== undefined) blame(line, message);
      } else {
        const torn = !line.hasNewline || holdsLostSector(line, scan.end);
        blame(line, "its checksum does not match", torn);
      }
    }
  }
  return scan;
}

/**
 * Whether a sector of 512 bytes within a line is all zeros, so that it never
 * reached the disk. Of the sector in which the good part ended, what is behind
 * that end counts: the part before it is from an earlier write.
 */
function holdsLostSector({ bytes, byte }: Line, goodEnd: number): boolean {
  const first = byte === goodEnd ? byte : Math.ceil(byte / sector) * sector;
  for (let begin = first; begin < byte + bytes.length;) {
    const end = (Math.floor(begin / sector) + 1) * sector;
    const part = bytes.subarray(begin - byte, end - byte);
    if (part.length === end - begin && part.every((each) => each === 0)) {
      return true;
    }
    begin = end;
  }
  return false;
}

/** Throws on files of a version that is not known here. */
export function refuseNewer(name: string, found: unknown): void {
  if (found !== format) throw unknown(name, `format ${String(found)} is one`);
}

/** Something that only a later version can have written. */
export function unknown(name: string, what: string): StoreError {
  return new StoreError(
    "format",
    `Cannot read ${name}: its ${what} that this version, which writes format ` +
      `${format}, does not know. Nothing was changed`,
  );
}
