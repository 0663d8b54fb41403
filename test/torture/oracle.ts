/**
 * Writes to a store in a way that can be verified afterwards. Each zoo is a key
 * with one writer and a version for each change, deletes included; a change of
 * a zoo replaces its animals in the same transaction. After a restart each key
 * must be
 *
 * - at a version from the last acknowledged to the last sent,
 * - not below any version that a reader was shown,
 * - at none that was reported as "nothing was changed",
 * - with exactly the content and the animals of that version;
 *
 * and there must be no unknown record.
 */

import {
  type Mutation,
  type Store,
  StoreError,
  type Table,
} from "../../src/store/store.ts";
import { commit } from "../commit.ts";

/** The outcomes of the changes of one key. */
export interface KeyHistory {
  sent: number;
  acknowledged: number;
  /** The highest version that a reader was shown. */
  seen: number;
  /** Versions that were reported as "nothing was changed". */
  readonly refused: Set<number>;
}

/** The outcomes of the changes of all keys. */
export type History = Map<number, KeyHistory>;

/** The most animals of a zoo. */
const herd = 5;

/** The records of a key at a version, the zoo first; none if it is a delete. */
export function recordsAt(key: number, version: number): { id: number }[] {
  const mixed = Math.imul(key * 7919 + version, 2654435761) >>> 0;
  if (version === 0 || mixed % 7 === 0) return [];
  // Now and then longer than a block of the disk.
  const length = mixed % 11 === 0 ? 5000 + mixed % 5000 : mixed % 300;
  const text = `${key}:${version}:`.padEnd(length, String(mixed));
  const records: { id: number }[] = [];
  records.push({ id: key, ...{ version, text } });
  for (let place = 0; place < mixed % (herd + 1); place++) {
    const id = key * 10 + place;
    records.push({ id, ...{ zoo_id: key, version, name: `${text.length}` } });
  }
  return records;
}

/** The transaction that brings a key to a version. */
export function change(key: number, version: number): Mutation[] {
  const records = recordsAt(key, version);
  const mutations: Mutation[] = [];
  const [zoo, ...animals] = records;
  mutations.push(
    zoo === undefined ? ["del", "zoos", key] : ["put", "zoos", zoo],
  );
  for (let place = 0; place < herd; place++) {
    const animal = animals[place];
    mutations.push(
      animal === undefined
        ? ["del", "animals", key * 10 + place]
        : ["put", "animals", animal],
    );
  }
  return mutations;
}

/** The history of a key, created if it is missing. */
export function historyOf(history: History, key: number): KeyHistory {
  const found = history.get(key) ??
    { sent: 0, acknowledged: 0, seen: 0, refused: new Set<number>() };
  history.set(key, found);
  return found;
}

/** Makes the next change of a key and records its outcome. */
export async function write(
  store: Store,
  history: History,
  key: number,
): Promise<"acknowledged" | "refused" | "unknown"> {
  const book = historyOf(history, key);
  const version = ++book.sent;
  try {
    await commit(store, change(key, version), key);
    book.acknowledged = version;
    return "acknowledged";
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    if (error.code === "outcome-unknown") return "unknown";
    book.refused.add(version);
    return "refused";
  }
}

/** Reads a key as a client would, and records what it was shown. */
export async function look(
  store: Store,
  history: History,
  key: number,
): Promise<void> {
  const table = store.table("zoos");
  const row = table.get(key);
  const settled = store.durable(row?.seq ?? table.lastSeq);
  try {
    if (settled !== undefined) await settled;
  } catch {
    return; // nothing was shown
  }
  const book = historyOf(history, key);
  const version = Number(row?.document["version"] ?? 0);
  if (book.refused.has(version)) {
    throw new Error(`Key ${key}: a reader was shown the refused ${version}`);
  }
  book.seen = Math.max(book.seen, version);
}

/** Throws if tables contain something that the history forbids. */
export function verify(
  tables: { readonly zoos: Table; readonly animals: Table },
  history: History,
): void {
  let records = 0;
  for (const [key, book] of history) {
    const stored = stateOf(tables, key);
    const least = Math.max(book.acknowledged, book.seen);
    let found = -1;
    for (let version = book.sent; version >= 0 && found < 0; version--) {
      if (book.refused.has(version) && version !== least) continue;
      if (stored === JSON.stringify(recordsAt(key, version))) found = version;
    }
    if (found < least) {
      const range = `it should be at one from ${least} to ${book.sent} ` +
        `(without ${[...book.refused]})`;
      throw new Error(
        `Key ${key} ${blame(key, found, book, stored)}; ${range}`,
      );
    }
    records += recordsAt(key, found).length;
  }
  const total = tables.zoos.size + tables.animals.size;
  if (total !== records) {
    throw new Error(`There are ${total} records, ${records} are accounted for`);
  }
}

/** Describes the fault of a key that is at none of its possible versions. */
function blame(
  key: number,
  found: number,
  { acknowledged, sent }: KeyHistory,
  stored: string,
): string {
  const versions = Array.from({ length: sent + 1 }, (_, version) => version);
  const is = (version: number) =>
    stored === JSON.stringify(recordsAt(key, version));
  if (found >= 0) {
    const why = found < acknowledged ? "acknowledged" : "shown";
    return `went back to version ${found}, though a later one was ${why}`;
  }
  const refused = versions.find(is);
  return refused === undefined
    ? `is at none of its versions, but at ${stored.slice(0, 200)}`
    : `is at version ${refused}, which "nothing was changed" was answered to`;
}

/** All records of a key as text. */
function stateOf(
  tables: { readonly zoos: Table; readonly animals: Table },
  key: number,
): string {
  const rows = [tables.zoos.get(key)];
  for (let place = 0; place < herd; place++) {
    rows.push(tables.animals.get(key * 10 + place));
  }
  return JSON.stringify(rows.flatMap((row) => row?.document ?? []));
}

/** Sets the history to the contents of a restarted store, so that it can be continued. */
export function rebase(
  tables: { readonly zoos: Table; readonly animals: Table },
  history: History,
): void {
  for (const [key, book] of history) {
    const stored = stateOf(tables, key);
    const least = Math.max(book.acknowledged, book.seen);
    let version = book.sent;
    while (
      version > least && stored !== JSON.stringify(recordsAt(key, version))
    ) {
      version--;
    }
    book.acknowledged = book.seen = version;
    // A record that is missing now must never reappear.
    for (let gone = version + 1; gone <= book.sent; gone++) {
      book.refused.add(gone);
    }
  }
}

/** Returns a copy of the history. */
export function copyHistory(history: History): History {
  return new Map([...history].map(([key, book]) => [
    key,
    { ...book, refused: new Set(book.refused) },
  ]));
}

/** The history as text. */
export function describe(history: History): string {
  const books = [...history].map(([key, book]) => ({
    key,
    ...book,
    refused: [...book.refused],
  }));
  return JSON.stringify(books, null, 1);
}
