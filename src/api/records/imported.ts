/**
 * The rules for records that come from an import or a seed, beyond those of a
 * POST: they may name their owner and, at the command line, users may have hashes
 * instead of passwords.
 */

import type { Actor, Roles } from "../../auth/access.ts";
import { isHash } from "../../auth/passwords.ts";
import { users as usersOf } from "../accounts/users.ts";
import { type Declaration, seesAll } from "../declaration/declaration.ts";
import {
  anyString,
  type Property,
  timestamp,
} from "../declaration/properties.ts";
import { type Body, validationError } from "../declaration/validation.ts";
import type { Document } from "../../store/store.ts";
import type { Records } from "./records.ts";

/**
 * Returns the owner of a new private record that is imported: the user that its
 * body names, if the caller sees the records of all users, or else the caller;
 * null for none, and for a user who is gone.
 *
 * @param isThere returns whether the user whom an id means is there
 * @throws {ApiError} 42200
 */
export function ownerOfImported(
  { collection, store }: Records,
  { owner_id: named }: Body,
  caller: Actor | undefined,
  isThere = (id: number) => store.table("users").get(id) !== undefined,
): number | null {
  if (named === undefined || !seesAll(collection, caller)) {
    return caller?.id || null; // the operator is not a user
  }
  if (named === null) return null;
  if (typeof named === "number" && named > 0) {
    return isThere(named) ? named : null;
  }
  throw validationError([{
    field: "owner_id",
    code: "reference",
    message: '"owner_id" must be null or the id of a user.',
  }]);
}

/** The end of a hash whose salt is as long as those of this server. */
const fullSalt = /\$[\w-]{22}\$[\w-]+$/;

/** Users with the hashes of their passwords instead of the passwords: only the command line exports and imports these. */
export function usersWithHashes(roles: Roles): Declaration {
  const { properties, ...others } = usersOf(roles);
  const hash: Property = {
    ...anyString(),
    expected: "a hash as printed by export users --with-hashes",
    check: (value) =>
      isHash(value) && fullSalt.test(value)
        ? undefined
        : { code: "format", reason: "is not the hash of a password" },
  };
  return { ...others, properties: { ...properties, password: hash } };
}

/**
 * Returns the id of an exported line, and its times if they are plausible (one
 * that was never changed may lack the second), the last at most `latest`: of
 * another machine's clock, the command line and a seed believe any. A line without
 * an id is a new record.
 */
export function importedValues(
  { id, created_at, updated_at }: Body,
  // Changes have later times, of four digits as well (RFC 3339 section 5.6).
  latest = "9999-12-31T23:00:00.000Z",
): Partial<Document> {
  if (typeof id !== "number") return {};
  const created = parseTime(created_at);
  const updated = parseTime(updated_at ?? created_at);
  if (!created || !updated || created > updated || created > latest) {
    return { id };
  }
  const changed = updated < latest ? updated : latest;
  return { id, created_at: created, updated_at: changed };
}

const time = timestamp();

/** Returns a time from 1970 on as records show it; undefined for anything else. */
function parseTime(value: unknown): string | undefined {
  const text = typeof value === "string" ? time.parse(value) : undefined;
  return typeof text === "string" && text >= "1970" ? text : undefined;
}
