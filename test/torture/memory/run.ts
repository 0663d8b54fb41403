/** All rounds of full memory: in small heaps, in cgroups, and of servers with a seeded defect. */

import { rmSync } from "node:fs";
import { join } from "node:path";
import { buildInto, patchBuild } from "../../etcd/cluster.ts";
import { defects } from "./defects.ts";
import type { Place } from "./place.ts";
import { lacksGroups } from "./place.ts";
import { memoryRound } from "./round.ts";

/** The options of the rounds. */
export interface MemoryOptions {
  readonly folder: string;
  readonly rounds: number;
  readonly seed: number;
  readonly say: (what: string, result: unknown) => void;
}

/** A defect must be caught within so many rounds. */
const roundsPerDefect = 5;

/** The seed of the first of them: it fills memory soon, and frees it again before the server is killed. */
const defectSeed = 13;

/** Runs the rounds; a round that was never full is repeated with another seed. */
export async function fullMemory(options: MemoryOptions): Promise<void> {
  const { folder, rounds, seed, say } = options;
  const main = await buildInto(folder, []);
  const play = async (limitedBy: Place["limitedBy"], count: number) => {
    let full = 0;
    for (let each = 0; full < count; each++) {
      if (each === 3 * count + 6) throw new Error("Memory is seldom full");
      const own = join(folder, `${limitedBy}-${seed + each}`);
      const setup = { folder: own, main, seed: seed + each, limitedBy };
      const report = await memoryRound(setup);
      if (report !== undefined) full++;
      say(
        report === undefined ? "Void round" : "Full memory",
        `seed ${seed + each}, ${report}`,
      );
      rmSync(own, { recursive: true });
    }
  };
  await play("heap", rounds);
  const reason = await lacksGroups();
  if (reason === undefined) await play("cgroup", Math.ceil(rounds / 3));
  else say("!!! SKIPPED", reason);
  await catchDefects(options);
}

/** Runs servers with each defect until it is caught. */
async function catchDefects(
  { folder, say }: MemoryOptions,
): Promise<void> {
  for (const [index, [name, defect]] of Object.entries(defects).entries()) {
    const main = await patchBuild(folder, `defect-${index}`, [defect]);
    for (let tries = 0, isCaught = false; !isCaught; tries++) {
      if (tries === roundsPerDefect) {
        throw new Error(`Not caught in full memory: a server that ${name}`);
      }
      const own = join(folder, `defect-${index}-${tries}`);
      const setup = { folder: own, main, seed: defectSeed + tries };
      const end = await memoryRound({ ...setup, limitedBy: "heap" })
        .catch((error) => String(error));
      isCaught = defect.caught.test(String(end));
      say(
        isCaught ? `Seeded defect, caught in try ${tries}` : "Not caught",
        isCaught ? name : `${name}: ${end}`,
      );
    }
  }
}
