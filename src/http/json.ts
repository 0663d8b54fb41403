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
  const value = parseJson(bytes, name, maxNames);
  return requireObject(value, name);
}

/**
 * Parses a request body that is JSON: an object or something else. The limits of
 * names and levels hold for each object of an array.
 *
 * @throws {ApiError} 40001
 */
export function parseJson(
  bytes: Uint8Array,
  name = "body",
  maxNames = 1000,
): unknown {
  if (bytes.length === 0) {
    throw new ApiError(40001, `The ${name} is missing: send one JSON object.`);
  }
  const text = decodeUtf8(bytes, name);
  let value: unknown;
  let repeated: string | undefined;
  try {
    repeated = findRepeatedName(text, maxNames);
    value = JSON.parse(text);
  } catch (error) {
    const problem = error instanceof RangeError
      ? `too complex: at most ${maxNames} names and arrays, in at most ${maxDepth} levels, are allowed`
      : "not valid JSON (RFC 8259): send one JSON object";
    throw new ApiError(40001, `The ${name} is ${problem}.`);
  }
  if (repeated !== undefined) {
    const quoted = excerpt(JSON.stringify(repeated));
    throw new ApiError(
      40001,
      `The ${name} names ${quoted} twice: send each property once.`,
    );
  }
  return value;
}

/** Returns a parsed value that must be an object; throws an ApiError 40002. */
export function requireObject(
  value: unknown,
  name: string,
): Record<string, unknown> {
  if (isObject(value)) return value;
  const found = Array.isArray(value) ? "an array" : JSON.stringify(value);
  throw new ApiError(
    40002,
    `The ${name} must be a JSON object, not ${excerpt(found)}.`,
  );
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
const stringOrMark = /"[^"\\]*(?:\\.[^"\\]*)*"?|[{}[\]:]/gs;

/**
 * Returns the last name that an object in a JSON text repeats, in whatever
 * spelling. Outside its strings, a text has a colon after each name and nowhere
 * else.
 *
 * @throws {RangeError} as soon as there are too many names, arrays or levels
 * @throws {SyntaxError} if a name has a malformed escape
 */
function findRepeatedName(text: string, maxNames: number): string | undefined {
  const objects: string[][] = []; // the names of those around
  let count = 0;
  let string = "";
  let repeated: string | undefined;
  const isArray = /^\s*\[/.test(text);
  let items = 0;
  for (const token of text.match(stringOrMark) ?? []) {
    if (token === ":" || token === "[") count++;
    if (token === ":") {
      const isEscaped = string.includes("\\");
      const name = isEscaped ? JSON.parse(string) : string.slice(1, -1);
      const names = objects.at(-1);
      if (names?.includes(name)) repeated = name; // a set takes longer to fill
      names?.push(name);
    } else if (token === "{" || token === "[") {
      if (objects.length === 1 && isArray) {
        count = items++ < maxNames ? 0 : count + 1; // a record of its own
      }
      objects.push([]);
    } else if (token === "}" || token === "]") objects.pop();
    else string = token;
    if (count > maxNames || objects.length > maxDepth + Number(isArray)) {
      throw new RangeError();
    }
  }
  return repeated;
}
