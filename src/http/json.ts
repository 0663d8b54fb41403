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
 * @param maxNames the most names of properties: more take long to parse
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
  let duplicate: string | undefined;
  let value: unknown;
  try {
    duplicate = findDuplicateName(text, maxNames);
    value = JSON.parse(text);
  } catch (error) {
    if (error instanceof RangeError) {
      throw new ApiError(
        40001,
        `The ${name} is too complex: at most ${maxNames} names and ${maxDepth} levels are allowed.`,
      );
    }
    throw new ApiError(
      40001,
      `The ${name} is not valid JSON (RFC 8259): send one JSON object.`,
    );
  }
  if (duplicate !== undefined) {
    throw new ApiError(
      40001,
      `The ${name} names the property ${
        excerpt(duplicate)
      } twice: send it once.`,
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

/**
 * Returns the first property name that occurs twice in one object, as it is
 * written there (with quotes and escapes); undefined if there is none. Names are
 * compared without their escapes: `"a"` equals `"\u0061"`.
 *
 * @throws {RangeError} before it takes long
 * @throws {SyntaxError} if it finds that the text is not JSON
 */
function findDuplicateName(text: string, maxNames: number): string | undefined {
  let duplicate: string | undefined;
  let count = 0;
  const open: (Set<string> | undefined)[] = []; // undefined for an array
  let start = -1; // of the latest string, which is a name if a colon follows
  let end = -1;
  for (let at = 0; at < text.length; at++) {
    switch (text[at]) {
      case '"':
        start = at++;
        while (at < text.length && text[at] !== '"') {
          at += text[at] === "\\" ? 2 : 1;
        }
        end = at + 1;
        break;
      case "{":
      case "[":
        open.push(text[at] === "{" ? new Set() : undefined);
        if (open.length > maxDepth) throw new RangeError();
        break;
      case "}":
      case "]":
        open.pop();
        break;
      case ":": {
        const literal = text.slice(start, end);
        const name = literal.includes("\\")
          ? JSON.parse(literal)
          : literal.slice(1, -1);
        const names = open[open.length - 1];
        if (names?.has(name)) duplicate ??= literal;
        names?.add(name);
        if (++count > maxNames) throw new RangeError();
      }
    }
  }
  return duplicate;
}
