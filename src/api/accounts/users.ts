/**
 * Users: a collection like the declared ones, with two rules of its own. There
 * is always an admin, and a new password ends all sign-ins of its user.
 */

import type { Roles } from "../../auth/access.ts";
import { ApiError } from "../../http/errors.ts";
import type { Mutation, Store } from "../../store/store.ts";
import type { Declaration, RecordChange } from "../declaration/declaration.ts";
import {
  choice,
  optional,
  string,
  unique,
  writeOnly,
} from "../declaration/properties.ts";

/** The rule for passwords. */
export const password = writeOnly(string({ minLength: 10, maxLength: 128 }));

export function users({ names, lowest, highest }: Roles): Declaration {
  return {
    name: "users",
    singular: "user",
    access: { read: highest, write: highest, delete: highest },
    indexed: ["role"],
    sideEffects: (change, store) => sideEffects(change, store, highest),
    properties: {
      username: unique(string({
        minLength: 2,
        maxLength: 32,
        pattern: /^[a-z0-9][a-z0-9._-]{1,31}$/,
        description:
          "2 to 32 lower-case letters, digits, dots, underscores or hyphens, the first a letter or digit",
      })),
      role: optional(choice(...names), lowest),
      password,
    },
  };
}

/** Refuses to lose the last user of the highest role; deletes all authorizations of a user who gets a new password. */
function sideEffects(
  { previous, next }: RecordChange,
  store: Store,
  highest: string,
): readonly Mutation[] {
  if (previous === undefined) return [];
  const { id, role, password } = previous;
  const isLost = role === highest && next?.["role"] !== highest;
  if (isLost && store.table("users").count("role", highest) === 1) {
    throw new ApiError(
      40901,
      `The user ${id} is the last one with the role ${highest} and cannot be ${
        next ? "given another role" : "deleted"
      }: give it to another user first.`,
    );
  }
  // A deleted user has no next password, so the authorizations are deleted too.
  if (next?.["password"] === password) return [];
  return Array.from(
    store.table("authorizations").find("user_id", id),
    ({ document }): Mutation => ["del", "authorizations", document.id],
  );
}
