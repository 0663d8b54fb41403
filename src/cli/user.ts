/** The command `user`: creates users, changes their passwords and lists them. */

import process from "node:process";
import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import type { Commands, CommandSettings } from "../api/feature.ts";
import { createUser, recordsOf, writeAsOperator } from "../api/operator.ts";
import { CommandError, UsageError } from "../usage.ts";
import { openDataFolder } from "../data-folder.ts";
import "../store/memory/exchange.ts";
import { explainInvalid } from "../first-start.ts";
import { print } from "./output.ts";
import { readUndamagedStore } from "./read.ts";

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
    throw new UsageError(
      `user ${
        action ?? ""
      }: it must be user add NAME, user password NAME or user list`,
    );
  }
  const declaration = await loadApi();
  const store = await openDataFolder(dataDir, declaration, {
    etcd,
  });
  try {
    const password = await readPassword();
    if (action === "add") {
      const user = { username: name, password, role: flags.get("role") };
      await explainInvalid(createUser(store, declaration, user));
      await print(`created user ${name}\n`);
    } else {
      const users = recordsOf(store, declaration, "users");
      const find = () => {
        const [row] = users.table.find("username", name);
        if (row !== undefined) return row;
        throw new CommandError(`there is no user ${JSON.stringify(name)}`);
      };
      await explainInvalid(writeAsOperator(users, { password }, find));
      await print(`changed the password of ${name}, and ended all sign-ins\n`);
    }
  } finally {
    await store.close();
  }
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
    for await (const line of lines) return line;
    throw new CommandError("there is no password on standard input");
  } finally {
    lines.close();
    if (terminal) stderr.write("\n");
  }
}
