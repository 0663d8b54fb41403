/** The names of tables that features have for themselves, and commands leave out. */

/** The table with the histories of the store, which each copy begins anew: see features/events/history.ts. */
export const historyTable = "_history";

/** The table with the time of the last look for what has expired: see features/deletions/retention.ts. */
export const retentionTable = "_retention";
