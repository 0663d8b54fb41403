import { strict as assert } from "node:assert";
import { test } from "node:test";
import { requestId } from "../../src/http/server.ts";

test("an X-Request-Id of at most 64 visible characters is used", () => {
  for (const id of ["a", "!~", "x".repeat(64), "a,b"]) {
    assert.equal(requestId(id), id);
  }
});

test("any other is replaced by a unique one", () => {
  const sent = ["", "x".repeat(65), "a b", "1, 2", "a\n", "caf\xe9", [
    "a",
    "b",
  ]];
  const ids = [undefined, undefined, ...sent].map(requestId);
  assert.equal(new Set(ids).size, ids.length);
  for (const id of ids) assert.match(id, /^[\da-f-]{36}$/);
});
