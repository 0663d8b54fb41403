/**
 * Finds the mistakes in what a declaration file returns, all of them at once.
 * Each is one line, such as `books.pages: minimum is 5: it must be a number up
 * to 2`.
 */

import { isObject } from "../../http/json.ts";
import { type ApiFile, defaultRoles } from "./api.ts";
import {
  type Collection,
  type CollectionDeclaration,
  collectionParameters,
  deriveCollections,
  ownerProperty,
  serverProperties,
} from "./declaration.ts";
import { boolean, choice, string } from "./properties.ts";
import {
  listOf,
  mistakesIn,
  nameLike,
  phrase,
  rule,
  type Shape,
  word,
  wordBut,
} from "./shape.ts";
import { carriedMistakes, mistakesInProperty } from "./vocabulary.ts";

/** Segments of `v1/` and tables that the server itself uses, and what every object has. */
export const reservedCollectionNames = [
  "answers",
  "authorizations",
  "constructor",
  "events",
  "tasks",
  "user",
  "users",
];

/** The server's properties, the query parameters that would hide a filter of the same name, and what every object has. */
const reservedPropertyNames = [
  ...serverProperties,
  ...collectionParameters,
  "cascade",
  "constructor",
];

const propertyName = nameLike(
  /^(?!.*url$)[a-z][a-z0-9_]*$/,
  `${word.expected}, not ending in "url"`,
);
const referenceName = nameLike(/_id$/, 'a name that ends in "_id"');
const noun = nameLike(/^[a-z][a-z0-9_ ]*$/, "a noun in lower-case letters");

const roleList = listOf(wordBut(["anyone"]));

const apiShape: Shape = {
  title: string({ maxLength: 100 }),
  roles: roleList,
  collections: rule(
    "a list of one or more collections",
    (value) => Array.isArray(value) && value.length > 0,
  ),
};

/** Returns the mistakes in what a declaration file returns; none if it can be served. */
export function findMistakes(api: ApiFile): string[] {
  const mistakes = mistakesIn("the API", api, apiShape, ["collections"]);
  const { roles = defaultRoles, collections } = Object(api);
  if (!Array.isArray(collections)) return mistakes;
  // Access is not compared with roles that are a mistake themselves.
  const known = roleList.check(roles) ? undefined : roles;
  const declared: CollectionDeclaration[] = [];
  for (const [index, each] of collections.entries()) {
    const { name, properties } = Object(each);
    const place = phrase.check(name) ? `collections[${index}]` : name;
    const context = { place, roles: known, declared };
    mistakes.push(...mistakesInCollection(each, context));
    if (isObject(properties)) declared.push(each);
  }
  return [...mistakes, ...mistakesInReferences(declared)];
}

/** Returns the mistakes in a collection, but for those in its references. */
function mistakesInCollection(
  declaration: CollectionDeclaration,
  { place, roles, declared }: {
    readonly place: string;
    readonly roles: readonly string[] | undefined;
    /** The collections before this one. */
    readonly declared: readonly CollectionDeclaration[];
  },
): string[] {
  const { properties, access, private: isPrivate } = Object(declaration);
  const carried = carriedMistakes(declaration);
  if (carried) return at(place, carried);
  const names = Object.keys(Object(properties));
  const shape = collectionShape(names, declared);
  const anyone = isPrivate ? [] : ["anyone"];
  const level = roles ? choice(...anyone, ...roles) : phrase;
  const reserved = isPrivate
    ? [...reservedPropertyNames, ownerProperty.name]
    : reservedPropertyNames;
  const nameShape = {
    name: wordBut(reserved, propertyName),
    renamed: wordBut(names),
  };
  const accessShape = { read: level, write: level, delete: level };
  return [
    ...at(place, mistakesIn("collection", declaration, shape, requiredOptions)),
    ...(isObject(access)
      ? at(
        `${place}.access`,
        mistakesIn("access", access, accessShape, Object.keys(accessShape)),
      )
      : []),
    ...names.flatMap((name) => {
      const own = mistakesInProperty(properties[name]);
      const { renamed } = own.length > 0 ? {} : properties[name];
      const named = mistakesIn("property", { name, renamed }, nameShape);
      return at(`${place}.${name}`, [...named, ...own]);
    }),
  ];
}

function at(place: string, mistakes: readonly string[]): string[] {
  return mistakes.map((mistake) => `${place}: ${mistake}`);
}

const requiredOptions = ["name", "singular", "access", "properties"];

/** Returns the options of a collection with these properties, after those that are declared. */
function collectionShape(
  names: readonly string[],
  declared: readonly CollectionDeclaration[],
): Shape {
  const object = rule("an object", isObject);
  const sortable = choice(...names, "id", "created_at", "updated_at");
  return {
    name: wordBut([
      ...reservedCollectionNames,
      ...declared.map(({ name }) => name),
    ]),
    singular: wordBut(declared.map(({ singular }) => singular), noun),
    access: object,
    properties: object,
    unique: listOf(listOf(choice(...names))),
    sort: listOf(sortable),
    private: boolean(),
    renamed: word,
    check: rule(
      "a function that is not async",
      (value) => Object.prototype.toString.call(value) === "[object Function]",
    ),
  };
}

/** Returns the mistakes in the references between collections. */
function mistakesInReferences(
  declared: readonly CollectionDeclaration[],
): string[] {
  const collections = deriveCollections(declared);
  const shape = {
    name: referenceName,
    collection: choice(...collections.keys()),
  };
  const mistakes: string[] = [];
  for (const source of collections.values()) {
    for (const { name, references: collection } of source.properties) {
      if (collection === undefined) continue;
      const found = mistakesIn("reference", { name, collection }, shape);
      mistakes.push(...at(`${source.name}.${name}`, found));
    }
    for (const { property, target, isRequired } of source.parents) {
      if (!isRequired || !leadsTo(target, source)) continue;
      mistakes.push(
        `${source.name}.${property}: required references lead from ${target.name} back to ${source.name}: one of them must be optional(…)`,
      );
    }
    mistakes.push(...at(source.name, duplicateUrls(source)));
  }
  return mistakes;
}

/** Returns whether required references lead from one collection to another. */
function leadsTo(
  from: Collection,
  to: Collection,
  seen = new Set<Collection>(),
): boolean {
  if (from === to) return true;
  if (seen.has(from)) return false;
  seen.add(from);
  return from.parents.some(({ target, isRequired }) =>
    isRequired && leadsTo(target, to, seen)
  );
}

function duplicateUrls({ urlProperties }: Collection): string[] {
  const names = urlProperties.map(({ name }) => name);
  return names.filter((name, index) => names.indexOf(name) < index)
    .map((name) =>
      `two references give it the property ${name}: one must have another name, as in reference("…", { as: "…" })`
    );
}
