/** The commands beside `serve`: what an operator does at the keyboard. */

import { once } from "node:events";
import process from "node:process";
import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import { roles } from "../auth/access.ts";
import { deriveCollections } from "../api/declaration/declaration.ts";
import {
  type RequestContext,
  type RecordsContext,
  Records,
  type Result,
} from "../api/records.ts";
import { Representation } from "../api/representation.ts";
import { type RejectedLine, Tasks, tasks } from "../features/imports/tasks.ts";
import { userRules, users } from "../api/accounts/users.ts";
import { ApiError } from "../http/errors.ts";
import { collections } from "../collections.ts";
import { UsageError } from "../config.ts";
import type { Log } from "../log.ts";
import { tablesFor } from "../features.ts";
import {
  backupStore,
  type Document,
  type Fault,
  openStore,
  readStore,
  repairStore,
  type Store,
  StoreError,
} from "../store/store.ts";

/** A command that could not be carried out; exit code 1. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

/** Who works at the keyboard is no user: the log names 0. */
const operator: RequestContext = {
  ids: [],
  caller: undefined,
  url: "",
  method: "",
  asNdjson: false,
  headers: {},
  reauthenticate: () => undefined,
  throwIfAborted: () => {},
  abortSignal: () => new AbortController().signal,
  acquireExportSlot: () => {},
};

/** Prints a text on standard output and waits until it is taken. */
async function print(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, "drain");
}

/**
 * Opens the store of a data folder.
 *
 * @throws {StoreError} in-use, damaged, format; {CommandError} on what the
 * operating system refuses
 */
export async function openDataFolder(
  folder: string,
  log?: Log,
): Promise<Store> {
  return await withFolderError(
    folder,
    () =>
      openStore({
        folder,
        tables: tablesFor(collections),
        ...(log && { log }),
      }),
  );
}

/** Reads a data folder that another process may be writing to. */
async function readDataFolder(folder: string) {
  return await withFolderError(
    folder,
    () => readStore(folder, { tables: tablesFor(collections) }),
  );
}

/** The same, but of damage nothing is shown: half of the records would look like all. */
async function readUndamagedFolder(folder: string) {
  const found = await readDataFolder(folder);
  if (found.refusal !== undefined) throw found.refusal;
  return found;
}

/** An error of the operating system as one line that names the folder. */
async function withFolderError<T>(folder: string, open: () => Promise<T>): Promise<T> {
  try {
    return await open();
  } catch (error) {
    const system = error instanceof Error && "code" in error &&
      !(error instanceof StoreError);
    if (!system) throw error;
    // Node.js 26 lets no process under its permission model call fsync.
    throw new CommandError(
      `cannot open the folder ${folder}: ${error.code}: ${error.message}`,
    );
  }
}

/**
 * Reads the whole data folder, and prints how many records there are and every
 * fault. Changes nothing.
 *
 * @returns the exit code: 0 where all is well, 1 where only the last write is
 * torn, which the next start mends, 2 where there is damage
 */
export async function check(folder: string): Promise<number> {
  const found = await readDataFolder(folder);
  for (const table of found.tables) {
    await print(
      `${table.name}: ${table.size} records, highest id ${table.lastId}\n`,
    );
  }
  await print(`log: generation ${found.generation}, sequence ${found.seq}\n`);
  const { torn, faults } = found;
  if (torn) {
    await print(
      `torn: ${
        describe(torn)
      }; it was never acknowledged, and the next start cuts it off\n`,
    );
  }
  for (const fault of faults) await print(`fault: ${describe(fault)}\n`);
  if (faults.length > 0) return 2;
  if (torn) return 1;
  await print("no fault\n");
  return 0;
}

/**
 * Makes a damaged folder usable again, and prints what was lost. All files as
 * they were are kept.
 *
 * @throws {StoreError} in-use, format, damaged where nothing is readable
 */
export async function repair(folder: string): Promise<void> {
  const done = await withFolderError(folder, () => repairStore(folder));
  if (!done.repaired) return await print("there was nothing to repair\n");
  for (const fault of done.faults) await print(`fault: ${describe(fault)}\n`);
  const lost = done.highest - done.seq;
  await print(
    `repaired: all up to sequence ${done.seq} is kept; ` +
      (lost > 0
        ? `${lost} later transactions are lost\n`
        : "no later transaction was readable\n") +
      `the files as they were are in ${done.backupFolder}\n`,
  );
}

/**
 * Copies the store into another folder, also while a server runs, and reads
 * the copy back.
 *
 * @throws {StoreError} not-empty, damaged; {UsageError} without a folder
 */
export async function backup(
  folder: string,
  to: string | undefined,
): Promise<void> {
  if (to === undefined) {
    throw new UsageError("backup: name a folder to copy to: backup DIR");
  }
  const done = await withFolderError(folder, () => backupStore(folder, to));
  await print(
    `copied ${done.records} records up to sequence ${done.seq} to ${to}, and read them back\n`,
  );
}

function describe({ file, byte, line, message }: Fault): string {
  return `${file}, byte ${byte}, line ${line}: ${message}`;
}

/**
 * Prints the records of a collection as JSON lines, without the properties that
 * hold addresses or secrets.
 *
 * @throws {UsageError} on an unknown collection
 */
export async function exportCollection(
  folder: string,
  name: string | undefined,
): Promise<void> {
  const known = deriveCollections(collections, [users]);
  const collection = known.get(name ?? "");
  if (collection === undefined) {
    throw unknownCollection("export", name, [...known.keys()]);
  }
  const { tables } = await readUndamagedFolder(folder);
  const table = tables.find(({ name }) => name === collection.name);
  const rows = table?.rows() ?? [];
  const representation = new Representation(collection, "");
  for await (const text of representation.toNdjson(rows)) await print(text);
}

/**
 * Imports records, a JSON object a line, as POST of the collection would: taken
 * to disk first, then worked off. If the process ends before, the next start of
 * the server goes on.
 *
 * @returns the exit code: 0 where all went in, 1 where some were rejected
 * @throws {UsageError} on an unknown collection
 */
export async function importCollection(
  folder: string,
  name: string | undefined,
  lines: AsyncIterable<Uint8Array>,
): Promise<number> {
  const known = collections.map(({ name }) => name);
  if (name === undefined || !known.includes(name)) {
    throw unknownCollection("import", name, known);
  }
  const log: Log = (level, message) => {
    if (level === "error") process.stderr.write(`zoo-api: ${message}\n`);
  };
  const store = await openDataFolder(folder, log);
  try {
    const into = recordsOf(store, name);
    const records = recordsOf(store, tasks.name);
    // All, as it also goes on with what a server left unfinished.
    const importable = new Map(
      known.map((name) => [name, recordsOf(store, name)]),
    );
    const work = new Tasks({ store, records, importable, now: Date.now, log });
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

function unknownCollection(
  command: string,
  name: string | undefined,
  known: readonly string[],
): UsageError {
  const allowed = known.join(", ");
  return new UsageError(
    name === undefined
      ? `${command}: name a collection: one of ${allowed}`
      : `${command}: there is no collection ${
        JSON.stringify(name)
      }: allowed are ${allowed}`,
  );
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

/** The `user` command: `add NAME`, `password NAME`, `list`. */
export async function userCommand(
  folder: string,
  [action, name]: readonly string[],
  role: string | undefined,
): Promise<void> {
  const form = "allowed are user add NAME, user password NAME and user list";
  if (role !== undefined && !roles.some((known) => known === role)) {
    throw new UsageError(
      `--role: ${JSON.stringify(role)} is not allowed: it must be one of ${
        roles.join(", ")
      }`,
    );
  }
  if (action === "list" && name === undefined) return await listUsers(folder);
  if ((action !== "add" && action !== "password") || name === undefined) {
    const words = ["user", action, name].filter((word) => word).join(" ");
    throw new UsageError(
      `the command ${JSON.stringify(words)} is not known: ${form}`,
    );
  }
  const store = await openDataFolder(folder);
  try {
    const password = await readPassword();
    if (action === "add") {
      await createUser(store, { username: name, role, password });
      await print(`made the user ${name}\n`);
    } else {
      await changePassword(store, name, password);
      await print(`changed the password of ${name}, who is signed out\n`);
    }
  } finally {
    await store.close();
  }
}

async function listUsers(folder: string): Promise<void> {
  const { tables } = await readUndamagedFolder(folder);
  for (const table of tables) {
    if (table.name !== users.name) continue;
    for (const { document } of table.rows()) {
      const { id, username, role, created_at } = document;
      await print(`${id}\t${username}\t${role}\t${created_at}\n`);
    }
  }
}

/** The records of a collection, with the rules that hold for them over HTTP. */
export function recordsOf(store: Store, name: string): Records {
  const derived = deriveCollections(collections, [users, tasks]);
  const context: RecordsContext = {
    store,
    collections: derived,
    prefix: "",
    now: Date.now,
    requireIfMatch: false,
  };
  const collection = derived.get(name);
  if (collection === undefined) throw new Error(`No collection ${name}`);
  const rules = name === users.name ? userRules(store) : {};
  return new Records(collection, context, rules);
}

/**
 * Makes a user.
 *
 * @throws {CommandError} that says what is wrong with name or password
 */
export async function createUser(
  store: Store,
  { role, ...user }: {
    readonly username: string;
    readonly role?: string | undefined;
    readonly password: string;
  },
): Promise<void> {
  const body = role === undefined ? user : { ...user, role };
  await commitOrExplain(
    store,
    () => recordsOf(store, users.name).create(operator, body),
  );
}

async function changePassword(
  store: Store,
  username: string,
  password: string,
): Promise<void> {
  const records = recordsOf(store, users.name);
  const [row] = records.table.find("username", username);
  if (row === undefined) {
    throw new CommandError(`there is no user ${JSON.stringify(username)}`);
  }
  const call = { ...operator, ids: [row.document.id] };
  await commitOrExplain(store, () => records.change(call, { password }, { partial: true }));
}

/** Makes a change durable; a failed validation is told in one line. */
async function commitOrExplain(
  store: Store,
  change: () => Result | Promise<Result>,
): Promise<void> {
  try {
    const { seq } = await change();
    await store.durable(seq);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const messages = error.errors?.map(({ message }) => message);
    throw new CommandError(messages?.join(" ") ?? error.message);
  }
}

/** The first line of standard input; on a terminal it is asked for, and not shown. */
function readPassword(): Promise<string> {
  const { stdin, stderr } = process;
  const terminal = stdin.isTTY === true;
  if (terminal) stderr.write("Password: ");
  // readline shows what is typed on its output; this one shows nothing.
  const output = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({ input: stdin, output, terminal });
  return new Promise<string>((resolve, reject) => {
    lines.once("line", resolve);
    lines.once("close", () => {
      reject(new CommandError("there is no password on standard input"));
    });
  }).finally(() => {
    lines.close();
    if (terminal) stderr.write("\n");
  });
}
