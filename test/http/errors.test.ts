import { strict as assert } from "node:assert";
import { test } from "node:test";
import { ApiError, type ErrorCode } from "../../src/http/errors.ts";

test("the first three digits of a code are its status", () => {
  const table: readonly [ErrorCode, number][] = [
    [40902, 409],
    [41200, 412],
    [42201, 422],
    [42800, 428],
  ];
  for (const [code, status] of table) {
    const error = new ApiError(code);
    assert.equal(error.status, status);
    assert.match(error.message, /^[A-Z].*\.$/);
  }
});
