/** The command `user`: creates users, changes their passwords and lists them. */

import process from "node:process";
import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import type { Commands, CommandSettings } from "../api/feature.ts";
import type { Values } from "../api/declaration/properties.ts";
import { createUser, localOperator, requester } from "../api/operator.ts";
import type { Records } from "../api/records/records.ts";
import { hashSecret } from "../api/records/writing.ts";
import { recordsOf } from "../api/records/local.ts";
import { CommandError, UsageError } from "../usage.ts";
import { openDataFolder } from "../data-folder.ts";
import { followInCommand } from "./declaration/followed.ts";
import "../store/memory/exchange.ts";
import * as marker from "../store/log/marker.ts";
import { reserves } from "../store/reserves.ts";
import { explainInvalid, removePasswordFile } from "../first-start.ts";
import { print, printError, reportTasks } from "./output.ts";
import { foldText } from "../store/store.ts";
import { readUndamagedStore, requireStore } from "./read.ts";

export const commands: Commands = {
  user: [2, userCommand],
};

/** Runs `user add NAME`, `user password NAME` or `user list`. */
async function userCommand(
  { dataDir, etcd, flags, loadApi }: CommandSettings,
  [action, name]: readonly string[],
): Promise<void> {
  if (action === "list" && name === undefined) {
    const { tables } = await readUndamagedStore({ dataDir, etcd });
    for (const { document } of tables.get("users")?.rows() ?? []) {
      const { id, username, role, created_at } = document;
      await print(`${id}\t${username}\t${role}\t${created_at}\n`);
    }
    return;
  }
  if ((action !== "add" && action !== "password") || name === undefined) {
    const given = ["user", action ?? []].flat().join(" ");
    throw new UsageError(
      `${given}: it must be user add NAME, user password NAME or user list; users are removed over HTTP, with DELETE /v1/users/ID`,
    );
  }
  const declaration = await loadApi();
  if (action === "password") await requireStore({ dataDir, etcd });
  const store = await openDataFolder(dataDir, declaration, {
    adaptRecords: followInCommand,
    etcd,
    marker,
    ...reserves(),
  });
  try {
    reportTasks(store.tables);
    const password = await readPassword();
    if (action === "add") {
      const user = { username: name, password, role: flags.get("role") };
      await explainInvalid(createUser(store, declaration, user));
      await print(`created user ${name}\n`);
      const { highest } = declaration.roles;
      const users = store.table("users");
      const hasAdmin = users.count("username", "admin") > 0; // so no start creates it
      if (hasAdmin && users.count("role", highest) === 0) {
        printError(
          `zoo-api: nobody has the role ${highest} yet: add a user with --role ${highest}`,
        );
      }
    } else {
      const users = recordsOf(store, declaration, "users");
      await explainInvalid(changePassword(users, name, password));
      // The first admin may have another name by now.
      const isFirst = foldText(name) === "admin" ||
        store.table("users").count("username", "admin") === 0;
      if (isFirst) await removePasswordFile(dataDir);
      await print(`changed the password of ${name}, and ended all sign-ins\n`);
    }
  } finally {
    await store.close();
  }
}

/**
 * Changes a password, durably. The change is planned again after the password is
 * hashed, since the user may have changed meanwhile.
 *
 * @throws {ApiError} 42200; {StoreError}
 */
async function changePassword(
  users: Records,
  name: string,
  password: string,
): Promise<void> {
  const { collection, store, table } = users;
  const plan = (hashes?: Values) => {
    const [row] = table.find("username", foldText(name));
    if (row === undefined) {
      throw new CommandError(`there is no user ${JSON.stringify(name)}`);
    }
    const { document: previous } = row;
    const next = users.buildRecord({ password }, {
      previous,
      caller: localOperator,
      hashes,
      partial: true,
    });
    const change = { previous, next };
    const others = collection.sideEffects?.(change, store) ?? [];
    return [users.putMutation(next), ...others];
  };
  plan(); // refuses an invalid password before it costs a hash
  const hashes = await hashSecret(users, { password }, requester);
  const change = () => ({
    // Whoever must delete records to free a full disk may need it.
    seq: store.apply(plan(hashes), localOperator.id, { allowWhenFull: true }),
  });
  await store.settle(change);
}

/** Reads the first line of standard input; on a terminal, prompts for it and does not echo it. */
async function readPassword(): Promise<string> {
  const { stdin, stderr } = process;
  const terminal = stdin.isTTY === true;
  if (terminal) stderr.write("Password: ");
  // readline echoes what is typed to its output; this one discards it.
  const output = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({ input: stdin, output, terminal });
  try {
    for await (const line of lines) {
      // All bytes that are not UTF-8 become this character, and could not be distinguished.
      if (!line.includes("\ufffd")) return line.replace(/^\ufeff/, "");
      throw new CommandError("the password must be UTF-8 text");
    }
    throw new CommandError("there is no password on standard input");
  } finally {
    lines.close();
    if (terminal) stderr.write("\n");
  }
}
