/**
 * The mark: how far the log was known to be on the disk, and whether the last
 * stop was clean. It is never needed to start; it makes a loss at the very end
 * of the log provable, and tells when the log need not be copied.
 *
 * The file has two slots of 512 bytes, written in turn, each one line of JSON
 * that a sector holds: a torn write leaves the other slot as it was.
 */

import { Buffer } from "node:buffer";
import { join } from "node:path";
import {
  type FileSystem,
  type OpenFile,
  readSmall,
  writeAll,
} from "./files.ts";
import { checkLine, encodeLine } from "./log.ts";

/** What a slot says. */
export interface Mark {
  readonly store: string;
  /** Counts the marks; the highest counts. */
  readonly turn: number;
  readonly generation: number;
  /** The highest sequence that was on the disk. */
  readonly seq: number;
  /** Where its line ended in the log. */
  readonly offset: number;
  /** Whether the store was closed behind it. */
  readonly clean: boolean;
}

const slotLength = 512;
const fileName = "mark";

/** Reads the newer of the two slots, if either is whole. */
export async function readMark(
  files: FileSystem,
  folder: string,
): Promise<Mark | undefined> {
  const bytes = await readSmall(files, folder, fileName);
  if (bytes === undefined) return undefined;
  const slots = [0, slotLength].flatMap((begin) => {
    const slot = bytes.subarray(begin, begin + slotLength);
    const line = slot.subarray(0, -1);
    const whole = slot.length === slotLength && checkLine(line, 0);
    return whole ? [JSON.parse(line.toString()) as Mark] : [];
  });
  return slots.sort((one, other) => other.turn - one.turn)[0];
}

/** Opens the mark for writing, making it when it is missing. */
export async function openMark(
  files: FileSystem,
  folder: string,
): Promise<OpenFile> {
  const path = join(folder, fileName);
  const names = await files.list(folder);
  if (names.includes(fileName)) return await files.open(path, "write");
  const file = await files.open(path, "create");
  // Both slots take their space now, so that a full disk does not stop them.
  await writeAll(file, Buffer.alloc(2 * slotLength, " "), 0);
  return file;
}

/** Writes a mark into its slot and onto the disk. */
export async function writeMark(file: OpenFile, mark: Mark): Promise<void> {
  const rest = JSON.stringify(mark).slice(1);
  // 18 bytes of CRC before, a newline behind.
  const line = encodeLine(rest.padEnd(slotLength - 19), 0);
  await writeAll(file, line, (mark.turn % 2) * slotLength);
  await file.sync();
}
