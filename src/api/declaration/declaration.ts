/**
 * From declarations to collections: what is derived from a declaration once,
 * at the start, so that no request has to.
 */

import type { Access } from "../../auth/access.ts";
import { caseFold } from "../../store/store.ts";
import {
  type Json,
  type Property,
  readOnly,
  recordId,
  timestamp,
} from "./properties.ts";

/** What a user declares of a collection. */
export interface Declaration<
  P extends Readonly<Record<string, Property>> = Readonly<
    Record<string, Property>
  >,
> {
  /** A plural noun in lower case: the segment in addresses. */
  readonly name: string;
  /** The same in the singular, for messages. */
  readonly singular: string;
  /** Who may GET; POST, PUT and PATCH; DELETE. */
  readonly access: {
    readonly read: Access;
    readonly write: Access;
    readonly delete: Access;
  };
  readonly properties: P;
  /** Records that are made and removed but never changed; they have no `updated_at`. */
  readonly immutable?: true;
  /** The property with the id of the user whose record it is, where each user has their own. */
  readonly owner?: string;
}

/** The type of a declared collection's records, without their addresses. */
export type RecordOf<D extends Declaration> =
  & { readonly id: number }
  & {
    readonly [N in keyof D["properties"]]: D["properties"][N] extends
      Property<infer T> ? T : never;
  }
  & { readonly created_at: string; readonly updated_at: string };

/** Declares a collection; only gives it its type. */
export function collection<const P extends Readonly<Record<string, Property>>>(
  declaration: Declaration<P>,
): Declaration<P> {
  return declaration;
}

/** A property with its name. */
export type NamedProperty = Property & { readonly name: string };

/** One property of a collection that refers to another collection. */
export interface Reference {
  /** The collection that holds the property. */
  readonly source: Collection;
  /** The property, such as `zoo_id`. */
  readonly property: string;
  /** The collection whose ids it holds. */
  readonly target: Collection;
}

/** A declared collection with all that follows from its declaration and the others'. */
export interface Collection extends Omit<Declaration, "properties"> {
  /** The declared properties, in order. */
  readonly properties: readonly NamedProperty[];
  /** All but the addresses that a reader sees and may filter and sort by: id, declared ones, times. */
  readonly visibleProperties: ReadonlyMap<string, NamedProperty>;
  /** Names of the address properties: url, then one for each relation. */
  readonly urlProperties: string[];
  /** What a body may hold: the declared properties, and the server's own, which are ignored. */
  readonly acceptedNames: Set<string>;
  /** Relations to others, and of others to this one. */
  readonly parents: Reference[];
  readonly children: Reference[];
}

const wordForm = /^[a-z][a-z0-9_]*$/;

// Segments of `v1/` that are not the name of a declared collection.
const reservedCollectionNames = new Set([
  "authorizations",
  "user",
  "users",
  "tasks",
  "events",
  "openapi.json",
]);

/**
 * Derives the collections of all declarations.
 *
 * @throws {Error} where a declaration contradicts itself, another one or what
 * the server adds by itself; the message names collection and property
 */
export function deriveCollections(
  declarations: readonly Declaration[],
  builtIn: readonly Declaration[] = [],
): Map<string, Collection> {
  const collections = new Map<string, Collection>();
  for (const declaration of [...declarations, ...builtIn]) {
    const { name } = declaration;
    const taken = reservedCollectionNames.has(name) &&
      !builtIn.includes(declaration);
    if (!wordForm.test(name) || taken || collections.has(name)) {
      throw new Error(
        `Cannot declare the collection "${name}": its name must be lower-case letters, digits and underscores, declared once, and none of ${
          [...reservedCollectionNames].join(", ")
        }`,
      );
    }
    collections.set(name, deriveCollection(declaration));
  }
  for (const from of collections.values()) relate(from, collections);
  return collections;
}

/**
 * Derives one collection, without its relations.
 *
 * @throws {Error} on a property with a name that is not free
 */
export function deriveCollection(declaration: Declaration): Collection {
  const properties = Object.entries(declaration.properties).map(
    ([name, property]): NamedProperty => ({ ...property, name }),
  );
  const serverTime = readOnly(timestamp());
  const readable = [
    { ...recordId(), name: "id" },
    ...properties.filter(({ kind }) => kind !== "secret"),
    { ...serverTime, name: "created_at" },
    ...(declaration.immutable ? [] : [{ ...serverTime, name: "updated_at" }]),
  ];
  const reserved = ["id", "created_at", "updated_at", "link"];
  for (const { name } of properties) {
    // Names of parameters would be ambiguous as names of filters.
    if (
      !wordForm.test(name) || name.endsWith("url") || reserved.includes(name) ||
      parameterNames.has(name)
    ) {
      throw new Error(
        `Cannot declare the property "${name}" of ${declaration.name}: its name must be lower-case letters, digits and underscores, not end in "url", and be none of ${
          [...reserved, ...parameterNames].join(", ")
        }`,
      );
    }
  }
  return {
    ...declaration,
    properties,
    visibleProperties: new Map(
      readable.map((property) => [property.name, property]),
    ),
    urlProperties: ["url"],
    acceptedNames: new Set([
      ...properties.map(({ name }) => name),
      ...reserved,
      "url",
    ]),
    parents: [],
    children: [],
  };
}

/** The parameters of a collection that are not filters. */
export const parameterNames: ReadonlySet<string> = new Set([
  "limit",
  "offset",
  "page",
  "per_page",
  "sortby",
  "order",
  "fields",
  "cascade",
]);

/** Connects a collection with those that it refers to, both ways. */
function relate(
  from: Collection,
  collections: ReadonlyMap<string, Collection>,
): void {
  for (const { name, references, nullable } of from.properties) {
    if (references === undefined) continue;
    const to = collections.get(references);
    if (to === undefined || to === from || !name.endsWith("_id") || nullable) {
      throw new Error(
        `Cannot declare the property "${name}" of ${from.name}: a reference must have a name that ends in "_id", be required, and name another declared collection`,
      );
    }
    const relation = { source: from, property: name, target: to };
    from.parents.push(relation);
    addAddress(from, name.replace(/_id$/, "_url"));
    // Two references to one collection share its one sub-collection.
    if (!to.children.some((child) => child.source === from)) {
      addAddress(to, `${from.name}_url`);
    }
    to.children.push(relation);
  }
}

function addAddress(collection: Collection, name: string): void {
  if (collection.urlProperties.includes(name)) {
    throw new Error(
      `Cannot declare ${collection.name}: two relations would both be "${name}"`,
    );
  }
  collection.urlProperties.push(name);
  collection.acceptedNames.add(name);
}

/** A property of a stored record; its default where the record is older than the property's declaration. */
export function readValue(
  document: { readonly [property: string]: Json },
  { name, default: otherwise }: NamedProperty,
): Json {
  return document[name] ?? otherwise;
}

/** A property's value in the form in which equal values are the same key: texts without case. */
export function toIndexKey(value: Json | undefined): string | number | null {
  return typeof value === "string"
    ? caseFold(value)
    : typeof value === "number"
    ? value
    : null;
}
