/**
 * Compares an object of a declaration file with the options that it may have.
 * The file may be plain JavaScript, so any value can be of any type.
 */

import { inspect } from "node:util";
import { excerpt, isObject } from "../../http/json.ts";
import { string } from "../../api/declaration/properties.ts";

/** The allowed values of an option. Most rules are properties. */
export interface Rule {
  /** The allowed values, as a phrase that follows "must be". */
  readonly expected: string;
  /** Returns undefined if a value is allowed. */
  readonly check: (value: unknown) => unknown;
}

/** The options that an object may have, by their names. */
export type Shape = Readonly<Record<string, Rule>>;

/** Returns a rule for names that match a pattern. */
export function nameLike(pattern: RegExp, description: string): Rule {
  return string({ maxLength: 100, pattern, description });
}

export const word = nameLike(
  /^[a-z][a-z0-9_]*$/,
  "1 to 100 lower-case letters, digits and underscores, beginning with a letter",
);

/** Returns a rule for names that are not reserved or in use. */
export function wordBut(taken: readonly string[], of: Rule = word): Rule {
  const isAllowed = (value: unknown) =>
    of.check(value) === undefined && !taken.includes(String(value));
  const names = taken.filter(isNamed).join(", ");
  const none = names && `, and none of ${names}`;
  return rule(of.expected + none, isAllowed);
}

export const phrase = string({ maxLength: 1000 });

/** Returns whether a name is a text at all, which is not empty. */
export function isNamed(name: unknown): boolean {
  return typeof name === "string" && name !== "";
}

/** Returns whether a function is a class, which cannot be called. */
export function isClass(value: unknown): boolean {
  return /^class\b/.test(String(value));
}

/** Returns a rule for values that no property describes. */
export function rule(
  expected: string,
  isAllowed: (value: unknown) => boolean,
): Rule {
  return {
    expected,
    check: (value) => isAllowed(value) ? undefined : expected,
  };
}

/** Returns a rule for lists of different members. */
export function listOf(member: Rule): Rule {
  return rule(
    `a list of different values, each ${member.expected}`,
    (list) =>
      Array.isArray(list) && list.length > 0 &&
      list.every((each) => member.check(each) === undefined) &&
      new Set(list).size === list.length,
  );
}

/** Returns the mistakes in the options of something, one sentence each. */
export function mistakesIn(
  owner: string,
  options: unknown,
  shape: Shape,
  required: readonly string[] = [],
): string[] {
  const names = Object.keys(shape);
  const allowed = names.join(", ");
  if (!isObject(options)) {
    const given = `the options of ${owner} are ${show(options)}`;
    return [`${given}: they must be an object with any of ${allowed}`];
  }
  const unknown = Object.keys(options).filter((name) => !names.includes(name))
    .map((name) =>
      `${name} is not an option of ${owner}: it must be one of ${allowed}`
    );
  const wrong = Object.entries(shape).flatMap(([name, { check, expected }]) => {
    const { [name]: value } = options;
    const isMissing = value === undefined;
    if (isMissing ? !required.includes(name) : !check(value)) return [];
    const is = isMissing ? "missing" : show(value);
    return `${name} is ${is}: it must be ${expected}`;
  });
  return [...unknown, ...wrong];
}

/** Shows a value in one short line. */
export function show(value: unknown): string {
  return excerpt(
    typeof value === "string"
      ? JSON.stringify(value)
      : inspect(value, { depth: 1, breakLength: Infinity }),
  );
}
