/** The random choices of a round of full memory. */

import type { Random } from "../random.ts";
import { loads } from "./loads.ts";
import type { Place } from "./place.ts";

/** The most connections at once, and those of them that always read. */
export const maxConnections = 64;
export const readers = 3;

/** The random choices of a round. */
export interface Plan {
  readonly place: Place;
  readonly loads: readonly string[];
  readonly connections: number;
  /** How long the load continues when memory is full. */
  readonly lingerMs: number;
  /** True if it is killed before anything was deleted. */
  readonly isKilledFull: boolean;
  /** The megabytes of another start in between, which may be refused; 0 for none. */
  readonly smaller: number;
}

/** Chooses what happens in a round. */
export function planRound(
  random: Random,
  limitedBy: Place["limitedBy"],
): Plan {
  const [least, range] = limitedBy === "heap" ? [64, 57] : [192, 129];
  const megabytes = least + random.below(range);
  const names = Object.keys(loads);
  const chosen = new Set<string>();
  const count = 1 + random.below(4);
  while (chosen.size < count) chosen.add(random.pick(names));
  return {
    place: { limitedBy, megabytes },
    loads: [...chosen],
    connections: chosen.size + readers +
      random.below(maxConnections - readers - chosen.size + 1),
    lingerMs: random.below(3000),
    isKilledFull: random.chance(0.5),
    // A smaller cgroup could be too small for Node.js itself.
    smaller: limitedBy === "heap" && random.chance(0.25)
      ? Math.max(64, Math.floor(megabytes * (0.5 + random.next() / 2)))
      : 0,
  };
}

/** Returns a plan as text. */
export function describe(plan: Plan): string {
  const { place, loads, connections, isKilledFull, smaller } = plan;
  return `${place.limitedBy} of ${place.megabytes} MB, ${connections} connections, ` +
    `${loads.join(" and ")}, killed ${
      isKilledFull ? "full" : "after deletes"
    }` +
    (smaller > 0 ? `, then in ${smaller} MB` : "");
}
