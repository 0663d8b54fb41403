/** The names of tables that features have for themselves, and commands leave out. */

import type { Store } from "../store/store.ts";

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
    const { of, items } = document;
    for (const [id] of JSON.parse(String(items))) names.add(`${of}/${id}`);
  }
  return names;
}

/** The table with the time of the last look for what has expired: see features/deletions/retention.ts. */
export const retentionTable = "_retention";
