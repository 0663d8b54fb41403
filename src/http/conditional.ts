/**
 * Conditional requests (RFC 9110 section 13): entity tags, dates, and whether
 * a request is to be carried out, given what is there.
 */

import { isReadMethod } from "./methods.ts";

// An opaque tag has no escapes: a backslash in it is a backslash, and a comma
// may stand inside (RFC 9110 section 8.8.3). node:http reads a byte of obs-text
// as the character of that number.
const entityTag = String.raw`(?:W/)?"[!#-~\x80-\xff]*"`;
const entityTags = new RegExp(entityTag, "g");
const entityTagList = new RegExp(
  `^[ \\t,]*${entityTag}(?:[ \\t]*,[ \\t,]*${entityTag})*[ \\t,]*$`,
);

/** The members of a list of entity tags, with their quotes; undefined where the field is none (RFC 9110 sections 8.8.3 and 5.6.1.2). */
export function parseEntityTags(field: string): string[] | undefined {
  if (!entityTagList.test(field)) return undefined;
  return field.match(entityTags) ?? undefined;
}

/** Both are strong, and the same (RFC 9110 section 8.8.3.2). */
export function equalsStrongly(a: string, b: string): boolean {
  return a === b && a.startsWith('"');
}

/** The same, be they weak or strong (RFC 9110 section 8.8.3.2). */
export function equalsWeakly(a: string, b: string): boolean {
  return opaqueTag(a) === opaqueTag(b);
}

function opaqueTag(tag: string): string {
  return tag.startsWith("W/") ? tag.slice(2) : tag;
}

const months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
const weekday = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)";
const longWeekday = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day";
const month = `(?<month>${months.join("|")})`;
const time = String
  .raw`(?<hour>[01]\d|2[0-3]):(?<minute>[0-5]\d):(?<second>[0-5]\d|60)`;
const dateFormats = [
  String.raw`${weekday}, (?<day>\d\d) ${month} (?<year>\d{4}) ${time} GMT`,
  String.raw`${longWeekday}, (?<day>\d\d)-${month}-(?<year>\d\d) ${time} GMT`,
  String.raw`${weekday} ${month} (?<day>\d\d| \d) ${time} (?<year>\d{4})`,
].map((format) => new RegExp(`^${format}$`));

/**
 * Parses a date in any of the three formats of HTTP (RFC 9110 section 5.6.7):
 * IMF-fixdate, RFC 850, asctime. Whether the day of the week is the right one is
 * not looked at; the section asks for robustness there.
 *
 * @param now for a year of two digits: it is the latest such year that is not
 * more than 50 years after this
 * @returns milliseconds since 1970; undefined where it is no such date
 */
export function parseHttpDate(text: string, now: number): number | undefined {
  for (const format of dateFormats) {
    const groups = format.exec(text)?.groups;
    if (groups === undefined) continue;
    const { year = "", month = "", hour, minute, second } = groups;
    const day = Number(groups["day"]);
    const seconds = (Number(hour) * 60 + Number(minute)) * 60 + Number(second);
    const inYear = (year: number) =>
      new Date(0).setUTCFullYear(year, months.indexOf(month), day) +
      seconds * 1000;
    let full = Number(year);
    if (year.length === 2) {
      const today = new Date(now);
      const thisYear = today.getUTCFullYear();
      const latest = today.setUTCFullYear(thisYear + 50);
      full += Math.floor(thisYear / 100) * 100 + 100;
      while (inYear(full) > latest) full -= 100;
    }
    // A day that its month does not have would be one of the next month.
    const real = new Date(inYear(full) - seconds * 1000).getUTCDate() === day;
    return real ? inYear(full) : undefined;
  }
  return undefined;
}

/** A date as HTTP writes it: IMF-fixdate, in whole seconds (RFC 9110 section 5.6.7). */
export function formatHttpDate(time: number): string {
  return new Date(time).toUTCString();
}

/** What preconditions are evaluated of. */
export interface ConditionalRequest {
  readonly method: string;
  /** Names in lower case, as node:http gives them. */
  readonly headers: {
    readonly "if-match"?: string | undefined;
    readonly "if-none-match"?: string | undefined;
    readonly "if-modified-since"?: string | undefined;
    readonly "if-unmodified-since"?: string | undefined;
  };
  /** Milliseconds since 1970. */
  readonly now: number;
}

/** Whether there is anything to be evaluated. */
export function isConditional(headers: ConditionalRequest["headers"]): boolean {
  return headers["if-none-match"] !== undefined ||
    headers["if-match"] !== undefined ||
    headers["if-modified-since"] !== undefined ||
    headers["if-unmodified-since"] !== undefined;
}

/** What the current representation is known by. */
export interface Validators {
  /** With its quotes, and `W/` where it is weak. */
  readonly etag?: string | undefined;
  /** Milliseconds since 1970; compared in whole seconds, as HTTP writes dates. */
  readonly lastModified?: number | undefined;
}

/**
 * Evaluates preconditions in the order of RFC 9110 section 13.2.2. It is for
 * requests that would succeed without them (section 13.2.1).
 *
 * The RFC says nothing of fields that are no list of entity tags. They are not
 * guessed at: nobody gets a 304, and nothing is changed, because of one.
 *
 * @param current undefined where there is no current representation
 * @returns `not-modified` for 304, `failed` for 412
 */
export function evaluatePreconditions(
  request: ConditionalRequest,
  current: Validators | undefined,
): "proceed" | "not-modified" | "failed" {
  const { method, headers } = request;
  if (method === "OPTIONS") return "proceed"; // section 13.2.1
  const ifMatch = headers["if-match"];
  const ifNoneMatch = headers["if-none-match"];
  const isRead = isReadMethod(method);
  if (ifMatch !== undefined) {
    if (!lists(ifMatch, current, equalsStrongly)) return "failed"; // 13.1.1
  } else if (changedSince("if-unmodified-since", request, current)) {
    return "failed"; // section 13.1.4
  }
  if (ifNoneMatch !== undefined) { // section 13.1.2
    const listed = lists(ifNoneMatch, current, equalsWeakly) ?? !isRead;
    if (listed) return isRead ? "not-modified" : "failed";
  } else if (isRead) { // section 13.1.3
    const changed = changedSince("if-modified-since", request, current);
    if (changed === false) return "not-modified";
  }
  return "proceed";
}

/**
 * Whether a request is conditional, so that it cannot undo a change that its
 * sender has not seen (RFC 6585 section 3). A field that must be ignored as it
 * is no date (RFC 9110 section 13.1.4) does not make it so.
 */
export function hasPrecondition({ headers, now }: ConditionalRequest): boolean {
  const unmodifiedSince = headers["if-unmodified-since"];
  return headers["if-match"] !== undefined ||
    headers["if-none-match"] !== undefined ||
    (unmodifiedSince !== undefined &&
      parseHttpDate(unmodifiedSince, now) !== undefined);
}

/** Whether a field lists the current representation; undefined where it is malformed. */
function lists(
  field: string,
  current: Validators | undefined,
  equals: (a: string, b: string) => boolean,
): boolean | undefined {
  if (field === "*") return current !== undefined;
  const etag = current?.etag;
  return parseEntityTags(field)
    ?.some((tag) => etag !== undefined && equals(tag, etag));
}

/** Whether the current representation is newer than a field says; undefined where the field or the date is not there, or is no date. */
function changedSince(
  field: "if-modified-since" | "if-unmodified-since",
  { headers, now }: ConditionalRequest,
  current: Validators | undefined,
): boolean | undefined {
  const text = headers[field];
  const lastModified = current?.lastModified;
  if (text === undefined || lastModified === undefined) return undefined;
  const since = parseHttpDate(text, now);
  return since === undefined
    ? undefined
    : Math.floor(lastModified / 1000) * 1000 > since;
}
