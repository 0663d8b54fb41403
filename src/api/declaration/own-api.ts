/** Whether a declaration is that of the store which it is to open. */

import type { Document } from "../../store/store.ts";
import { reservedCollectionNames } from "./reserved-names.ts";

const isDeclarable = (name: string) =>
  !name.includes(".") && !reservedCollectionNames.includes(name);

/** Returns the collections that a store remembers, but for those of every store. */
export function rememberedCollections(
  remembered: Document | undefined,
): readonly string[] {
  return Object.keys(Object(remembered?.["names"])).filter(isDeclarable);
}

/**
 * Returns whether a declaration has any of the collections that a store remembers,
 * or that are hidden in it; true if it remembers none.
 */
export function isOwnApi(
  remembered: Document | undefined,
  declared: readonly { readonly name: string; readonly renamed?: string }[],
  isStored: (name: string) => boolean,
): boolean {
  const names = rememberedCollections(remembered);
  const { newNames = {} } = Object(remembered);
  return names.length === 0 ||
    declared.some(({ name, renamed }) =>
      isDeclarable(name) &&
      (isStored(name) ||
        [name, renamed, newNames[name]].some((each) => names.includes(each)))
    );
}
