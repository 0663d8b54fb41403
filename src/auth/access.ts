/**
 * Access levels: three roles, and anyone without a role. Each level has all the
 * rights of the previous one.
 */

/** The roles that a user can have, in ascending order of their rights. */
export const roles = ["viewer", "keeper", "admin"] as const;

/** A user's role. */
export type Role = (typeof roles)[number];

/** The role that an operation requires of its caller, or `anyone` for no role. */
export type Access = Role | "anyone";

const ranks: Readonly<Record<Access, number>> = {
  anyone: 0,
  viewer: 1,
  keeper: 2,
  admin: 3,
};

/** Returns whether a caller's role (undefined if not signed in) includes the required access. */
export function mayAccess(role: Role | undefined, access: Access): boolean {
  return ranks[role ?? "anyone"] >= ranks[access];
}

/**
 * Returns the token of an Authorization field (RFC 6750 section 2.1), or undefined if
 * the field has another scheme. Schemes are case-insensitive (RFC 9110 section 11.1).
 */
export function bearerToken(authorization: string): string | undefined {
  const match = /^bearer(?: +(.*))?$/i.exec(authorization);
  return match ? match[1] ?? "" : undefined;
}
