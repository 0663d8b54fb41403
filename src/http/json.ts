/**
 * Parses request bodies from bytes to a JSON object. It is stricter than JSON.parse
 * where two parsers could understand the same bytes differently: the text must be
 * UTF-8 without a byte-order mark (RFC 8259 section 8.1), and no object may name a
 * property twice (section 4 calls the result "unpredictable").
 */

import { ApiError } from "./errors.ts";

// ignoreBOM leaves the byte-order mark in the text, so that it can be reported.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Parses a request body that must be one JSON object.
 *
 * @param name the name of the bytes in messages
 * @param maxNames the most names of properties, plus arrays: more would take
 * long to parse
 * @throws {ApiError} 40001 if it is empty, not UTF-8, not JSON or too complex;
 * 40002 if it is JSON but not an object
 */
export function parseJsonObject(
  bytes: Uint8Array,
  name = "body",
  maxNames = 1000,
): Readonly<Record<string, unknown>> {
  if (bytes.length === 0) {
    throw new ApiError(40001, `The ${name} is missing: send one JSON object.`);
  }
  const text = decodeUtf8(bytes, name);
  let value: unknown;
  let isAmbiguous = false;
  try {
    const count = countNames(text, maxNames);
    value = JSON.parse(text);
    isAmbiguous = countProperties(value) < count;
  } catch (error) {
    const problem = error instanceof RangeError
      ? `too complex: at most ${maxNames} names and arrays, in at most ${maxDepth} levels, are allowed`
      : "not valid JSON (RFC 8259): send one JSON object";
    throw new ApiError(40001, `The ${name} is ${problem}.`);
  }
  if (isAmbiguous) {
    const repeated = excerpt(JSON.stringify(findRepeatedName(text)));
    throw new ApiError(
      40001,
      `The ${name} names ${repeated} twice: send each property once.`,
    );
  }
  if (!isObject(value)) {
    const found = Array.isArray(value) ? "an array" : JSON.stringify(value);
    throw new ApiError(
      40002,
      `The ${name} must be a JSON object, not ${excerpt(found)}.`,
    );
  }
  return value;
}

/** Shortens a text to at most 60 characters, to quote it in a message. */
export function excerpt(text: string): string {
  return text.length > 60 ? `${text.slice(0, 60).toWellFormed()}…` : text;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Decodes a body to text.
 *
 * @throws {ApiError} 40001 if it is not UTF-8 or begins with a byte-order mark
 */
export function decodeUtf8(bytes: Uint8Array, name = "body"): string {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    throw new ApiError(40001, `The ${name} is not valid UTF-8.`);
  }
  if (text.startsWith("\uFEFF")) {
    throw new ApiError(
      40001,
      `The ${name} begins with a byte-order mark: send it without one.`,
    );
  }
  return text;
}

/** The deepest nesting. */
const maxDepth = 64;

// A string that never ends is matched too, so that no text takes long.
const stringOrMark = /"[^"\\]*(?:\\.[^"\\]*)*"?|[:[]/gs;

/**
 * Counts the names of properties, and the arrays, in a JSON text. Outside its
 * strings, it has a colon after each name and nowhere else.
 *
 * @throws {RangeError} as soon as the limit is exceeded
 */
function countNames(text: string, max: number): number {
  let count = 0;
  stringOrMark.lastIndex = 0;
  while (stringOrMark.test(text)) {
    if (text[stringOrMark.lastIndex - 1] !== '"') count++;
    if (count > max) throw new RangeError();
  }
  return count;
}

/** Returns the first name, decoded, that an object in a JSON text repeats. */
function findRepeatedName(text: string): string {
  const names: Set<string>[] = []; // of the objects around
  let string = "";
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}:]/g)) {
    if (token === "{") names.push(new Set());
    else if (token === "}") names.pop();
    else if (token !== ":") string = token;
    else {
      const name = String(JSON.parse(string));
      if (names.at(-1)?.has(name)) return name;
      names.at(-1)?.add(name);
    }
  }
  return string;
}

/**
 * Counts the properties and arrays at all levels of a value: fewer than in its
 * text if an object there names a property twice, in whatever spelling.
 *
 * @throws {RangeError} if it is nested too deeply
 */
function countProperties(value: unknown, depth = 1): number {
  if (typeof value !== "object" || value === null) return 0;
  if (depth > maxDepth) throw new RangeError();
  const members: unknown[] = Object.values(value);
  let count = Array.isArray(value) ? 1 : members.length;
  for (const member of members) count += countProperties(member, depth + 1);
  return count;
}
