/** The first start with a seed: it loads sample records into the empty store. */

import { fileURLToPath } from "node:url";
import type { ApiDeclaration } from "./api/declaration/api.ts";
import { seedEmptyStore } from "./api/seed.ts";
import type { Config } from "./config.ts";
import { explainInvalid } from "./first-start.ts";
import type { Store } from "./store/store.ts";
import { readText } from "./usage.ts";

/** After a longer seed a snapshot is written at once. */
const minCheckpointLength = 1 << 20;

/**
 * Loads the seed of the settings into an empty store or else, unless they name
 * other collections, the sample records.
 *
 * @throws {CommandError} if it is not valid
 */
export async function loadSeed(
  store: Store,
  declaration: ApiDeclaration,
  { COLLECTIONS, SEED }: Pick<Config, "COLLECTIONS" | "SEED">,
): Promise<void> {
  if (SEED === undefined && COLLECTIONS !== undefined) return;
  const sample = new URL("../data/seed.json", import.meta.url);
  const seed = SEED ?? readText("--sample", fileURLToPath(sample));
  const load = () => seedEmptyStore(store, declaration, seed);
  const { seq } = store;
  await explainInvalid(store.settle(load));
  // It is one line of the log, which takes as much memory to read.
  const isLarge = store.seq > seq && seed.length > minCheckpointLength;
  if (isLarge) await store.checkpoint().catch(() => {}); // it is logged
}
