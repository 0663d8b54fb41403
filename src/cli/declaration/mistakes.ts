/**
 * Finds the mistakes in what a declaration file returns, all of them at once.
 * Each is one line, such as `books.pages: minimum is 5: it must be a number up
 * to 2`.
 */

import { type ApiFile, defaultRoles } from "../../api/declaration/api.ts";
import {
  type Collection,
  type CollectionDeclaration,
  collectionParameters,
  deriveCollections,
  ownerProperty,
  serverProperties,
} from "../../api/declaration/declaration.ts";
import { boolean, choice, string } from "../../api/declaration/properties.ts";
import { isObject } from "../../http/json.ts";
import { findCallMistakes, mistakesInProperty } from "./checked-vocabulary.ts";
import {
  isClass,
  isNamed,
  listOf,
  mistakesIn,
  nameLike,
  phrase,
  type Rule,
  rule,
  type Shape,
  word,
  wordBut,
} from "./shape.ts";
import { reservedCollectionNames } from "../../api/declaration/reserved-names.ts";

/**
 * The names of the server's own properties, of query parameters, which would
 * hide a filter of the same name, and those that every object has.
 */
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
const referenceName = nameLike(
  /^[a-z][a-z0-9_]*_id$/,
  'a name that ends in "_id"',
);
const noun = nameLike(/^[a-z][a-z0-9_ ]*$/, "a noun in lower-case letters");

const roleList = listOf(wordBut(["anyone"]));

const apiShape: Shape = {
  title: string({
    maxLength: 100,
    description: "1 to 100 characters, not blank, without control characters",
  }),
  roles: roleList,
  collections: rule(
    "a list of one or more collections",
    (value) => Array.isArray(value) && value.length > 0,
  ),
};

/** Returns the mistakes in what a declaration file returns; none if it can be served. */
export function findMistakes(api: ApiFile): string[] {
  const mistakes = mistakesIn("the returned API", api, apiShape, [
    "collections",
  ]);
  const { roles = defaultRoles, collections } = Object(api);
  if (!Array.isArray(collections)) return mistakes;
  // Access is not compared with roles that are themselves a mistake.
  const known = roleList.check(roles) ? undefined : roles;
  const names = collections.map((each) => Object(each).name).filter(isNamed);
  const declared: CollectionDeclaration[] = [];
  for (const [index, each] of collections.entries()) {
    const { name, properties } = isObject(each) ? each : {};
    const place = phrase.check(name) ? `collections[${index}]` : String(name);
    const context = { place, roles: known, declared, names };
    mistakes.push(...mistakesInCollection(each, context));
    if (isObject(properties) && place === name) declared.push(each);
  }
  return [...mistakes, ...mistakesInReferences(declared)];
}

/** The context in which a collection is checked. */
interface Context {
  readonly place: string;
  readonly roles: readonly string[] | undefined;
  /** The collections before this one. */
  readonly declared: readonly CollectionDeclaration[];
  /** The names of all collections. */
  readonly names: readonly string[];
}

/** The most properties of a collection: what is read can be sent back, and a body has at most 1,000 names, of which the server adds some. */
const maxProperties = 900;

/** Returns the mistakes in a collection, except those in its references. */
function mistakesInCollection(
  declaration: CollectionDeclaration,
  { place, ...context }: Context,
): string[] {
  const { roles } = context;
  const { properties, access, private: isPrivate } = Object(declaration);
  const inCall = findCallMistakes(declaration);
  const [mistake = "it is not a collection(…)"] = inCall ?? [];
  if (inCall) return at(place, [mistake]);
  const names = Object.keys(Object(properties));
  const dated = names.filter((name) =>
    ["date", "timestamp"].includes(Object(properties[name]).kind)
  );
  const shape = { ...collectionShape(names, context), keep: kept(dated) };
  const anyone = isPrivate ? [] : ["anyone"];
  const level = roles
    ? choice(...anyone, ...roles)
    : rule("one of the roles", (value) => !phrase.check(value));
  const reserved = isPrivate
    ? [...reservedPropertyNames, ownerProperty.name]
    : reservedPropertyNames;
  const accessShape = { read: level, write: level, delete: level };
  const many = names.length > maxProperties
    ? [
      `it has ${names.length} properties: at most ${maxProperties} are allowed`,
    ]
    : [];
  return [
    ...at(place, many),
    ...at(place, mistakesIn("collection", declaration, shape, requiredOptions)),
    ...(isObject(access)
      ? at(
        `${place}.access`,
        mistakesIn("access", access, accessShape, Object.keys(accessShape)),
      )
      : []),
    ...names.flatMap((name, index) => {
      const own = mistakesInProperty(properties[name]);
      const { renamed, references: collection } = own.length > 0
        ? {}
        : properties[name];
      const earlier = names.slice(0, index)
        .map((each) => Object(properties[each]).renamed ?? "");
      const named = mistakesIn("property", { name, renamed, collection }, {
        name: wordBut(reserved, collection ? referenceName : propertyName),
        renamed: wordBut([...reserved, ...names, ...earlier]),
        collection: choice(...context.names),
      });
      return at(`${place}.${name}`, [...named, ...own]);
    }),
  ];
}

function at(place: string, mistakes: readonly string[]): string[] {
  return mistakes.map((mistake) => `${place}: ${mistake}`);
}

/** Returns the rule for how long records are kept, given the properties with a date. */
function kept(dated: readonly string[]): Rule {
  const times = [...dated, "created_at", "updated_at"];
  return rule(
    `an object such as { days: 90, by: "${
      times[0]
    }" }, of 1 to 36500 whole days, by ${times.join(", ")}`,
    (value) => {
      const { days, by = "created_at", ...others } = Object(value);
      return isObject(value) && Number.isInteger(days) && days >= 1 &&
        days <= 36_500 && times.includes(by) &&
        Object.keys(others).length === 0;
    },
  );
}

/** The highest role sees the private records of all users. */
const sharedOnly = rule(
  "false, unless there is a second role: the highest one sees the records of all users",
  (value) => value === false,
);

const requiredOptions = ["name", "singular", "access", "properties"];

/** Returns the options that a collection may have, given its properties and the collections declared before it. */
function collectionShape(
  names: readonly string[],
  { roles, declared, names: all }: Omit<Context, "place">,
): Shape {
  const object = rule(
    "a plain object",
    (value) =>
      isObject(value) && Object.getPrototypeOf(value) === Object.prototype &&
      Object.getOwnPropertySymbols(value).length === 0,
  );
  const property = names.length > 0
    ? choice(...names)
    : rule("a property, of which there are none", () => false);
  const sortable = choice(...names, "id", "created_at", "updated_at");
  return {
    name: wordBut([
      ...reservedCollectionNames,
      ...declared.map(({ name }) => name),
    ]),
    singular: wordBut(declared.map(({ singular }) => singular), noun),
    access: object,
    properties: object,
    unique: listOf(listOf(property)),
    sort: listOf(sortable),
    private: roles?.length === 1 ? sharedOnly : boolean(),
    renamed: wordBut([
      ...reservedCollectionNames,
      ...all,
      ...declared.map(({ renamed }) => renamed ?? ""),
    ]),
    check: rule(
      "a function that is not async",
      (value) =>
        Object.prototype.toString.call(value) === "[object Function]" &&
        !isClass(value),
    ),
  };
}

/** Yields the mistakes in the references between collections. */
function* mistakesInReferences(
  declared: readonly CollectionDeclaration[],
): Generator<string> {
  for (const source of deriveCollections(declared).values()) {
    for (const { property, target, isRequired } of source.parents) {
      if (!isRequired || !requiredBy(target).has(source)) continue;
      yield `${source.name}.${property}: required references lead from ${target.name} back to ${source.name}: one of them must be optional(…)`;
    }
    const urls = source.urlProperties.map(({ name }) => name);
    const duplicates = urls.filter((url, index) => urls.indexOf(url) < index);
    for (const url of duplicates) {
      yield `${source.name}: two references give it the property ${url}: one must have another name, as in reference("…", { as: "…" })`;
    }
  }
}

/** Returns a collection and those that it requires, directly or through others. */
function requiredBy(collection: Collection): Set<Collection> {
  const found = new Set([collection]);
  for (const { parents } of found) { // grows while it is iterated over
    for (const { target, isRequired } of parents) {
      if (isRequired) found.add(target);
    }
  }
  return found;
}
