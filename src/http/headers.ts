/**
 * Parsers of header fields as pure functions: text in, value out. Lists are not
 * simply split, because a quoted string can contain the separator (RFC 9110
 * section 5.6.1).
 */

// A quoted string without its closing quote extends to the end of the text.
const listMembers = {
  ",": /(?:[^,"]|"(?:[^"\\]|\\[^])*"?)+/g,
  ";": /(?:[^;"]|"(?:[^"\\]|\\[^])*"?)+/g,
};

/** Splits a list at the separators outside quoted strings; trims the members and drops empty ones (RFC 9110 section 5.6.1.2). */
export function splitList(text: string, separator: "," | ";"): string[] {
  const members = text.match(listMembers[separator]) ?? [];
  return members.map((member) => member.trim()).filter(Boolean);
}

const token = "[!#$%&'*+.^_`|~0-9a-z-]+";
const mediaType = new RegExp(`^${token}/${token}$`);
const parameterSyntax = new RegExp(`^(${token})=(.*)$`, "s");

/** Parses a media type or range, `type/subtype;name=value`, in lower case (RFC 9110 section 8.3.1); returns undefined if it is malformed. */
export function parseMediaType(text: string) {
  const [type = "", ...rest] = splitList(text.toLowerCase(), ";");
  if (/^\s*;/.test(text) || !mediaType.test(type)) return undefined;
  const parameters = new Map<string, string>();
  for (const parameter of rest) {
    const [, name, value = ""] = parameterSyntax.exec(parameter) ?? [];
    if (name === undefined || parameters.has(name)) return undefined;
    parameters.set(name, unquote(value));
  }
  return { type, parameters };
}

/** Returns the text of a token or of a quoted string (RFC 9110 section 5.6.4). */
export function unquote(text: string): string {
  return text.replace(
    /^"(.*)"$/,
    (_, quoted: string) => quoted.replace(/\\(.)/g, "$1"),
  );
}
