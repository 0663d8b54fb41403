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
import { StoreError } from "./error.ts";
import { type OpenFile, readChunks } from "./files.ts";
import type { Document } from "./table.ts";

/** The version of the files that this store writes and reads. */
export const format = 1;

/** A change of one record. */
export type Operation =
  | readonly ["put", string, Document]
  | readonly ["del", string, number];

/** The first line of a log. */
export interface LogHeader {
  readonly format: number;
  readonly store: string;
  readonly generation: number;
  /** Random, in hexadecimal; goes into the CRC of all other lines. */
  readonly salt: string;
  /** The sequence before the log's first transaction. */
  readonly seq: number;
  readonly at: string;
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

/** `{"crc":"xxxxxxxx",` */
const crcLength = 18;
/** All of a line but its operations, at most. */
export const lineOverhead = 150;
// Lines are parsed by batches: one JSON.parse a line takes a third longer.
const batchBytes = 65_536;
const sector = 512;
const newline = 0x0a;

/** A CRC as the files write it. */
export function hexadecimal(crc: number): string {
  return crc.toString(16).padStart(8, "0");
}

/** Where the CRC of a log's lines begins. */
export function seedOf(salt: string): number {
  return crc32(salt);
}

/** Writes a line into a buffer and returns where it ends. */
function writeLine(
  into: Buffer,
  line: { readonly at: number; readonly rest: string; readonly seed: number },
): number {
  const { at, rest, seed } = line;
  const begin = at + crcLength;
  const end = begin + into.write(rest, begin);
  const crc = crc32(into.subarray(begin, end), seed);
  into.write(`{"crc":"${hexadecimal(crc)}",`, at, "latin1");
  into[end] = newline;
  return end + 1;
}

/** A line of its own, for what is no transaction: `rest` follows the CRC. */
export function encodeLine(rest: string, seed: number): Buffer {
  const into = Buffer.alloc(crcLength + Buffer.byteLength(rest) + 1);
  writeLine(into, { at: 0, rest, seed });
  return into;
}

/** The first line of a log. */
export function encodeHeader(header: LogHeader): Buffer {
  return encodeLine(JSON.stringify(header).slice(1), 0);
}

/** The last line of a finished log. */
export function encodeSeal(
  seal: { readonly seq: number; readonly at: string; readonly seed: number },
): Buffer {
  return encodeLine(`"seal":${seal.seq},"at":"${seal.at}"}`, seal.seed);
}

/** Writes transactions into a buffer that is large enough; returns the length. */
export function encodeEntries(
  into: Buffer,
  entries: readonly Entry[],
  log: { readonly durable: number; readonly seed: number },
): number {
  let at = 0;
  for (const { seq, at: time, by, text } of entries) {
    const rest =
      `"seq":${seq},"dur":${log.durable},"at":"${time}","by":${by},"tx":${text}}`;
    at = writeLine(into, { at, rest, seed: log.seed });
  }
  return at;
}

/** Whether a line's bytes (without the newline) agree with their CRC. */
export function checkLine(line: Buffer, seed: number): boolean {
  return line.length > crcLength &&
    line.toString("latin1", 0, crcLength) ===
      `{"crc":"${hexadecimal(crc32(line.subarray(crcLength), seed))}",`;
}

/** A line that cannot be what was written there. */
export interface BadLine {
  readonly byte: number;
  readonly line: number;
  readonly message: string;
  /** Whether a power cut during the last write explains it. */
  readonly torn: boolean;
}

/** What a log says from its first byte to its last. */
export interface LogScan {
  readonly header: LogHeader | undefined;
  /** The last sequence before the first bad line. */
  readonly seq: number;
  /** Where the good part ends. */
  readonly end: number;
  readonly size: number;
  readonly sealed: boolean;
  /** The last good line lacks only its newline. */
  readonly unended: boolean;
  readonly bad: readonly BadLine[];
  /** The highest sequence that a line behind the first bad one proves to have been durable. */
  readonly proven: number;
  /** The highest sequence behind the first bad line. */
  readonly beyond: number;
}

/** Takes the transactions of a log, in order. */
export type Apply = (operations: readonly Operation[], seq: number) => void;

interface Place {
  readonly byte: number;
  readonly line: number;
}

interface Parsed {
  readonly seq?: number;
  readonly dur?: number;
  readonly tx?: readonly Operation[];
  readonly seal?: number;
}

/** Reads a log, applying its good part, and judges every line of it. */
export async function scanLog(file: OpenFile, apply: Apply): Promise<LogScan> {
  const scan = new Scan(apply);
  for await (const { bytes, offset } of readChunks(file)) {
    scan.take(bytes, offset);
  }
  return scan.result();
}

class Scan {
  readonly #apply: Apply;
  #header: LogHeader | undefined;
  #seed = 0;
  #seq = 0;
  #end = 0;
  #size = 0;
  #line = 0;
  #sealed = false;
  #unended = false;
  #proven = 0;
  #beyond = 0;
  readonly #bad: BadLine[] = [];
  // Good lines that wait to be parsed together: where each begins, and the
  // number of the first.
  #waiting: number[] = [];
  #waitingLine = 0;

  constructor(apply: Apply) {
    this.#apply = apply;
  }

  result(): LogScan {
    return {
      header: this.#header,
      seq: this.#seq,
      end: this.#end,
      size: this.#size,
      sealed: this.#sealed,
      unended: this.#unended,
      bad: this.#bad,
      proven: this.#proven,
      beyond: this.#beyond,
    };
  }

  take(bytes: Buffer, offset: number): void {
    this.#size = offset + bytes.length;
    for (let begin = 0; begin < bytes.length;) {
      const found = bytes.indexOf(newline, begin);
      const end = found < 0 ? bytes.length : found;
      this.#line++;
      const line = bytes.subarray(begin, end);
      if (this.#line === 1) {
        this.#takeHeader(line, found >= 0);
      } else if (this.#header === undefined) {
        // Without the salt nothing can be judged.
      } else if (checkLine(line, this.#seed)) {
        this.#unended = found < 0;
        if (this.#waiting.length === 0) this.#waitingLine = this.#line;
        this.#waiting.push(begin);
        const first = this.#waiting[0] ?? begin;
        // Behind a bad line each is judged by itself.
        if (end - first >= batchBytes || this.#bad.length > 0) {
          this.#parse(bytes, { offset, end });
        }
      } else {
        this.#parse(bytes, { offset, end: begin - 1 });
        const torn = found < 0 || holdsLostSector(line, {
          at: offset + begin,
          first: this.#bad.length === 0,
        });
        const place = { byte: offset + begin, line: this.#line };
        this.#blame(place, "its checksum does not match", torn);
      }
      begin = end + 1;
    }
    this.#parse(bytes, { offset, end: bytes.length });
  }

  #takeHeader(line: Buffer, ended: boolean): void {
    // Written whole before the file got its name: it cannot be torn.
    if (!ended || !checkLine(line, 0)) {
      const place = { byte: 0, line: 1 };
      this.#blame(place, "its header's checksum does not match", false);
      return;
    }
    this.#header = JSON.parse(line.toString()) as LogHeader;
    refuseNewer(this.#header.format);
    this.#seed = seedOf(this.#header.salt);
    this.#seq = this.#header.seq;
    this.#end = line.length + 1;
  }

  /** Parses the lines that wait; the last ends at `end`. */
  #parse(
    bytes: Buffer,
    part: { readonly offset: number; readonly end: number },
  ): void {
    const begins = this.#waiting;
    const first = begins[0];
    if (first === undefined) return;
    this.#waiting = [];
    const text = bytes.toString("utf8", first, part.end).trimEnd();
    const lines = JSON.parse(
      `[${text.replaceAll("\n", ",")}]`,
    ) as readonly Parsed[];
    lines.forEach((line, index) => {
      const begin = begins[index] ?? 0;
      const end = begins[index + 1] ?? Math.min(part.end + 1, bytes.length);
      this.#judge(line, {
        byte: part.offset + begin,
        line: this.#waitingLine + index,
        end: part.offset + end,
      });
    });
  }

  #judge(line: Parsed, place: Place & { readonly end: number }): void {
    const { seq, dur, tx, seal } = line;
    const sealing = seal !== undefined;
    if (!sealing && (seq === undefined || tx === undefined)) {
      throw new StoreError(
        "format",
        `its line ${place.line} is of a kind that this version does not know`,
      );
    }
    if (this.#bad.length > 0) {
      this.#judgeBeyond(seal ?? seq ?? 0, seal ?? dur ?? 0, place);
      return;
    }
    const expected = this.#seq + 1;
    if (this.#sealed) {
      this.#blame(place, "it follows the line that ends the log", false);
    } else if (sealing && seal !== this.#seq) {
      this.#proven = seal;
      this.#blame(place, `it ends the log at ${seal}, not ${this.#seq}`, false);
    } else if (sealing) {
      this.#sealed = true;
      this.#end = place.end;
    } else if (seq !== expected) {
      this.#proven = dur ?? 0;
      this.#beyond = seq ?? 0;
      this.#blame(place, `its sequence is ${seq}, not ${expected}`, false);
    } else {
      this.#apply(tx ?? [], expected);
      this.#seq = expected;
      this.#end = place.end;
    }
  }

  /** A whole line behind a bad one: honest only with a gap before it. */
  #judgeBeyond(seq: number, durable: number, place: Place): void {
    if (seq <= Math.max(this.#seq + 1, this.#beyond)) {
      this.#blame(place, `its sequence ${seq} is out of order`, false);
    }
    this.#beyond = Math.max(this.#beyond, seq);
    this.#proven = Math.max(this.#proven, durable);
  }

  #blame(place: Place, message: string, torn: boolean): void {
    this.#bad.push({ byte: place.byte, line: place.line, message, torn });
  }
}

/**
 * Whether a 512-byte sector of a bad line is all zeros, so that it never
 * reached the disk. In the first bad line its own part of the sector in which
 * it begins is enough: the earlier part is from the write before.
 */
function holdsLostSector(
  line: Buffer,
  place: { readonly at: number; readonly first: boolean },
): boolean {
  const lead = (sector - place.at % sector) % sector;
  let begin = place.first || lead === 0 ? 0 : lead;
  let end = lead === 0 ? sector : begin === 0 ? lead : lead + sector;
  while (end <= line.length) {
    if (line.subarray(begin, end).every((byte) => byte === 0)) return true;
    begin = end;
    end += sector;
  }
  return false;
}

/** Throws on files of a version that is not known here. */
export function refuseNewer(found: unknown): void {
  if (found === format) return;
  throw new StoreError(
    "format",
    `it has format ${String(found)}; this version knows format ${format}`,
  );
}
