/** The command `import`: NDJSON files into an existing store. */

import { constants, createReadStream } from "node:fs";
import { access, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { addAbortSignal } from "node:stream";
import type { ApiDeclaration } from "../../api/declaration/api.ts";
import type { CommandSettings } from "../../api/feature.ts";
import { recordsOf } from "../../api/records/local.ts";
import { awaitedTable } from "../../api/own-tables.ts";
import { isOwnTask, isUnfinished, tasks } from "../../api/tasks/tasks.ts";
import { usersWithHashes } from "../../api/records/imported.ts";
import type { Records } from "../../api/records/records.ts";
import { tablesOf } from "../../api/routes.ts";
import { CommandError, UsageError } from "../../usage.ts";
import { openDataFolder } from "../../data-folder.ts";
import { followInCommand } from "../../cli/declaration/followed.ts";
import "../../store/memory/exchange.ts";
import * as marker from "../../store/log/marker.ts";
import { reserves } from "../../store/reserves.ts";
import {
  print,
  printError,
  reportTasks,
  showProgress,
  unknownCollection,
} from "../../cli/output.ts";
import { errorText } from "../../store/error.ts";
import { storeFiles } from "./requests.ts";
import {
  findTask,
  type ImportContext,
  partsOf,
  type Task,
  unfinishedTasks,
} from "./task.ts";
import { createWorker } from "./worker.ts";

/** A file to import. */
interface Source {
  readonly collection: string;
  readonly file: string;
}

/**
 * Runs `import COLLECTION FILE [COLLECTION FILE …]` or `import --from FOLDER`:
 * imports one JSON object per line, as POST would; references may lead from any
 * file to any other. If the process ends early, the next start of the server
 * resumes the import, except one of users: hashes are accepted only here, never
 * over HTTP.
 *
 * @returns the exit code: 0 if all lines were imported, 1 if some were rejected, also
 * of an earlier import that is finished now
 * @throws {UsageError} on an unknown collection, or without a file
 */
export async function importCommand(
  { dataDir, etcd, flags, loadApi }: CommandSettings,
  args: readonly string[],
): Promise<number> {
  const declaration = await loadApi();
  const { roles } = declaration;
  const names = declaration.collections.map(({ name }) => name)
    .concat("users");
  const from = flags.get("from");
  const sources = from === undefined
    ? sourcesOf(args, names)
    : await sourcesIn(from, args, names);
  await requireFiles(sources);
  warnOfOwners(sources, declaration);
  const collections = () => [tasks(roles)];
  const own = { collections, tables: [{ name: awaitedTable }] };
  const tables = tablesOf(declaration, [own]);
  const store = await openDataFolder(dataDir, declaration, {
    adaptRecords: followInCommand,
    etcd,
    log,
    marker,
    ...reserves(),
    tables,
  });
  try {
    reportTasks(store.tables);
    const users = usersWithHashes(roles);
    // Any collection, because the worker also resumes unfinished imports of a
    // server.
    const importable = (name: string) =>
      names.includes(name)
        ? recordsOf(store, declaration, name === "users" ? users : name)
        : undefined;
    const context = {
      declaration,
      store,
      records: recordsOf(store, declaration, tasks(roles)),
      importable,
      now: Date.now,
      log,
      isAlone: true,
    };
    const earlier = unfinishedTasks(context)
      .filter((task) => isOwnTask(context, task));
    let code = 0;
    const importing = importFiles(context, requiredFirst(sources, importable));
    await importing.catch(() => {}); // somebody may have deleted its task
    for (const { id } of earlier) {
      const ended = findTask(context, id);
      if (ended === undefined || isUnfinished(ended)) continue;
      code = Math.max(code, await report(ended, `task ${id}, resumed: `));
    }
    return Math.max(code, await report(await importing));
  } finally {
    await store.close();
  }
}

/** Returns the collections and files that the arguments name in pairs. */
function sourcesOf(
  args: readonly string[],
  names: readonly string[],
): readonly Source[] {
  const sources: Source[] = [];
  for (let at = 0; at < Math.max(args.length, 1); at += 2) {
    const [collection, file] = args.slice(at);
    if (collection === undefined || !names.includes(collection)) {
      throw unknownCollection("import", collection, names);
    }
    if (sources.some((each) => each.collection === collection)) {
      throw new UsageError(`import: name ${collection} once`);
    }
    if (!file) {
      throw new UsageError(
        `import: name a file for ${collection}: import COLLECTION FILE`,
      );
    }
    sources.push({ collection, file });
  }
  return sources;
}

/** Throws unless all files can be read: before anything is opened. */
async function requireFiles(sources: readonly Source[]): Promise<void> {
  const files = sources.map(({ file }) => file);
  if (files.indexOf("-") !== files.lastIndexOf("-")) {
    throw new UsageError("import: standard input is one file: name - once");
  }
  for (const file of files) {
    if (file === "-") continue;
    await access(file, constants.R_OK);
    if ((await stat(file)).isDirectory()) {
      throw new CommandError(`${file}: it is a folder`);
    }
  }
}

/** Warns that private records get no owner. */
function warnOfOwners(
  sources: readonly Source[],
  { collections }: ApiDeclaration,
): void {
  const given = new Set(sources.map(({ collection }) => collection));
  const ownerless = collections
    .filter((each) => each.private && given.has(each.name))
    .map(({ name }) => name).join(", ");
  if (given.has("users") || ownerless === "") return;
  printError(
    `zoo-api: private records of ${ownerless} get no owner: owners come only with the file of the users in the same command, the output of export users --with-hashes`,
  );
}

/** Returns the files in a folder that `export --to` has written. */
async function sourcesIn(
  folder: string,
  args: readonly string[],
  names: readonly string[],
): Promise<readonly Source[]> {
  if (args.length > 0) {
    throw new UsageError("import: name files or --from, not both");
  }
  const files = await readdir(folder);
  const part = files.find((file) => file.endsWith(".ndjson.part"));
  if (part !== undefined) {
    throw new CommandError(
      `${folder}/${part} is what is left of an export that was interrupted, so the folder is not whole: export again, into another folder`,
    );
  }
  const sources = files.filter((file) => file.endsWith(".ndjson")).sort()
    .map((file) => ({
      collection: file.slice(0, -".ndjson".length),
      file: join(folder, file),
    }));
  if (sources.length === 0) {
    throw new CommandError(`${folder} holds no file COLLECTION.ndjson`);
  }
  for (const { collection } of sources) {
    if (names.includes(collection)) continue;
    throw new CommandError(
      `${folder}/${collection}.ndjson is of no collection of this API: one of ${
        names.join(", ")
      }`,
    );
  }
  const lacking = names.filter((name) =>
    name !== "users" && !sources.some(({ collection }) => collection === name)
  );
  if (lacking.length > 0) {
    printError(
      `zoo-api: ${folder} has no file of ${
        lacking.join(", ")
      }: nothing of that is imported`,
    );
  }
  return sources;
}

/** Sorts files so that each comes after that of the users, and those of the collections that its records must refer to. */
function requiredFirst(
  sources: readonly Source[],
  find: (name: string) => Records | undefined,
): readonly Source[] {
  const sorted = new Set<Source>();
  const add = (source: Source) => {
    const { parents = [] } = find(source.collection)?.collection ?? {};
    for (const { isRequired, target } of parents) {
      const parent = sources.find(({ collection }) =>
        collection === target.name
      );
      // Required references form no circle.
      if (isRequired && parent && !sorted.has(parent)) add(parent);
    }
    sorted.add(source);
  };
  for (const source of sources) {
    if (source.collection === "users") add(source);
  }
  for (const source of sources) add(source);
  return [...sorted];
}

function log(level: string, message: string): void {
  if (level === "error") printError(`zoo-api: ${message}`);
}

/** Signals that end the command: it says what is in, and what happens next. */
const endings = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/**
 * Imports files; returns the task once the import has ended or cannot continue.
 *
 * @throws {CommandError} if somebody deletes the task on a server
 */
async function importFiles(
  context: ImportContext,
  sources: readonly Source[],
): Promise<Task> {
  const worker = createWorker(context);
  const sizes = sources.map(() => 0);
  const reading = new AbortController();
  const { signal } = reading;
  let isStored = false;
  const interrupt = () => {
    if (isStored) return void worker.stop();
    // A FIFO that nobody writes cannot be closed: the next signal ends the process.
    for (const name of endings) process.off(name, interrupt);
    reading.abort();
  };
  for (const name of endings) process.on(name, interrupt);
  const files = sources.map(({ collection, file }, at) => ({
    collection,
    body: readInput(file, {
      signal,
      onBytes: (count) => sizes[at] = (sizes[at] ?? 0) + count,
    }),
  }));
  try {
    const id = await storeFiles(worker, files);
    isStored = true;
    if (!signal.aborted) await worker.start(); // or it was interrupted at the last moment
    const task = () => findTask(context, id);
    let before = task();
    context.records.table.listeners.add((row) => {
      if (row?.document.id === id) before = row.document as Task;
    });
    const endProgress = showProgress(() => {
      const { part = 0, byte = 0 } = task() ?? {};
      return (part + byte / (sizes[part] || Infinity)) / sizes.length;
    });
    await worker.idle();
    await worker.stop();
    endProgress();
    const ended = task();
    if (ended) return ended;
    throw new CommandError(
      `the import was cancelled with DELETE /v1/tasks/${id}: ${before?.imported} records are in`,
    );
  } finally {
    for (const name of endings) process.off(name, interrupt);
  }
}

/** Yields the bytes of a file, or of standard input. */
async function* readInput(
  file: string,
  { signal, onBytes }: {
    readonly signal: AbortSignal;
    readonly onBytes: (count: number) => void;
  },
): AsyncGenerator<Uint8Array> {
  try {
    const input = file === "-" ? process.stdin : createReadStream(file);
    for await (const bytes of addAbortSignal(signal, input)) {
      onBytes(bytes.length);
      yield bytes;
    }
  } catch (error) {
    throw new CommandError(
      signal.aborted
        ? "interrupted while the files were read: nothing was imported"
        : `cannot read ${file}: ${errorText(error)}`,
    );
  }
}

/** Prints the result of an import, after the name of an earlier one, and returns the exit code. */
async function report(task: Task, name = ""): Promise<number> {
  const { id, status, failure, imported, rejected, errors, server } = task;
  const names = partsOf(task).map(({ collection }) => collection).join(", ");
  for (const { collection, line, errors: found } of errors) {
    const messages = found.map(({ message }) => message).join(" ");
    const place = collection === undefined ? "" : `${collection} `;
    printError(`${name}${place}line ${line}: ${messages}`);
  }
  if (rejected > errors.length) {
    printError("only the first rejected lines are listed");
  }
  if (errors.some(({ collection }) => collection === "users")) {
    printError(
      name +
        "private records of the users who were rejected have no owner: to keep the owners, import into a store without users",
    );
  }
  await print(`${name}imported ${imported} ${names}, rejected ${rejected}\n`);
  if (status === "succeeded") return errors.length === 0 ? 0 : 1;
  const [next, paused = ""] = server !== undefined // shared by several
    ? [
      "the next import from this data folder finishes it if it begins within a minute; after that, a running server ends it",
    ]
    : names.includes("users")
    ? [
      "the next import finishes it, but no start of the server, which accepts no hashes",
    ]
    : [
      "the next start of the server, or the next import, finishes it",
      ", after a start with FEATURES that have deletions but not imports, which lets it wait",
    ];
  printError(
    `zoo-api: ${name}the import did not finish: ${
      failure ??
        `${next}; to repeat it would import it twice, and DELETE /v1/tasks/${id} cancels the rest${paused}`
    }`,
  );
  return 1;
}
