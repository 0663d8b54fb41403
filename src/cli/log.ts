/**
 * The command `log`: prints who changed what and when, as far back as the
 * folder holds logs. Tables without a declared collection, such as
 * authorizations, and values stored as hashes are not shown.
 */

import { users } from "../api/accounts/users.ts";
import {
  type Collection,
  deriveCollections,
  type RecordChange,
} from "../api/declaration/declaration.ts";
import { collections } from "../collections.ts";
import { print, unknownCollection } from "./output.ts";
import type { LogLine } from "../store/log/format.ts";
import type { Tables } from "../store/memory/table.ts";
import { readStore } from "./read.ts";

/**
 * Prints one line for each change in the logs of a folder. A server may be
 * writing to it; then the last change may not be durable yet.
 *
 * @param target a collection such as `animals`, or a record such as `animals/7`
 * @param user a username, or `#7` for a user who no longer existed
 * @throws {UsageError} on an unknown collection; {StoreError} on damage, after
 * all changes before it are printed
 */
export async function logCommand(
  folder: string,
  { target, user }: {
    readonly target: string | undefined;
    readonly user: string | undefined;
  },
): Promise<void> {
  const derived = deriveCollections(collections, [users]);
  const [, name = ""] = /^(\w+)(?:\/[1-9]\d*)?$/.exec(target ?? "") ?? [];
  if (target !== undefined && !derived.has(name)) {
    throw unknownCollection("log", target, [...derived.keys()]);
  }
  // By sequence number: the folder is read again if a server removes a log.
  const changes = new Map<number, string>();
  const onTransaction = (line: LogLine, tables: Tables) => {
    const { at, by = 0, seq = 0, tx = [] } = line;
    const username = tables.get(users.name)?.get(by)?.document["username"];
    const author = by === 0 ? "-" : username ?? `#${by}`;
    if (user !== undefined && user !== author) return;
    let text = "";
    for (const [kind, of, value] of tx) {
      const collection = derived.get(of);
      const id = kind === "put" ? value.id : value;
      const record = `${of}/${id}`;
      const isChosen = [undefined, of, record].includes(target);
      if (collection === undefined || !isChosen) continue;
      const previous = tables.get(of)?.get(id)?.document;
      const next = kind === "put" ? value : undefined;
      const verb = next && (previous ? "changed" : "created") || "deleted";
      const values = describeValues(collection, { previous, next });
      text += `${at} ${author} ${verb} ${record}${values}\n`;
    }
    if (text !== "") changes.set(seq, text);
  };
  const { refusal } = await readStore(folder, { onTransaction });
  for (const text of changes.values()) await print(text);
  if (refusal !== undefined) throw refusal;
}

/** Lists the new values of the properties that differ, secrets by name only. */
function describeValues(
  { properties, secretName }: Collection,
  { previous, next }: RecordChange,
): string {
  return properties.map(({ name }) => {
    const value = JSON.stringify(next?.[name]);
    const isSame = value === JSON.stringify(previous?.[name]);
    if (next === undefined || isSame) return "";
    return ` ${name}=${name === secretName ? "(secret)" : value}`;
  }).join("");
}
