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
import { errorText } from "../error.ts";
import type { Logger } from "../options.ts";
import {
  type FileSystem,
  type OpenFile,
  readSmallFile,
  writeAll,
  writeAtomically,
} from "./files.ts";
import { checkLine, encodeLine } from "./format.ts";

/** What a slot says. */
export interface DurabilityMarker {
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
export async function readMarker(
  files: FileSystem,
  folder: string,
): Promise<DurabilityMarker | undefined> {
  // It is never needed: one that cannot be read proves nothing.
  const bytes = await readSmallFile(files, folder, fileName).catch(() => {}) ??
    Buffer.alloc(0);
  const marks = [0, slotLength].flatMap((begin) => {
    const line = bytes.subarray(begin, begin + slotLength - 1);
    return checkLine(line)
      ? [JSON.parse(line.toString()) as DurabilityMarker]
      : [];
  });
  return marks.sort((one, other) => other.turn - one.turn)[0];
}

/** Opens the mark for writing; both slots take their space when it is made. */
export async function openMarker(
  files: FileSystem,
  folder: string,
): Promise<OpenFile> {
  const path = join(folder, fileName);
  if (!(await files.list(folder)).includes(fileName)) {
    const blank = Buffer.alloc(2 * slotLength, " ");
    await writeAtomically(files, path, (file) => writeAll(file, blank, 0));
  }
  return await files.open(path, "write");
}

/** What the keeper of the mark must be told. */
export interface MarkerOptions {
  readonly store: string;
  /** The turn of the last mark that was read. */
  readonly turn: number;
  /** How long after a change it is written, in milliseconds. */
  readonly delayMs: number;
  /** How far the log is on the disk. */
  readonly position: () => Pick<
    DurabilityMarker,
    "generation" | "seq" | "offset"
  >;
  readonly log: Logger;
}

/** Writes the mark now and then; a failure is told and does no harm. */
export class MarkerWriter {
  readonly #file: OpenFile;
  readonly #options: MarkerOptions;
  #turn: number;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();

  constructor(file: OpenFile, options: MarkerOptions) {
    this.#file = file;
    this.#options = options;
    this.#turn = options.turn;
  }

  /** More is on the disk. */
  touch(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#writing = this.#writing.then(() => this.#write(false));
    }, this.#options.delayMs).unref();
  }

  /** Writes the last mark. */
  async close(clean: boolean): Promise<void> {
    clearTimeout(this.#timer);
    await this.#writing;
    await this.#write(clean);
    await this.#file.close();
  }

  async #write(clean: boolean): Promise<void> {
    const { store, position, log } = this.#options;
    const turn = ++this.#turn;
    const mark: DurabilityMarker = { store, turn, ...position(), clean };
    // 18 bytes of CRC come before it, a newline behind.
    const rest = JSON.stringify(mark).slice(1).padEnd(slotLength - 19);
    try {
      await writeAll(this.#file, encodeLine(rest), (turn % 2) * slotLength);
      await this.#file.datasync();
    } catch (error) {
      log("error", `Cannot write the mark: ${errorText(error)}`);
    }
  }
}
