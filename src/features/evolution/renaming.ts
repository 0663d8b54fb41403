/**
 * Exchanges the names that have changed in the stored records, and remembers
 * the declaration.
 *
 * Data that is no longer declared stays stored, but hidden. The exchanged names
 * are remembered too, so that returning to an earlier declaration exchanges
 * them again. A name is that of a collection, `books`, or of a property,
 * `books.title`.
 */

import {
  type Collection,
  ownerProperty,
} from "../../api/declaration/declaration.ts";
import {
  declarationTable,
  type OpenedDeclaration,
  rulesOf,
} from "../../api/declaration/remembered.ts";
import type { Document, Store } from "../../store/store.ts";
import { CommandError } from "../../usage.ts";

/** The remembered declaration. */
interface Remembered {
  /** The rules that decide which records fit, as text, by name. */
  readonly names: Map<string, string>;
  /** The present names of what was renamed, by the former names. */
  readonly newNames: Map<string, string>;
  /** The properties that hold the owners of formerly private records. */
  readonly owners: Set<string>;
  /** The access and the retention of each collection, as text: servers that share a store must agree on them, too. */
  readonly policies: Map<string, string>;
}

/**
 * Exchanges names in the stored data, and remembers the declaration.
 *
 * @returns false if the records that fitted the remembered one fit it; after true,
 * the caller must roll back if there are misfits
 * @throws {RenameError} if a renaming would hide other data
 */
export function rememberDeclaration(
  { collections, store, apply, log }: OpenedDeclaration,
): boolean {
  const before = store.table(declarationTable).get(1)?.document;
  const loaded = rulesOf(collections);
  let remembered = recall(before);
  let renamings = Number(before?.["renamings"] ?? 0);
  const rename = (name: string, given: string | undefined) => {
    const { names, newNames } = remembered;
    const latest = names.has(name) ? undefined : newNames.get(name);
    const hint = given && presentName(given, remembered, store);
    // The name under which its data is stored.
    const former = [hint, latest].find((each) =>
      each !== undefined && !loaded.has(each) &&
      (names.has(each) || wasStored(each, store))
    );
    if (former === undefined) {
      // It was hidden, and nothing is stored: its next values are still its.
      const isNew = !names.has(name) && !isStored(name, store);
      if (!hint || !isNew || loaded.has(hint)) return;
      remembered = moveNames(remembered, hint, name);
      if (before && hint === given) reportUnknown({ name, given, names }, log);
      return;
    }
    if (isStored(name, store)) {
      if (former === hint) throw new RenameError(former, name);
      return;
    }
    log("info", `${name} was ${former}`);
    const areOwners = isOwner(former, remembered);
    remembered = moveNames(remembered, former, name);
    if (areOwners) remembered.owners.add(name);
    renamings++;
    const [table = "", from] = former.split(".");
    const to = name.slice(name.indexOf(".") + 1);
    apply(from ? ["rename", table, from, to] : ["rename", table, to]);
  };
  for (const { name, renamed } of collections) rename(name, renamed);
  for (const { name: of, properties, private: isPrivateNow } of collections) {
    for (const { name, renamed } of properties) {
      rename(`${of}.${name}`, renamed && `${of}.${renamed}`);
    }
    const owner = `${of}.${ownerProperty.name}`;
    const property = remembered.newNames.get(owner) ?? "";
    if (!isPrivateNow || !remembered.owners.has(property)) continue;
    if (loaded.has(property) && isStored(property, store)) {
      throw new KeptOwnersError(owner, property);
    }
    rename(owner, property);
    forgetKept(remembered, owner, property);
    forgetStrangers(of, store, apply);
  }
  remembered = rememberOwners(remembered, loaded, store);
  const present = { collections, store, loaded, renamings };
  const after = documentOf(remembered, present);
  if (JSON.stringify(after) === JSON.stringify(before)) return false;
  apply(["put", declarationTable, after]);
  if (before) logDifferences(remembered, recall(after), { store, log });
  return withoutPolicies(after) !== withoutPolicies(before);
}

/** Returns what decides which records fit, as text. */
function withoutPolicies(remembered: Document | undefined): string {
  return JSON.stringify({ ...remembered, policies: undefined });
}

/** Says that nothing is known of what a collection, or a property of a known one, was called before: its data may be there under an even older name. */
function reportUnknown(
  { name, given, names }: Pick<Remembered, "names"> & {
    readonly name: string;
    readonly given: string;
  },
  log: OpenedDeclaration["log"],
): void {
  const [of = ""] = name.split(".", 1);
  if (names.has(given) || of !== name && !names.has(of)) return;
  log(
    "error",
    `${name} begins empty, as nothing is known of ${given}, its former name: if this is an older backup, stop now, and start it with the declarations since then, one after the other`,
  );
}

/** Returns the present name of what a declaration calls by a former one, which may be older than another renaming. */
function presentName(
  former: string,
  { names, newNames }: Remembered,
  store: OpenedDeclaration["store"],
): string {
  const isPresent = names.has(former) || isStored(former, store);
  return isPresent ? former : newNames.get(former) ?? former;
}

/** Forgets which property kept the owners: they are back. */
function forgetKept(
  { names, newNames, owners }: Remembered,
  owner: string,
  property: string,
): void {
  for (const each of [owner, property]) owners.delete(each);
  names.delete(owner); // it is no declared property
  newNames.delete(property);
}

/** Empties the owners who are no users: clients could write anything into the property that kept them. */
function forgetStrangers(
  of: string,
  store: OpenedDeclaration["store"],
  apply: OpenedDeclaration["apply"],
): void {
  const users = store.table("users");
  for (const { document } of store.table(of).frozen()) {
    const { owner_id: id = null } = document;
    if (id === null || typeof id === "number" && users.get(id)) continue;
    apply(["put", of, { ...document, owner_id: null }]);
  }
}

/** Returns the document that remembers a declaration, and the former names. */
function documentOf(
  { newNames, owners, policies }: Remembered,
  { collections, store, loaded, renamings }:
    & Pick<OpenedDeclaration, "collections" | "store">
    & { loaded: Remembered["names"]; renamings: number },
): Document {
  // A name that is declared has data of its own from now on.
  const former = [...newNames].filter(([each]) => !loaded.has(each));
  const hidden = [...policies].filter(([name]) =>
    !loaded.has(name) && isStored(name, store)
  );
  const present = collections.map((each) =>
    [each.name, policyOf(each)] as const
  );
  return {
    id: 1,
    names: Object.fromEntries(loaded),
    newNames: Object.fromEntries(former),
    policies: Object.fromEntries([...present, ...hidden]),
    renamings,
    ...(owners.size > 0 && { owners: [...owners] }),
  };
}

/** Returns the access and the retention of a collection as text, however they were written. */
function policyOf(
  { access: { read, write, delete: remove }, keep }: Collection,
): string {
  const kept = keep && { by: "created_at", ...keep };
  return JSON.stringify({ read, write, delete: remove, keep: kept });
}

function recall(document: Document | undefined): Remembered {
  const { names = {}, newNames = {}, owners = [], policies = {} } = Object(
    document,
  );
  return {
    names: new Map(Object.entries(names)),
    newNames: new Map(Object.entries(newNames)),
    owners: new Set(owners),
    policies: new Map(Object.entries(policies)),
  };
}

function isPrivate(of: string, names: ReadonlyMap<string, string>): boolean {
  return names.get(of)?.includes('"isPrivate":true') ?? false;
}

/** Returns whether what is stored under a name are the owners of records that are private, or were when they were hidden. */
function isOwner(name: string, { names, newNames }: Remembered): boolean {
  const [of = "", property] = name.split(".");
  return property === ownerProperty.name && !names.has(name) &&
    (newNames.get(name) === "" || isPrivate(of, names));
}

/**
 * Remembers what hidden values of `owner_id` are: those of a declared property,
 * as if its new name was its own, or, as "", the owners of private records.
 *
 * @throws {OwnerError} if values of one kind would be taken for the other
 */
function rememberOwners(
  remembered: Remembered,
  loaded: Remembered["names"],
  store: Pick<Store, "tables">,
): Remembered {
  const { names, newNames } = remembered;
  const meanings = new Map(newNames);
  for (const [name] of [...names, ...loaded]) {
    const owner = `${name}.${ownerProperty.name}`;
    const meaningIn = (declared: Remembered["names"]) => {
      if (declared.has(owner)) return owner;
      return isPrivate(name, declared) ? "" : undefined;
    };
    const before = meaningIn(names) ?? newNames.get(owner);
    if (before === undefined) continue;
    const meaning = meaningIn(loaded);
    if (meaning === undefined) {
      if (isStored(owner, store)) meanings.set(owner, before);
    } else if (meaning !== before && isStored(owner, store)) {
      throw new OwnerError(owner);
    }
  }
  return { ...remembered, newNames: meanings };
}

function logDifferences(
  { names: before, policies }: Remembered,
  { names: after, policies: nextPolicies }: Remembered,
  { store, log }: Pick<OpenedDeclaration, "store" | "log">,
): void {
  for (const name of new Set([...before.keys(), ...after.keys()])) {
    if (before.get(name) === after.get(name)) continue;
    const hidden = "is no longer declared: its data stays stored, but hidden";
    const isPrivateNow = isPrivate(name, after);
    const isSwitched = isPrivateNow !== isPrivate(name, before);
    const changed = !isSwitched
      ? "has changed"
      : isPrivateNow
      ? "is private now: only the last role sees records without an owner"
      : "is no longer private: who may read it sees the records of all users";
    const found = before.has(name)
      ? changed
      : isStored(name, store)
      ? "is declared again: its data is back"
      : "is new";
    log("info", `${name} ${after.has(name) ? found : hidden}`);
  }
  for (const [name, next] of nextPolicies) {
    const former = policies.get(name) ?? next; // unknown after an upgrade
    if (former === next) continue;
    const change = `other access or retention: ${next}, formerly ${former}`;
    log("info", `${name} has ${change.replaceAll('"', "")}`);
  }
}

/** A renaming to a name under which other data is stored. */
export class RenameError extends CommandError {
  constructor(former: string, name: string) {
    super(
      `${former} cannot be renamed to ${name}, because other data is stored under that name; nothing was changed. ` +
        `Use another name, omit "renamed" to use that data, or delete it: start with ` +
        `the previous declaration without ${name}, and run "zoo-api prune ${name}"`,
    );
  }
}

/** A collection that becomes private, or no longer is, although the values of `owner_id` had another meaning. */
class OwnerError extends CommandError {
  constructor(owner: string) {
    super(
      `the stored values of ${owner} would change their meaning, because only in a private collection they are the users who own the records; nothing was changed. ` +
        "Give the property another name while the collection is not private " +
        `(renamed: "${ownerProperty.name}" keeps the values), or delete them: start with ` +
        `neither the property nor private: true, and run "zoo-api prune ${owner}"`,
    );
  }
}

/** A collection that is private again, while the property that kept the owners is still declared. */
class KeptOwnersError extends CommandError {
  constructor(owner: string, property: string) {
    super(
      `${property} has the values of ${owner}, which is needed for the owners of private records; nothing was changed. ` +
        `Leave ${property} out, and they are the owners again`,
    );
  }
}

/** Returns whether anything is stored under a name. */
function isStored(name: string, { tables }: Pick<Store, "tables">): boolean {
  const [table = "", property = "id"] = name.split(".");
  return tables.get(table)?.rows()
    .some(({ document }) => Object.hasOwn(document, property)) ?? false;
}

/** Returns whether anything is stored under a name, or a record of a collection ever was: its ids are never given again. */
function wasStored(name: string, store: Pick<Store, "tables">): boolean {
  return isStored(name, store) || Number(store.tables.get(name)?.lastId) > 0;
}

/** Returns what is remembered after a renaming; renaming a collection changes the names of its properties too. */
function moveNames(
  { names, newNames, owners, policies }: Remembered,
  former: string,
  name: string,
): Remembered {
  const move = (each: string) =>
    each === former || each.startsWith(`${former}.`)
      ? name + each.slice(former.length)
      : each;
  const moveKeys = (texts: ReadonlyMap<string, string>) =>
    new Map(Array.from(texts, ([each, text]) => [move(each), text]));
  const moved = Array.from(
    newNames,
    ([old, each]) => [old === former ? old : move(old), move(each)] as const,
  );
  return {
    names: moveKeys(names),
    policies: moveKeys(policies),
    newNames: new Map([
      ...moved.filter(([old]) => old !== name),
      [former, name],
    ]),
    owners: new Set(Array.from(owners, move)),
  };
}
