/**
 * Derives collections from their declarations: the properties that a client
 * sees, the names that a body may have, the references between collections. This
 * is done once, at startup: every request needs the result, none changes it,
 * and a contradictory declaration prevents startup, not just a request.
 */

import type { Access } from "../../auth/access.ts";
import {
  caseFold,
  type Document,
  type Mutation,
  type Store,
} from "../../store/store.ts";
import {
  type Json,
  type Property,
  readOnly,
  recordId,
  timestamp,
} from "./properties.ts";

/** A collection as a user declares it. */
export interface Declaration {
  /** A plural noun in lower case: the segment in URLs. */
  readonly name: string;
  /** The same in the singular, for messages. */
  readonly singular: string;
  /** The access required by GET, by POST, PUT and PATCH, and by DELETE. */
  readonly access: {
    readonly read: Access;
    readonly write: Access;
    readonly delete: Access;
  };
  readonly properties: Readonly<Record<string, Property>>;
  /** Groups of properties: no two records may share all values of a group, ignoring case. Records with a null among them may. */
  readonly unique?: readonly (readonly string[])[];
  /** The properties that records are sorted by, ascending, unless the caller sorts them; by default the id. */
  readonly sort?: readonly string[];
  /** A rule over a whole record, with the defaults of what it lacks: returns a message for each property that is wrong, such as "must not be before published_on". */
  readonly check?: (
    record: Readonly<Record<string, Json>>,
  ) => Readonly<Record<string, string>> | null | undefined | void;
  /** Set for records that are created and deleted but never changed; they have no `updated_at`. */
  readonly immutable?: true;
  /** The property with the id of the user who owns the record, if each user has their own. */
  readonly owner?: string;
  /** Properties that rules look up, besides the unique ones and the references. */
  readonly indexed?: readonly string[];
  /** Set if the log reports each change, with these properties of the record. */
  readonly audited?: readonly string[];
  /** Further rules: returns the mutations that must be committed with a change; throws an ApiError if it is not allowed. */
  readonly sideEffects?: (
    change: RecordChange,
    store: Store,
  ) => readonly Mutation[];
}

/** A record before and after a planned change. */
export interface RecordChange {
  readonly previous: Document | undefined;
  readonly next: Document | undefined;
}

/** Declares a collection. */
export function collection(declaration: Declaration): Declaration {
  return declaration;
}

/** A property with its name. */
export type NamedProperty = Property & { readonly name: string };

/** One property of a collection that refers to another collection. */
export interface Reference {
  /** The collection that has the property. */
  readonly source: Collection;
  /** The property, such as `zoo_id`. */
  readonly property: string;
  /** False if the property may be null. */
  readonly isRequired: boolean;
  /** The collection whose ids are its values. */
  readonly target: Collection;
  /** The last segment of the URL of the records that refer to one, such as `animals`. */
  readonly segment: string;
}

/** A URL property: the URL of the record with an id, or of the records that refer to it. */
export interface UrlProperty {
  readonly name: string;
  /** The name of the collection whose record it is. */
  readonly collection: string;
  /** The property that holds the id. */
  readonly property: string;
  /** The text after the id in the URL. */
  readonly after: string;
  /** True if it is null where the id is. */
  readonly nullable: boolean;
}

/** A declared collection with all that follows from its declaration and the others'. */
export interface Collection extends Omit<Declaration, "properties"> {
  /** The declared properties, in order. */
  readonly properties: readonly NamedProperty[];
  /** The property that is stored as a hash, if there is one. */
  readonly secretName: string | undefined;
  /** The properties that a client sees and may filter and sort by: id, declared ones, times. Not the URLs. */
  readonly visibleProperties: ReadonlyMap<string, NamedProperty>;
  /** The URL of the record, then one for each reference. */
  readonly urlProperties: UrlProperty[];
  /** The names that a body may have: the declared properties, and the server's own, which are ignored. */
  readonly acceptedNames: Set<string>;
  /** References to other collections. */
  readonly parents: Reference[];
  /** References of other collections to this one. */
  readonly children: Reference[];
}

const wordForm = /^[a-z][a-z0-9_]*$/;

/** Segments of `v1/` that the server itself uses. */
const reservedCollectionNames = [
  "authorizations",
  "user",
  "users",
  "tasks",
  "events",
  "openapi.json",
];

/** Properties that the server adds to every record, besides the URLs. */
const serverProperties = ["id", "created_at", "updated_at", "link"];

/** The query parameters of a collection that are not filters. */
export const collectionParameters = [
  "limit",
  "offset",
  "page",
  "per_page",
  "sortby",
  "order",
  "fields",
];

/** The server's properties, and the query parameters that would hide a filter of the same name. */
const reservedPropertyNames = [
  ...serverProperties,
  ...collectionParameters,
  "cascade",
];

/**
 * Derives the collections of all declarations.
 *
 * @throws {Error} if a declaration contradicts itself, another one or the
 * names that the server uses; the message names collection and property
 */
export function deriveCollections(
  declarations: readonly Declaration[],
  builtIn: readonly Declaration[] = [],
): Map<string, Collection> {
  const collections = new Map<string, Collection>();
  for (const declaration of [...declarations, ...builtIn]) {
    const { name } = declaration;
    const isReserved = reservedCollectionNames.includes(name) &&
      !builtIn.includes(declaration);
    if (!wordForm.test(name) || isReserved || collections.has(name)) {
      throw new Error(
        `Cannot declare the collection "${name}": its name must be unique, consist of lower-case letters, digits and underscores, and be none of ${
          reservedCollectionNames.join(", ")
        }`,
      );
    }
    collections.set(name, deriveCollection(declaration));
  }
  for (const source of collections.values()) {
    linkReferences(source, collections);
  }
  return collections;
}

/**
 * Derives one collection, without its references.
 *
 * @throws {Error} if the name of a property is malformed or reserved
 */
export function deriveCollection(declaration: Declaration): Collection {
  const { name: collection } = declaration;
  const properties = Object.entries(declaration.properties).map(
    ([name, property]): NamedProperty => ({ ...property, name }),
  );
  for (const { name } of properties) {
    if (
      !wordForm.test(name) || name.endsWith("url") ||
      reservedPropertyNames.includes(name)
    ) {
      throw new Error(
        `Cannot declare the property "${name}" of ${collection}: its name must consist of lower-case letters, digits and underscores, not end in "url", and be none of ${
          reservedPropertyNames.join(", ")
        }`,
      );
    }
  }
  const serverTime = readOnly(timestamp());
  const visibleProperties: NamedProperty[] = [
    { ...recordId(), name: "id" },
    ...properties.filter(({ kind }) => kind !== "secret"),
    { ...serverTime, name: "created_at" },
    ...(declaration.immutable ? [] : [{ ...serverTime, name: "updated_at" }]),
  ];
  const { sort = [], unique = [] } = declaration;
  const unknown = [...sort, ...unique.flat()].find((name) =>
    visibleProperties.every((property) => property.name !== name)
  );
  if (unknown !== undefined) {
    throw new Error(
      `Cannot declare ${collection}: it has no property "${unknown}"`,
    );
  }
  return {
    ...declaration,
    properties,
    secretName: properties.find(({ kind }) => kind === "secret")?.name,
    visibleProperties: new Map(
      visibleProperties.map((property) => [property.name, property]),
    ),
    urlProperties: [{ ...idUrl, name: "url", collection }],
    acceptedNames: new Set([
      ...properties.map(({ name }) => name),
      ...serverProperties,
      "url",
    ]),
    parents: [],
    children: [],
  };
}

/** Links a collection with those that its properties refer to, both ways. */
function linkReferences(
  source: Collection,
  collections: ReadonlyMap<string, Collection>,
): void {
  for (const { name, references, nullable, as } of source.properties) {
    if (references === undefined) continue;
    const target = collections.get(references);
    const isRequired = !nullable;
    const segment = as ?? source.name;
    if (
      target === undefined || !name.endsWith("_id") ||
      !wordForm.test(segment) || (target === source && isRequired)
    ) {
      throw new Error(
        `Cannot declare the property "${name}" of ${source.name}: a reference must have a name that ends in "_id" and name a declared collection; one to its own collection must be optional`,
      );
    }
    const reference = { source, property: name, isRequired, target, segment };
    source.parents.push(reference);
    target.children.push(reference);
    addUrlProperty(source, {
      name: name.replace(/_id$/, "_url"),
      collection: references,
      property: name,
      after: "",
      nullable,
    });
    addUrlProperty(target, {
      ...idUrl,
      name: `${segment}_url`,
      collection: references,
      after: `/${segment}`,
    });
  }
}

/** The URL property of a record's own id. */
const idUrl = { property: "id", after: "", nullable: false };

function addUrlProperty(collection: Collection, added: UrlProperty): void {
  const { name } = added;
  if (collection.urlProperties.some((each) => each.name === name)) {
    throw new Error(
      `Cannot declare ${collection.name}: two references would both be "${name}"; a reference can have another name by { as: "…" }`,
    );
  }
  collection.urlProperties.push(added);
  collection.acceptedNames.add(name);
}

/** Returns a noun with its indefinite article. */
export function withArticle(noun: string): string {
  return /^(?:[aeio]|u(?!s|ni))/.test(noun) ? `an ${noun}` : `a ${noun}`;
}

/** Returns the names of all properties that a client sees. */
export function readableNames(
  { visibleProperties, urlProperties }: Collection,
): string[] {
  return [
    ...visibleProperties.keys(),
    ...urlProperties.map(({ name }) => name),
  ];
}

/** Returns a property of a stored record; its default if the record has none, being older than the declaration. */
export function readValue(
  document: { readonly [property: string]: Json },
  { name, default: defaultValue }: Pick<NamedProperty, "name" | "default">,
): Json {
  return document[name] ?? defaultValue;
}

/** Returns the key of a value in an index, or that of a group of values; null for null and for a group with a null. Strings that differ only in case have the same. */
export function toIndexKey(value: Json | undefined): string | number | null {
  if (typeof value === "string") return caseFold(value);
  if (Array.isArray(value)) {
    const keys = value.map(toIndexKey);
    return keys.includes(null) ? null : JSON.stringify(keys);
  }
  const isIndexed = typeof value === "number" || typeof value === "boolean";
  return isIndexed ? Number(value) : null;
}
