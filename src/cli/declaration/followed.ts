/** How a command takes the declaration that it is given, which it never changes. */

import type { OpenedDeclaration } from "../../api/declaration/remembered.ts";
import { declarationTable, rulesOf } from "../../api/declaration/remembered.ts";
import { followDeclaration } from "../../data-folder.ts";

/**
 * Does what {@linkcode followDeclaration} does, but accepts another text of a
 * `check`: what runs its file may print functions anew, as tsx does for
 * `npm start`. So one that was really changed is not noticed here, but when the
 * server starts with it, which validates all records.
 *
 * @returns false: no snapshot must follow
 * @throws {CommandError} if the declaration differs from the remembered one
 */
export function followInCommand(opened: OpenedDeclaration): boolean {
  const remembered = opened.store.table(declarationTable).get(1)?.document;
  const before = Object(remembered?.["names"]);
  const names = Object.fromEntries(rulesOf(opened.collections));
  const isSame = Object.keys({ ...before, ...names })
    .every((name) => withoutText(before[name]) === withoutText(names[name]));
  return isSame ? false : followDeclaration(opened);
}

/** Returns the rules of a name without the text of a `check`. */
function withoutText(rules: string | undefined): string | undefined {
  return rules &&
    JSON.stringify(
      JSON.parse(rules),
      (key, value) => key === "check" ? true : value,
    );
}
