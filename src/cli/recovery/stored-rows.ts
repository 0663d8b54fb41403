/**
 * Declares the stored values that no client sets, so that `check` can validate
 * them: times, hashes of passwords, and the rows of the server's own tables. A
 * server relies on them unchecked.
 */

import type { ApiDeclaration } from "../../api/declaration/api.ts";
import {
  type Collection,
  deriveCollection,
  type Properties,
} from "../../api/declaration/declaration.ts";
import {
  anyString,
  integer,
  optional,
  type Property,
} from "../../api/declaration/properties.ts";
import { declarationTable } from "../../api/declaration/remembered.ts";
import {
  awaitedTable,
  historyTable,
  retentionTable,
} from "../../api/own-tables.ts";
import { usersWithHashes } from "../../api/records/imported.ts";
import { collectionsOf } from "../../api/routes.ts";
import { listedTasks } from "../../api/tasks/tasks.ts";

/** Declares a value that only the server itself reads. */
function internal(isValid: (value: unknown) => boolean): Property {
  return {
    ...anyString(),
    expected: "as a server stored it; restore a backup",
    check(value) {
      try {
        if (isValid(value)) return undefined;
      } catch { /* it is no JSON */ }
      return { code: "type", reason: "is malformed" };
    },
  };
}

/** Texts in a list, or by names. */
const texts = internal((value) =>
  value === Object(value) &&
  Object.values(Object(value)).every((each) => typeof each === "string")
);

const areObjects = (value: unknown) =>
  Array.isArray(value) && value.every((each) => each === Object(each));

const internalTables: Readonly<Record<string, Properties>> = {
  [declarationTable]: {
    names: texts,
    newNames: texts,
    owners: optional(texts),
    policies: optional(texts),
  },
  [awaitedTable]: {
    names: optional(texts),
    items: internal((value) => areObjects(JSON.parse(String(value)))),
  },
  [historyTable]: { from: integer(), name: anyString() },
  [retentionTable]: { at: integer() },
  answers: { by: integer() },
};

const access = { read: "anyone", write: "anyone", delete: "anyone" } as const;

/** The server's own tables as collections. */
export const internalCollections: readonly Collection[] = Object.entries(
  internalTables,
).map(([name, properties]) =>
  deriveCollection({ name, singular: "row", access, properties })
);

/** Returns the collections of a declaration, users, authorizations and tasks, with all that they store as properties that are validated. */
export function storedCollections(declaration: ApiDeclaration): Collection[] {
  const tasks = listedTasks(declaration.roles);
  const properties = {
    ...tasks.properties,
    more: optional(internal(areObjects)),
  };
  const collections = collectionsOf(declaration, [{
    collections: (roles) => [usersWithHashes(roles), { ...tasks, properties }],
  }]);
  return Array.from(collections.values(), (each) => ({
    ...each,
    properties: Array.from(
      each.visibleProperties.values(),
      (property) => ({
        ...property,
        readOnly: false,
        required: !property.nullable && property.default === null,
      }),
    ),
  }));
}
