/**
 * The long torture of the store. Each kind runs as often as its flag says;
 * `--duration` repeats all kinds until the time is up. On a failure it prints
 * the seed, saves the files, the steps and the history, says where, and ends
 * with exit code 1.
 */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { damages, makeSpecimens, verifyDamage } from "./corruption.ts";
import { defects, isCaught } from "./defects.ts";
import { fullDisk } from "./full.ts";
import { lockContests, lockRounds } from "./locks.ts";
import { fullMemory } from "./memory/run.ts";
import { killRounds, powerRounds, straceRounds } from "./processes.ts";
import { Random } from "./random.ts";
import type { SimulationReport } from "./scene.ts";
import { injected, simulate, simulateDefect } from "./simulation.ts";
import { everyOperation, everyStep, fullStarts } from "./steps.ts";
import { taskRounds } from "./tasks.ts";

const { values } = parseArgs({
  options: {
    duration: { type: "string" },
    kills: { type: "string" },
    corruptions: { type: "string" },
    "crash-states": { type: "string" },
    faults: { type: "string" },
    "power-cuts": { type: "string" },
    "lock-rounds": { type: "string" },
    "full-disks": { type: "string" },
    "full-memory": { type: "string" },
    tasks: { type: "string" },
    seed: { type: "string" },
  },
});

const root = mkdtempSync(join(tmpdir(), "zoo-api-torture-"));
const seed = Number(values.seed ?? Date.now() % 1_000_000);
let folders = 0;

function folder(): string {
  const path = join(root, String(++folders));
  mkdirSync(path);
  return path;
}

function say(what: string, result: unknown): void {
  const text = typeof result === "string" ? result : JSON.stringify(result);
  process.stdout.write(`${what}: ${text}\n`);
}

/** Simulates until so many distinct crash states were opened. */
async function simulations(
  states: number,
  faults: boolean,
  from: number,
): Promise<void> {
  const total: Partial<Record<keyof SimulationReport, number>> = {};
  // Stores of different seeds have different salts, so none is counted twice.
  for (let each = from; (total.distinct ?? 0) < states; each++) {
    const path = folder();
    const options = { folder: path, lives: 20, states: 6, faults, keep: root };
    const report = await simulate({ ...options, seed: each });
    for (const key of Object.keys(report) as (keyof SimulationReport)[]) {
      total[key] = (total[key] ?? 0) + report[key];
    }
    rmSync(path, { recursive: true });
  }
  say(faults ? "Faults" : "Crash states", total);
}

/** Runs a script once for each of its steps. */
async function steps(
  what: string,
  play: Promise<SimulationReport>,
): Promise<void> {
  const { opened, distinct, faults } = await play;
  say(what, { opened, distinct, ...(faults > 0 ? { faults } : {}) });
}

async function seededDefects(from: number): Promise<void> {
  for (const [name, defect] of Object.entries(defects)) {
    let tries = 0;
    for (let caught = false; !caught; tries++) {
      if (tries === 200) throw new Error(`A store that ${name} passes`);
      const options = { folder: folder(), seed: from + tries };
      caught = await isCaught(defect, simulateDefect(defect, options));
    }
    say(`Seeded defect, caught in try ${tries}`, name);
  }
}

async function corruptions(limit: number): Promise<void> {
  const path = folder();
  const count = { recovered: 0, refused: 0, cut: 0 };
  const specimens = await makeSpecimens(path);
  // All bits of four specimens are some 160,000 stores.
  const stride = Math.max(1, Math.round(160_000 / limit));
  for (const specimen of specimens) {
    for (const damage of damages(specimen, stride)) {
      count[await verifyDamage(path, specimen, damage)]++;
    }
  }
  say("Damaged stores", count);
}

async function powerCuts(rounds: number, random: Random): Promise<void> {
  for (const type of ["ext4", "xfs"] as const) {
    const result = await powerRounds({
      folder: folder(),
      rounds,
      random,
      type,
    });
    const skipped = typeof result === "string";
    say(skipped ? "!!! SKIPPED" : `Power cuts on ${type}`, result);
    if (skipped) continue;
    const defect = "skips the fsync of the log";
    const options = { folder: folder(), rounds: 20, random, type, defect };
    const end = await powerRounds(options).then(() => "no failure", String);
    if (defects[defect]?.caught.test(end) !== true) {
      throw new Error(`A store that ${defect} on ${type}: ${end}`);
    }
    say(`Seeded defect, caught by power cuts on ${type}`, defect);
  }
}

const all = values.duration !== undefined;
const number = (text: string | undefined, often: number) =>
  text === undefined ? (all ? often : 0) : Number(text);

async function once(turn: number): Promise<void> {
  const random = new Random(seed + turn);
  const from = (seed + turn) * 1000;
  const states = number(values["crash-states"], 1500);
  if (states > 0) {
    await simulations(states, false, from);
    const every = { seed: from, states: 3, keep: root };
    await steps(
      "Crash states around each step",
      everyStep({ ...every, folder: folder() }),
    );
    await steps(
      "Crash states of starts on a full disk",
      fullStarts({ ...every, folder: folder() }),
    );
    await seededDefects(from);
  }
  const faults = number(values.faults, 1500);
  if (faults > 0) {
    await simulations(faults, true, from);
    say("Of each kind", Object.fromEntries(injected));
    const every = { seed: from, folder: folder(), states: 2, keep: root };
    await steps(
      "Each operation that fails, in each way",
      everyOperation({ ...every, each: true }),
    );
    const rounds = Math.ceil(faults / 500);
    const result = await straceRounds({ folder: folder(), rounds, random });
    const skipped = typeof result === "string";
    say(skipped ? "!!! SKIPPED" : "Failing system calls", result);
  }
  const disks = number(values["full-disks"], 1);
  for (let round = 0; round < disks; round++) {
    say("Full disk", await fullDisk(folder()));
  }
  const memory = number(values["full-memory"], 1);
  if (memory > 0) {
    const options = { folder: folder(), rounds: memory, seed: seed + turn };
    await fullMemory({ ...options, say });
  }
  const tasks = number(values.tasks, 3);
  if (tasks > 0) {
    const options = { folder: folder(), rounds: tasks, seed: seed + turn };
    await taskRounds({ ...options, say });
  }
  const damaged = number(values.corruptions, 3000);
  if (damaged > 0) await corruptions(damaged);
  const kills = number(values.kills, 20);
  if (kills > 0) {
    say("Kills", await killRounds({ folder: folder(), rounds: kills, random }));
  }
  const cuts = number(values["power-cuts"], 10);
  if (cuts > 0) await powerCuts(cuts, random);
  const locks = number(values["lock-rounds"], 3);
  if (locks > 0) {
    await lockContests({ folder: folder(), rounds: locks * 20 });
    await lockRounds({ folder: folder(), rounds: locks, random });
    say(
      "Contests for the lock",
      `${locks * 20} in one process, ${locks} of 12`,
    );
  }
}

const end = Date.now() + Number(values.duration ?? 0) * 1000;
try {
  say("Seed", String(seed));
  let turn = 0;
  do await once(turn++); while (Date.now() < end);
  rmSync(root, { recursive: true, force: true });
} catch (error) {
  const text = error instanceof Error ? error.stack : String(error);
  process.stdout.write(
    `FAILED with seed ${seed}\n${text}\nKept: all of ${root}\n`,
  );
  process.exitCode = 1;
}
