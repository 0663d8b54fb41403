/** The field with which a client says what media types it accepts. */

import { parseMediaType, splitList } from "./headers.ts";

/**
 * Chooses one of the media types that a URL offers (RFC 9110 section 12.5.1):
 * the most preferred one, or the first of several equally preferred ones. The
 * weight of a type is that of the most specific range that matches it; a weight
 * of 0 excludes it. A missing or empty field accepts everything. Malformed
 * members are ignored.
 *
 * @param offers in the order that the server prefers
 */
export function negotiate<Offer extends string>(
  accept: string | undefined,
  offers: readonly Offer[],
): Offer | undefined {
  if (!accept || accept === "*/*") return offers[0]; // nearly all requests
  const exact = offers.find((offer) => offer === accept);
  if (exact !== undefined) return exact;
  const ranges = splitList(accept, ",").slice(0, maxRanges)
    .flatMap((member) => parseRange(member) ?? [])
    .sort((a, b) => b.precedence - a.precedence || b.weight - a.weight);
  let best: Offer | undefined;
  let maxWeight = 0;
  for (const offer of offers) {
    const type = parseMediaType(offer);
    const { weight = 0 } = ranges.find((range) => matches(range, type)) ?? {};
    if (weight > maxWeight) [best, maxWeight] = [offer, weight];
  }
  return best;
}

/**
 * Returns whether a range includes a type: the type must have every parameter
 * of the range. All offered text is UTF-8.
 */
function matches(
  range: NonNullable<ReturnType<typeof parseRange>>,
  offer: ReturnType<typeof parseMediaType>,
): boolean {
  const { type = "", parameters } = offer ?? {};
  return [type, type.replace(/\/.*/, "/*"), "*/*"].includes(range.type) &&
    [...range.parameters].every(([name, value]) =>
      parameters?.get(name) === value ||
      (name === "charset" && value === "utf-8")
    );
}

/** The most members of an Accept field that are considered, which bounds the time. */
const maxRanges = 64;

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
