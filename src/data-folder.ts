/** The data folder as all commands use it: opening and reading it, its records, its users. */

import { once } from "node:events";
import process from "node:process";
import { userRules, users } from "./api/accounts/users.ts";
import {
  type Declaration,
  deriveCollections,
} from "./api/declaration/declaration.ts";
import { Records, type RecordsOptions } from "./api/records/records.ts";
import { createRecord } from "./api/records/writing.ts";
import type { RequestContext, Result } from "./api/request-context.ts";
import { tablesOf } from "./api/routes.ts";
import { collections } from "./collections.ts";
import { UsageError } from "./config.ts";
import { ApiError } from "./http/errors.ts";
import {
  type Fault,
  openStore,
  readStore,
  type Store,
  StoreError,
  type StoreOptions,
} from "./store/store.ts";

/** A command that could not be carried out; exit code 1. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

/** Who works at the keyboard is no user: the log names 0. */
export const operator: RequestContext = {
  ids: [],
  caller: undefined,
  url: "",
  method: "",
  asNdjson: false,
  headers: {},
  reauthenticate: () => undefined,
  afterWaiting: async (promise, resume) => await resume(await promise),
  throwIfAborted: () => {},
  abortSignal: () => new AbortController().signal,
  acquireExportSlot: () => {},
};

/** Prints a text on standard output and waits until it is taken. */
export async function print(text: string): Promise<void> {
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
  options: Partial<Pick<StoreOptions, "tables" | "log">> = {},
): Promise<Store> {
  return await withFolderError(
    folder,
    () => openStore({ folder, tables: tablesOf(collections, []), ...options }),
  );
}

/** Reads a data folder that another process may be writing to. */
export async function readDataFolder(folder: string) {
  return await withFolderError(
    folder,
    () => readStore(folder, { tables: tablesOf(collections, []) }),
  );
}

/** The same, but of damage nothing is shown: half of the records would look like all. */
export async function readUndamagedFolder(folder: string) {
  const found = await readDataFolder(folder);
  if (found.refusal !== undefined) throw found.refusal;
  return found;
}

/** An error of the operating system as one line that names the folder. */
export async function withFolderError<T>(
  folder: string,
  open: () => Promise<T>,
): Promise<T> {
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

/** Formats a fault as one line. */
export function describeFault({ file, byte, line, message }: Fault): string {
  return `${file}, byte ${byte}, line ${line}: ${message}`;
}

export function unknownCollection(
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

/** The records of a collection, with the rules that hold for them over HTTP. */
export function recordsOf(
  store: Store,
  name: string,
  others: readonly Declaration[] = [],
): Records {
  const derived = deriveCollections(collections, [users, ...others]);
  const context: RecordsOptions = {
    store,
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
    () => createRecord(recordsOf(store, users.name), operator, body),
  );
}

/** Makes a change durable; a failed validation is told in one line. */
export async function commitOrExplain(
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
