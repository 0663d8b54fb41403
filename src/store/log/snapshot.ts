/**
 * The snapshot: all records as they were at the start of the log of the same
 * generation. It is a log itself, with lines of several records each between a
 * header and a seal, so the log's reader reads and checks it.
 *
 * ```
 * {"crc":"…","format":2,"store":"…","generation":2,"salt":"…","seq":1234,"at":"…","last":{"zoos":[12,1200]}}
 * {"crc":"…","parts":1,"of":"zoos","rows":[{"id":1,…},{"id":4,…}]}
 * {"crc":"…","parts":1,"seal":1234,"at":"…"}
 * ```
 *
 * `last` holds, for each table, the highest id ever assigned and the sequence
 * number of its last change. The file gets its name only once all of it is on
 * the disk, so a snapshot is never torn: any fault in it is damage.
 */

import { Buffer } from "node:buffer";
import { closedError } from "../error.ts";
import { type OpenFile, writeAll } from "./files.ts";
import { encodeHeader, encodeLine, type LogStart } from "./format.ts";
import type { Row } from "../memory/row.ts";
import type { Tables } from "../memory/table.ts";

/** A table as it was at one moment. */
interface FrozenTable {
  readonly name: string;
  readonly last: readonly [id: number, seq: number];
  readonly rows: readonly Row[];
}

// A repair loses all of a damaged line. Each takes well under a millisecond.
const lineChars = 8192;
const linesPerWrite = 16;

/** References all rows of this moment, in one step. */
export function freezeTables(tables: Tables): FrozenTable[] {
  return Array.from(tables.values(), (table) => ({
    name: table.name,
    last: [table.lastId, table.lastSeq],
    rows: table.rows(),
  }));
}

/** The state that a snapshot holds. */
export interface StoreState extends LogStart {
  readonly tables: readonly FrozenTable[];
  /** Checked between writes: once it returns true, writing ends with an error. */
  readonly isStopped?: () => boolean;
}

/** Writes a snapshot in small slices, and returns its length. */
export async function writeSnapshot(
  file: OpenFile,
  { tables, isStopped, ...start }: StoreState & {
    readonly at: string;
    readonly salt: string;
  },
): Promise<number> {
  let length = 0;
  let parts = 0;
  let waiting: Uint8Array[] = [];
  const write = async () => {
    if (isStopped?.()) throw closedError();
    const bytes = Buffer.concat(waiting);
    waiting = [];
    await writeAll(file, bytes, length);
    length += bytes.length;
  };
  const last = Object.fromEntries(tables.map(({ name, last }) => [name, last]));
  const { line, seed } = encodeHeader({ ...start, last });
  waiting.push(line);
  for (const { name, rows } of tables) {
    let text = "";
    for (const [at, { document }] of rows.entries()) {
      text += (text && ",") + JSON.stringify(document);
      if (text.length < lineChars && at < rows.length - 1) continue;
      const part = `"parts":${++parts},"of":${JSON.stringify(name)}`;
      waiting.push(encodeLine(`${part},"rows":[${text}]}`, seed));
      text = "";
      if (waiting.length === linesPerWrite) await write();
    }
  }
  const { seq, at } = start;
  const seal = `"parts":${parts},"seal":${seq},"at":"${at}"}`;
  waiting.push(encodeLine(seal, seed));
  await write();
  return length;
}
