/** The field with which a client says what media types it accepts. */

import { parseMediaType, splitList } from "./headers.ts";

/** The most members of an Accept field that are considered, which bounds the time. */
const maxRanges = 64;

/**
 * Returns how much a client wants a media type, from 0, not at all, to 1 (RFC
 * 9110 section 12.5.1): the weight of the most specific range that includes it.
 * A missing or empty field accepts everything. Malformed members are ignored.
 */
export function weightOf(accept: string | undefined, type: string): number {
  if (!accept || accept === "*/*" || accept === type) return 1; // nearly all
  const offer = parseMediaType(type);
  const members = splitList(accept, ",");
  const [range] = members.slice(0, maxRanges)
    .flatMap((member) => parseRange(member) ?? [])
    .filter((range) => includes(range, offer))
    .sort((a, b) => b.precedence - a.precedence || b.weight - a.weight);
  return range?.weight ?? Number(members.length === 0);
}

/**
 * Returns whether a range includes a type: the type must have every parameter
 * of the range. All offered text is UTF-8.
 */
function includes(
  range: NonNullable<ReturnType<typeof parseMediaType>>,
  offer: ReturnType<typeof parseMediaType>,
): boolean {
  const { type = "", parameters } = offer ?? {};
  return [type, type.replace(/\/.*/, "/*"), "*/*"].includes(range.type) &&
    [...range.parameters].every(([name, value]) =>
      parameters?.get(name) === value ||
      (name === "charset" && value === "utf-8")
    );
}

// RFC 9110 section 12.4.2: 0 to 1 with at most three decimals.
const weightSyntax = /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/;

/** Parses a media range of an Accept field; returns undefined if it is malformed. */
function parseRange(member: string) {
  // Parameters after the weight do not belong to the type.
  const [text = "", weight = "1"] = member.split(/;[ \t]*q=([^; \t]*)/i);
  const range = parseMediaType(text);
  if (range === undefined || !weightSyntax.test(weight)) return undefined;
  const kind = range.type === "*/*" ? 0 : range.type.endsWith("/*") ? 1 : 2;
  return {
    ...range,
    /** How specific the range is: of those that match a type, the most specific decides. */
    precedence: kind * 16 + range.parameters.size,
    weight: Number(weight),
  };
}
