/** How often a client may fail to sign in, and who is refused then. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import type { LimitSignIns } from "../../../src/api/request-types.ts";
import { createSignInLimiter } from "../../../src/features/open-network/sign-ins.ts";

const start = Date.parse("2026-05-05T12:00:00Z");

/** Compares a password: calls `beforeHash` first. */
type Check = (beforeHash: () => Promise<void>) => Promise<string | undefined>;

const wrong: Check = async (beforeHash) => {
  await Promise.resolve();
  await beforeHash();
  return undefined;
};
const right: Check = async (beforeHash) => {
  await Promise.resolve();
  await beforeHash();
  return "user";
};

/** Returns the outcomes of sign-ins that are tried one after the other. */
async function outcomes(
  limit: LimitSignIns<string>,
  attempts: readonly (readonly [
    client: string,
    username: string,
    check: Check,
  ])[],
): Promise<string> {
  let text = "";
  for (const [client, username, check] of attempts) {
    text += await limit(client, username, check).then(
      (user) => user === undefined ? "w" : "R",
      ({ code }) => code === 42900 ? "-" : "!",
    );
  }
  return text;
}

test("one user from one client: ten failures a minute", async () => {
  let now = start;
  const limit = createSignInLimiter(() => now);
  const guesses = Array(11).fill(["10.0.0.1", "ada", wrong]);
  assert.equal(await outcomes(limit, guesses), "wwwwwwwwww-");
  const others = await outcomes(limit, [
    ["10.0.0.1", "ada", right],
    ["10.0.0.2", "ada", right],
    ["10.0.0.1", "kim", right],
  ]);
  assert.equal(others, "-RR");
  now += 60_000;
  assert.equal(await outcomes(limit, guesses), "wwwwwwwwww-");
});

test("names are counted by their first 32 characters, which no name exceeds", async () => {
  const limit = createSignInLimiter(() => start);
  const name = "a".repeat(32);
  const guess = (username: string) => ["10.0.0.1", username, wrong] as const;
  const longer = Array.from({ length: 10 }, (_, at) => guess(name + at));
  assert.equal(
    await outcomes(limit, [...longer, guess(name)]),
    "wwwwwwwwww-",
    "a longer name could get around the limit, or fill the memory",
  );
  const shorter = Array.from(
    { length: 3 },
    (_, at) => guess(`${"b".repeat(31)}${at}`),
  );
  assert.equal(
    await outcomes(limit, [...shorter, guess("b".repeat(31))]),
    "wwww",
  );
});

test("one that is refused does not wait to be checked, and does not count", async () => {
  const limit = createSignInLimiter(() => start);
  const never: Check = () => assert.fail("it is checked");
  const text = await outcomes(limit, [
    ...Array(10).fill(["10.0.0.1", "ada", wrong]),
    ...Array(60).fill(["10.0.0.1", "ada", never]),
    ["10.0.0.1", "kim", wrong],
  ]);
  assert.equal(text, `${"w".repeat(10)}${"-".repeat(60)}w`);
});

test("one client: fifty failures a minute; successes do not count", async () => {
  const limit = createSignInLimiter(() => start);
  const guesses = Array.from(
    { length: 55 },
    (_, index) => ["10.0.0.1", `user${index}`, wrong] as const,
  );
  const text = await outcomes(limit, [
    ...Array(60).fill(["10.0.0.1", "ada", right]),
    ...guesses,
    ["10.0.0.2", "ada", right],
  ]);
  const expected = `${"R".repeat(60)}${"w".repeat(50)}-----R`;
  assert.equal(text, expected);
});

test("a success resets the failures of its user, not those of others", async () => {
  const limit = createSignInLimiter(() => start);
  const nine = Array(9).fill(["10.0.0.1", "ada", wrong]);
  const attempts = [
    ...nine,
    ["10.0.0.1", "ada", right],
    ...nine,
    ["10.0.0.1", "kim", right],
    ["10.0.0.1", "ada", wrong],
    ["10.0.0.1", "ada", right],
  ] as const;
  assert.equal(
    await outcomes(limit, attempts),
    "wwwwwwwwwRwwwwwwwwwRw-",
  );
});

test("simultaneous failures cannot exceed the limit together", async () => {
  const limit = createSignInLimiter(() => start);
  let checks = 0;
  const all = await Promise.allSettled(
    Array.from(
      { length: 30 },
      () =>
        limit("10.0.0.1", "ada", async (beforeHash) => {
          await Promise.resolve();
          await beforeHash();
          checks++;
          return undefined;
        }),
    ),
  );
  assert.equal(checks, 10);
  assert.equal(
    all.filter(({ status }) => status === "rejected").length,
    20,
  );
});

test("simultaneous failures of one client with many names cannot exceed its limit", async () => {
  const limit = createSignInLimiter(() => start);
  let checks = 0;
  const check: Check = async (beforeHash) => {
    await wrong(beforeHash);
    checks++;
    return undefined;
  };
  const all = Array.from(
    { length: 60 },
    (_, at) => limit("10.0.0.1", `user${at}`, check),
  );
  await Promise.allSettled(all);
  assert.equal(checks, 50);
});

test("one that leaves before its password is checked makes room for nobody", async () => {
  const limit = createSignInLimiter(() => start);
  let finish = () => {};
  const finished = new Promise<void>((resolve) => finish = resolve);
  let checks = 0;
  const slow: Check = async (beforeHash) => {
    await beforeHash();
    checks++;
    await finished;
    return undefined;
  };
  const leaves: Check = () => Promise.reject(new Error("it has left"));
  const ten = Array.from({ length: 10 }, () => limit("a", "ada", slow));
  await assert.rejects(limit("a", "ada", leaves), /it has left/);
  const eleventh = limit("a", "ada", slow);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(checks, 10);
  finish();
  await Promise.all(ten);
  await assert.rejects(eleventh, { code: 42900 });
});

test("simultaneous right passwords are all admitted", async () => {
  const limit = createSignInLimiter(() => start);
  let last: Promise<unknown> = Promise.resolve();
  const inTurn: Check = async (beforeHash) => {
    const previous = last;
    let end = () => {};
    last = new Promise<void>((resolve) => end = resolve);
    await previous;
    await beforeHash();
    await Promise.resolve();
    end();
    return "user";
  };
  const all = await Promise.all(
    Array.from({ length: 60 }, () => limit("10.0.0.1", "ada", inTurn)),
  );
  assert.deepEqual(new Set(all), new Set(["user"]));
});

test("one whose password is not compared does not count", async () => {
  const limit = createSignInLimiter(() => start);
  const fail = () => Promise.reject(new Error("overloaded"));
  const failing = Array(60).fill(["10.0.0.1", "ada", fail]);
  const ten = Array(10).fill(["10.0.0.1", "ada", wrong]);
  assert.equal(
    await outcomes(limit, [...failing, ...ten, ["10.0.0.1", "ada", right]]),
    `${"!".repeat(60)}wwwwwwwwww-`,
  );
});

test("attempts that are refused cannot push out the count of a user", async () => {
  const limit = createSignInLimiter(() => start);
  const ten = Array(10).fill(["10.0.0.1", "ada", wrong]);
  const fail = () => Promise.reject(new Error("overloaded"));
  const flood = Array.from(
    { length: 12_000 },
    (_, index) => ["10.0.0.1", `user${index}`, fail] as const,
  );
  const text = await outcomes(limit, [
    ...ten,
    ...flood,
    ["10.0.0.1", "ada", right],
  ]);
  assert.equal(text.at(-1), "-");
});
