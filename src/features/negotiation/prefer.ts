/** The preference `return`: it says if a response to a change includes the record (Prefer, RFC 7240). */

import type { Response } from "../../http/connection.ts";
import { splitList, unquote } from "../../http/headers.ts";

/**
 * Omits the record from a response if the client prefers that
 * (`return=minimal`, RFC 7240 section 4.2). A response that must not be stored
 * keeps its content: its token is shown only once.
 */
export function applyPreference(
  prefer: string,
  method: string,
  response: Response,
): Response {
  const { status, headers } = response;
  if (status !== 201 || headers.includes("no-store")) return response;
  const preference = parseReturnPreference(prefer);
  if (preference === undefined) return response;
  const fields = [...headers, "Preference-Applied", `return=${preference}`];
  return preference === "minimal"
    ? { status: method === "POST" ? 201 : 204, headers: fields }
    : { ...response, headers: fields };
}

/**
 * Returns the value of the preference `return` in a Prefer field (RFC 7240 sections
 * 2 and 4.2). If there are several, the first counts, even if its value is unknown.
 */
export function parseReturnPreference(
  field: string,
): "minimal" | "representation" | undefined {
  for (const member of splitList(field.toLowerCase(), ",")) {
    const [first = ""] = splitList(member, ";"); // the rest are parameters
    const [name = "", ...values] = first.split("=");
    if (name.trim() !== "return") continue;
    const wanted = unquote(values.join("=").trim());
    return wanted === "minimal" || wanted === "representation"
      ? wanted
      : undefined;
  }
  return undefined;
}
