import { strict as assert } from "node:assert";
import { STATUS_CODES } from "node:http";
import { test } from "node:test";
import { ApiError, errorResponse } from "../../../src/http/errors.ts";
import {
  prefersProblemJson,
  toProblem,
} from "../../../src/features/negotiation/problem.ts";

/** Returns the bodies of an error in both formats. */
function bodiesOf(error: ApiError) {
  const response = errorResponse(error);
  return [response, toProblem(response)].map(({ body }) =>
    JSON.parse(String(body))
  );
}

const json = "application/json";
const problem = "application/problem+json";

test("an error has the format of RFC 9457 if Accept names it and does not prefer JSON", () => {
  const table: readonly [string | undefined, string][] = [
    [undefined, json],
    ["", json],
    ["*/*", json],
    ["application/*", json],
    [json, json],
    ["text/html", json],
    [problem, problem],
    ["Application/Problem+JSON", problem],
    [`${json}, ${problem}`, problem],
    [`${problem}, */*`, problem],
    [`${problem};q=0.9, ${json}`, json],
    [`${problem};q=0.9, ${json};q=0.8`, problem],
    [`${problem};q=0`, json],
    [`${problem};q=0, */*`, json],
    [`${problem};charset=latin1`, json],
  ];
  for (const [accept, type] of table) {
    assert.equal(prefersProblemJson(accept), type === problem, accept);
  }
});

test("both formats describe the same error", () => {
  const errors = [
    { field: "name", code: "required", message: "It is required." } as const,
  ];
  const error = new ApiError(42200, "The animal is not valid.", { errors });
  const [ours, standard] = bodiesOf(error);
  assert.deepEqual(ours, {
    error: "The animal is not valid.",
    errorCode: 42200,
    errorMsg: "The animal is not valid.",
    errors,
  });
  assert.deepEqual(standard, {
    type: "about:blank",
    title: STATUS_CODES[422],
    status: 422,
    detail: "The animal is not valid.",
    errorCode: 42200,
    errors,
  });
});

test("a 401 and a 403 link to their documentation in both formats", () => {
  for (const code of [40100, 40300] as const) {
    const error = new ApiError(code);
    const [ours, standard] = bodiesOf(error);
    assert.match(ours.documentation_url, /^https:/);
    assert.equal(ours.message, error.message);
    assert.deepEqual(standard, {
      type: "about:blank",
      title: STATUS_CODES[error.status],
      status: Math.floor(code / 100),
      detail: error.message,
      errorCode: code,
      documentation_url: ours.documentation_url,
    });
  }
});
