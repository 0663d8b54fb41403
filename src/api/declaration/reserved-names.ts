/** Names that no declared collection can have. */

/** The table with the histories of the store, which each copy begins anew: see features/events/history.ts. */
export const historyTable = "_history";

/** The table with the time of the last look for what has expired: see features/deletions/retention.ts. */
export const retentionTable = "_retention";

/** The names of path segments after `v1/`, of URLs in the root document and of tables that the server itself uses, and those that every object has. */
export const reservedCollectionNames = [
  "answers",
  "authorizations",
  "constructor",
  "current_user",
  "documentation",
  "events",
  "openapi",
  "tasks",
  "user",
  "users",
];
