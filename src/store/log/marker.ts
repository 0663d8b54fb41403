/**
 * The marker: how much of the log was known to be on the disk, and whether the
 * last stop was clean. Startup does not need it, but can use it to prove that
 * the end of the log was lost, and to see that the log need not be copied.
 *
 * The file has two slots of 512 bytes, written in turn. Each is one line of
 * JSON that fits in a sector: a torn write leaves the other slot as it was.
 */

import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { errorText } from "../error.ts";
import type { Logger } from "../options.ts";
import {
  type FileSystem,
  type OpenFile,
  readSmallFile,
  writeAll,
  writeSmallFile,
} from "./files.ts";
import { checkLine, encodeLine } from "./format.ts";
import type { LogWriter } from "./writer.ts";

/** The contents of a slot. */
export interface DurabilityMarker {
  readonly store: string;
  /** Counts the writes: the slot with the higher number is the newer one. */
  readonly turn: number;
  readonly generation: number;
  /** The highest sequence number that was on the disk. */
  readonly seq: number;
  /** The end of its line in the log. */
  readonly offset: number;
  /** True if the store was closed after it. */
  readonly clean: boolean;
}

const slotBytes = 512;
/**
 * For up to this many delays, each write to the log postpones the marker, which
 * wears the disk as much as a record does.
 */
const maxDelays = 3;
const fileName = "mark";

/** Returns the newer of the two slots, if one of them can be read. */
export async function readMarker(
  files: FileSystem,
  folder: string,
): Promise<DurabilityMarker | undefined> {
  // An unreadable marker proves nothing, and is not needed.
  const bytes = await readSmallFile(files, folder, fileName).catch(() => {});
  const markers = [0, slotBytes].flatMap((start): DurabilityMarker[] => {
    const line = bytes?.subarray(start, start + slotBytes - 1);
    return line && checkLine(line) ? [JSON.parse(line.toString())] : [];
  });
  return markers.sort((one, other) => other.turn - one.turn)[0];
}

/**
 * Opens the marker for writing. A new one gets the space of both slots, so that
 * a stop on a full disk can be clean too.
 */
export async function openMarker(
  files: FileSystem,
  folder: string,
): Promise<OpenFile> {
  const path = join(folder, fileName);
  if (!(await files.list(folder)).includes(fileName)) {
    await writeSmallFile(files, path, " ".repeat(2 * slotBytes));
  }
  return await files.open(path, "write");
}

/** The content of the marker, and how late it may be written. */
interface MarkerOptions {
  readonly store: string;
  /** The turn of the last marker. */
  readonly turn: number;
  /** How long after the last change it is written. */
  readonly delayMs: number;
  /** The writer of the log that the marker describes. */
  readonly writer: LogWriter;
  readonly log: Logger;
}

export type MarkerWriter = ReturnType<typeof writeMarker>;

/** Updates the marker after writes; a failure is logged and does no harm. */
export function writeMarker(
  file: OpenFile,
  { store, turn, delayMs, writer, log }: MarkerOptions,
) {
  let timer: NodeJS.Timeout | undefined;
  let touchedAt = 0;
  let writing = Promise.resolve();

  async function write(clean: boolean): Promise<void> {
    turn++;
    const { queue: { durableSeq: seq }, log: { generation, offset } } = writer;
    const marker = { store, turn, generation, seq, offset, clean };
    // 18 bytes of CRC come before it and a newline after it.
    const text = JSON.stringify(marker).slice(1).padEnd(slotBytes - 19);
    try {
      await writeAll(file, encodeLine(text), turn % 2 * slotBytes);
      await file.datasync();
    } catch (error) {
      log("error", `Cannot write the marker: ${errorText(error)}`);
    }
  }

  return {
    /**
     * Schedules a write after more of the log became durable: soon, but seldom
     * under load, when each line proves that those before it are on the disk.
     */
    touch(): void {
      const now = performance.now();
      if (timer !== undefined) {
        if (now - touchedAt < maxDelays * delayMs) timer.refresh();
        return;
      }
      touchedAt = now;
      timer = setTimeout(() => {
        timer = undefined;
        writing = writing.then(() => write(false));
      }, delayMs).unref();
    },
    /** Writes the marker a last time and closes the file. */
    async close(clean: boolean): Promise<void> {
      clearTimeout(timer);
      await writing;
      await write(clean);
      await file.close();
    },
  };
}
