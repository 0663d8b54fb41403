/**
 * Request bodies: bytes in, a JSON object out. Stricter than JSON.parse where
 * two readers of the same bytes could understand different things: the text is
 * UTF-8 without a byte-order mark (RFC 8259 section 8.1), and no object names a
 * property twice (section 4 calls what then happens "unpredictable").
 */

import { ApiError } from "./errors.ts";

// ignoreBOM keeps the mark in the text, so that it can be refused by name.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Parses a request body that must be one JSON object.
 *
 * @param name what the bytes are called in messages
 * @throws {ApiError} 40001 where it is empty, not UTF-8 or not JSON; 40002
 * where it is JSON but no object
 */
export function parseJsonObject(
  bytes: Uint8Array,
  name = "body",
): Readonly<Record<string, unknown>> {
  if (bytes.length === 0) {
    throw new ApiError(40001, `The ${name} is missing: send one JSON object.`);
  }
  const text = decodeUtf8(bytes, name);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ApiError(
      40001,
      `The ${name} is not valid JSON (RFC 8259): send one JSON object.`,
    );
  }
  const twice = repeatedName(text);
  if (twice !== undefined) {
    throw new ApiError(
      40001,
      `The ${name} names the property ${excerpt(twice)} twice: send it once.`,
    );
  }
  if (!isObject(value)) {
    const got = Array.isArray(value) ? "an array" : JSON.stringify(value);
    throw new ApiError(
      40002,
      `The ${name} must be a JSON object, not ${excerpt(got)}.`,
    );
  }
  return value;
}

/** A value as it is quoted in a message: at most 60 characters of it. */
export function excerpt(text: string): string {
  return text.length > 60 ? `${text.slice(0, 60).toWellFormed()}…` : text;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Decodes a body.
 *
 * @throws {ApiError} 40001 where it is not UTF-8 or begins with a byte-order mark
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

/**
 * The first property that valid JSON names twice in one object, in its own
 * spelling (with quotes and escapes), or undefined. Names are compared as what
 * they mean: `"a"` and `"\u0061"` are the same one. Depth costs no call stack.
 */
function repeatedName(text: string): string | undefined {
  const open: (Set<string> | undefined)[] = []; // undefined for an array
  let start = -1; // where the last complete string began
  let end = -1;
  for (let at = 0; at < text.length; at++) {
    switch (text[at]) {
      case '"':
        start = at++;
        while (text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
        end = at + 1;
        break;
      case "{":
        open.push(new Set());
        break;
      case "[":
        open.push(undefined);
        break;
      case "}":
      case "]":
        open.pop();
        break;
      case ":": {
        const spelled = text.slice(start, end);
        const name = spelled.includes("\\")
          ? JSON.parse(spelled)
          : spelled.slice(1, -1);
        const names = open[open.length - 1];
        if (names?.has(name)) return spelled;
        names?.add(name);
      }
    }
  }
  return undefined;
}
