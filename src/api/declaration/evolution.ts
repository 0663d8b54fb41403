/**
 * Adapts stored records to a changed declaration. The store remembers the
 * declaration that it was last opened with. If it is opened with another one,
 * names that have changed are exchanged in the stored records, and all records
 * are validated.
 *
 * Data that is no longer declared stays stored, but hidden. The exchanged names
 * are remembered too, so that returning to an earlier declaration exchanges
 * them again. A name is that of a collection, `books`, or of a property,
 * `books.title`.
 */

import type { FieldError } from "../../http/errors.ts";
import type { Document, Mutation, Store } from "../../store/store.ts";
import type { Collection } from "./declaration.ts";
import { validateStored } from "./validation.ts";

/** The table of the remembered declaration, its only document. No collection can have this name. */
export const declarationTable = "_declaration";

/** The remembered declaration. */
interface Remembered {
  /** The rules that decide which records fit, as text, by name. */
  readonly names: ReadonlyMap<string, string>;
  /** The present names of what was renamed, by the former names. */
  readonly newNames: ReadonlyMap<string, string>;
}

/** The records that do not fit because of one property. */
export interface Misfit {
  /** The name of the property. */
  readonly name: string;
  readonly ids: Set<number>;
  /** The error of the first record. */
  readonly code: FieldError["code"];
  readonly message: string;
}

/** The functions that read and change the stored data. */
interface Following {
  readonly store: Pick<Store, "tables" | "table">;
  readonly apply: (mutation: Mutation) => void;
  /** Called with each difference between the remembered declaration and this one. */
  readonly onDifference?: (text: string) => void;
}

/**
 * Adapts the stored data to a declaration, and remembers it.
 *
 * @returns false if it is the remembered one, and nothing was applied; after
 * true, the caller must roll back if there are misfits
 * @throws {RenameError} if a renaming would hide other data
 */
export function followDeclaration(
  collections: readonly Collection[],
  { store, apply, onDifference = () => {} }: Following,
): boolean {
  const before = store.table(declarationTable).get(1)?.document;
  const loaded = describeAll(collections);
  let remembered = recall(before);
  let renamings = countRenamings(store);
  const rename = (name: string, hint: string | undefined) => {
    const { names, newNames } = remembered;
    const latest = names.has(name) ? undefined : newNames.get(name);
    // The name under which its data is stored.
    const former = [hint, latest].find((each) =>
      each !== undefined && !loaded.has(each) &&
      (names.has(each) || isStored(each, store))
    );
    if (former === undefined) return;
    if (isStored(name, store)) {
      if (former === hint) throw new RenameError(former, name);
      return;
    }
    onDifference(`${name} was ${former}`);
    remembered = moveNames(remembered, former, name);
    renamings++;
    const [table = "", from] = former.split(".");
    const to = name.slice(name.indexOf(".") + 1);
    apply(from ? ["rename", table, from, to] : ["rename", table, to]);
  };
  for (const { name, renamed } of collections) rename(name, renamed);
  for (const { name: of, properties } of collections) {
    for (const { name, renamed } of properties) {
      rename(`${of}.${name}`, renamed && `${of}.${renamed}`);
    }
  }
  // A name that is declared has data of its own from now on.
  const former = [...remembered.newNames].filter(([each]) => !loaded.has(each));
  const after = {
    id: 1,
    names: Object.fromEntries(loaded),
    newNames: Object.fromEntries(former),
    renamings,
  };
  if (JSON.stringify(after) === JSON.stringify(before)) return false;
  apply(["put", declarationTable, after]);
  if (before) describeDifferences(remembered.names, loaded, onDifference);
  return true;
}

/** Returns how many names have been exchanged so far: a request sent before the last exchange may mean other names. */
export function countRenamings(store: Pick<Store, "table">): number {
  return Number(
    store.table(declarationTable).get(1)?.document["renamings"] ?? 0,
  );
}

function recall(document: Document | undefined): Remembered {
  const { names = {}, newNames = {} } = Object(document);
  return {
    names: new Map(Object.entries(names)),
    newNames: new Map(Object.entries(newNames)),
  };
}

/** Returns the rules that decide which records fit, by name. */
function describeAll(collections: readonly Collection[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const collection of collections) {
    const { name: of, unique, private: isPrivate, check } = collection;
    const rules = { unique, isPrivate, check: check && String(check) };
    found.set(of, JSON.stringify(rules));
    for (const property of collection.properties) {
      const { name, target: _, renamed: __, expected: ___, ...deciding } =
        property;
      found.set(`${of}.${name}`, JSON.stringify(deciding));
    }
  }
  return found;
}

function describeDifferences(
  before: ReadonlyMap<string, string>,
  after: ReadonlyMap<string, string>,
  onDifference: (text: string) => void,
): void {
  for (const name of new Set([...before.keys(), ...after.keys()])) {
    if (before.get(name) === after.get(name)) continue;
    const hidden = "is no longer declared: its data stays stored, but hidden";
    const found = before.has(name) ? "has changed" : "is new";
    onDifference(`${name} ${after.has(name) ? found : hidden}`);
  }
}

/** A renaming to a name under which other data is stored. */
export class RenameError extends Error {
  readonly code = "rename";

  constructor(former: string, name: string) {
    super(
      `${former} cannot be renamed to ${name}, because other data is stored under that name; nothing was changed. ` +
        `Use another name, omit "renamed" to use that data, or delete it: start with ` +
        `the previous declaration without ${name}, and run "zoo-api prune ${name}"`,
    );
  }
}

/** Returns whether anything is stored under a name. */
function isStored(name: string, { tables }: Pick<Store, "tables">): boolean {
  const [table = "", property = "id"] = name.split(".");
  return tables.get(table)?.rows()
    .some(({ document }) => Object.hasOwn(document, property)) ?? false;
}

/** Returns what is remembered after a renaming; renaming a collection changes the names of its properties too. */
function moveNames(
  { names, newNames }: Remembered,
  former: string,
  name: string,
): Remembered {
  const move = (each: string) =>
    each === former || each.startsWith(`${former}.`)
      ? name + each.slice(former.length)
      : each;
  const moved = Array.from(
    newNames,
    ([old, each]) => [old === former ? old : move(old), move(each)] as const,
  );
  return {
    names: new Map(Array.from(names, ([each, text]) => [move(each), text])),
    newNames: new Map([...moved, [former, name]]),
  };
}

/** Validates all records; takes about a microsecond for each. */
export function findMisfits(
  collections: readonly Collection[],
  store: Pick<Store, "table">,
): Misfit[] {
  const found = new Map<string, Misfit>();
  for (const collection of collections) {
    for (const { document } of store.table(collection.name).frozen()) {
      const errors = validateStored(collection, document, store);
      for (const { field, code, message } of errors) {
        const name = `${collection.name}.${field}`;
        const misfit = found.get(name) ??
          { name, ids: new Set(), code, message };
        misfit.ids.add(document.id);
        found.set(name, misfit);
      }
    }
  }
  return [...found.values()];
}
