/**
 * Conditional requests (RFC 9110 section 13): parses entity tags and dates, and
 * evaluates the preconditions of a request against the current representation.
 */

import type { IncomingRequest } from "../../http/connection.ts";
import { isReadMethod } from "../../http/content.ts";

// An opaque tag has no escapes: a backslash in it is a backslash, and it can
// contain commas (RFC 9110 section 8.8.3). node:http decodes header fields as
// Latin-1, so obs-text is \x80 to \xff.
const entityTag = String.raw`(?:W/)?"[!#-~\x80-\xff]*"`;
const entityTags = new RegExp(entityTag, "g");
const entityTagList = new RegExp(
  `^[ \\t,]*(?:${entityTag}(?:[ \\t]*,[ \\t,]*${entityTag})*[ \\t,]*)?$`,
);

/** Parses a list of entity tags and returns them with their quotes; undefined if the field is malformed (RFC 9110 sections 8.8.3 and 5.6.1.2). */
export function parseEntityTags(field: string): string[] | undefined {
  return entityTagList.test(field) ? field.match(entityTags) ?? [] : undefined;
}

/** Compares two entity tags: both must be strong and identical (RFC 9110 section 8.8.3.2). */
export function equalsStrongly(a: string, b: string): boolean {
  return a === b && a.startsWith('"');
}

/** Returns whether two entity tags match by weak comparison (RFC 9110 section 8.8.3.2). */
export function equalsWeakly(a: string, b: string): boolean {
  return a.replace(/^W\//, "") === b.replace(/^W\//, "");
}

const time = String.raw`(?<time>\d\d:\d\d:\d\d)`;
const month = "(?<month>[A-Z][a-z]{2})";
const dateFormats = [
  String.raw`[A-Z][a-z]{2}, (?<day>\d\d) ${month} (?<year>\d{4}) ${time} GMT`,
  String.raw`[A-Z][a-z]+day, (?<day>\d\d)-${month}-(?<year>\d\d) ${time} GMT`,
  String.raw`[A-Z][a-z]{2} ${month} (?<day>[ \d]\d) ${time} (?<year>\d{4})`,
].map((format) => new RegExp(`^${format}$`));

/**
 * Parses a date in any of the three formats of HTTP (RFC 9110 section 5.6.7):
 * IMF-fixdate, RFC 850 and asctime. A wrong day of the week is accepted, as the
 * section asks for robustness. A year of two digits is one of 1970 to 2069, and
 * a leap second is not a date: this server sends neither.
 *
 * @returns milliseconds since 1970; undefined if the text is not a date
 */
export function parseHttpDate(text: string): number | undefined {
  for (const format of dateFormats) {
    const { day = "", month, year = "", time } = format.exec(text)?.groups ??
      {};
    const century = year.length === 4 ? "" : year < "70" ? "20" : "19";
    const rest = `, ${
      day.replace(" ", "0")
    } ${month} ${century}${year} ${time} GMT`;
    const date = new Date(`Thu${rest}`);
    // A day that the month does not have, like 31 April, would become another.
    if (date.toUTCString().endsWith(rest)) return date.getTime();
  }
  return undefined;
}

/** The parts of a request that preconditions depend on. */
export interface ConditionalRequest {
  readonly method: string;
  readonly headers: IncomingRequest["headers"];
}

/**
 * Returns the validators of the current representation as header fields: `ETag`
 * and its value, then `Last-Modified` and its value if it has a date.
 */
export type GetValidators = () => readonly string[];

/**
 * Evaluates preconditions in the order of RFC 9110 section 13.2.2, for a request
 * that would succeed without them (section 13.2.1): so there is a representation.
 *
 * The RFC does not define the meaning of a malformed list of entity tags. The
 * result is the safe one: a malformed list never leads to a 304 for a read, and
 * never lets a write proceed.
 *
 * @returns `not-modified` for 304, `failed` for 412
 */
export function evaluatePreconditions(
  request: ConditionalRequest,
  validators: GetValidators,
): "proceed" | "not-modified" | "failed" {
  const { method, headers } = request;
  const ifMatch = headers["if-match"];
  const ifNoneMatch = headers["if-none-match"];
  const isRead = isReadMethod(method);
  if (ifMatch !== undefined) {
    if (!listsCurrent(ifMatch, validators, equalsStrongly)) return "failed"; // 13.1.1
  } else if (changedSince("if-unmodified-since", request, validators)) {
    return "failed"; // section 13.1.4
  }
  if (ifNoneMatch !== undefined) { // section 13.1.2
    const listed = listsCurrent(ifNoneMatch, validators, equalsWeakly) ??
      !isRead;
    if (listed) return isRead ? "not-modified" : "failed";
  } else if (isRead) { // section 13.1.3
    const changed = changedSince("if-modified-since", request, validators);
    if (changed === false) return "not-modified";
  }
  return "proceed";
}

/**
 * Returns whether a write is conditional, so that it cannot overwrite a change that
 * the client has not seen (RFC 6585 section 3). An invalid date, which must be
 * ignored (RFC 9110 section 13.1.4), does not count.
 */
export function hasPrecondition({ headers }: ConditionalRequest): boolean {
  return headers["if-match"] !== undefined ||
    headers["if-none-match"] !== undefined ||
    parseHttpDate(headers["if-unmodified-since"] ?? "") !== undefined;
}

/** Returns whether a field lists the current entity tag; undefined if the field is malformed. */
function listsCurrent(
  field: string,
  validators: GetValidators,
  equals: (a: string, b: string) => boolean,
): boolean | undefined {
  if (field === "*") return true;
  const [, etag = ""] = validators();
  return parseEntityTags(field)?.some((tag) => equals(tag, etag));
}

/** Returns whether the current representation is newer than the date of a field; undefined if either date is missing or invalid. */
function changedSince(
  field: "if-modified-since" | "if-unmodified-since",
  { headers }: ConditionalRequest,
  validators: GetValidators,
): boolean | undefined {
  const text = headers[field];
  if (text === undefined) return undefined;
  const [, , , lastModified] = validators();
  const since = parseHttpDate(text);
  return lastModified === undefined || since === undefined
    ? undefined
    : Date.parse(lastModified) > since;
}
