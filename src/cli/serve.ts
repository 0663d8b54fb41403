/** The command `serve`. */

import { readFileSync } from "node:fs";
import process from "node:process";
import type { Commands, CommandSettings } from "../api/feature.ts";
import { serve } from "../serve.ts";
import { readConfig } from "./command-line.ts";

export const commands: Commands = { serve: [0, serveCommand] };

async function serveCommand({ flags, loadApi }: CommandSettings) {
  const config = { ...readConfig(flags, process.env) };
  const isOther = config.COLLECTIONS !== undefined || config.SEED !== undefined;
  const seed = flags.has("sample") && !isOther
    ? readFileSync(new URL("../../data/seed.json", import.meta.url), "utf8")
    : config.SEED;
  await serve({ ...config, SEED: seed }, await loadApi());
  // A signal that comes while Node.js itself shuts down would kill the process.
  process.exit(0);
}
