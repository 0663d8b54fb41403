/**
 * The first start of a server: it creates in the data folder the secret that
 * signs tokens, and the user admin, whose random password is in a file until it
 * is changed.
 */

import { randomBytes } from "node:crypto";
import { join } from "node:path";
import process from "node:process";
import type { ApiDeclaration } from "./api/declaration/api.ts";
import { createUser } from "./api/operator.ts";
import { badSecret, canSign } from "./auth/jwt.ts";
import { CommandError } from "./usage.ts";
import { ApiError } from "./http/errors.ts";
import { readSmallFile, realFiles, writeSmallFile } from "./store/log/files.ts";
import type { Logger, Store } from "./store/store.ts";

/** The file with the random password of the first admin, which exists until that password is changed. */
const passwordFile = "admin-password";

/**
 * Returns the secret in the file `secret` of the data folder, which must be
 * locked. Creates the file if it is missing; it is on the disk before it signs
 * anything, so tokens stay valid after a power cut.
 *
 * @throws {CommandError} if the file holds fewer than 32 bytes, or no text; {Error} of the
 * file system
 */
export async function loadSecret(folder: string): Promise<readonly string[]> {
  const stored = await readSmallFile(realFiles, folder, "secret");
  const secret = stored?.toString().trim() ??
    randomBytes(32).toString("base64url");
  if (!canSign(secret)) {
    throw new CommandError(
      `cannot sign with the file "secret" in ${folder}: ${badSecret}`,
    );
  }
  if (!stored) {
    await writeSmallFile(realFiles, join(folder, "secret"), `${secret}\n`);
  }
  return [secret];
}

/**
 * Creates the user admin if nobody has the highest role. A random password is
 * printed if a person sees it. A log may have many readers, so otherwise the
 * password is written to a file, durably, before the user is created.
 */
export async function createFirstAdmin(
  store: Store,
  { declaration, DATA_DIR, ADMIN_PASSWORD }: {
    readonly declaration: ApiDeclaration;
    readonly DATA_DIR: string;
    readonly ADMIN_PASSWORD: string | undefined;
  },
  { log, print }: Readonly<Record<"log" | "print", Logger>>,
): Promise<void> {
  const users = store.table("users");
  const role = declaration.roles.highest;
  const exists = () =>
    users.count("role", role) + users.count("username", "admin") > 0;
  if (exists()) return;
  const password = ADMIN_PASSWORD ?? randomBytes(15).toString("base64url");
  const isWritten = !ADMIN_PASSWORD && !process.stdout.isTTY;
  const path = join(DATA_DIR, passwordFile);
  if (isWritten) await writeSmallFile(realFiles, path, `${password}\n`);
  try {
    await explainInvalid(
      createUser(store, declaration, { username: "admin", role, password }),
    );
  } catch (error) {
    if (!exists()) throw error;
    // Another server was first.
    if (isWritten) await removePasswordFile(DATA_DIR);
    return;
  }
  const message = "created user admin";
  if (isWritten) return print("info", message, { password_file: path });
  log("info", message);
  if (!ADMIN_PASSWORD) {
    process.stdout.write(`The password of admin is ${password}\n`);
  }
}

/** Removes the file with the random password of the first admin, if it exists. */
export function removePasswordFile(folder: string): Promise<void> {
  return realFiles.remove(join(folder, passwordFile));
}

/** Removes the file with the random password as soon as another password, or the deletion of that user, is durable. */
export function removeChangedPassword(store: Store, folder: string): void {
  const users = store.table("users");
  const [first] = users.find("username", "admin").concat(users.rows(0, 1)); // or renamed
  if (!first) return;
  const { id, password } = first.document;
  const removeIfChanged = () => {
    const row = users.get(id);
    const seq = row?.seq ?? users.lastSeq;
    const isSame = row?.document["password"] === password;
    if (isSame || seq > store.durableSeq) return;
    store.advanceListeners.delete(removeIfChanged);
    removePasswordFile(folder).catch(() => {});
  };
  store.advanceListeners.add(removeIfChanged);
}

/** Waits for a change by the operator, and reports failed validation in one line. */
export async function explainInvalid(change: Promise<unknown>): Promise<void> {
  try {
    await change;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const messages = error.errors?.map(({ message }) => message);
    throw new CommandError(messages?.join(" ") ?? error.message);
  }
}
