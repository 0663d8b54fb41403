/** The commands `help` and `version`. */

import { readFileSync } from "node:fs";
import type { Setting } from "../api/settings/setting.ts";
import { settings } from "../config.ts";
import { etcdSettings } from "../etcd/settings.ts";
import { featureNames, loadFeatures } from "../features.ts";
import { flagOf } from "./command-line.ts";
import type { Commands } from "../api/feature.ts";
import { print } from "./output.ts";

export const commands: Commands = {
  help: [0, printHelp],
  version: [0, printVersion],
};

const text = `zoo-api: a REST API on a durable store

Usage: zoo-api [COMMAND] [FLAGS]

Commands:
  serve [--sample]            serve the API until SIGTERM or SIGINT (the default);
                              --sample: the sample API with its sample records,
                              unless COLLECTIONS or SEED is set
  locked [--sample]           the same with as few rights as Node.js can give: writes
                              only the data folder, starts no process
  init FILE                   write a declaration of an API to start from
  check                       read the whole data folder and report every fault;
                              exit code 0: none, 1: an incomplete last write, 2: another fault
  repair [--dry-run]          make a damaged data folder usable, keeping a copy, and
                              report the losses; with --dry-run only report them:
                              exit code 0: nothing to repair, 2: damage
  copy --from STORE --to STORE
                              copy a store between a folder and etcd, everything in it
  backup DIR                  copy the store into an empty folder, even while it is served
  user add NAME [--role ROLE] create a user; reads the password from standard input
  user password NAME          change a password, read from standard input
  user list                   print id, name, role and time of creation
  export COLLECTION           print all records as NDJSON: one JSON object per line
  export --to FOLDER          write all collections to files, for import --from
  export users --with-hashes  print all users with their password hashes; redirect the
                              output only to a private file, after umask 077
  log [COLLECTION[/ID]] [--user NAME]
                              print who changed what and when, as far back as the
                              folder holds logs; NAME of then, or #ID
  import COLLECTION FILE [COLLECTION FILE …]
                              create records from NDJSON (- is standard input);
                              exit code 0: all were created, 1: some were rejected;
                              for users: the output of export users --with-hashes
  import --from FOLDER        create records from what export --to has written
  prune COLLECTION[.PROPERTY] permanently delete data that is stored but not declared
  prune answers               forget all idempotency keys
  help, version               print this, or the version

Settings (a flag overrides its environment variable):
`;

/** Prints the commands and all settings, also those of features that are off. */
async function printHelp(): Promise<void> {
  const features = await loadFeatures(featureNames, () => true);
  const all: readonly [string, Setting][] = [
    settings,
    etcdSettings,
    ...features.map((each) => each.settings ?? {}),
  ].flatMap((table) => Object.entries(table));
  await print(text + all.map(describeSetting).join(""));
}

async function printVersion(): Promise<void> {
  const file = new URL("../../package.json", import.meta.url);
  const { version } = JSON.parse(readFileSync(file, "utf8"));
  await print(`${version}\n`);
}

/** Describes a setting in two lines. */
function describeSetting([variable, setting]: [string, Setting]): string {
  const { file, description, default: value } = setting;
  const { defaultText = value ?? "none" } = setting;
  const flag = `--${flagOf(variable, setting)} ${file ? "FILE" : "VALUE"}`;
  const names = file === "flag" ? `${variable} or ${variable}_FILE` : variable;
  return `  ${flag.padEnd(28)}${description}\n${
    "".padEnd(30)
  }variable ${names}, default: ${defaultText}\n`;
}
