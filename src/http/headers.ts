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
    parameters.set(key, value.replace(/^"(.*)"$/, "$1"));
  }
  return { type: name, parameters };
}

/**
 * Whether an Accept field allows a type (RFC 9110 section 12.5.1): the most
 * specific range that matches decides, and its weight must be above 0. A
 * missing field allows all. Members that are no media range do not count.
 */
export function accepts(
  accept: string | undefined,
  type: "application/json",
): boolean {
  if (accept === undefined || accept === "*/*" || accept === type) return true;
  if (accept === "") return true; // no wish at all
  const anyOfKind = `${type.slice(0, type.indexOf("/"))}/*`;
  let best = -1;
  let allowed = false;
  for (const member of splitList(accept, ",")) {
    const range = parseMediaType(member);
    if (range === undefined) continue;
    const specific = range.type === type
      ? 2
      : range.type === anyOfKind
      ? 1
      : range.type === "*/*"
      ? 0
      : -1;
    const weight = parseWeight(range.parameters.get("q"));
    if (specific < 0 || weight === undefined || !matches(range)) continue;
    if (specific > best) {
      best = specific;
      allowed = weight > 0;
    } else if (specific === best) {
      allowed ||= weight > 0;
    }
  }
  return allowed;
}

/** Whether our answers, which are `charset=utf-8` and no more, fit the parameters of a range. */
function matches({ parameters }: MediaType): boolean {
  for (const [name, value] of parameters) {
    if (name === "q") break; // what follows the weight is no part of the type
    if (name !== "charset" || value !== "utf-8") return false;
  }
  return true;
}

/** A weight (RFC 9110 section 12.4.2): 0 to 1 with at most three decimals; undefined where it is none. */
function parseWeight(text: string | undefined): number | undefined {
  if (text === undefined) return 1;
  return /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.test(text)
    ? Number(text)
    : undefined;
}

/** One target of a Link field (RFC 8288 section 3). */
export interface Link {
  readonly rel: "first" | "prev" | "next" | "last";
  readonly href: string;
}

/** The value of a Link field; addresses must be percent-encoded already. */
export function formatLinks(links: readonly Link[]): string {
  return links.map(({ rel, href }) => `<${href}>; rel="${rel}"`).join(", ");
}
