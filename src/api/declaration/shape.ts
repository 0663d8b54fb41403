/**
 * Compares an object of a declaration file with the options that it may have.
 * The file may be plain JavaScript, so any value can be anywhere.
 */

import { inspect } from "node:util";
import { excerpt, isObject } from "../../http/json.ts";
import { type Property, string } from "./properties.ts";

/** The values of an option; most are those of a property. */
export type Rule = Pick<Property, "check" | "expected">;

/** The options that an object may have, by their names. */
export type Shape = Readonly<Record<string, Rule>>;

export const word = string({
  maxLength: 100,
  pattern: /^[a-z][a-z0-9_]*$/,
  description: "a name in lower-case letters, digits and underscores",
});

/** Returns a rule for names that are not taken. */
export function wordBut(taken: readonly string[], of: Rule = word): Rule {
  const isAllowed = (value: unknown) =>
    of.check(value) === undefined && !taken.includes(String(value));
  const none = taken.length > 0 ? `, and none of ${taken.join(", ")}` : "";
  return rule(of.expected + none, isAllowed);
}

export const phrase = string({ maxLength: 1000 });

/** Returns a rule for values that no property describes. */
export function rule(
  expected: string,
  isAllowed: (value: unknown) => boolean,
): Rule {
  const failure = { code: "type", reason: "is not allowed" } as const;
  const check = (value: unknown) => isAllowed(value) ? undefined : failure;
  return { check, expected };
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

/** Returns the mistakes in the options of something, a sentence for each. */
export function mistakesIn(
  owner: string,
  options: unknown,
  shape: Shape,
  required: readonly string[] = [],
): string[] {
  if (!isObject(options)) {
    return [`${owner} has ${show(options)}: it must have an object of options`];
  }
  const names = Object.keys(shape);
  const unknown = Object.keys(options).filter((name) => !names.includes(name))
    .map((name) =>
      `${name} is not an option of ${owner}: it must be ${oneOf(names, name)}`
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

/** Lists the allowed names, and the one that was probably meant. */
export function oneOf(names: readonly string[], mistyped: string): string {
  const all = names.length === 0 ? "left out" : `one of ${names.join(", ")}`;
  const letters = mistyped.toLowerCase();
  const meant = names.find((name) =>
    name.toLowerCase().startsWith(letters) || letters.startsWith(name)
  );
  return meant === undefined ? all : `${all} (did you mean ${meant}?)`;
}

/** Shows a value in one short line. */
export function show(value: unknown): string {
  return excerpt(
    typeof value === "string"
      ? JSON.stringify(value)
      : inspect(value, { depth: 1, breakLength: Infinity }),
  );
}
