/** The command `import`. */

import { createReadStream } from "node:fs";
import process from "node:process";
import type { CommandSettings } from "../../api/feature.ts";
import { localOperator, recordsOf } from "../../api/operator.ts";
import { usersWithHashes } from "../../api/records/imported.ts";
import type { Records } from "../../api/records/records.ts";
import type { RequestContext } from "../../api/request-context.ts";
import { tablesOf } from "../../api/routes.ts";
import { CommandError, UsageError } from "../../usage.ts";
import { openDataFolder } from "../../data-folder.ts";
import { print, showProgress, unknownCollection } from "../../cli/output.ts";
import { errorText } from "../../store/error.ts";
import { receiveImport } from "./requests.ts";
import { findTask, type ImportContext, type Task, tasks } from "./task.ts";
import { createWorker } from "./worker.ts";

/**
 * Runs `import COLLECTION FILE`: imports one JSON object per line, as POST
 * would. If the process ends early, the next start of the server resumes the
 * import, except one of users: hashes are accepted only here, never over HTTP.
 *
 * @returns the exit code: 0 if all lines were imported, 1 if some were rejected
 * @throws {UsageError} on an unknown collection, or without a file
 */
export async function importCommand(
  { dataDir, etcd, loadApi }: CommandSettings,
  [name, file]: readonly string[],
): Promise<number> {
  const declaration = await loadApi();
  const { roles } = declaration;
  const names = declaration.collections.map(({ name }) => name)
    .concat("users");
  if (name === undefined || !names.includes(name)) {
    throw unknownCollection("import", name, names);
  }
  if (file === undefined) {
    throw new UsageError("import: name a file: import COLLECTION FILE");
  }
  const collections = () => [tasks(roles)];
  const tables = tablesOf(declaration, [{ collections }]);
  const store = await openDataFolder(dataDir, declaration, {
    isFixed: true,
    etcd,
    log,
    tables,
  });
  try {
    const users = usersWithHashes(roles);
    const target = (name: string) =>
      recordsOf(store, declaration, name === "users" ? users : name);
    // Any collection, because the worker also resumes unfinished imports of a
    // server.
    const importable = (name: string) =>
      names.includes(name) ? target(name) : undefined;
    const context = {
      declaration,
      store,
      records: recordsOf(store, declaration, tasks(roles)),
      importable,
      now: Date.now,
      log,
    };
    return await report(await importFile(context, file, target(name)));
  } finally {
    await store.close();
  }
}

/** The request that an import receives its body with. */
const call: RequestContext = {
  client: "",
  ids: [],
  caller: localOperator,
  url: "",
  method: "",
  format: undefined,
  headers: {},
  checkPreconditions: () => false,
  validators: () => [],
  runOnce: ({ execute }) => execute(),
  scope: () => undefined,
  authenticate: () => localOperator,
  afterWaiting: async (promise, resume) => await resume(await promise),
  signal: new AbortController().signal,
};

function log(level: string, message: string): void {
  if (level === "error") process.stderr.write(`zoo-api: ${message}\n`);
}

/** Imports a file; returns its task once the import has ended or cannot continue. */
async function importFile(
  context: ImportContext,
  file: string,
  target: Records,
): Promise<Task | undefined> {
  const worker = createWorker(context);
  let bytes = 0;
  await receiveImport(worker, {
    call,
    body: readInput(file, (count) => bytes += count),
    target,
  });
  const { lastId } = context.records.table;
  const task = () => findTask(context, lastId);
  const endProgress = showProgress(() => Number(task()?.byte) / bytes);
  await worker.idle();
  endProgress();
  return task();
}

/** Yields the bytes of a file, or of standard input. */
async function* readInput(
  file: string,
  onBytes: (count: number) => void,
): AsyncGenerator<Uint8Array> {
  try {
    const input = file === "-" ? process.stdin : createReadStream(file);
    for await (const bytes of input) {
      onBytes(bytes.length);
      yield bytes;
    }
  } catch (error) {
    throw new CommandError(`cannot read ${file}: ${errorText(error)}`);
  }
}

/** Prints the result of an import and returns the exit code. */
async function report(task: Task | undefined): Promise<number> {
  if (task === undefined) throw new Error("The import task no longer exists");
  const { status, failure, imported, rejected, collection, errors } = task;
  for (const { line, errors: found } of errors) {
    const messages = found.map(({ message }) => message).join(" ");
    process.stderr.write(`line ${line}: ${messages}\n`);
  }
  if (rejected > errors.length) {
    process.stderr.write("only the first rejected lines are listed\n");
  }
  await print(`imported ${imported} ${collection}, rejected ${rejected}\n`);
  if (status === "succeeded") return rejected === 0 ? 0 : 1;
  throw new CommandError(
    `the import did not finish: ${
      failure ?? "the next start of the server resumes it"
    }`,
  );
}
