/** The command `log`: who changed what, and when. */

import process from "node:process";
import {
  type RecordChange,
  serverProperties,
} from "../../api/declaration/declaration.ts";
import type { Commands, CommandSettings } from "../../api/feature.ts";
import { collectionsOf } from "../../api/routes.ts";
import type { LogLine } from "../../store/log/format.ts";
import type { Tables } from "../../store/memory/table.ts";
import { foldText } from "../../store/store.ts";
import { UsageError } from "../../usage.ts";
import { print, unknownCollection } from "../output.ts";
import { ownNames, readStore } from "../read.ts";

export const commands: Commands = { log: [1, logCommand] };

/**
 * Prints one line for each change in the logs of a folder, with the names that
 * were declared then: also those before a collection was renamed. If a server
 * is writing to it, the last change may not be durable yet. The argument is a
 * collection such as `animals`, or a record such as `animals/7`; the flag `user`
 * a username at that time, or `#7` for the user 7, whatever the name was.
 *
 * @throws {UsageError} on an unknown collection; {StoreError} on damage, after
 * all changes before it are printed
 */
async function logCommand(
  settings: CommandSettings,
  [target]: readonly string[],
): Promise<void> {
  const named = settings.flags.get("user");
  const user = named && foldText(named); // as at sign-in
  const derived = collectionsOf(await settings.loadApi());
  derived.delete("authorizations");
  const [name, chosenId] = parseTarget(target, [...derived.keys()]);
  const renamings = target === undefined ? [] : await readRenamings(settings);
  /** The name of the chosen collection at the present place of the log. */
  let chosen: string | undefined;
  const changes: string[] = [];
  let lastSeq = 0; // the folder is read again if a server removes a log
  const onTransaction = (line: LogLine, tables: Tables) => {
    const { at, by = 0, seq = 0, tx = [] } = line;
    if (seq <= lastSeq) return;
    lastSeq = seq;
    chosen ??= renamings.filter((each) => each.seq >= seq)
      .reduceRight((name, { names }) => exchange(name, names), name);
    const username = tables.get("users")?.get(by)?.document["username"];
    const author = by === 0 ? "-" : username ?? `#${by}`;
    const add = (of: string, text: string, id?: number) => {
      const isChosen = (target === undefined || of === chosen) &&
        [undefined, author, `#${by}`].includes(user) &&
        [undefined, id].includes(chosenId);
      if (isChosen) changes.push(`${at} ${author} ${text}\n`);
    };
    for (const mutation of tx) {
      if (mutation[0] === "rename") {
        const [, of, from, to] = mutation;
        if (to !== undefined) {
          add(of, `renamed ${of}.${from} to ${to}`);
          continue;
        }
        chosen = exchange(chosen ?? "", [of, from]);
        add(from, `renamed ${of} to ${from}`);
        continue;
      }
      const [kind, of, value] = mutation;
      if (ownNames.includes(of) && of !== "users") continue;
      const id = kind === "put" ? value.id : value;
      const previous = tables.get(of)?.get(id)?.document;
      const next = kind === "put" ? value : undefined;
      const verb = next && (previous ? "changed" : "created") || "deleted";
      const secret = derived.get(of)?.secretName;
      const values = describeValues({ previous, next }, secret);
      add(of, `${verb} ${of}/${id}${values}`, id);
    }
  };
  const { refusal } = await readStore(settings, { onTransaction });
  for (const text of changes) await print(text);
  if (refusal !== undefined) throw refusal;
  if (changes.length === 0) {
    process.stderr.write("log: there are no such changes\n");
  }
}

/** The names of two collections that were exchanged. */
type ExchangedNames = readonly [string, string];

/** Reads which names of collections were exchanged, in the order of the log. */
async function readRenamings(settings: CommandSettings) {
  const found: { readonly seq: number; readonly names: ExchangedNames }[] = [];
  const onTransaction = ({ seq = 0, tx = [] }: LogLine) => {
    if (seq <= (found.at(-1)?.seq ?? 0)) return;
    for (const [kind, of, to, ofProperty] of tx) {
      if (kind !== "rename" || ofProperty !== undefined) continue;
      found.push({ seq, names: [of, to] });
    }
  };
  await readStore(settings, { onTransaction });
  return found;
}

/** Returns the name of a collection after two were exchanged, or before. */
function exchange(name: string, [one, other]: ExchangedNames): string {
  return name === one ? other : name === other ? one : name;
}

/** Returns the collection of an argument such as `animals/7`, and the id of the record, if it names one. */
function parseTarget(
  target: string | undefined,
  names: readonly string[],
): [name: string, ...id: number[]] {
  const [name = "", ...ids] = target?.split("/") ?? [];
  if (target !== undefined && !names.includes(name)) {
    throw unknownCollection("log", name, names);
  }
  if (ids.length > 0 && !/^[1-9]\d*$/.test(ids.join("/"))) {
    throw new UsageError(`log: "${target}" names no record: use ${name}/7`);
  }
  return [name, ...ids.map(Number)];
}

/** Lists the new values of the properties that differ, also of those that are no longer declared, but only the name of a secret. */
function describeValues(
  { previous, next }: RecordChange,
  secret: string | undefined,
): string {
  return Object.entries(next ?? {}).map(([name, each]) => {
    const value = JSON.stringify(each);
    const isSame = value === JSON.stringify(previous?.[name]);
    const isOwn = serverProperties.includes(name) || name.startsWith("_");
    if (isSame || isOwn) return "";
    return ` ${name}=${name === secret ? "(secret)" : value}`;
  }).join("");
}
