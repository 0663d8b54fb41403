/**
 * QUERY (RFC 10008): a safe method with a body, which holds the same parameters
 * as the query of GET.
 */

import type { Operation } from "../../api/operation.ts";
import {
  type Parameters,
  parseParameters,
} from "../../api/query/parameters.ts";
import { ApiError } from "../../http/errors.ts";
import { decodeUtf8 } from "../../http/json.ts";

/** The media type of the body. */
export const formType = "application/x-www-form-urlencoded";

/** Returns the QUERY of a list; undefined if GET reads no list. */
export function queryOf(GET: Operation): Operation | undefined {
  const { list, parse } = GET;
  if (list === undefined || parse === undefined) return undefined;
  return {
    ...GET,
    consumes: [formType],
    receive(context, { type, sent }) {
      if (type === undefined) { // section 2
        throw new ApiError(
          40000,
          `The request must have a Content-Type: ${formType}.`,
        );
      }
      return context.afterWaiting(context.readBody(), (bytes) => {
        const parameters = parse(parametersOf(bytes, sent));
        return GET.run(context, parameters, {});
      });
    },
  };
}

/** Returns the parameters of a QUERY: those of its body, or else of its URL. */
function parametersOf(bytes: Uint8Array, sent: Parameters): Parameters {
  const form = parseForm(decodeUtf8(bytes));
  if (form.size === 0) return sent;
  if (sent.size === 0) return form;
  throw new ApiError(
    40003,
    "There are parameters both in the URL and in the body: send them in one place.",
  );
}

/**
 * Parses a form (`application/x-www-form-urlencoded`, URL Standard section 5):
 * like a query, but a plus sign is a space.
 *
 * @throws {ApiError} as {@linkcode parseParameters}
 */
export function parseForm(text: string): Parameters {
  return parseParameters(text.replaceAll("+", "%20"));
}
