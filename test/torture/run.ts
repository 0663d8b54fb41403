/**
 * The long torture of the store. Each kind runs as often as told; `--duration`
 * repeats all kinds until the seconds are over. On a failure it prints the
 * seed, keeps the folder, and ends with 1.
 */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { damages, judgeDamage, makeSpecimens } from "./corruption.ts";
import { defects } from "./defects.ts";
import { fullDisk } from "./full.ts";
import { lockContests, lockRounds } from "./locks.ts";
import { killRounds, powerRounds, straceRounds } from "./processes.ts";
import { Random } from "./random.ts";
import {
  everyStep,
  injected,
  simulate,
  type SimulationReport,
} from "./simulation.ts";

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

/** Simulates until so many crash states were opened. */
async function simulations(
  states: number,
  faults: boolean,
  from: number,
): Promise<void> {
  const total: Partial<Record<keyof SimulationReport, number>> = {};
  for (let each = from; (total.opened ?? 0) < states; each++) {
    const path = folder();
    const options = { seed: each, folder: path, lives: 20, states: 6, faults };
    const report = await simulate(options);
    for (const key of Object.keys(report) as (keyof SimulationReport)[]) {
      total[key] = (total[key] ?? 0) + report[key];
    }
    rmSync(path, { recursive: true });
  }
  say(faults ? "Faults" : "Crash states", total);
}

async function seededDefects(from: number): Promise<void> {
  for (const [name, defect] of Object.entries(defects)) {
    let tries = 0;
    for (let caught = false; !caught; tries++) {
      if (tries === 200) throw new Error(`A store that ${name} passes`);
      const options = { folder: folder(), lives: 10, states: 6, defect };
      const faults = defect.faults === true;
      caught = await simulate({ ...options, faults, seed: from + tries })
        .then(() => false, () => true);
    }
    say(`Seeded defect, caught in life ${tries} × 10`, name);
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
      count[await judgeDamage(path, specimen, damage)]++;
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
    const caught = await powerRounds({
      folder: folder(),
      rounds: 20,
      random,
      type,
      defect,
    }).then(() => false, () => true);
    if (!caught) throw new Error(`A store that ${defect} survives on ${type}`);
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
    const every = { seed: from, folder: folder(), states: 3 };
    say("Crash states around each step", await everyStep(every));
    await seededDefects(from);
  }
  const faults = number(values.faults, 1500);
  if (faults > 0) {
    await simulations(faults, true, from);
    say("Of each kind", Object.fromEntries(injected));
    const rounds = Math.ceil(faults / 500);
    const result = await straceRounds({ folder: folder(), rounds, random });
    const skipped = typeof result === "string";
    say(skipped ? "!!! SKIPPED" : "Failing system calls", result);
  }
  const disks = number(values["full-disks"], 1);
  for (let round = 0; round < disks; round++) {
    say("Full disk", await fullDisk(folder()));
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
  process.stdout.write(`FAILED with seed ${seed}, see ${root}\n${text}\n`);
  process.exitCode = 1;
}
