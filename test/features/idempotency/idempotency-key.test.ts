import { strict as assert } from "node:assert";
import { test } from "node:test";
import { parseIdempotencyKey } from "../../../src/features/idempotency/feature.ts";

test("an Idempotency-Key is 1 to 255 visible ASCII characters", () => {
  const keys = [
    "a",
    '"8e03978e-40d5-43dd-bc93-6894a57f9324"',
    "a,b",
    "!~",
    "k".repeat(255),
  ];
  for (const key of keys) assert.equal(parseIdempotencyKey(key), key);
  assert.equal(parseIdempotencyKey(undefined), undefined);
});

test("any other key is rejected", () => {
  const keys = [
    "",
    "k".repeat(256),
    "a b",
    "a\tb",
    "a\x7f",
    "caf\xe9",
    "a, b",
    ["a", "b"],
  ];
  for (const key of keys) {
    assert.throws(() => parseIdempotencyKey(key), {
      name: "ApiError",
      code: 40000,
      message:
        "Idempotency-Key must be sent once, with 1 to 255 visible ASCII characters.",
    }, String(key));
  }
});
