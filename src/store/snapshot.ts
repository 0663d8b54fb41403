/**
 * The snapshot: all records at the start of the log of the same generation, as
 * one JSON document with a record a line.
 *
 * ```
 * {"format":1,"store":"…","generation":2,"seq":1234,"at":"…","last":{"zoos":12},"changed":{"zoos":1200},"records":{
 * "zoos":[
 * {"id":1,…},
 * {"id":4,…}
 * ]
 * },"count":2,"crc":"abcdef01"}
 * ```
 *
 * `last` has the highest id ever given in each table, `changed` the sequence
 * of its last change. The CRC covers every byte before `"crc"` of the last
 * line. The file gets its name only when all of it is on the disk, so a
 * snapshot is never torn: any fault in it is damage.
 */

import { Buffer } from "node:buffer";
import { crc32 } from "node:zlib";
import type { Fault } from "./error.ts";
import { type OpenFile, readChunks, writeAll } from "./files.ts";
import { format, hexadecimal, refuseNewer } from "./log.ts";
import type { Document, Row, StoredTable, Tables } from "./table.ts";

/** What a snapshot says besides its records. */
export interface SnapshotHead {
  readonly store: string;
  readonly generation: number;
  readonly seq: number;
  readonly at: string;
}

/** A table as it was at one moment. */
export interface FrozenTable {
  readonly name: string;
  readonly lastId: number;
  readonly lastSeq: number;
  readonly rows: readonly Row[];
}

// About a millisecond of work: nobody waits longer for a snapshot.
const sliceLength = 131_072;
// Records are parsed by batches: one JSON.parse a record takes a third longer.
const batchBytes = 65_536;
const newline = 0x0a;
const brace = 0x7b; // {

/** Takes references to all rows, in one step. */
export function freeze(tables: Tables): FrozenTable[] {
  return Array.from(tables, (table) => ({
    name: table.name,
    lastId: table.lastId,
    lastSeq: table.lastSeq,
    rows: [...table.rows()],
  }));
}

/** Writes a snapshot in slices and returns its length. */
export async function writeSnapshot(
  file: OpenFile,
  head: SnapshotHead,
  tables: readonly FrozenTable[],
): Promise<number> {
  let crc = 0;
  let position = 0;
  const write = async (text: string) => {
    const bytes = Buffer.from(text);
    crc = crc32(bytes, crc);
    await writeAll(file, bytes, position);
    position += bytes.length;
  };
  let text = `${
    JSON.stringify({
      format,
      ...head,
      last: Object.fromEntries(tables.map((each) => [each.name, each.lastId])),
      changed: Object.fromEntries(
        tables.map((each) => [each.name, each.lastSeq]),
      ),
    }).slice(0, -1)
  },"records":{\n`;
  let count = 0;
  for (const [index, table] of tables.entries()) {
    text += `${JSON.stringify(table.name)}:[\n`;
    for (const [place, row] of table.rows.entries()) {
      const comma = place < table.rows.length - 1 ? "," : "";
      text += `${JSON.stringify(row.document)}${comma}\n`;
      if (text.length >= sliceLength) {
        await write(text);
        text = "";
      }
    }
    count += table.rows.length;
    text += index < tables.length - 1 ? "],\n" : "]\n";
  }
  await write(`${text}},"count":${count},`);
  await write(`"crc":"${hexadecimal(crc)}"}\n`);
  return position;
}

/** What reading a snapshot found. */
export interface SnapshotScan {
  readonly head: SnapshotHead | undefined;
  readonly count: number;
  readonly size: number;
  readonly faults: readonly Fault[];
}

/** Reads a snapshot into tables. With faults, what was read may be too little. */
export async function readSnapshot(
  file: OpenFile,
  name: string,
  tables: Tables,
): Promise<SnapshotScan> {
  const scan = new Scan(name, tables);
  for await (const { bytes, offset } of readChunks(file)) {
    scan.take(bytes, offset);
  }
  return scan.result();
}

interface Head extends SnapshotHead {
  readonly format: number;
  readonly last: Readonly<Record<string, number>>;
  readonly changed: Readonly<Record<string, number>>;
}

class Scan {
  readonly #name: string;
  readonly #tables: Tables;
  readonly #faults: Fault[] = [];
  #head: Head | undefined;
  #table: StoredTable | undefined;
  #crc = 0;
  #count = 0;
  #size = 0;
  #line = 0;
  #ended = false;

  constructor(name: string, tables: Tables) {
    this.#name = name;
    this.#tables = tables;
  }

  result(): SnapshotScan {
    if (!this.#ended) this.#blame(this.#size, "it ends too early");
    return {
      head: this.#head,
      count: this.#count,
      size: this.#size,
      faults: this.#faults,
    };
  }

  take(bytes: Buffer, offset: number): void {
    this.#size = offset + bytes.length;
    let summed = 0;
    // Where the records that wait to be parsed begin; -1 when none do.
    let first = -1;
    const flush = (end: number) => {
      if (first >= 0) this.#parse(bytes.subarray(first, end), offset + first);
      first = -1;
    };
    for (let begin = 0; begin < bytes.length;) {
      const found = bytes.indexOf(newline, begin);
      const end = found < 0 ? bytes.length : found + 1;
      if (bytes[begin] === brace && this.#line > 0) {
        if (first < 0) first = begin;
        this.#line++;
        if (end - first >= batchBytes) flush(end);
      } else {
        flush(begin);
        this.#line++;
        const text = bytes.toString("utf8", begin, end);
        const mark = text.indexOf('"crc":');
        if (text.startsWith("}") && mark >= 0) {
          const covered = begin + Buffer.byteLength(text.slice(0, mark));
          this.#crc = crc32(bytes.subarray(summed, covered), this.#crc);
          summed = bytes.length;
          this.#takeLast(text, offset + begin);
        } else {
          this.#takeFrame(text, offset + begin);
        }
      }
      begin = end;
    }
    flush(bytes.length);
    this.#crc = crc32(bytes.subarray(summed), this.#crc);
  }

  /** A line that opens or closes something. */
  #takeFrame(text: string, byte: number): void {
    if (this.#ended) {
      this.#blame(byte, "something follows its last line");
    } else if (this.#line === 1) {
      this.#takeHead(text, byte);
    } else if (text.startsWith('"') && text.endsWith(":[\n")) {
      const name = parse(text.slice(0, -3));
      if (typeof name === "string") this.#table = this.#tables.obtain(name);
      else this.#blame(byte, "it names no table");
    } else if (text !== "],\n" && text !== "]\n") {
      this.#blame(byte, "it is neither a record nor a part of the frame");
    }
  }

  #takeHead(text: string, byte: number): void {
    const end = ',"records":{\n';
    const head = text.endsWith(end)
      ? parse(`${text.slice(0, -end.length)}}`) as Head | undefined
      : undefined;
    if (head === undefined) {
      this.#blame(byte, "its first line is not that of a snapshot");
      return;
    }
    refuseNewer(head.format);
    this.#head = head;
    for (const [name, id] of Object.entries(head.last ?? {})) {
      this.#tables.obtain(name).raise(id, head.changed?.[name] ?? 0);
    }
  }

  #takeLast(text: string, byte: number): void {
    if (this.#ended) this.#blame(byte, "something follows its last line");
    this.#ended = true;
    const expected = `},"count":${this.#count},"crc":"${
      hexadecimal(this.#crc)
    }"}\n`;
    if (text === expected) return;
    const counted = text.startsWith(`},"count":${this.#count},`);
    this.#blame(
      byte,
      counted
        ? "the checksum over all before it does not match"
        : `it does not tell the ${this.#count} records before it`,
    );
  }

  #parse(bytes: Buffer, offset: number): void {
    const text = bytes.toString("utf8").trimEnd();
    const whole = text.endsWith(",") ? text.slice(0, -1) : text;
    const batch = parse(`[${whole}]`) as readonly Document[] | undefined;
    if (batch !== undefined) {
      for (const document of batch) this.#put(document);
      return;
    }
    // Something in the batch is damaged: find out what.
    const lines = text.split("\n");
    let at = offset;
    let line = this.#line - lines.length;
    for (const each of lines) {
      line++;
      const document = parse(each.replace(/,$/, "")) as Document | undefined;
      if (document !== undefined) this.#put(document);
      else this.#faults.push(this.#fault(at, line, "it is not a record"));
      at += Buffer.byteLength(each) + 1;
    }
  }

  #put(document: Document): void {
    const seq = this.#head?.seq ?? 0;
    this.#count++;
    // The table's own numbers are those of the head: a put must not raise them.
    this.#table?.load(document, seq);
  }

  #blame(byte: number, message: string): void {
    this.#faults.push(this.#fault(byte, this.#line, message));
  }

  #fault(byte: number, line: number, message: string): Fault {
    return { file: this.#name, byte, line, message };
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
