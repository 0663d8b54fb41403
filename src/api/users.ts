/**
 * Users: a collection like the declared ones, with two rules of its own. There
 * is always an admin, and who gets a new password is signed out everywhere.
 */

import { roles } from "../auth/access.ts";
import { ApiError } from "../http/errors.ts";
import type { Operation, Store } from "../store/store.ts";
import { declare, type RecordOf } from "./declaration.ts";
import { oneOf, optional, secret, text, unique } from "./properties.ts";
import type { Change, Rules } from "./records.ts";

export const users = declare({
  name: "users",
  singular: "user",
  access: { read: "admin", write: "admin", remove: "admin" },
  properties: {
    username: unique(text({
      min: 2,
      max: 32,
      pattern: /^[a-z0-9][a-z0-9._-]{1,31}$/,
      allowed:
        "2 to 32 lower-case letters, digits, dots, underscores or hyphens, the first a letter or digit",
    })),
    role: optional(oneOf(...roles), "viewer"),
    password: secret({ min: 10, max: 128 }),
  },
});

/** A user as it is stored: `password` is a hash. */
export type User = RecordOf<typeof users>;

/** What follows from a change to a user. */
export function userRules(store: Store): Rules {
  function isLastAdmin(id: number): boolean {
    for (const { document } of store.table("users").rows()) {
      if (document["role"] === "admin" && document.id !== id) return false;
    }
    return true;
  }

  function consequences({ previous, next }: Change): readonly Operation[] {
    if (previous === undefined) return [];
    if (
      previous["role"] === "admin" && next?.["role"] !== "admin" &&
      isLastAdmin(previous.id)
    ) {
      const change = next === undefined ? "deleted" : "given another role";
      throw new ApiError(
        40901,
        `The user ${previous.id} is the last admin and cannot be ${change}: make another admin first.`,
      );
    }
    if (next?.["password"] === previous["password"]) return [];
    const ended = store.table("authorizations").find("user_id", previous.id);
    return Array.from(
      ended,
      ({ document }): Operation => ["del", "authorizations", document.id],
    );
  }

  return { consequences };
}
