/**
 * The data folder as the commands use it: opens its store, and changes its
 * records under the same rules as over HTTP.
 */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { WriteStream } from "node:tty";
import type { ApiDeclaration } from "./api/declaration/api.ts";
import {
  type Declaration,
  deriveCollection,
  reservedCollectionNames,
} from "./api/declaration/declaration.ts";
import {
  describeMisfit,
  findMisfits,
  followDeclaration,
  type Misfit,
} from "./api/declaration/evolution.ts";
import { Records } from "./api/records/records.ts";
import { createRecord } from "./api/records/writing.ts";
import type { RequestContext, Result } from "./api/request-context.ts";
import { collectionsOf, tablesOf } from "./api/routes.ts";
import { localOperator } from "./auth/access.ts";
import { ApiError } from "./http/errors.ts";
import {
  readFolderMode,
  realFiles,
  writeAll,
  writeAtomically,
} from "./store/log/files.ts";
import {
  type Json,
  type Logger,
  type Mutation,
  openStore,
  type Store,
  type StoreOptions,
} from "./store/store.ts";

/** The file with the random password of the first admin, which exists until that password is changed. */
const passwordFile = "admin-password";

/** A command that failed for a reason the operator can act on; exit code 1. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

/** The request of a command. The operator is not a user; the log records user id 0. */
export const operator: RequestContext = {
  client: "",
  ids: [],
  caller: localOperator,
  url: "",
  method: "",
  asNdjson: false,
  headers: {},
  authenticate: () => localOperator,
  afterWaiting: async (promise, resume) => await resume(await promise),
  throwIfAborted: () => {},
  acquireSlot: () => {},
};

/**
 * Opens the store of a data folder, and adapts its records to the declaration.
 *
 * @param options with `isFixed`, a declaration other than the remembered one is
 * refused
 * @throws {StoreError} in-use, damaged, format, unusable; {CommandError} if
 * other users may access the folder, or if records do not fit the declaration
 */
export async function openDataFolder(
  folder: string,
  declaration: ApiDeclaration,
  { isFixed = false, ...options }:
    & Partial<StoreOptions>
    & { readonly isFixed?: boolean } = {},
): Promise<Store> {
  await refuseSharedFolder(folder);
  const tables = tablesOf(declaration, []);
  const store = await openStore({ folder, tables, ...options });
  try {
    const { log = () => {} } = options;
    const collections = [...collectionsOf(declaration).values()];
    let isRenamed = false;
    const differing = new Set<string>();
    const follow = (apply: (mutation: Mutation) => void) => {
      const isChanged = followDeclaration(collections, {
        store,
        apply(mutation) {
          isRenamed ||= mutation[0] === "rename";
          apply(mutation);
        },
        onDifference(text) {
          if (!isFixed) log("info", text);
          differing.add(text.split(/[. ]/, 1)[0] ?? "");
        },
      });
      if (isFixed && differing.size > 0) {
        const names = [...differing].join(", ");
        throw new CommandError(
          `the declaration of ${names} is not the one with which the data folder was last served: ` +
            "start the server with it once, or name the other file with --collections",
        );
      }
      const misfits = isChanged ? findMisfits(collections, store) : [];
      if (misfits.length > 0) throw misfitError(misfits);
    };
    const seq = store.transact(0, follow, { allowWhenFull: true });
    await store.durable(seq);
    // Otherwise every start would repeat the renaming until the next
    // checkpoint.
    if (isRenamed) store.checkpoint().catch(() => {});
  } catch (error) {
    await store.close();
    throw error;
  }
  removeChangedPassword(store, join(folder, passwordFile));
  return store;
}

function misfitError(misfits: readonly Misfit[]): CommandError {
  const lines = misfits.map((misfit) => {
    const { code, name } = misfit;
    const isBuiltIn = reservedCollectionNames.includes(
      name.split(".")[0] ?? "",
    );
    const advice = code === "required"
      ? 'make it optional, give it a default, or give its former name with renamed: "…"'
      : "correct them with the previous declaration" +
        (code === "rule" || isBuiltIn
          ? ""
          : ", or remove it from the declaration, start, and delete its values with " +
            `"zoo-api prune ${name}"`);
    return `\n${describeMisfit(misfit)} You can ${advice}`;
  });
  return new CommandError(
    "cannot open the store, because its records do not fit the declaration; " +
      `nothing was changed:${lines.join("")}`,
  );
}

/** Removes the file with the password of the first admin as soon as a new password is durable. */
function removeChangedPassword(store: Store, file: string): void {
  const admins = store.table("users");
  let password: Json | undefined;
  admins.listeners.add({
    onChange(before, after) {
      const old = before?.document["password"];
      const isFirst = before?.document["username"] === "admin";
      if (!isFirst || after?.document["password"] === old) return;
      password ??= old;
      queueMicrotask(() =>
        store.onDurable(store.seq, () => {
          // Unless the change was rolled back.
          const { id } = before.document;
          if (admins.get(id)?.document["password"] === password) return;
          realFiles.remove(file).catch(() => {});
        })
      );
    },
  });
}

/** Throws if the permission bits give other users access to a folder. Windows has none. */
async function refuseSharedFolder(folder: string): Promise<void> {
  const mode = await readFolderMode(folder) ?? 0;
  if (process.platform === "win32" || (mode & 0o077) === 0) return;
  throw new CommandError(
    `other users may access the folder ${folder} (mode ${mode.toString(8)}): ` +
      `run "chmod 700 '${folder}'", or choose a folder for the data alone`,
  );
}

/**
 * Returns the records of a collection, given its name or a declaration without
 * references, with the same rules as over HTTP.
 */
export function recordsOf(
  store: Store,
  declaration: ApiDeclaration,
  of: string | Declaration,
): Records {
  const collection = typeof of === "string"
    ? collectionsOf(declaration).get(of)
    : deriveCollection(of);
  if (collection === undefined) throw new Error(`No collection ${of}`);
  const options = { store, prefix: "", now: Date.now, requireIfMatch: false };
  return new Records(collection, options);
}

/**
 * Creates the user admin if nobody has the highest role. A random password is
 * printed if a person sees it. A log may have many readers, so otherwise the
 * password is written to a file, durably, before the user is created.
 */
export async function createFirstAdmin(
  store: Store,
  { declaration, dataDir, adminPassword }: {
    readonly declaration: ApiDeclaration;
    readonly dataDir: string;
    readonly adminPassword: string | undefined;
  },
  { log, print, terminal }: {
    readonly log: Logger;
    readonly print: Logger;
    readonly terminal: Pick<WriteStream, "isTTY" | "write">;
  },
): Promise<void> {
  const users = store.table("users");
  const role = declaration.roles.highest;
  if (users.count("role", role) + users.count("username", "admin") > 0) return;
  const password = adminPassword ?? randomBytes(15).toString("base64url");
  const isShown = adminPassword === undefined && terminal.isTTY;
  const isWritten = adminPassword === undefined && !terminal.isTTY;
  const path = join(dataDir, passwordFile);
  if (isWritten) await writeSecret(path, password);
  await createUser(store, declaration, { username: "admin", role, password });
  const message = "created user admin";
  if (isWritten) print("info", message, { password_file: path });
  else log("info", message);
  if (isShown) terminal.write(`The password of admin is ${password}\n`);
}

/** Writes a line that only the owner may read, durably. */
export async function writeSecret(path: string, text: string): Promise<void> {
  await writeAtomically(
    realFiles,
    path,
    (file) => writeAll(file, Buffer.from(`${text}\n`), 0),
  );
}

/** @throws {CommandError} if the name, role or password is invalid */
export async function createUser(
  store: Store,
  declaration: ApiDeclaration,
  user: Readonly<Record<string, unknown>>,
): Promise<void> {
  await commitOrExplain(
    store,
    () => createRecord(recordsOf(store, declaration, "users"), operator, user),
  );
}

/** Makes a change durable; reports failed validation in one line. */
export async function commitOrExplain(
  store: Store,
  change: () => Pick<Result, "seq"> | Promise<Pick<Result, "seq">>,
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
