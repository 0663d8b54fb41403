/**
 * The marker: how much of the log was known to be on the disk, and whether the
 * last stop was clean. Startup does not need it, but can use it to prove that
 * the end of the log was lost, and to see that the log need not be copied. The
 * feature marker and the commands have it; a store that is opened without it
 * leaves it as it is.
 *
 * The file has two slots of 512 bytes, written in turn. Each is one line of
 * JSON that fits in a sector: a torn write leaves the other slot as it was.
 */

import { join } from "node:path";
import { errorText } from "../error.ts";
import type { Logger, StoreLimits } from "../options.ts";
import { cutZeros } from "./append.ts";
import {
  type FileSystem,
  readSmallFile,
  withFile,
  writeAll,
  writeSmallFile,
} from "./files.ts";
import type { StoreFolder } from "./folder.ts";
import { checkLine, encodeLine, type LogScan } from "./format.ts";
import { refuseFolderOfEtcd } from "./identity.ts";
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
const fileName = "mark";

/**
 * Returns the newer of the two slots, if one of them can be read.
 *
 * @throws {StoreError} not-empty if the store of the folder is in etcd
 */
export async function readMarker(
  files: FileSystem,
  folder: string,
): Promise<DurabilityMarker | undefined> {
  // An unreadable marker proves nothing, and is not needed.
  const bytes = await readSmallFile(files, folder, fileName).catch(
    () => {},
  );
  await refuseFolderOfEtcd(files, folder);
  const markers = [0, slotBytes].flatMap((start): DurabilityMarker[] => {
    const line = bytes?.subarray(start, start + slotBytes - 1);
    return line && checkLine(line) ? [JSON.parse(line.toString())] : [];
  });
  return markers.sort((one, other) => other.turn - one.turn)[0];
}

/** A folder that was read: its last log, and the marker beside it. */
interface MarkedLog {
  readonly fileNames: readonly string[];
  readonly storeId: string;
  readonly generation: number;
  readonly seq: number;
  readonly log: LogScan;
  readonly marker: DurabilityMarker | undefined;
}

/** Returns whether the last stop left the whole log on the disk. */
export function isClean(
  { log, marker, storeId, generation, seq }: MarkedLog,
): boolean {
  return marker?.clean === true && marker.store === storeId &&
    marker.generation === generation && marker.seq === seq &&
    marker.offset === log.end && marker.offset === log.size && !log.isPadded;
}

/** The parts of an open store that the marker needs. */
interface MarkerContext {
  readonly folder: StoreFolder;
  readonly limits: StoreLimits;
  readonly log: Logger;
  readonly scan: MarkedLog;
}

/**
 * Prepares the marker for writing. A new one gets the space of both slots, so
 * that a stop on a full disk can be clean too.
 */
export async function openMarker(
  context: MarkerContext,
): Promise<MarkerWriter> {
  const { folder: { files, folder }, scan } = context;
  const path = join(folder, fileName);
  if (!scan.fileNames.includes(fileName)) {
    await writeSmallFile(files, path, " ".repeat(2 * slotBytes));
  }
  // Something else, such as a link, is refused now.
  await withFile(files, path, (file) => file.stat(), "write");
  return new MarkerWriter(context);
}

/** Updates the marker after writes; a failure is logged and does no harm. */
export class MarkerWriter {
  readonly #context: MarkerContext;
  #turn: number;
  #timer: NodeJS.Timeout | undefined;
  #writing = Promise.resolve();

  constructor(context: MarkerContext) {
    this.#context = context;
    this.#turn = context.scan.marker?.turn ?? 0;
  }

  async #write(writer: LogWriter, clean: boolean): Promise<void> {
    const { folder: { files, folder }, log, scan } = this.#context;
    const turn = ++this.#turn;
    const { queue: { durableSeq: seq }, log: { generation, offset } } = writer;
    const store = scan.storeId;
    const marker = { store, turn, generation, seq, offset, clean };
    // 18 bytes of CRC come before it and a newline after it.
    const text = JSON.stringify(marker).slice(1).padEnd(slotBytes - 19);
    try {
      await withFile(files, join(folder, fileName), async (file) => {
        await writeAll(file, encodeLine(text), turn % 2 * slotBytes);
        await file.datasync();
      }, "write");
    } catch (error) {
      log("error", `Cannot write the marker: ${errorText(error)}`);
    }
  }

  /**
   * Schedules a write after more of the log became durable. Not at once, as it
   * wears the disk as much as a record does.
   */
  touch(writer: LogWriter): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#writing = this.#writing.then(() => this.#write(writer, false));
    }, this.#context.limits.markerDelayMs).unref();
  }

  /** Writes the marker a last time, before an idle log is closed: clean if all of it, and nothing else, is on the disk. */
  async close(writer: LogWriter): Promise<void> {
    clearTimeout(this.#timer);
    await this.#writing;
    const { fault, log } = writer;
    const isWhole = fault === undefined &&
      await cutZeros(log).then(() => true, () => false);
    await this.#write(writer, isWhole);
  }
}
