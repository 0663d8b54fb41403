/** What is old goes: CONTRACT section 17, retention. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import {
  ahead,
  authorize,
  beside,
  fileOf,
  send,
  serve,
  stop,
  temporaryFolder,
} from "../server.ts";

const dayMs = 86_400_000;
const daysAgo = (days: number) =>
  new Date(Date.now() - days * dayMs).toISOString();
const folder = temporaryFolder();
const old = Array.from({ length: 1200 }, (_, at) => ({
  taken_at: daysAgo(31 + at),
}));
const SEED = fileOf(
  "seed.json",
  JSON.stringify({
    readings: [
      { taken_at: daysAgo(29) },
      { taken_at: null },
      { taken_at: daysAgo(40), value: 1 }, // a proof requires it
      { taken_at: daysAgo(39), value: 2, reading_id: 3 },
      { taken_at: daysAgo(1), value: 3, reading_id: 4 },
      { taken_at: daysAgo(25), value: 4 },
      ...old,
    ],
    proofs: [{ reading_id: 3 }],
  }),
);
const options = {
  SEED,
  COLLECTIONS: beside("features/measured"),
  DATA_DIR: join(folder, "store"),
  FEATURES: "deletions",
};

/** Returns what is there once a condition is true. */
async function readings(origin: string, isDone: (ids: number[]) => boolean) {
  for (;;) {
    const { json } = await send(origin, "/v1/readings?sortby=id&limit=100");
    const ids = json.map(({ id }: { id: number }) => id);
    if (isDone(ids)) return json;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test("What has expired goes, but what others require", async () => {
  const server = await serve(options);
  const left = await readings(server.origin, (ids) => ids.length < 6);
  assert.deepEqual(
    left.map((
      { id, reading_id }: Record<string, unknown>,
    ) => [id, reading_id]),
    [[1, null], [2, null], [3, null], [5, null], [6, null]],
  );
  await stop(server);
});

test("A clock that leaps is not believed", async () => {
  const server = await serve({ ...options, ...ahead(10 * dayMs) });
  while (!/clock/.test(server.output)) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const left = await readings(server.origin, () => true);
  assert.equal(left.length, 5);
  await stop(server);
});

test("A clock that is not set shows the newest time of the log", async () => {
  const server = await serve({ ...options, ...ahead(-Date.now()) });
  const headers = await authorize(server.origin);
  const { json } = await send(server.origin, "/v1/readings", {
    body: {},
    headers,
  });
  assert.ok(Date.parse(json.created_at) > Date.now() - dayMs);
  const changed = await send(server.origin, `/v1/readings/${json.id}`, {
    method: "PATCH",
    body: { value: 5 },
    headers,
  });
  assert.ok(changed.json.updated_at > json.updated_at); // as in any change
  assert.match(server.output, /clock/);
  assert.equal((await readings(server.origin, () => true)).length, 6);
  await stop(server);
});

test("A clock that is not set lets a first start load samples", async () => {
  const DATA_DIR = join(folder, "unset");
  const unset = ahead(-Date.now());
  const server = await serve({ ...options, ...unset, DATA_DIR });
  assert.ok((await readings(server.origin, () => true)).length > 0);
  await stop(server);
});
