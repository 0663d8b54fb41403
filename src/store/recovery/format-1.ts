/**
 * Reads a snapshot of format 1, so that a store written by an earlier version
 * can be upgraded. It is one JSON document with one record per line; the CRC
 * covers every byte before `"crc"`. (A log of format 1 differs from today's
 * only in the name of one property, so the log's reader reads it.)
 *
 * ```
 * {"format":1,"store":"…","generation":2,"seq":1234,"at":"…","last":{"zoos":12},"changed":{"zoos":1200},"records":{
 * "zoos":[
 * {"id":1,…},
 * {"id":4,…}
 * ]
 * },"count":2,"crc":"abcdef01"}
 * ```
 */

import { crc32 } from "node:zlib";
import { type OpenFile, readLines } from "../log/files.ts";
import {
  type ApplyLine,
  formatCrc,
  type LogHeader,
  LogScan,
} from "../log/format.ts";

/** Reads the snapshot as if it were a log: with a header, records and a seal. */
export async function scanFormat1Snapshot(
  file: OpenFile,
  name: string,
  apply: ApplyLine,
): Promise<LogScan> {
  const scan = new LogScan(name);
  let crc = 0;
  let count = 0;
  let of = "";
  for await (const lines of readLines(file)) {
    for (const line of lines) {
      const text = line.bytes.toString();
      const footer = `},"count":${count},`;
      scan.size = line.end;
      scan.isSealed = line.hasNewline && text.startsWith(footer) &&
        text === `${footer}"crc":"${formatCrc(crc32(footer, crc))}"}`;
      try {
        if (line.line === 1) scan.header = readHeader(text);
        else if (text.startsWith("{")) {
          count++;
          const document = JSON.parse(text.replace(/,$/, ""));
          apply({ of, rows: [document] }, scan.header?.seq ?? 0);
        } else if (text.endsWith(":[")) of = JSON.parse(text.slice(0, -2));
      } catch {
        scan.addFault(line, "it is not a record");
      }
      crc = crc32("\n", crc32(line.bytes, crc));
    }
  }
  scan.seq = scan.highestSeq = scan.header?.seq ?? 0;
  return scan;
}

function readHeader(text: string): LogHeader {
  const { last, changed, ...start } = JSON.parse(text.replace(/,[^,]*$/, "}"));
  const counters = Object.entries(last)
    .map(([name, id]) => [name, [id, changed[name]]]);
  return { ...start, salt: "", last: Object.fromEntries(counters) };
}
