/**
 * Follows changes of the declaration. The store remembers the declaration that
 * it was last opened with. If it is opened with another one, names that have
 * changed are exchanged in the stored records, and the records are validated
 * where they may no longer fit.
 *
 * Data that are no longer declared stay stored, hidden. The exchanged names are
 * remembered too, so that a return to an earlier declaration exchanges them
 * again. A name is that of a collection, `books`, or of a property, `books.title`.
 */

import type { FieldError } from "../../http/errors.ts";
import { type Mutation, rowsOf, type Store } from "../../store/store.ts";
import type { Collection } from "./declaration.ts";
import { validateStored } from "./validation.ts";

/** The table of the remembered declaration, its only document. No collection can have this name. */
export const declarationTable = "_declaration";

/** The remembered declaration. */
interface Remembered {
  /** What decides which records fit, as text, by name; null if the name is no longer declared. */
  readonly names: Map<string, string | null>;
  /** Names that were exchanged with each other. */
  renamed: readonly (readonly string[])[];
}

/** The records that do not fit because of one property. */
export interface Misfit {
  /** The name of the property. */
  readonly name: string;
  /** The ids of the records. */
  readonly ids: number[];
  /** What is wrong with the first one. */
  readonly code: FieldError["code"];
  readonly message: string;
}

/** How the stored data are read and changed. */
interface Following {
  readonly store: Pick<Store, "tables" | "table">;
  readonly apply: (mutation: Mutation) => void;
  /** Called with each difference between the remembered declaration and this one. */
  readonly onDifference: (text: string) => void;
  /** True if everything is validated, not only what has changed. */
  readonly isThorough?: boolean;
}

/**
 * Lets the stored data follow a declaration, and remembers it. Applies nothing
 * if it is the remembered one.
 *
 * @returns what does not fit; if there is anything, the caller must roll back
 * all that was applied
 */
export function followDeclaration(
  collections: readonly Collection[],
  { store, apply, onDifference, isThorough = false }: Following,
): Misfit[] {
  const before = store.table(declarationTable).get(1)?.document;
  const remembered = recall(store);
  const report = before ? onDifference : () => {};
  const loaded = describeAll(collections);
  const rename = (name: string, hint: string | undefined) => {
    if (remembered.names.get(name)) return;
    const former = findFormer(name, { hint, loaded, remembered, store });
    if (former === undefined) return;
    report(`${name} was ${former}`);
    moveNames(remembered, former, name);
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
  const { names, renamed } = remembered;
  const isChanged = (name: string) =>
    isThorough || names.get(name) !== loaded.get(name);
  const misfits = collections.flatMap((collection) =>
    findMisfits(collection, isChanged, store)
  );
  for (const name of new Set([...names.keys(), ...loaded.keys()])) {
    const difference = describeDifference(names.get(name), loaded.get(name));
    if (difference !== undefined) report(`${name} ${difference}`);
    names.set(name, loaded.get(name) ?? null);
  }
  const after = { id: 1, names: Object.fromEntries(names), renamed };
  if (JSON.stringify(after) !== JSON.stringify(before)) {
    apply(["put", declarationTable, after]);
  }
  return misfits;
}

/** Returns the mutations that let hidden data be new if they are declared again. */
export function forget(store: Pick<Store, "table">, name: string): Mutation[] {
  const { names, renamed } = recall(store);
  const others = [...names].filter(([each]) => !isWithin(each, name));
  const next = { id: 1, names: Object.fromEntries(others), renamed };
  return [["put", declarationTable, next]];
}

function recall(store: Pick<Store, "table">): Remembered {
  const row = store.table(declarationTable).get(1);
  const { names = {}, renamed = [] } = Object(row?.document);
  return { names: new Map(Object.entries(names)), renamed };
}

/** Returns whether a name is another one, or that of one of its properties. */
function isWithin(name: string, other: string): boolean {
  return name === other || name.startsWith(`${other}.`);
}

/** Returns what decides which records fit, by name. */
function describeAll(collections: readonly Collection[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const { name: of, unique, check, properties, ...each } of collections) {
    const isPrivate = each.private; // then the records of an owner are unique
    const rule = check && String(check);
    const rules = { unique, check: rule, private: unique && isPrivate };
    found.set(of, JSON.stringify(rules));
    for (const { name, kind, schema, required, ...others } of properties) {
      const { references } = others;
      const unique = others.unique && isPrivate ? "of an owner" : others.unique;
      const deciding = { kind, schema, required, unique, references };
      found.set(`${of}.${name}`, JSON.stringify(deciding));
    }
  }
  return found;
}

function describeDifference(
  before: string | null | undefined,
  after: string | undefined,
): string | undefined {
  if (after === before) return undefined;
  if (after === undefined) {
    return before === null
      ? undefined
      : "is no longer declared: its data stay stored, hidden";
  }
  if (before === undefined) return "is new";
  return before === null ? "is declared again" : "has changed";
}

/**
 * Returns the name that the data of a newly declared name are stored under. A
 * name that is declared neither now nor before has no claim on it while data are
 * hidden under the name itself.
 */
function findFormer(
  name: string,
  { hint, loaded, remembered: { names, renamed }, store }: {
    readonly hint: string | undefined;
    readonly loaded: ReadonlyMap<string, string>;
    readonly remembered: Remembered;
    readonly store: Pick<Store, "tables">;
  },
): string | undefined {
  const isFree = !names.has(name);
  const declared = [...names.keys()].filter((each) => names.get(each));
  const hidden = [...names.keys()].filter((each) => !names.get(each));
  const stored = hint !== undefined && isStored(hint, store) ? [hint] : [];
  return [...declared, ...(isFree ? [...stored, ...hidden] : [])].find((each) =>
    !loaded.has(each) &&
    (each === hint ||
      renamed.some((group) => group.includes(each) && group.includes(name)))
  );
}

/** Returns whether anything is stored under a name. */
function isStored(name: string, { tables }: Pick<Store, "tables">): boolean {
  const [table = "", property = "id"] = name.split(".");
  const rows = tables.get(table)?.rows() ?? [];
  return rows.some(({ document }) => Object.hasOwn(document, property));
}

/** Remembers a renaming, and under the new name what was remembered under the former one. */
function moveNames(remembered: Remembered, former: string, name: string): void {
  const { names, renamed } = remembered;
  const moved = (each: string) => name + each.slice(former.length);
  for (const each of names.keys()) if (isWithin(each, name)) names.delete(each);
  for (const [each, text] of [...names]) {
    if (!isWithin(each, former)) continue;
    names.delete(each);
    names.set(moved(each), text);
  }
  const group = renamed.find((each) => each.includes(former)) ?? [former];
  remembered.renamed = [
    ...renamed.filter((each) => each !== group)
      .map((group) =>
        group.map((each) => isWithin(each, former) ? moved(each) : each)
      ),
    [...new Set([...group, name])],
  ];
}

/** Validates all records of a collection for what has changed of it. */
function findMisfits(
  { check, ...collection }: Collection,
  isChanged: (name: string) => boolean,
  store: Pick<Store, "table">,
): Misfit[] {
  const { name: of } = collection;
  const properties = collection.properties
    .filter(({ name }) => isChanged(`${of}.${name}`));
  if (properties.length === 0 && !isChanged(of)) return [];
  // Its groups and its rule see properties together.
  const part = { ...collection, properties, ...(check && { check }) };
  const found = new Map<string, Misfit>();
  for (const { document } of rowsOf(store.table(of).byId)) {
    const { id } = document;
    for (const error of validateStored(part, document, store)) {
      const { field, code, message } = error;
      const name = `${of}.${field}`;
      const misfit = found.get(field);
      if (misfit === undefined) {
        found.set(field, { name, ids: [id], code, message });
      } else if (misfit.ids.at(-1) !== id) misfit.ids.push(id);
    }
  }
  return [...found.values()];
}
