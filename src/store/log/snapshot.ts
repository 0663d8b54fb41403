/**
 * The snapshot: all records at the start of the log of the same generation. It
 * is a log too, of lines with some records each, between a header and a seal:
 * what reads and judges the one reads and judges the other.
 *
 * ```
 * {"crc":"…","format":1,"store":"…","generation":2,"salt":"…","seq":1234,"at":"…","last":{"zoos":[12,1200]}}
 * {"crc":"…","parts":1,"of":"zoos","rows":[{"id":1,…},{"id":4,…}]}
 * {"crc":"…","parts":1,"seal":1234,"at":"…"}
 * ```
 *
 * `last` has the highest id ever given in each table, and the sequence of its
 * last change. The file gets its name only when all of it is on the disk, so a
 * snapshot is never torn: any fault in it is damage.
 */

import { Buffer } from "node:buffer";
import { StoreError } from "../error.ts";
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

// What damage takes along in a repair; and well under a millisecond of work.
const lineLength = 8192;

/** How many lines are written at once. */
const atOnce = 16;

/** Takes references to all rows, in one step. */
export function freezeTables(tables: Tables): FrozenTable[] {
  return Array.from(tables.values(), (table) => ({
    name: table.name,
    last: [table.lastId, table.lastSeq],
    rows: table.rows(),
  }));
}

/** What goes into a snapshot. */
export interface StoreState extends LogStart {
  readonly tables: readonly FrozenTable[];
  /** Looked at between slices: once true, the writing ends with an error. */
  readonly stopped?: () => boolean;
}

/** Writes a snapshot in slices and returns its length. */
export async function writeSnapshot(
  file: OpenFile,
  { tables, stopped, ...start }: StoreState & {
    readonly at: string;
    readonly salt: string;
  },
): Promise<number> {
  let length = 0;
  let parts = 0;
  let waiting: Uint8Array[] = [];
  const write = async (line: Uint8Array, most = atOnce) => {
    if (waiting.push(line) < most) return;
    if (stopped?.()) throw new StoreError("closed", "the store was closed");
    const bytes = Buffer.concat(waiting);
    waiting = [];
    await writeAll(file, bytes, length);
    length += bytes.length;
  };
  const last = Object.fromEntries(tables.map(({ name, last }) => [name, last]));
  const { line, seed } = encodeHeader({ ...start, last });
  await write(line);
  for (const { name, rows } of tables) {
    let text = "";
    for (const [at, { document }] of rows.entries()) {
      text += (text && ",") + JSON.stringify(document);
      if (text.length < lineLength && at < rows.length - 1) continue;
      const part = `"parts":${++parts},"of":${JSON.stringify(name)}`;
      await write(encodeLine(`${part},"rows":[${text}]}`, seed));
      text = "";
    }
  }
  const { seq, at } = start;
  const seal = `"parts":${parts},"seal":${seq},"at":"${at}"}`;
  await write(encodeLine(seal, seed), 1);
  return length;
}
