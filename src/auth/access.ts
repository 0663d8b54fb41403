/**
 * Who may do what: four levels of access in a row, each of which may all that
 * the ones before it may.
 */

/** The roles that a user can have, from the least to the most. */
export const roles = ["viewer", "keeper", "admin"] as const;

/** A user's role. */
export type Role = (typeof roles)[number];

/** What an operation demands of its caller: a role, or nothing at all. */
export type Access = Role | "anyone";

const ranks: Readonly<Record<Access, number>> = {
  anyone: 0,
  viewer: 1,
  keeper: 2,
  admin: 3,
};

/** Whether a caller (undefined: not signed in) may what demands `access`. */
export function mayAccess(role: Role | undefined, access: Access): boolean {
  return ranks[role ?? "anyone"] >= ranks[access];
}

/**
 * The token of an Authorization field (RFC 6750 section 2.1; the scheme is
 * compared without case, RFC 9110 section 11.1), or undefined where the field
 * holds another scheme.
 */
export function bearerToken(authorization: string): string | undefined {
  const found = /^bearer(?: +(.*))?$/i.exec(authorization);
  return found ? found[1] ?? "" : undefined;
}
