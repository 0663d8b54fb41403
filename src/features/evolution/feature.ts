/**
 * Lets a declaration change while records are stored. The server compares it
 * with the one that it last started with, exchanges names that have changed, and
 * validates all records. Without this feature a changed declaration is refused.
 */

import {
  describeMisfit,
  findMisfits,
  type Misfit,
} from "../../api/declaration/misfits.ts";
import {
  isOwnApi,
  rememberedCollections,
} from "../../api/declaration/own-api.ts";
import {
  declarationTable,
  type OpenedDeclaration,
} from "../../api/declaration/remembered.ts";
import { reservedCollectionNames } from "../../api/declaration/reserved-names.ts";
import type { Feature } from "../../api/feature.ts";
import "../../store/memory/exchange.ts";
import { advice, sizeOf } from "../../store/memory/limit.ts";
import type { Mutation, Store } from "../../store/store.ts";
import { CommandError } from "../../usage.ts";
import { rememberDeclaration } from "./renaming.ts";

/** A start that changes more than this writes a snapshot at once. */
const minCheckpointBytes = 1 << 20;

export const feature: Feature = { adaptRecords, open: () => {} };

/**
 * Adapts the stored records to a declaration.
 *
 * @returns whether a snapshot must follow: names were exchanged, or the log has a
 * line that takes much memory to read
 * @throws {CommandError} if it is that of another API, records do not fit, a
 * renaming would hide others, or there is too little memory; the caller then rolls
 * back
 */
function adaptRecords(opened: OpenedDeclaration): boolean {
  refuseOtherApi(opened);
  let isRenamed = false;
  let changedBytes = 0;
  const apply = (mutation: Mutation) => {
    const [kind, , document] = mutation;
    isRenamed ||= kind === "rename";
    if (kind === "put") changedBytes += sizeOf(document);
    requireRoom(opened, changedBytes);
    opened.apply(mutation);
  };
  if (!rememberDeclaration({ ...opened, apply })) return false;
  normalizeTimes({ ...opened, apply });
  const misfits = findMisfits(opened.collections, opened.store);
  if (misfits.length > 0) throw new CommandError(explainMisfits(misfits));
  logMissingRole(opened);
  return isRenamed || changedBytes > minCheckpointBytes;
}

/** Logs that nobody manages users: no user of before has the new highest role. */
function logMissingRole({ collections, store, log }: OpenedDeclaration): void {
  const role = collections.find(({ name }) => name === "users")?.access.write;
  const users = store.table("users");
  if (!role || users.size === 0 || users.count("role", role) > 0) return;
  log(
    "error",
    `nobody has the role ${role}: with the server stopped, add a user with --role ${role}`,
  );
}

/**
 * Refuses to change more records at once than there is memory for: until all are
 * written, each is there as it was, as it will be and as text.
 *
 * @throws {CommandError}
 */
function requireRoom(
  { store }: OpenedDeclaration,
  changedBytes: number,
): void {
  const { memory }: Pick<Store, "tables"> & Partial<Pick<Store, "memory">> =
    store;
  const neededBytes = changedBytes * 5 / 2; // as measured
  const isSmall = changedBytes < minCheckpointBytes;
  if (isSmall || !memory) return;
  if (memory.used + neededBytes < memory.limit * 8 / 7) return;
  throw new CommandError(
    "cannot open the store: with this declaration more records change than there is memory for; nothing was changed: " +
      `for one start, ${advice}`,
  );
}

/** Refuses an API that has none of the collections of the folder: it would hide all that is stored. */
function refuseOtherApi({ collections, store }: OpenedDeclaration): void {
  const remembered = store.table(declarationTable).get(1)?.document;
  const isStored = (name: string) => store.table(name).lastId > 0;
  if (isOwnApi(remembered, collections, isStored)) return;
  const declared = collections.map(({ name }) => name)
    .filter((name) => !reservedCollectionNames.includes(name));
  throw new CommandError(
    `the data folder has ${
      rememberedCollections(remembered).join(", ")
    }, but the declaration has ${
      declared.join(", ")
    }: nothing that is stored would be served, and nothing was changed; ` +
      "name the declaration of the folder with --collections, or another folder with --data-dir",
  );
}

/** Stores times in the form that filters and sorting compare: as texts, they may have been stored in another one. */
function normalizeTimes(
  { collections, store, apply, log }: OpenedDeclaration,
): void {
  const counts = new Map<string, number>();
  for (const { name: of, properties } of collections) {
    const times = properties.filter(({ kind }) => kind === "timestamp");
    if (times.length === 0) continue;
    for (const { document } of store.table(of).rows()) {
      const next = { ...document };
      for (const { name, parse } of times) {
        const { [name]: text } = document;
        if (typeof text === "string") next[name] = parse(text) ?? text;
      }
      const others = times.filter(({ name }) => next[name] !== document[name]);
      if (others.length > 0) apply(["put", of, next]);
      for (const { name } of others) {
        counts.set(`${of}.${name}`, (counts.get(`${of}.${name}`) ?? 0) + 1);
      }
    }
  }
  for (const [name, count] of counts) {
    const texts = count === 1 ? "text was" : "texts were";
    log("info", `${name}: ${count} ${texts} converted to UTC and milliseconds`);
  }
}

/** Explains why a store cannot be opened with a declaration, and what to do. */
function explainMisfits(misfits: readonly Misfit[]): string {
  const lines = misfits.map((misfit) => {
    const { code, name } = misfit;
    const isBuiltIn = reservedCollectionNames.includes(
      name.split(".")[0] ?? "",
    );
    const advice = name === "users.role"
      ? 'start once with the former roles before the new ones, create a user with the highest role with "zoo-api user add", change the other users as that, and then leave the former roles out'
      : code === "required"
      ? 'declare it as optional(…), start, fill it in, and declare it as before, or give its former name with renamed: "…", or a default (not possible for references and unique properties)'
      : code === "type" && !isBuiltIn
      ? `keep it as it was, declare one of the new type beside it, start, copy the values, remove ${name}, start, run "zoo-api prune ${name}", and give the new one its name with renamed: "…"`
      : (code === "reference"
        ? "declare it as optional(integer()), start, correct them, and declare it as before"
        : "correct them with a declaration that they fit") +
        (code === "rule" || isBuiltIn
          ? ""
          : ", or remove it from the declaration, start, and delete all its values with " +
            `"zoo-api prune ${name}"`);
    return `\n${describeMisfit(misfit)} You can ${advice}`;
  });
  return "cannot open the store, because its records do not fit the declaration; " +
    `nothing was changed:${lines.join("")}`;
}
