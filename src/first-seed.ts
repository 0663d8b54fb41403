/** The first start with a seed: it loads sample records into the empty store. */

import process from "node:process";
import { fileURLToPath } from "node:url";
import type { ApiDeclaration } from "./api/declaration/api.ts";
import { seedEmptyStore } from "./api/seed.ts";
import type { CommandSettings } from "./api/feature.ts";
import type { Config } from "./config.ts";
import { ApiError } from "./http/errors.ts";
import { errorText } from "./store/error.ts";
import type { Store } from "./store/store.ts";
import { CommandError, readText } from "./usage.ts";

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
  { COLLECTIONS, SEED }: Pick<Config, "COLLECTIONS" | "SEED">,
  { declaration, flags }: Pick<CommandSettings, "flags"> & {
    readonly declaration: ApiDeclaration;
  },
): Promise<void> {
  if (SEED === undefined && COLLECTIONS !== undefined) return;
  const sample = fileURLToPath(new URL("../data/seed.json", import.meta.url));
  const seed = SEED ?? readText("--sample", sample);
  const load = () => seedEmptyStore(store, declaration, seed);
  const { seq } = store;
  await store.settle(load).catch((error) => {
    if (!(error instanceof ApiError)) throw error;
    const file = SEED === undefined
      ? sample
      : flags.get("seed") ?? process.env["SEED"];
    throw new CommandError(`${file}${describeMistake(seed, error)}`);
  });
  // It is one line of the log, which takes as much memory to read.
  const isLarge = store.seq > seq && seed.length > minCheckpointLength;
  if (isLarge) await store.checkpoint().catch(() => {}); // it is logged
}

/** Describes the mistake in a seed, to follow the name of its file, and the line if it is not JSON. */
function describeMistake(text: string, { message }: ApiError): string {
  if (text.trim() === "") return " is empty: a seed is one JSON object";
  let line = "";
  try {
    JSON.parse(text);
  } catch (error) {
    // At the end, after what it may quote.
    const [, position] =
      / in JSON at position (\d+)(?: \(line \d+ column \d+\))?$/
        .exec(errorText(error)) ?? [];
    const before = text.slice(0, Number(position)).split("\n");
    if (position) line = `, line ${before.length}`;
  }
  return `${line}: ${message.replace(/: send [\w ]+\.$/, ".")}`;
}
