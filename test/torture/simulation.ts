/**
 * Lives of a store on a simulated disk: it writes and reads, fails, dies at a
 * step, and is opened again in the states that the disk may be in, repeatedly.
 * Every opened store is verified.
 */

import type { Store } from "../../src/store/store.ts";
import type { Defect } from "./defects.ts";
import type { Fate, Step } from "./disk.ts";
import {
  copyHistory,
  type History,
  look,
  rebase,
  verify,
  write,
} from "./oracle.ts";
import type { Random } from "./random.ts";
import {
  codeOf,
  Scene,
  type Simulation,
  type SimulationReport,
  tablesOf,
} from "./scene.ts";
import { fullStarts } from "./steps.ts";

const keys = 8;
/** The number of acknowledged writes that is enough to lose some. */
const enough = 10;

/** Runs a simulation; throws an error that names the seed on any failure. */
export async function simulate(
  simulation: Simulation,
): Promise<SimulationReport> {
  const scene = new Scene(simulation);
  const { random, report } = scene;
  await scene.begin();
  while (report.lives < simulation.lives) {
    await scene.explain(`life ${report.lives + report.void}`, async () => {
      const disk = scene.disk;
      if (await live(scene, simulation) < enough) {
        report.void++;
      } else {
        report.lives++;
        for (let state = 1; state < simulation.states; state++) {
          await scene.check(await scene.crash());
        }
      }
      // If only the process died, the page cache remains; after a power cut it
      // does not. After a failed sync that cache contains data that is not on
      // the disk.
      const killed = random.chance(disk.failedSyncs > 0 ? 0.7 : 0.3);
      scene.disk = killed
        ? disk.survivor(await scene.folder())
        : await scene.crash();
      if (random.chance(0.1)) await scene.begin();
    });
  }
  return report;
}

/** Runs the simulation that reveals a defect. */
export async function simulateDefect(
  defect: Defect,
  options: Pick<Simulation, "seed" | "folder">,
): Promise<void> {
  const { faults = false, full = false } = defect;
  const simulation = { ...options, defect, states: 6 };
  if (full) await fullStarts(simulation);
  else await simulate({ ...simulation, lives: 10, faults });
}

/** Runs one life; returns how many acknowledged writes its end can lose. */
async function live(scene: Scene, simulation: Simulation): Promise<number> {
  const { disk, history, random, report } = scene;
  const { defect } = simulation;
  const files = defect?.files?.(disk) ?? disk;
  let unread = false;
  // Some die while they recover, some after hundreds of steps.
  const death = 1 + random.below(random.pick([20, 60, 200, 600]));
  const slow = random.chance(0.3);
  disk.capacity = random.chance(0.2) ? 60_000 : Infinity;
  disk.fate = async (step) => {
    if (step.number >= death) disk.kill();
    if (slow && step.kind === "sync") {
      for (let turn = random.below(8); turn > 0; turn--) await turnOf();
    }
    const fate = simulation.faults ? fault(step, random) : undefined;
    if (fate !== undefined) report.faults++;
    unread ||= fate !== undefined &&
      (step.kind === "read" || step.kind === "open");
    return fate;
  };
  let opened: Store;
  try {
    opened = await scene.open(files);
  } catch (error) {
    // Death or a fault while opening; a refusal is wrong if all could be read.
    const code = codeOf(error);
    const refused = code === "damaged" && !unread && !disk.dead;
    if (refused || code === "format") throw error;
    return acknowledgedIn(history);
  }
  const store = defect?.store?.(opened) ?? opened;
  report.opened++;
  const before = report.acknowledged;
  try {
    await work(store, history, random, report);
    if (random.chance(0.5)) disk.kill();
  } finally {
    await store.close().catch(() => {});
  }
  return report.acknowledged - before;
}

function acknowledgedIn(history: History): number {
  let sum = 0;
  for (const { acknowledged } of history.values()) sum += acknowledged;
  return sum;
}

/** Writes and reads for a while, and verifies what it reads. */
async function work(
  store: Store,
  history: History,
  random: Random,
  report: SimulationReport,
): Promise<void> {
  const read = tablesOf(store);
  verify(read, history);
  rebase(read, history);
  const changes = 20 + random.below(300);
  let left = changes;
  const client = async (key: number) => {
    while (left-- > 0 && store.isWritable) {
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
  const clients = Array.from({ length: keys }, (_, key) => client(key + 1));
  const written = Promise.all(clients).finally(() => reading = false);
  await Promise.all([written, reader(), reader()]);
  // The records in memory are correct too, whatever the disk did.
  const before = copyHistory(history);
  if (!store.isWritable || store.seq === store.durableSeq) verify(read, before);
  report.rotations += store.log.generation - 1;
}

/** The number of injected faults, by step and error. */
export const injected = new Map<string, number>();

function fault(step: Step, random: Random): Fate {
  // There are more ways for a write to fail, and the store survives most of
  // them.
  const odds = step.kind === "write"
    ? 0.05
    : step.kind === "sync"
    ? 0.03
    : 0.01;
  if (!random.chance(odds)) return undefined;
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
      { error: "EIO", isLost: true },
      { error: "ENOSPC", isLost: true },
      { error: "EROFS" },
      { short: random.below(600) },
      { short: random.below(60) },
    ]);
  }
  if (step.kind === "read" || step.kind === "open") return { error: "EIO" };
  return { error: random.pick(["EIO", "ENOSPC", "EROFS"]) };
}

function turnOf(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
