/**
 * Lives of a store on a disk in memory: it writes and reads, fails, dies at a
 * step, and is opened again in the states that the disk may be in, over and
 * over. Every opened store is judged.
 */

import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import {
  openStore,
  type Store,
  type StoreOptions,
  type Table,
} from "../../src/store/store.ts";
import type { Defect } from "./defects.ts";
import { Disk, type Fate, type Step } from "./disk.ts";
import {
  copyHistory,
  type History,
  judge,
  look,
  rebase,
  write,
} from "./oracle.ts";
import { Random } from "./random.ts";

/** What a simulation does. */
export interface Simulation {
  readonly seed: number;
  /** A real folder for the sockets of the lock. */
  readonly folder: string;
  /** How many lives. */
  readonly lives: number;
  /** How many crash states are made of each death. */
  readonly states: number;
  /** Whether steps fail now and then. */
  readonly faults: boolean;
  readonly defect?: Defect;
}

/** What a simulation did. */
export interface SimulationReport {
  lives: number;
  /** Stores opened and judged. */
  opened: number;
  acknowledged: number;
  refused: number;
  unknown: number;
  faults: number;
  rotations: number;
  /** Starts that found no space at all. */
  fullStarts: number;
}

export const tables: StoreOptions["tables"] = [
  { name: "zoos" },
  { name: "animals", indexes: { zoo_id: (value) => Number(value) } },
];

const limits: NonNullable<StoreOptions["limits"]> = {
  logBytes: 6000,
  batchBytes: 4000,
  queueBytes: 40_000,
  reserveBytes: 20_000,
  markDelay: 1,
  retry: 2,
};

const keys = 8;

/** Runs a simulation; throws an error that names the seed on any failure. */
export async function simulate(
  simulation: Simulation,
): Promise<SimulationReport> {
  const report = emptyReport();
  const random = new Random(simulation.seed);
  const folder = foldersIn(simulation);
  let disk = new Disk({ folder: await folder() });
  let history: History = new Map();
  for (let life = 0; life < simulation.lives; life++) {
    try {
      await live(disk, history, random, simulation, report);
      report.lives++;
      // A process that only died leaves its page cache; a power cut does not.
      const killed = random.chance(0.3);
      let next = killed
        ? disk.survivor(await folder())
        : disk.crash(await folder(), random);
      for (let state = 1; state < simulation.states && !killed; state++) {
        await check(disk.crash(await folder(), random), history, report);
      }
      if (random.chance(0.1) && report.lives > 0) {
        next = new Disk({ folder: await folder() });
        history = new Map();
      }
      disk = next;
    } catch (error) {
      const text = error instanceof Error ? error.stack : String(error);
      throw new Error(`Seed ${simulation.seed}, life ${life}: ${text}`);
    }
  }
  return report;
}

/**
 * Kills the process before, within and behind every step of a short life with
 * three rotations, and then before and within every step of the recovery; of
 * each death some crash states are opened and judged. Returns how many were.
 */
export async function everyStep(
  options: Pick<Simulation, "seed" | "folder" | "states">,
): Promise<number> {
  const report = emptyReport();
  const random = new Random(options.seed);
  const folder = foldersIn(options);
  const script = async (disk: Disk, history: History) => {
    const { folder } = disk;
    const large = { ...limits, logBytes: 1 << 20 };
    const store = await openStore({
      folder,
      files: disk,
      tables,
      limits: large,
    });
    for (let round = 0; round < 4; round++) {
      const turn = round > 0 ? store.checkpoint() : undefined;
      await Promise.all([
        turn,
        ...[1, 2, 3].map((key) => write(store, history, key)),
      ]);
      await look(store, history, 1);
    }
    await store.close();
    return store.generation;
  };
  for (let number = 1;; number++) {
    for (const half of [false, true]) {
      const disk = new Disk({ folder: await folder() });
      disk.fate = (step) => dieAt(disk, step, { number, half });
      const history: History = new Map();
      const generation = await script(disk, history).catch(() => 0);
      if (disk.steps < number) {
        if (generation < 4) throw new Error("there were too few rotations");
        return report.opened;
      }
      disk.kill();
      for (let state = 0; state < options.states; state++) {
        await check(disk.crash(await folder(), random), history, report);
      }
      for (let inner = 1, ended = false; !ended; inner++) {
        const next = disk.copy(await folder());
        next.fate = (step) => dieAt(next, step, { number: inner, half });
        const { folder: path } = next;
        const opened = await openStore({
          folder: path,
          files: next,
          tables,
          limits,
        }).catch(() => undefined);
        ended = next.steps < inner;
        next.kill();
        await opened?.close().catch(() => {});
        await check(next.crash(await folder(), random), history, report);
      }
    }
  }
}

function dieAt(
  disk: Disk,
  step: Step,
  place: { readonly number: number; readonly half: boolean },
): Fate {
  if (step.number < place.number) return undefined;
  // Behind this step the next one finds the disk dead.
  if (step.number > place.number || !place.half) disk.kill();
  return place.half ? { error: "EIO", half: true } : undefined;
}

function emptyReport(): SimulationReport {
  return {
    lives: 0,
    opened: 0,
    acknowledged: 0,
    refused: 0,
    unknown: 0,
    faults: 0,
    rotations: 0,
    fullStarts: 0,
  };
}

/** Makes real folders for the sockets of the locks. */
function foldersIn(
  options: Pick<Simulation, "seed" | "folder">,
): () => Promise<string> {
  let folders = 0;
  return async () => {
    const path = join(options.folder, `${options.seed}-${folders++}`);
    await mkdir(path);
    return path;
  };
}

/** Opens a crash state, judges it, and looks whether that lasts. */
async function check(
  disk: Disk,
  history: History,
  report: SimulationReport,
): Promise<void> {
  const options = { folder: disk.folder, files: disk, tables, limits };
  const store = await openStore(options).catch((error) => {
    if (codeOf(error) !== "disk-full") throw error;
    report.fullStarts++;
    disk.capacity = Infinity;
    return openStore(options);
  });
  report.opened++;
  try {
    judge(tablesOf(store), history);
  } finally {
    await store.close();
  }
}

function tablesOf(store: Store): { zoos: Table; animals: Table } {
  return { zoos: store.table("zoos"), animals: store.table("animals") };
}

async function live(
  disk: Disk,
  history: History,
  random: Random,
  simulation: Simulation,
  report: SimulationReport,
): Promise<void> {
  const { defect } = simulation;
  const files = defect?.files?.(disk) ?? disk;
  // Some die while they recover, some after hundreds of steps.
  const death = 1 + random.below(random.pick([6, 40, 200, 600]));
  const slow = random.chance(0.3);
  disk.capacity = random.chance(0.2) ? 60_000 : Infinity;
  disk.fate = async (step) => {
    if (step.number >= death) disk.kill();
    if (slow && step.kind === "sync") {
      for (let turn = random.below(8); turn > 0; turn--) await turnOf();
    }
    const fate = simulation.faults ? fault(step, random) : undefined;
    if (fate !== undefined) report.faults++;
    return fate;
  };
  let opened: Store;
  try {
    opened = await openStore({ folder: disk.folder, files, tables, limits });
  } catch (error) {
    // Death or a fault while opening; a refusal is always wrong.
    if (codeOf(error) === "damaged" || codeOf(error) === "format") throw error;
    return;
  }
  const store = defect?.store?.(opened) ?? opened;
  report.opened++;
  try {
    await work(store, history, random, report);
    if (random.chance(0.5)) disk.kill();
  } finally {
    await store.close().catch(() => {});
  }
}

/** Writes and reads for a while, and judges what it finds. */
async function work(
  store: Store,
  history: History,
  random: Random,
  report: SimulationReport,
): Promise<void> {
  const read = tablesOf(store);
  judge(read, history);
  rebase(read, history);
  const changes = 20 + random.below(300);
  let left = changes;
  const client = async (key: number) => {
    while (left-- > 0 && store.writable) {
      const outcome = await write(store, history, key);
      report[outcome]++;
      if (outcome !== "acknowledged") await turnOf();
      if (random.chance(0.2)) await turnOf();
    }
  };
  let reading = true;
  const reader = async () => {
    while (reading) {
      await look(store, history, 1 + random.below(keys));
      await turnOf();
    }
  };
  const readers = [reader(), reader()];
  await Promise.all(Array.from({ length: keys }, (_, key) => client(key + 1)));
  reading = false;
  await Promise.all(readers);
  // What is in memory is right too, whatever the disk did.
  const before = copyHistory(history);
  if (!store.writable || store.seq === store.durableSeq) judge(read, before);
  report.rotations += store.generation - 1;
}

/** How many faults of each kind were injected, by step and error. */
export const injected = new Map<string, number>();

function fault(step: Step, random: Random): Fate {
  // There are more ways for a write to fail, and most let the store live on.
  if (!random.chance(step.kind === "write" ? 0.05 : 0.01)) return undefined;
  const fate = chooseFault(step, random);
  const kind = `${step.kind} ${fate?.error ?? "short"}`;
  injected.set(kind, (injected.get(kind) ?? 0) + 1);
  return fate;
}

function chooseFault(step: Step, random: Random): Fate {
  if (step.kind === "write") {
    return random.pick<Fate>([
      { error: "ENOSPC" },
      { error: "ENOSPC", half: true },
      { error: "EDQUOT" },
      { error: "EFBIG", half: true },
      { error: "EIO" },
      { error: "EIO", half: true },
      { error: "EROFS" },
      { short: random.below(600) },
    ]);
  }
  return { error: random.pick(["EIO", "ENOSPC", "EROFS"]) };
}

function turnOf(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}
