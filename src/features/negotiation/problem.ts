/** Errors in the format of RFC 9457, for clients that ask for it. */

import { STATUS_CODES } from "node:http";
import { negotiate } from "../../http/negotiate.ts";
import type { Response } from "../../http/connection.ts";

/** The media type of the format. */
export const problemType = "application/problem+json";

/**
 * Returns whether an Accept field names the format and does not prefer plain
 * JSON. A wildcard is not enough, and neither is a field that excludes both.
 */
export function prefersProblemJson(accept: string | undefined): boolean {
  return accept?.toLowerCase().includes(problemType) === true &&
    negotiate(accept, [problemType, "application/json"]) === problemType;
}

/**
 * Converts the response to a request that failed (RFC 9457 section 3). Its type
 * is `about:blank`: it means no more than the status code (section 4.2.1), and
 * `errorCode` says more.
 */
export function toProblem(response: Response): Response {
  const { status, body } = response;
  const { error: detail, errorMsg: _errorMsg, message: _message, ...more } =
    JSON.parse(String(body));
  const problem = {
    type: "about:blank",
    title: STATUS_CODES[status],
    status,
    detail,
    ...more,
  };
  return { ...response, body: JSON.stringify(problem), type: problemType };
}
