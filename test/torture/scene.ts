/**
 * The environment of a simulation: the simulated disk, the history of what was
 * written, the source of random numbers, and what is reported and saved on a
 * failure.
 *
 * A seed reproduces the random numbers, the clock, the salts and, since timers
 * count turns of the event loop here, what happens between the steps.
 */

import type { Buffer } from "node:buffer";
import { FullDisk } from "../../src/store/full-disk.ts";
import { FastWrites } from "../../src/store/log/fast-writes.ts";
import * as marker from "../../src/store/log/marker.ts";
import { createHash } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import {
  type FileSystem,
  openStore,
  type Store,
  type StoreOptions,
  type Table,
} from "../../src/store/store.ts";
import type { Defect } from "./defects.ts";
import { Disk } from "./disk.ts";
import { describe, type History, verify } from "./oracle.ts";
import { Random } from "./random.ts";

/** The options of a simulation. */
export interface Simulation {
  readonly seed: number;
  /** A real folder for the sockets of the lock. */
  readonly folder: string;
  /** The number of lives. */
  readonly lives: number;
  /** The number of crash states that are created for each death. */
  readonly states: number;
  /** True if steps sometimes fail. */
  readonly faults: boolean;
  readonly defect?: Defect;
  /** The folder in which a failure is documented. */
  readonly keep?: string;
}

/** The results of a simulation. */
export interface SimulationReport {
  lives: number;
  /** Lives that ended before there was enough to lose; they prove nothing. */
  void: number;
  /** Stores opened and verified. */
  opened: number;
  /** The distinct ones among them. */
  distinct: number;
  acknowledged: number;
  refused: number;
  unknown: number;
  faults: number;
  rotations: number;
  /** Starts that found no space at all. */
  fullStarts: number;
}

/** The tables of every store of the torture. */
export const tables: StoreOptions["tables"] = [
  { name: "zoos" },
  { name: "animals", indexes: { zoo_id: ({ zoo_id }) => Number(zoo_id) } },
];

/** Small limits, so that much happens in a short life. */
export const limits: NonNullable<StoreOptions["limits"]> = {
  minLogBytes: 6000,
  maxBatchBytes: 4000,
  maxQueueBytes: 40_000,
  reserveBytes: 20_000,
  markerDelayMs: 1,
  checkpointRetryMs: 2,
  retryMs: 2,
};

/** A simulation in progress, with everything that is needed to explain a failure. */
export class Scene {
  readonly random: Random;
  readonly report = emptyReport();
  disk: Disk;
  history: History = new Map();
  readonly #options: Pick<Simulation, "seed" | "folder" | "keep">;
  /** The random numbers of a store, separate so that they do not change the others. */
  readonly #drawn: Random;
  readonly #states = new Set<string>();
  /** The disk on which a store was last opened, and its files before that. */
  #opened: Disk;
  #found = new Map<string, Buffer>();
  #folders = 0;
  #time = Date.UTC(2030, 0, 1);

  constructor(options: Pick<Simulation, "seed" | "folder" | "keep">) {
    this.#options = options;
    this.random = new Random(options.seed);
    this.#drawn = new Random(~options.seed);
    this.disk = this.#opened = new Disk({ folder: options.folder });
  }

  /** Starts with a new disk and a new history. */
  async begin(): Promise<void> {
    this.disk = new Disk({ folder: await this.folder() });
    this.history = new Map();
  }

  /** Creates a real folder for the sockets of a lock. */
  async folder(): Promise<string> {
    const { folder, seed } = this.#options;
    const path = join(folder, `${seed}-${this.#folders++}`);
    await mkdir(path);
    return path;
  }

  /** The options to open the store with; its clock and its random numbers come from the seed. */
  options(disk = this.disk, files: FileSystem = disk): StoreOptions {
    this.#opened = disk;
    this.#found = disk.contents();
    const now = () => this.#time++;
    const random = (bytes: number) =>
      Uint8Array.from({ length: bytes }, () => this.#drawn.below(256));
    return {
      folder: disk.folder,
      files,
      tables,
      limits,
      now,
      random,
      fullDisk: FullDisk,
      marker,
      fastWrites: new FastWrites(),
    };
  }

  open(files?: FileSystem): Promise<Store> {
    return openStore(this.options(this.disk, files));
  }

  /** The disk as a power cut may leave it. */
  async crash(): Promise<Disk> {
    return this.disk.crash(await this.folder(), this.random);
  }

  /** Opens a state of the disk and verifies it. */
  async check(disk: Disk): Promise<void> {
    const options = this.options(disk);
    const hash = createHash("sha1");
    for (const [name, bytes] of [...this.#found].sort()) {
      hash.update(`${name} ${bytes.length}\n`).update(bytes);
    }
    this.#states.add(hash.digest("base64"));
    this.report.distinct = this.#states.size;
    const store = await openStore(options).catch((error) => {
      if (codeOf(error) !== "disk-full") throw error;
      this.report.fullStarts++;
      disk.capacity = Infinity;
      return openStore(options);
    });
    this.report.opened++;
    try {
      verify(tablesOf(store), this.history);
      const passed = store.notices.find((each) => each.includes("was skipped"));
      if (passed !== undefined) throw new Error(passed);
    } finally {
      await store.close();
    }
  }

  /** Runs a part; on a failure reports the seed, and saves everything. */
  async explain<Result>(
    what: string,
    work: () => Promise<Result>,
  ): Promise<Result> {
    const restore = countTurns();
    try {
      return await work();
    } catch (error) {
      const { seed, keep } = this.#options;
      const text = error instanceof Error ? error.stack : String(error);
      const message = `Seed ${seed}, ${what}: ${text}`;
      if (keep === undefined) throw new Error(message);
      const kept = join(keep, `seed-${seed}`);
      await this.#keep(kept, message);
      throw new Error(
        `${message}\nKept in ${kept}: the files as the last start found ` +
          "them (found) and as it left them (left), every step " +
          "(steps.txt), what became of each write (history.json), this " +
          "message (error.txt)",
      );
    } finally {
      restore();
    }
  }

  async #keep(folder: string, message: string): Promise<void> {
    const folders = { found: this.#found, left: this.#opened.contents() };
    for (const [part, files] of Object.entries(folders)) {
      await mkdir(join(folder, part), { recursive: true });
      for (const [name, bytes] of files) {
        await writeFile(join(folder, part, name), bytes);
      }
    }
    const steps = `${this.#opened.trace.join("\n")}\n`;
    await writeFile(join(folder, "steps.txt"), steps);
    const books = describe(this.history);
    await writeFile(join(folder, "history.json"), `${books}\n`);
    await writeFile(join(folder, "error.txt"), `${message}\n`);
  }
}

/**
 * Makes timers count turns of the event loop instead of time, so that they fire
 * at the same step whenever a seed is used; returns a function that ends this.
 */
function countTurns(): () => void {
  const { setTimeout, clearTimeout } = globalThis;
  const waiting = new Set<unknown>();
  const later = (work: (...args: unknown[]) => void, milliseconds = 1) => {
    const timer = { unref, ref: () => timer, refresh };
    waiting.add(timer);
    let left = 0;
    refresh();
    let immediate = setImmediate(turn);
    let held = true;
    function turn() {
      if (!waiting.has(timer)) return;
      if (left-- <= 0) {
        waiting.delete(timer);
        work();
        return;
      }
      immediate = setImmediate(turn);
      if (!held) immediate.unref();
    }
    function refresh() {
      left = Math.min(milliseconds, 1000) * 10;
    }
    function unref() {
      held = false;
      immediate.unref();
      return timer;
    }
    return timer;
  };
  const never = (timer: unknown) => {
    if (!waiting.delete(timer)) clearTimeout(timer as NodeJS.Timeout);
  };
  let looks = 0;
  Object.assign(globalThis, { setTimeout: later, clearTimeout: never });
  Object.assign(performance, { now: () => ++looks });
  return () => {
    Object.assign(globalThis, { setTimeout, clearTimeout });
    Reflect.deleteProperty(performance, "now");
  };
}

/** The tables that every store of the torture has. */
export function tablesOf(store: Store): { zoos: Table; animals: Table } {
  return { zoos: store.table("zoos"), animals: store.table("animals") };
}

function emptyReport(): SimulationReport {
  return {
    lives: 0,
    void: 0,
    opened: 0,
    distinct: 0,
    acknowledged: 0,
    refused: 0,
    unknown: 0,
    faults: 0,
    rotations: 0,
    fullStarts: 0,
  };
}

/** The code of an error of the store or of the system, or "". */
export function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}
