/** The tables that features have for themselves, and commands leave out; and what an unfinished import says of others in its own. */

import type { Store } from "../store/store.ts";
import { declarationTable } from "./declaration/remembered.ts";

/** The table with the histories of the store, which each copy begins anew: see features/events/history.ts. */
export const historyTable = "_history";

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
