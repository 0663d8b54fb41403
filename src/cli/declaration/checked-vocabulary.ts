/**
 * The vocabulary with checks. Its functions never throw: what they return
 * carries the mistakes in their arguments, so that all mistakes of a file are
 * reported at once.
 */

import { types } from "node:util";
import {
  collection,
  type CollectionDeclaration,
} from "../../api/declaration/declaration.ts";
import {
  boolean,
  integer,
  number,
  type Property,
} from "../../api/declaration/properties.ts";
import { type Vocabulary, words } from "../../api/declaration/vocabulary.ts";
import { isObject } from "../../http/json.ts";
import { findWeakness } from "./pattern.ts";
import {
  listOf,
  mistakesIn,
  phrase,
  rule,
  type Shape,
  show,
  word,
} from "./shape.ts";

/** The functions of the vocabulary, and for every other name a function whose call is reported as a mistake. */
export const vocabulary: Vocabulary = new Proxy(words, {
  get: (_, name) => name === "collection" ? collectionOf : wordOf(String(name)),
});

/** Other options beside the first become an unknown one: they must not be ignored. */
function collectionOf(
  options: CollectionDeclaration,
  others?: unknown, // a number if called by Array.map
): CollectionDeclaration {
  const all = { ...options, "a second argument": others };
  return collection(isObject(others) ? all : options);
}

/**
 * The properties that the functions have returned, with the mistakes in their
 * arguments: nothing else is a property.
 */
const properties = new WeakMap<object, readonly string[]>();

function wordOf(name: string) {
  const named = (...args: unknown[]): object => {
    const { renamed, given } = withoutFormerName(args);
    const found = [
      ...mistakesInCall(name, args),
      ...mistakesInNumber(name, given),
    ];
    const property = found.length > 0 ? boolean() : {
      ...Object(Reflect.apply(Reflect.get(words, name), undefined, given)),
      // It decides which strings match, so it is remembered; the schema lacks it.
      ...(Object(given[0]).pattern?.flags && { flags: "u" }),
      ...(renamed !== undefined && { renamed }),
    };
    properties.set(property, [...found, ...mistakesInDefault(property)]);
    // To change it afterwards would change the check, not its description.
    return Object.freeze(property);
  };
  return Object.defineProperty(named, "name", { value: name });
}

/** Returns the former name of a property, which is an option of every word and known to none, and the arguments without it. */
function withoutFormerName(args: readonly unknown[]) {
  const last = args.at(-1);
  const { renamed, ...options } = Object(last);
  if (renamed === undefined || properties.has(Object(last))) {
    return { renamed, given: args };
  }
  const hasOthers = Object.keys(options).length > 0;
  return {
    renamed,
    given: [...args.slice(0, -1), ...hasOthers ? [options] : []],
  };
}

/** Returns the mistakes in the arguments of a call. */
function mistakesInCall(
  name: string,
  args: readonly unknown[],
): readonly string[] {
  if (!Object.hasOwn(words, name)) {
    const names = Object.keys(words).join(", ");
    return [
      `${name} is not a word of the vocabulary: it must be one of ${names}`,
    ];
  }
  const [first = {}, second] = args;
  const limits = Object(first);
  const check = (
    options: unknown,
    shape: Shape,
    required?: readonly string[],
  ) => mistakesIn(name, options, { ...shape, renamed: anything }, required);
  switch (name) {
    case "string":
    case "text":
      return [
        ...check(first, stringShape(limits), ["maxLength"]),
        ...mistakesInPattern(limits),
      ];
    case "number":
      return check(first, boundsShape(number, limits));
    case "integer":
      return check(first, boundsShape(integer, limits));
    case "choice": {
      const choices = args.filter((each) => !isObject(each));
      const options = { ...Object(args.find(isObject)), choices };
      return check(options, { choices: listOf(phrase) });
    }
    case "unique":
      return mistakesInProperty(args[0]);
    case "optional":
      return mistakesInOptional(args[0], second);
    case "reference": {
      const shape = { collection: word, as: word };
      const options = isObject(second ?? {})
        ? { collection: args[0], ...Object(second) }
        : second;
      return check(options, shape, ["collection"]);
    }
  }
  return check(first, {});
}

/** The most arguments of the words that do not take one. */
const maxArguments: Readonly<Record<string, number>> = {
  choice: Infinity,
  optional: 2,
  reference: 2,
};

/** Returns the mistake in the number of arguments that a word is given. */
function mistakesInNumber(
  name: string,
  given: readonly unknown[],
): readonly string[] {
  const { [name]: most = 1 } = maxArguments;
  const surplus = given.slice(most).filter((each) => each !== undefined);
  if (surplus.length === 0 || !Object.hasOwn(words, name)) return [];
  return [
    `${name} is also given ${
      surplus.map(show).join(", ")
    }: it takes ${most} argument${most === 1 ? "" : "s"}`,
  ];
}

/** Any value: a former name, which mistakes.ts compares with the other names of the collection. */
const anything = rule("", () => true);

const maxInteger = Number.MAX_SAFE_INTEGER;

/** All records are in memory, and each is sent as a whole. */
const maxCharacters = 10_000_000;

function stringShape({ maxLength: maximum = maxInteger }): Shape {
  return {
    minLength: integer({ minimum: 0, maximum }),
    maxLength: integer({ minimum: 1, maximum: maxCharacters }),
    // Other flags would change what the pattern means in JSON Schema.
    pattern: rule(
      "a regular expression without flags other than u",
      isPattern,
    ),
    description: phrase,
  };
}

/** Returns whether a value is a regular expression without state, and without methods of its own. */
function isPattern(value: unknown): value is RegExp {
  return types.isRegExp(value) && /^u?$/.test(value.flags) &&
    Object.getPrototypeOf(value) === RegExp.prototype &&
    Reflect.ownKeys(value).join() === "lastIndex";
}

/** Returns why the pattern of a string takes too long, if it does. */
function mistakesInPattern(
  { pattern, maxLength }: { pattern?: unknown; maxLength?: unknown },
): readonly string[] {
  const weakness = isPattern(pattern) && Number(maxLength) >= 1 &&
    findWeakness(pattern, Number(maxLength));
  return weakness ? [`pattern is ${show(pattern)}: it ${weakness}`] : [];
}

function boundsShape(of: typeof number, { maximum = maxInteger }): Shape {
  const lower = of({ maximum });
  const below = rule(
    `a number below ${maximum}`,
    (value) => lower.check(value) === undefined && Number(value) < maximum,
  );
  return { minimum: lower, exclusiveMinimum: below, maximum: of() };
}

function mistakesInOptional(of: unknown, value: unknown): readonly string[] {
  const mistakes = mistakesInProperty(of);
  if (mistakes.length > 0) return mistakes;
  const property: Property = Object(of);
  if (!property.required) {
    return ["optional(…) is used twice: it must be used once"];
  }
  const options = { default: value ?? undefined }; // null is the default
  return mistakesIn("optional", options, { default: property });
}

function mistakesInDefault(
  { default: preset, references, unique }: Property,
): readonly string[] {
  return preset !== null && (references || unique)
    ? [`default is ${show(preset)}: a reference or unique property has none`]
    : [];
}

/** Returns the mistakes in the call that returned a property; undefined if the value is not a property. */
export function findCallMistakes(
  value: unknown,
): readonly string[] | undefined {
  return properties.get(Object(value));
}

/** Returns the mistakes in a property, or says that the value is not one. */
export function mistakesInProperty(value: unknown): readonly string[] {
  return findCallMistakes(value) ??
    [`${show(value)} is not a property: it must be one such as date()`];
}
