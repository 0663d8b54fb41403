/** The command `import`. */

import { createReadStream } from "node:fs";
import process from "node:process";
import type { CommandSettings } from "../../api/feature.ts";
import { tablesOf } from "../../api/routes.ts";
import { collections } from "../../collections.ts";
import { UsageError } from "../../config.ts";
import {
  CommandError,
  openDataFolder,
  operator,
  print,
  recordsOf,
  unknownCollection,
} from "../../data-folder.ts";
import type { Log } from "../../log.ts";
import type { Document } from "../../store/store.ts";
import { Spools } from "./spool.ts";
import { type RejectedLine, Tasks, tasks } from "./tasks.ts";

/**
 * Carries out `import COLLECTION FILE`.
 *
 * @returns the exit code: 0 where all went in, 1 where some were rejected
 * @throws {UsageError} on an unknown collection, or without a file
 */
export async function importCommand(
  [name, file]: readonly string[],
  { dataDir }: CommandSettings,
): Promise<number> {
  const known = collections.map(({ name }) => name);
  if (name !== undefined && file === undefined) {
    throw new UsageError("import: name a file: import COLLECTION FILE");
  }
  if (name === undefined || !known.includes(name)) {
    throw unknownCollection("import", name, known);
  }
  return await importInto(dataDir, name, readInput(file ?? ""));
}

/** The bytes of a file, or of standard input. */
async function* readInput(file: string): AsyncGenerator<Uint8Array> {
  try {
    yield* file === "-" ? process.stdin : createReadStream(file);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CommandError(`cannot read ${file}: ${reason}`);
  }
}

/**
 * Imports records, a JSON object a line, as POST of the collection would: taken
 * to disk first, then worked off. If the process ends before, the next start of
 * the server goes on.
 *
 * @returns the exit code: 0 where all went in, 1 where some were rejected
 */
async function importInto(
  folder: string,
  name: string,
  lines: AsyncIterable<Uint8Array>,
): Promise<number> {
  const log: Log = (level, message) => {
    if (level === "error") process.stderr.write(`zoo-api: ${message}\n`);
  };
  const store = await openDataFolder(folder, {
    log,
    tables: tablesOf(collections, [{ collections: [tasks] }]),
  });
  try {
    const spools = new Spools(store);
    const into = recordsOf(store, name);
    const records = recordsOf(store, tasks.name, [tasks]);
    // All, as it also goes on with what a server left unfinished.
    const importable = new Map(
      collections.map(({ name }) => [name, recordsOf(store, name)]),
    );
    const work = new Tasks({
      store,
      spools,
      records,
      importable,
      now: Date.now,
      log,
    });
    await work.receive(operator, lines, {
      records: into,
      once: (_hash, carryOut) => carryOut(),
    });
    const { table } = records;
    const { lastId: id } = table;
    await work.idle();
    return await report(table.get(id)?.document ?? { id });
  } finally {
    await store.close();
  }
}

/** Tells how an import went; returns the exit code. */
async function report(task: Document): Promise<number> {
  const { status, failure, imported, rejected, collection, errors } = task;
  for (const each of Array.isArray(errors) ? errors : []) {
    const { line, errors } = each as RejectedLine;
    const messages = errors.map(({ message }) => message).join(" ");
    process.stderr.write(`line ${line}: ${messages}\n`);
  }
  if (Number(rejected) > (Array.isArray(errors) ? errors.length : 0)) {
    process.stderr.write("and more, which are not shown\n");
  }
  await print(`imported ${imported} ${collection}, rejected ${rejected}\n`);
  if (status === "succeeded") return rejected === 0 ? 0 : 1;
  throw new CommandError(
    `the import did not end: ${
      failure ?? "the next start of the server goes on with it"
    }`,
  );
}
