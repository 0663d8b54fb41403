/**
 * Users: a collection like the declared ones, with two rules of its own. There
 * is always an admin, and who gets a new password is signed out everywhere.
 */

import { roles } from "../../auth/access.ts";
import { ApiError } from "../../http/errors.ts";
import type { Mutation, Store } from "../../store/store.ts";
import { collection } from "../declaration/declaration.ts";
import {
  choice,
  optional,
  secret,
  string,
  unique,
} from "../declaration/properties.ts";
import type { RecordChange, RecordRules } from "../records/records.ts";

export const users = collection({
  name: "users",
  singular: "user",
  access: { read: "admin", write: "admin", delete: "admin" },
  properties: {
    username: unique(string({
      minLength: 2,
      maxLength: 32,
      pattern: /^[a-z0-9][a-z0-9._-]{1,31}$/,
      description:
        "2 to 32 lower-case letters, digits, dots, underscores or hyphens, the first a letter or digit",
    })),
    role: optional(choice(...roles), "viewer"),
    password: secret({ minLength: 10, maxLength: 128 }),
  },
});

/** What follows from a change to a user. */
export function userRules(store: Store): RecordRules {
  function isLastAdmin(id: number): boolean {
    for (const { document } of store.table("users").rows()) {
      if (document["role"] === "admin" && document.id !== id) return false;
    }
    return true;
  }

  function sideEffects({ previous, next }: RecordChange): readonly Mutation[] {
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
      ({ document }): Mutation => ["del", "authorizations", document.id],
    );
  }

  return { sideEffects };
}
