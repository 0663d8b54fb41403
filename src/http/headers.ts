/**
 * Header fields as pure functions: text in, value out. Each names the section
 * that it follows. Lists are parsed by our own hand, because a comma may stand
 * inside a quoted string (RFC 9110 section 5.6.1).
 */

/** Splits a list at the separator, but not inside quoted strings; members are trimmed, empty ones dropped (RFC 9110 section 5.6.1.2). */
export function splitList(text: string, separator: "," | ";"): string[] {
  const members: string[] = [];
  let quoted = false;
  let from = 0;
  for (let at = 0; at <= text.length; at++) {
    const character = text[at];
    if (quoted && character === "\\") at++;
    else if (character === '"') quoted = !quoted;
    else if (at === text.length || (character === separator && !quoted)) {
      members.push(text.slice(from, at).trim());
      from = at + 1;
    }
  }
  if (from < text.length && quoted) members.push(text.slice(from).trim());
  return members.filter((member) => member !== "");
}

/** A media type or range with its parameters; names in lower case. */
export interface MediaType {
  readonly type: string;
  readonly parameters: ReadonlyMap<string, string>;
}

const token = /^[!#$%&'*+.^_`|~0-9a-z-]+$/;

/** Parses `type/subtype;name=value` (RFC 9110 section 8.3.1); undefined where it is none. */
export function parseMediaType(text: string): MediaType | undefined {
  const [name = "", ...rest] = splitList(text.toLowerCase(), ";");
  const [type = "", subtype = "", more] = name.split("/");
  if (!token.test(type) || !token.test(subtype) || more !== undefined) {
    return undefined;
  }
  const parameters = new Map<string, string>();
  for (const parameter of rest) {
    const at = parameter.indexOf("=");
    const key = parameter.slice(0, at);
    if (at < 1 || !token.test(key) || parameters.has(key)) return undefined;
    const value = parameter.slice(at + 1);
    parameters.set(key, unquote(value));
  }
  return { type: name, parameters };
}

/** A media range of an Accept field. */
interface Range {
  readonly type: string;
  readonly parameters: readonly (readonly [name: string, value: string])[];
  /** Of the ranges that fit a type, the one with the most decides. */
  readonly precedence: number;
  readonly weight: number;
}

/**
 * Chooses among the types that an address has (RFC 9110 section 12.5.1): the
 * one that is wished for most, of equals the first. The most specific range that
 * fits a type tells its weight; a weight of 0 excludes it. A missing field allows
 * all. Members that are no media range do not count.
 *
 * @param offers in the order that the server prefers
 */
export function negotiate<Offer extends string>(
  accept: string | undefined,
  offers: readonly Offer[],
): Offer | undefined {
  // What nearly all requests send; an empty field is no wish at all.
  if (!accept || accept === "*/*") return offers[0];
  const exact = offers.find((offer) => offer === accept);
  if (exact !== undefined) return exact;
  const ranges = splitList(accept, ",")
    .flatMap((member) => parseRange(member) ?? [])
    .sort((a, b) => b.precedence - a.precedence || b.weight - a.weight);
  let best: Offer | undefined;
  let most = 0;
  for (const offer of offers) {
    const { weight = 0 } = ranges.find((range) => fits(offer, range)) ?? {};
    if (weight > most) [best, most] = [offer, weight];
  }
  return best;
}

/** Whether a type is in a range: all parameters of the range must be its own; our texts are in UTF-8. */
function fits(offer: string, range: Range): boolean {
  const { type = "", parameters } = parseMediaType(offer) ?? {};
  if (![type, type.replace(/\/.*/, "/*"), "*/*"].includes(range.type)) {
    return false;
  }
  return range.parameters.every(([name, value]) =>
    parameters?.get(name) === value || (name === "charset" && value === "utf-8")
  );
}

function parseRange(member: string): Range | undefined {
  const { type = "", parameters } = parseMediaType(member) ?? {};
  const weight = parseWeight(parameters?.get("q"));
  if (parameters === undefined || weight === undefined) return undefined;
  const all = [...parameters];
  const end = all.findIndex(([name]) => name === "q");
  // What follows the weight is no part of the type.
  const own = end < 0 ? all : all.slice(0, end);
  const kind = type === "*/*" ? 0 : type.endsWith("/*") ? 1 : 2;
  return { type, parameters: own, precedence: kind * 16 + own.length, weight };
}

/** The text of a token or of a quoted string (RFC 9110 section 5.6.4). */
function unquote(text: string): string {
  const quoted = /^"(.*)"$/.exec(text)?.[1];
  return quoted === undefined ? text : quoted.replace(/\\(.)/g, "$1");
}

/** A weight (RFC 9110 section 12.4.2): 0 to 1 with at most three decimals; undefined where it is none. */
function parseWeight(text: string | undefined): number | undefined {
  if (text === undefined) return 1;
  return /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.test(text)
    ? Number(text)
    : undefined;
}

/** What a client would like, as far as we know how to (RFC 7240 section 4). */
export interface Preferences {
  readonly return?: "minimal" | "representation";
  readonly handling?: "strict" | "lenient";
}

const preference =
  /^([!#$%&'*+.^_`|~\w-]+)(?:[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|[!#$%&'*+.^_`|~\w-]+))?$/;

/**
 * Parses a Prefer field (RFC 7240 section 2). Of preferences of one name the
 * first counts, even if we do not know its value. Parameters, and preferences
 * that we do not know, are ignored; so are members that are none.
 */
export function parsePrefer(field: string | undefined): Preferences {
  if (field === undefined) return {};
  const found = new Map<string, string>();
  for (const member of splitList(field.toLowerCase(), ",")) {
    const [first = ""] = splitList(member, ";"); // the rest are parameters
    const [, name, value = ""] = preference.exec(first) ?? [];
    if (name === undefined || found.has(name)) continue;
    found.set(name, unquote(value));
  }
  const wished = found.get("return");
  const handling = found.get("handling");
  return {
    ...((wished === "minimal" || wished === "representation") &&
      { return: wished }),
    ...((handling === "strict" || handling === "lenient") && { handling }),
  };
}
