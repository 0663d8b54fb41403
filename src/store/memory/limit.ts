/**
 * The end of the memory. All records are in V8's heap, and V8 ends the process
 * if that overflows, so the store refuses to grow before.
 *
 * The memory in use is what the collector found alive the last time it examined
 * all of the heap, plus the records stored since, less those deleted since. So
 * whatever is stored beside the records counts too: indexes, cached texts,
 * requests in progress. The limit leaves room for young objects, and an eighth of
 * the rest: with less the collector takes most of the time, until V8 gives up. Of
 * the limit,
 *
 * - 7/8 are for all changes. Beyond that the memory is full: a transaction that
 *   makes the records larger is refused, until 1/64 is free again;
 * - another 1/64 is for sign-ins, without which nobody could delete;
 * - the rest is for requests.
 */

import { totalmem } from "node:os";
import { constants, PerformanceObserver } from "node:perf_hooks";
import process from "node:process";
import { getHeapSpaceStatistics, getHeapStatistics } from "node:v8";
import { StoreError } from "../error.ts";
import type { Json, Row } from "./row.ts";

const mebibyte = 1 << 20;

/** The smallest heap that a server starts with. */
const minHeapBytes = 64 * mebibyte;

/** The room for young objects: if all of them could not become old ones, each collection would examine the whole heap. */
const youngBytes = 24 * mebibyte;

/**
 * The memory that the process takes besides V8's heap: the program, its threads, two
 * password hashes, and the bodies and responses of 64 busy connections.
 */
const processBytes = 96 * mebibyte;

/** Returns the most that V8 lets its long-lived objects take: the option of Node.js, or a default. */
function maxOldSpaceBytes(): number {
  const flags = [process.env["NODE_OPTIONS"], ...process.execArgv].join(" ");
  const option =
    /--max[-_]old[-_]space[-_]size([-_]percentage)?=([\d.]+)(?!\S)/g;
  const [, percentage, value] = [...flags.matchAll(option)].at(-1) ?? [];
  if (percentage) return totalBytes() * Number(value) / 100;
  if (value) return Number(value) * mebibyte;
  // Without the option, up to a twelfth of V8's limit is for young objects.
  return getHeapStatistics().heap_size_limit / 12 * 11;
}

/** Returns the memory of the machine or of the control group. */
function totalBytes(): number {
  return Math.min(process.constrainedMemory() || Infinity, totalmem());
}

/**
 * Returns the size of the heap: V8's own limit, or what the machine or its
 * control group leaves. V8 does not know the latter, and can let garbage grow
 * beyond it by as much as its own limit is higher. So that much less is left.
 */
export function heapBytes(
  oldSpaceBytes = maxOldSpaceBytes(),
  memoryBytes = totalBytes(),
): number {
  const room = memoryBytes - processBytes;
  return Math.min(oldSpaceBytes, 2 * room - oldSpaceBytes);
}

/** Throws if a server cannot run with the heap that it has. */
export function requireHeap(bytes = heapBytes()): void {
  if (bytes >= minHeapBytes) return;
  throw new StoreError(
    "memory-full",
    `Cannot start: ${megabytes(bytes)} of memory are left for the heap, ` +
      `but at least ${megabytes(minHeapBytes)} are required: ${advice}`,
  );
}

/** What helps when the memory is full. */
export const advice =
  "give it more with --max-old-space-size=N (in MiB) in the command that starts Node.js if it is there, otherwise in NODE_OPTIONS, and a machine or container with at least 96 MiB beside that";

/** Formats a number of bytes in MiB. */
function megabytes(bytes: number): string {
  return `${Math.max(0, Math.ceil(bytes / mebibyte))} MiB`;
}

/** Returns about how much memory a value takes. It must be the same each time, so that what is deleted gives back what it took. */
export function sizeOf(value: Json): number {
  if (typeof value === "string") { // of one or two bytes a character
    return 20 + value.length * (/[^\0-\xff]/.test(value) ? 2 : 1);
  }
  if (typeof value !== "object" || value === null) return 0;
  let bytes = 24;
  for (const name in value) bytes += 8 + sizeOf((value as Entries)[name] ?? 0);
  return bytes;
}

type Entries = Readonly<Record<string, Json>>;

/** The memory that a row takes besides its document: its object, its place in a page, and an index. */
const rowBytes = 70;

/** Returns about how much memory a row takes. */
function bytesOf(row: Row | undefined): number {
  return row === undefined ? 0 : rowBytes + sizeOf(row.document);
}

/** The memory of a store, and its limit. */
export class Memory {
  readonly limit: number;
  /** Called when what can be created again is to be dropped. */
  readonly onTight = new Set<() => void>();
  /** The memory that all records take, as {@linkcode sizeOf} counts it. */
  recordBytes = 0;
  /** The memory of everything but the records: before any was loaded, and as measured last. */
  readonly #baseBytes = usedHeapBytes();
  #otherBytes = 0;
  #lastMeasuredBytes = 0;
  /** The size of the records that were not loaded, because they would not fit. */
  #skippedBytes = 0;
  #isFull = false;
  /** How much sign-ins have taken since the memory is full. */
  #exemptBytes = 0;
  readonly #observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const { kind } = Object("detail" in entry && entry.detail);
      if (kind === constants.NODE_PERFORMANCE_GC_MAJOR) return this.#measure();
    }
  });

  constructor(limit = (heapBytes() - youngBytes) / 8 * 7) {
    this.limit = Math.floor(limit);
    this.#observer.observe({ entryTypes: ["gc"] });
  }

  /** Counts the records of new tables from now on, and no others. */
  begin(): void {
    this.recordBytes = 0;
    this.#skippedBytes = 0;
  }

  /** Counts a change of a record. */
  readonly count = (before: Row | undefined, after: Row | undefined): void => {
    this.recordBytes += bytesOf(after) - bytesOf(before);
  };

  /**
   * The memory in use: never less than the records will take after a restart,
   * which does not find the values that several of them share now.
   */
  get used(): number {
    return this.recordBytes + Math.max(this.#otherBytes, this.#baseBytes);
  }

  /** True from a refusal until there is room again. */
  get isFull(): boolean {
    if (this.#isFull && this.used <= this.limit * (7 / 8 - 1 / 64)) {
      this.#isFull = false;
      this.#exemptBytes = 0;
    }
    return this.#isFull;
  }

  /** Describes the problems of the memory. */
  get notices(): string[] {
    if (!this.isFull) return [];
    return [
      "The memory is full: only changes that do not grow, deletes and sign-ins are accepted.",
    ];
  }

  /** True if nothing may be cached. */
  get isTight(): boolean {
    return this.used > this.limit * 3 / 4;
  }

  /** Throws `memory-full` unless the records may have grown since they took so much. */
  admit(bytesBefore: number, allowWhenFull: boolean): void {
    const growthBytes = this.recordBytes - bytesBefore;
    if (growthBytes <= 0) return;
    if (!this.isFull && this.used <= this.limit * 7 / 8) return;
    this.#isFull = true;
    const exemptBytes = this.#exemptBytes + growthBytes;
    if (!allowWhenFull || exemptBytes > this.limit / 64) {
      throw new StoreError("memory-full", "The memory is full");
    }
    this.#exemptBytes = exemptBytes;
  }

  /** True if a store that is being read does not fit: a full one still does, with what its reading takes. */
  get isExceeded(): boolean {
    return this.#skippedBytes > 0 || this.used > this.limit + youngBytes / 3;
  }

  /** Only counts records, once there is no memory left to load them. */
  skip(records: Json): void {
    this.#skippedBytes += sizeOf(records);
  }

  /** The memory that the records take, as a phrase for the first line of the log. */
  get description(): string {
    return ` take ${megabytes(this.used)} of ${megabytes(this.limit)}`;
  }

  /** Throws if a store was too large to be loaded. */
  requireFit(name: string): void {
    if (this.#skippedBytes === 0) return;
    const needed = heapFor((this.used + this.#skippedBytes) / 7 * 8);
    throw new StoreError(
      "memory-full",
      `Cannot open ${name}: its records need a heap of about ${
        megabytes(needed)
      }, but there are ${
        megabytes(heapFor(this.limit))
      }. Nothing was changed: ` +
        `${advice}; "zoo-api prune" deletes data that is no longer declared, ` +
        `and "zoo-api export" prints records, both with less memory`,
    );
  }

  close(): void {
    this.#observer.disconnect();
  }

  #measure(): void {
    // The lower one of two, as a request in progress can take much for a moment.
    const measuredBytes = usedHeapBytes() - this.recordBytes;
    this.#otherBytes = Math.min(measuredBytes, this.#lastMeasuredBytes);
    this.#lastMeasuredBytes = measuredBytes;
    if (this.isTight) { for (const drop of this.onTight) drop(); }
  }
}

/** Returns the size of the heap that has a limit. */
function heapFor(limit: number): number {
  return limit / 7 * 8 + youngBytes;
}

/** Returns the memory that objects in V8's heap take, except for the young ones. */
function usedHeapBytes(): number {
  return getHeapSpaceStatistics()
    .filter(({ space_name }) => !space_name.startsWith("new_"))
    .reduce((sum, { space_used_size }) => sum + space_used_size, 0);
}
