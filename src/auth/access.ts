/**
 * Access levels: roles in ascending order, and anyone without a role. Each role
 * has all the rights of the previous one.
 */

/** The role that an operation requires of its caller, or `anyone` for no role. */
export type Access = string;

/** The names of all roles whose rights a user has. */
export type Grants = Pick<ReadonlySet<string>, "has">;

/** Somebody who reads or writes records. */
export interface Actor {
  /** The id of the user; 0 for the operator. */
  readonly id: number;
  readonly role: string;
  readonly grants: Grants;
}

/** The roles of an API. */
export type Roles = ReturnType<typeof createRoles>;

/** @param names of the roles, in ascending order of their rights */
export function createRoles(names: readonly string[]) {
  const grants = new Map<unknown, Grants>(
    names.map((name, index) => [name, new Set(names.slice(0, index + 1))]),
  );
  return {
    names,
    /** The role whose rights every user has. */
    lowest: names[0] ?? "",
    /** The role that manages users. */
    highest: names.at(-1) ?? "",
    /** Returns the rights of a stored role; undefined if there is no such role. */
    grantsOf: (role: unknown) => grants.get(role),
  };
}

/** Returns whether the rights of a caller (undefined if not signed in) include the required access. */
export function mayAccess(grants: Grants | undefined, access: Access): boolean {
  return access === "anyone" || grants?.has(access) === true;
}
