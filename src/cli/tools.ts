/** The commands other than `serve`. */

import type { Command, CommandSettings, Feature } from "../api/feature.ts";
import { UsageError } from "../usage.ts";

const read = () => import("./read.ts");
const copy = () => import("./backup.ts");
const help = () => import("./help.ts");

/** Imports the module of each command that no feature adds. */
const modules = new Map(
  Object.entries<() => Promise<Pick<Feature, "commands">>>({
    init: () => import("./declaration/init.ts"),
    locked: () => import("./locked.ts"),
    check: read,
    repair: () => import("./repair.ts"),
    backup: copy,
    copy,
    user: () => import("./user.ts"),
    prune: () => import("./prune.ts"),
    export: () => import("./export/command.ts"),
    log: () => import("./log/command.ts"),
    help,
    version: help,
  }),
);

/**
 * Loads a command, which a feature may have added.
 *
 * @throws {UsageError} if there is none of that name
 */
export async function loadCommand(
  name: string,
  { loadFeatures }: CommandSettings,
): Promise<Command> {
  const load = modules.get(name);
  const sources = load ? [await load()] : await loadFeatures();
  const [, command] = sources
    .flatMap(({ commands = {} }) => Object.entries(commands))
    .find(([each]) => each === name) ?? [];
  if (command !== undefined) return command;
  throw new UsageError(
    `unknown command ${
      JSON.stringify(name)
    }: see "zoo-api help", or data/README.md`,
  );
}
