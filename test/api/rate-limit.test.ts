/** Counts per minute: when a minute ends, and which counts are forgotten. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { RateLimiter } from "../../src/api/accounts/rate-limit.ts";

const start = Date.parse("2026-05-05T12:00:00Z");

test("a minute begins with the first request, and ends 60 seconds later, for all", () => {
  let now = start;
  const limiter = new RateLimiter(2, () => now);
  const used = [0, 59_999, 60_000, 61_000, 119_999, 120_000].map((offset) => {
    now = start + offset;
    return limiter.count("a");
  });
  assert.deepEqual(used, [1, 2, 1, 2, 3, 1]);
  now += 59_999;
  assert.equal(limiter.count("b"), 1);
  now++;
  assert.equal(limiter.count("b"), 1);
});

test("a quota that is exceeded is an error that says when to try again", () => {
  let now = start;
  const limiter = new RateLimiter(1, () => now);
  const problem = "There are too many requests";
  assert.equal(limiter.check("a", problem), 1);
  limiter.count("a");
  now += 17_500;
  assert.throws(() => limiter.check("a", problem), {
    code: 42900,
    headers: ["Retry-After", "43"],
    message: "There are too many requests: try again in 43 s.",
  });
  assert.equal(limiter.secondsLeft(), 43);
});

test("a clock that is set back begins new minutes", () => {
  let now = start;
  const limiter = new RateLimiter(1, () => now);
  limiter.count("a");
  now -= 3_600_000;
  assert.equal(limiter.count("a"), 1);
  now += 60_000;
  assert.equal(limiter.count("a"), 1);
});

test("of 10,000 keys the oldest is forgotten for another", () => {
  const limiter = new RateLimiter(1, () => start);
  for (let index = 0; index < 10_000; index++) limiter.count(`${index}`);
  for (const key of ["0", "9999"]) assert.equal(limiter.count(key), 2);
  limiter.count("another");
  for (const key of ["1", "9998"]) assert.equal(limiter.count(key), 2);
  assert.equal(limiter.count("0"), 1);
});

test("asking whether there is room for more counts nothing, and takes no memory", () => {
  const limiter = new RateLimiter(1, () => start);
  limiter.count("a");
  for (let index = 0; index < 20_000; index++) {
    assert.equal(limiter.check(`${index}`, "too many"), 1);
  }
  assert.throws(() => limiter.check("a", "too many"), { code: 42900 });
});
