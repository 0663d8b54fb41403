/**
 * Derives collections from their declarations: the properties that a client
 * sees, the names that a body may have, the references between collections.
 * This is done once, at startup; every request uses the result, and none
 * changes it.
 */

import { type Access, type Actor, mayAccess } from "../../auth/access.ts";
import {
  type Document,
  foldText,
  type Mutation,
  type Store,
} from "../../store/store.ts";
import {
  integer,
  type Json,
  optional,
  type Property,
  readOnly,
  recordId,
  timestamp,
  type Values,
} from "./properties.ts";

/** The properties of a collection, by their names. */
export type Properties = Readonly<Record<string, Property>>;

/** A collection as a user declares it. The types by which an editor checks a declaration file, `zoo-api.d.ts`, are more precise. */
export interface CollectionDeclaration {
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
  readonly properties: Properties;
  /**
   * Groups of properties: no two records may share all values of a group,
   * comparing folded texts, unless one of the values is null.
   */
  readonly unique?: readonly (readonly string[])[];
  /** The properties that records are sorted by, ascending, unless the caller sorts them; by default the id. */
  readonly sort?: readonly string[];
  /**
   * A rule for a complete record, including defaults: returns a message for
   * each invalid property, such as "must not be before published_on".
   */
  readonly check?: (
    record: Values,
  ) => Readonly<Record<string, string | undefined>> | null | undefined | void;
  /**
   * True if each user has their own records, which only the highest role can
   * also see; the property `owner_id` names the owner.
   */
  readonly private?: boolean;
  /** How long records are kept: so many days from the date or timestamp of a property, by default from `created_at`. */
  readonly keep?: { readonly days: number; readonly by?: string };
  /** Its name in earlier declarations. */
  readonly renamed?: string;
}

/** A collection as the server serves it. */
export interface Declaration extends CollectionDeclaration {
  /** Set for records that are created and deleted but never changed; they have no `updated_at`. */
  readonly immutable?: true;
  /** The property with the id of the user who owns the record, if each user has their own. */
  readonly owner?: string | undefined;
  /** The role that can see the records of all users; by default none. */
  readonly overseer?: Access | undefined;
  /** Properties with an index for lookups, besides the unique ones and the references. */
  readonly indexed?: readonly string[];
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
export function collection(
  declaration: CollectionDeclaration,
): CollectionDeclaration {
  return declaration;
}

/** A property with its name. */
export type NamedProperty = Property & {
  readonly name: string;
  /** The collection that it refers to. */
  target?: Collection;
};

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
interface UrlProperty {
  readonly name: string;
  /** The property that holds the id. */
  readonly property: string;
  /** The parts of the URL before and after the id. */
  readonly before: string;
  readonly after: string;
  /** True if the URL is null when the id is. */
  readonly nullable: boolean;
}

/** A declared collection with everything derived from its declaration and those of the others. */
export interface Collection extends Omit<Declaration, "properties"> {
  readonly url: string;
  /** The declared properties, in order. */
  readonly properties: readonly NamedProperty[];
  /** The property that is stored as a hash, if there is one. */
  readonly secretName: string | undefined;
  /** The properties that a client sees and may filter and sort by: id, the declared ones, times, but not URLs. */
  readonly visibleProperties: ReadonlyMap<string, NamedProperty>;
  /** The URL of the record, then one for each reference. */
  readonly urlProperties: UrlProperty[];
  /**
   * The names that a body may have besides those of URL properties: the
   * declared properties, and those that the server sets, which are ignored.
   */
  readonly acceptedNames: ReadonlySet<string>;
  /** References to other collections. */
  readonly parents: Reference[];
  /** References of other collections to this one. */
  readonly children: Reference[];
}

/** Properties that the server adds to every record, besides the URLs. */
export const serverProperties = ["id", "created_at", "updated_at", "link"];

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

/**
 * Derives the collections of all declarations, which must be free of mistakes.
 *
 * @param prefix the beginning of every URL: `/v1/`, possibly after an origin
 */
export function deriveCollections(
  declarations: readonly Declaration[],
  prefix?: string,
): Map<string, Collection> {
  const collections = new Map(
    declarations.map((each) => [each.name, deriveCollection(each, prefix)]),
  );
  for (const source of collections.values()) {
    for (const each of source.properties) {
      const target = collections.get(each.references ?? "");
      if (target) linkReference(source, each, target);
    }
  }
  return collections;
}

/** Derives one collection, without its references. */
export function deriveCollection(
  declaration: Declaration,
  prefix = "/v1/",
): Collection {
  const { immutable } = declaration;
  const url = prefix + declaration.name;
  const properties = Object.entries(declaration.properties).map(
    ([name, property]): NamedProperty => ({ ...property, name }),
  );
  const serverTime = readOnly(timestamp());
  const visible: NamedProperty[] = [
    { ...recordId(), name: "id" },
    ...properties.filter(({ kind }) => kind !== "secret"),
    ...(declaration.private ? [ownerProperty] : []),
    { ...serverTime, name: "created_at" },
    ...(immutable ? [] : [{ ...serverTime, name: "updated_at" }]),
  ];
  return {
    ...declaration,
    url,
    properties,
    secretName: properties.find(({ kind }) => kind === "secret")?.name,
    visibleProperties: new Map(visible.map((each) => [each.name, each])),
    urlProperties: [{ ...idUrl, name: "url", before: `${url}/` }],
    acceptedNames: new Set(
      [...properties, ...visible].map(({ name }) => name)
        .concat(serverProperties),
    ),
    parents: [],
    children: [],
  };
}

/** Links a collection with the one that a property refers to, both ways. */
function linkReference(
  source: Collection,
  of: NamedProperty,
  target: Collection,
): void {
  const { name, nullable, as: segment = source.name } = of;
  of.target = target;
  const isRequired = !nullable;
  const reference = { source, property: name, isRequired, target, segment };
  const before = `${target.url}/`;
  source.parents.push(reference);
  target.children.push(reference);
  source.urlProperties.push({
    name: name.replace(/_id$/, "_url"),
    property: name,
    before,
    after: "",
    nullable,
  });
  target.urlProperties.push({
    ...idUrl,
    name: `${segment}_url`,
    before,
    after: `/${segment}`,
  });
}

/** The property of private records with the id of the user who created them. */
export const ownerProperty: NamedProperty = {
  ...readOnly(optional(integer({ minimum: 1 }))),
  references: "users", // the planner treats references as indexed, which is true of this one
  name: "owner_id",
};

/** The URL property of a record's own id. */
const idUrl = { property: "id", after: "", nullable: false };

/** Returns whether a caller sees all records of a collection. */
export function seesAll(
  { owner, overseer }: Collection,
  actor: Actor | undefined,
): boolean {
  return owner === undefined ||
    (overseer !== undefined && mayAccess(actor?.grants, overseer));
}

/** Returns whether a caller may read all records of a collection, so that a message may tell of them. */
export function readsAll(
  collection: Collection,
  actor: Actor | undefined,
): boolean {
  return seesAll(collection, actor) &&
    mayAccess(actor?.grants, collection.access.read);
}

/** Returns whether a caller sees a record of a collection. */
export function isVisible(
  collection: Collection,
  document: Document,
  actor: Actor | undefined,
): boolean {
  return seesAll(collection, actor) ||
    document[String(collection.owner)] === (actor?.id ?? 0);
}

/** Returns the id of a private record's owner, null if it has none; undefined if the collection is not private. */
export function ownerOf(
  collection: Collection,
  document: Document,
): Json | undefined {
  return collection.private ? document[ownerProperty.name] ?? null : undefined;
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

/**
 * Returns a property of a stored record; its default if the record lacks the
 * property because it is older than the declaration.
 */
export function readValue(
  document: Values,
  { name, default: defaultValue }: Pick<NamedProperty, "name" | "default">,
): Json {
  return document[name] ?? defaultValue;
}

/**
 * Returns the index key of a value, or of a group of values; null for null and
 * for a group with a null. Strings that are equal once folded have the same key.
 */
export function toIndexKey(value: Json | undefined): string | number | null {
  if (typeof value === "string") return foldText(value);
  if (Array.isArray(value)) {
    const keys = value.map(toIndexKey);
    if (keys.includes(null)) return null;
    return keys.length > 1 ? JSON.stringify(keys) : keys[0] ?? null;
  }
  return typeof value === "object" || value === undefined
    ? null
    : Number(value);
}
