/** The `check` of a collection in a declaration file, which may throw or return anything. */

import type {
  CollectionDeclaration,
} from "../../api/declaration/declaration.ts";
import type { Values } from "../../api/declaration/properties.ts";
import { errorText } from "../../store/error.ts";

/** A `check` that throws or returns something other than messages: a mistake in the declaration. */
class RuleError extends Error {
  readonly code = "rule";

  constructor(collection: string, cause: unknown) {
    super(`The check of ${collection} failed: ${errorText(cause)}`);
    if (cause instanceof Error) this.stack = `${this.message}\n${cause.stack}`;
  }
}

/** Returns a collection whose `check` returns messages of its properties, or throws a RuleError. */
export function withCheckedRule(
  declaration: CollectionDeclaration,
): CollectionDeclaration {
  const { check, name } = declaration;
  if (check === undefined) return declaration;
  const checked = (record: Values) => {
    const names = new Set(Object.keys(record));
    try {
      const messages = check(record) ?? {};
      if (Object.getPrototypeOf(messages) !== Object.prototype) {
        Promise.resolve(messages).catch(() => {}); // nobody waits for it
        throw new Error("it must return an object of messages, or nothing");
      }
      for (const [field, text] of Object.entries(messages)) {
        if (text === undefined) continue;
        if (names.has(field) && typeof text === "string") continue;
        throw new Error(`it returned no message of a property by "${field}"`);
      }
      return messages;
    } catch (error) {
      throw new RuleError(name, error);
    }
  };
  checked.toString = () => String(check); // by which the store knows it again
  return { ...declaration, check: checked };
}
