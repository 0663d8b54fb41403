/**
 * The tables that features have for themselves, and commands leave out: how a
 * history begins in one, and what an unfinished import says of others in another.
 */

import { randomBytes } from "node:crypto";
import { errorCode, errorText } from "../store/error.ts";
import type { Logger, Mutation, Store } from "../store/store.ts";
import { declarationTable } from "./declaration/remembered.ts";

/** The table with the histories of the store: see features/events/history.ts. */
export const historyTable = "_history";

/** The most histories that are remembered; an id of an older one is unknown. */
export const maxHistories = 100;

/**
 * Begins a history with a random name and the next sequence number, if the store
 * has histories. Whoever opens it to write, also a server without the feature
 * events, does that first: the store may be a copy of one that has assigned the
 * next numbers too. On a full disk it only logs that it could not, as the store
 * can be read.
 */
export async function beginHistory(store: Store, log: Logger): Promise<void> {
  const table = store.tables.get(historyTable);
  if (table === undefined) return;
  await store.settle(() => {
    const id = table.lastId + 1;
    const name = randomBytes(5).toString("hex");
    const mutations: Mutation[] = [
      ["put", historyTable, { id, from: store.seq + 1, name }],
    ];
    const old = id - maxHistories;
    if (table.get(old)) mutations.push(["del", historyTable, old]);
    return { seq: store.apply(mutations, 0, { allowWhenFull: true }) };
  }).catch((error) => {
    if (errorCode(error) !== "disk-full") throw error;
    log("error", `Cannot begin a history: ${errorText(error)}`);
  });
}

/** The table with the references that records of an import await: see features/imports/awaited.ts. */
export const awaitedTable = "_awaited";

/** Returns the records, such as `books/7`, that an import has stored without references that come later. */
export function awaitingRecords(
  { tables }: Pick<Store, "tables">,
): ReadonlySet<string> {
  const names = new Set<string>();
  for (const { document } of tables.get(awaitedTable)?.frozen() ?? []) {
    const of = presentName({ tables }, String(document["of"]));
    const items = JSON.parse(String(document["items"]));
    for (const [id] of items) names.add(`${of}/${id}`);
  }
  return names;
}

/** Returns the present name of a collection, or of a property such as `books.title`, that may have been renamed. */
export function presentName(
  { tables }: Pick<Store, "tables">,
  name: string,
): string {
  const remembered = tables.get(declarationTable)?.get(1)?.document;
  return Object(remembered?.["newNames"])[name] ?? name;
}

/** The table with the time of the last look for what has expired: see features/deletions/retention.ts. */
export const retentionTable = "_retention";
