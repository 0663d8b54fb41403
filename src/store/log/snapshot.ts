/**
 * The snapshot: all records as they were at the start of the log of the same
 * generation. It is a log itself, with lines of several records each between a
 * header and a seal, so the log's reader reads and checks it.
 *
 * ```
 * {"crc":"…","format":3,"store":"…","generation":2,"salt":"…","seq":1234,"at":"…","last":{"zoos":[12,1200]}}
 * {"crc":"…","parts":1,"of":"zoos","rows":[{"id":1,…},{"id":4,…}]}
 * {"crc":"…","parts":1,"seal":1234,"at":"…"}
 * ```
 *
 * `last` holds, for each table, the highest id ever assigned and the sequence
 * number of its last change. The file gets its name only once all of it is on
 * the disk, so a snapshot is never torn: any fault in it is damage.
 */

import type { Buffer } from "node:buffer";
import { join } from "node:path";
import { writeAll, writeAtomically } from "./files.ts";
import { names, randomName, type StoreFolder } from "./folder.ts";
import {
  encodeHeader,
  encodeLine,
  formatTime,
  type LogStart,
} from "./format.ts";
import type { Row } from "../memory/row.ts";
import type { Tables } from "../memory/table.ts";

// A repair loses all of a damaged line. Each takes well under a millisecond.
const lineChars = 32_768;

/** Returns the tables as they are at this moment: the highest id, the last sequence number, and the rows. */
export function freezeTables(tables: Tables) {
  return Array.from(tables.values(), (table) => ({
    name: table.name,
    last: [table.lastId, table.lastSeq] as const,
    rows: table.frozen(),
  }));
}

/** The state that a snapshot holds. */
interface StoreState extends LogStart {
  readonly tables: ReturnType<typeof freezeTables>;
  /** Ends the writing with an error, once it is aborted. */
  readonly signal?: AbortSignal;
}

/** Writes a snapshot durably, line by line, and returns its length. */
export async function saveSnapshot(
  place: StoreFolder,
  { signal, ...state }: StoreState,
): Promise<number> {
  const { files, folder } = place;
  const path = join(folder, names.snapshot(state.generation));
  let length = 0;
  await writeAtomically(files, path, async (file) => {
    for (const line of encodeSnapshot(place, state)) {
      signal?.throwIfAborted();
      await writeAll(file, line, length);
      length += line.length;
    }
  });
  return length;
}

/** Encodes a snapshot line by line. */
export function* encodeSnapshot(
  place: StoreFolder,
  { tables, ...start }: StoreState,
): Generator<Buffer> {
  const salt = randomName(place);
  const at = formatTime(place.now());
  const last = Object.fromEntries(tables.map(({ name, last }) => [name, last]));
  const { line, seed } = encodeHeader({ ...start, at, salt, last });
  yield line;
  let parts = 0;
  for (const { name, rows } of tables) {
    for (const text of encodeLines(rows)) {
      const part = `"parts":${++parts},"of":${JSON.stringify(name)}`;
      yield encodeLine(`${part},"rows":[${text}]}`, seed);
    }
  }
  yield encodeLine(`"parts":${parts},"seal":${start.seq},"at":"${at}"}`, seed);
}

/** Yields the records of each line as JSON. */
function* encodeLines(rows: Iterable<Row>): Generator<string> {
  let text = "";
  for (const { document } of rows) {
    text += (text && ",") + JSON.stringify(document);
    if (text.length < lineChars) continue;
    yield text;
    text = "";
  }
  if (text !== "") yield text;
}
