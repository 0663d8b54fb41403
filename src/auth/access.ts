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

const levels: readonly Access[] = ["anyone", ...roles];

/** Returns whether a caller's role (undefined if not signed in) includes the required access. */
export function mayAccess(role: Role | undefined, access: Access): boolean {
  return levels.indexOf(role ?? "anyone") >= levels.indexOf(access);
}

/**
 * Returns the token of an Authorization field (RFC 6750 section 2.1), or undefined if
 * the field has another scheme. Schemes are case-insensitive (RFC 9110 section 11.1).
 */
export function bearerToken(authorization: string): string | undefined {
  const match = /^bearer(?: +(.*))?$/i.exec(authorization);
  return match ? match[1] ?? "" : undefined;
}
