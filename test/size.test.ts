/** How much code there is: measured at most budget. A number here may only be lowered. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { filesOf, tokensOf } from "./source.ts";

/** The rooms of the source, with what their paths look like and how many tokens they may have. */
const rooms:
  readonly (readonly [room: string, path: RegExp, budget: number])[] = [
    ["The kernel", /^([a-z-]+\.ts$|(api|auth|http|model|store)\/)/, 39_000],
    ["cli", /^cli\//, 5_500],
    ["Features without the page", /^features\/(?!page\/)/, 25_500],
    ["features/page", /^features\/page\//, 12_500],
    ["etcd", /^etcd\//, 4_000],
    ["features/imports", /^features\/imports\//, 5_150],
    ["features/openapi", /^features\/openapi\//, 3_250],
    ["features/open-network", /^features\/open-network\//, 3_250],
    ["features/indexes", /^features\/indexes\//, 2_050],
    ["features/aggregates", /^features\/aggregates\//, 1_900],
    ["features/deletions", /^features\/deletions\//, 1_620],
    ["features/idempotency", /^features\/idempotency\//, 1_390],
    ["features/evolution", /^features\/evolution\//, 1_280],
    ["features/events", /^features\/events\//, 1_110],
    ["Everything", /^/, 84_000],
  ];

const sizes = (folder: string) =>
  Array.from(
    filesOf(folder),
    ([path, text]) => [path, tokensOf(text).length] as const,
  );
const source = sizes("src");

function check(
  room: string,
  files: readonly (readonly [path: string, size: number])[],
  budget: number,
): void {
  test(`${room} has at most ${budget} tokens`, () => {
    assert.ok(files.length > 0, "there are no such files");
    const size = files.reduce((sum, [, tokens]) => sum + tokens, 0);
    const largest = files.toSorted(([, one], [, other]) => other - one)
      .slice(0, 5).map((file) => file.join(": ")).join(", ");
    assert.ok(size <= budget, `${size} of ${budget}; the largest: ${largest}`);
  });
}

for (const [room, pattern, budget] of rooms) {
  check(room, source.filter(([path]) => pattern.test(path)), budget);
}
check("test", sizes("test"), 100_000);

test("Every file of the source is in a room", () => {
  const [kernel, ...others] = rooms.slice(0, 5).map(([, pattern]) => pattern);
  for (const [path] of source) {
    const count = [kernel, ...others].filter((each) => each?.test(path)).length;
    assert.equal(count, 1, path);
  }
});
