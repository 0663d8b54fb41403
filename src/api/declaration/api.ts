/** An API as a user declares it. */

import { createRoles, type Roles } from "../../auth/access.ts";
import type { CollectionDeclaration, Declaration } from "./declaration.ts";

/** The value that the function in a declaration file returns. */
export interface ApiFile {
  /** The name of the API as shown to users; "API" by default. */
  readonly title?: string;
  /** The roles in ascending order; the last one manages users. */
  readonly roles?: readonly string[];
  readonly collections: readonly CollectionDeclaration[];
}

/** A declared API. */
export interface ApiDeclaration {
  readonly title: string;
  readonly roles: Roles;
  readonly collections: readonly Declaration[];
}

/** The roles of an API that declares none. */
export const defaultRoles = ["viewer", "keeper", "admin"];

/** Adds the defaults to what a declaration file returns. */
export function declareApi(
  { title = "API", roles = defaultRoles, collections }: ApiFile,
): ApiDeclaration {
  return { title, roles: createRoles(roles), collections };
}
