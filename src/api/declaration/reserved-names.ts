/** Names that no declared collection can have. */

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
