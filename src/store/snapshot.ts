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
import { type Fault, StoreError } from "./error.ts";
import {
  joinLines,
  type Line,
  type OpenFile,
  readLines,
  writeAll,
} from "./files.ts";
import { format, hexadecimal, type LogStart, refuseNewer } from "./log.ts";
import type { Document, Row } from "./row.ts";
import { obtain, type StoredTable, type Tables } from "./table.ts";

/** What a snapshot says before its records. */
export interface SnapshotHead extends LogStart {
  readonly format: number;
  readonly last: Readonly<Record<string, number>>;
  readonly changed: Readonly<Record<string, number>>;
}

/** A table as it was at one moment. */
export interface FrozenTable {
  readonly name: string;
  readonly lastId: number;
  readonly lastSeq: number;
  readonly rows: readonly Row[];
}

// Well under a millisecond of work: nobody waits long for a snapshot.
const sliceLength = 65_536;

/** Takes references to all rows, in one step. */
export function freeze(tables: Tables): FrozenTable[] {
  return Array.from(tables.values(), (table) => ({
    name: table.name,
    lastId: table.lastId,
    lastSeq: table.lastSeq,
    rows: table.rows(),
  }));
}

/** What goes into a snapshot. */
export interface State extends LogStart {
  readonly tables: readonly FrozenTable[];
  /** Looked at between slices: once true, the writing ends with an error. */
  readonly stopped?: () => boolean;
}

/** Writes a snapshot in slices and returns its length. */
export async function writeSnapshot(
  file: OpenFile,
  { tables, stopped, ...start }: State & { readonly at: string },
): Promise<number> {
  let crc = 0;
  let length = 0;
  let text = "";
  const write = async () => {
    if (stopped?.()) throw new StoreError("closed", "the store was closed");
    const bytes = Buffer.from(text);
    text = "";
    crc = crc32(bytes, crc);
    await writeAll(file, bytes, length);
    length += bytes.length;
  };
  const byName = (value: (table: FrozenTable) => number) =>
    Object.fromEntries(tables.map((each) => [each.name, value(each)]));
  const last = byName(({ lastId }) => lastId);
  const changed = byName(({ lastSeq }) => lastSeq);
  const head = JSON.stringify({ format, ...start, last, changed });
  text = `${head.slice(0, -1)},"records":{`;
  let count = 0;
  for (const [index, table] of tables.entries()) {
    text += `${index === 0 ? "" : ","}\n${JSON.stringify(table.name)}:[`;
    for (const [place, { document }] of table.rows.entries()) {
      text += `${place === 0 ? "" : ","}\n${JSON.stringify(document)}`;
      count++;
      if (text.length >= sliceLength) await write();
    }
    text += "\n]";
  }
  text += `\n},"count":${count},`;
  await write();
  text = `"crc":"${hexadecimal(crc)}"}\n`;
  await write();
  return length;
}

/** What reading a snapshot found. */
export class SnapshotScan {
  head: SnapshotHead | undefined;
  count = 0;
  size = 0;
  readonly faults: Fault[] = [];
}

/** Reads a snapshot into tables; with faults, some records may be missing. */
export async function scanSnapshot(
  file: OpenFile,
  name: string,
  tables: Tables,
): Promise<SnapshotScan> {
  const scan = new SnapshotScan();
  let table: StoredTable | undefined;
  let crc = 0;
  let ended = false;
  const blame = (byte: number, line: number, message: string) => {
    scan.faults.push({ file: name, byte, line, message });
  };
  const take = (document: Document) => {
    scan.count++;
    table?.load(document, scan.head?.seq ?? 0);
  };
  // One JSON.parse for many records takes two thirds of the time of one each.
  const takeRecords = (lines: readonly Line[]) => {
    const bytes = joinLines(lines);
    crc = crc32("\n", crc32(bytes, crc));
    const whole = parse(`[${withoutComma(bytes.toString())}]`);
    if (Array.isArray(whole) && whole.length === lines.length) {
      for (const document of whole) take(document);
      return;
    }
    for (const { bytes, byte, line } of lines) {
      const document = parse(withoutComma(bytes.toString()));
      if (document === undefined) blame(byte, line, "it is not a record");
      else take(document as Document);
    }
  };
  const takeHead = (text: string) => {
    const end = ',"records":{';
    const head = parse(`${text.slice(0, -end.length)}}`) as SnapshotHead;
    if (head === undefined || !text.endsWith(end)) return;
    scan.head = head;
    for (const [each, id] of Object.entries(head.last ?? {})) {
      obtain(tables, each).raise(id, head.changed?.[each] ?? 0);
    }
  };
  // What else is wrong in the frame shows in the checksum.
  const takeFrame = ({ bytes, byte, line, ended: whole }: Line) => {
    const text = bytes.toString();
    if (line === 1) takeHead(text);
    if (ended) blame(byte, line, "something follows the last line");
    ended ||= text.startsWith("},");
    if (ended) {
      const counted = `},"count":${scan.count},`;
      const sum = hexadecimal(crc32(counted, crc));
      if (text === `${counted}"crc":"${sum}"}` && whole) return;
      blame(byte, line, "its count or checksum does not fit what is before it");
    } else if (text.endsWith(":[")) {
      const each = parse(text.slice(0, -2));
      if (typeof each === "string") table = obtain(tables, each);
    } else if (line > 1 && text !== "]," && text !== "]") {
      blame(byte, line, "it is not a record");
    }
    crc = crc32("\n", crc32(bytes, crc));
  };
  for await (const lines of readLines(file)) {
    let records: Line[] = [];
    for (const line of lines) {
      scan.size = line.byte + line.bytes.length + 1;
      const record = line.bytes[0] === 0x7b && line.line > 1 && !ended;
      if (record) records.push(line);
      if (!record || line === lines.at(-1)) {
        if (records.length > 0) takeRecords(records);
        records = [];
      }
      if (!record) takeFrame(line);
    }
  }
  if (!ended) blame(scan.size, 0, "it ends before its last line");
  // Only what the checksum holds can be believed to be of a newer format.
  if (scan.head !== undefined && scan.faults.length === 0) {
    refuseNewer(name, scan.head.format);
  }
  return scan;
}

function withoutComma(text: string): string {
  return text.endsWith(",") ? text.slice(0, -1) : text;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
