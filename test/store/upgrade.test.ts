/**
 * Folders that version 0.3.0 wrote, with a clock in the year 2090, so that its
 * tokens stay valid: after a kill in the midst of an import, and after a stop.
 * Beside each folder is what that version served.
 */

import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { copyOf, send, serve, stop } from "../server.ts";

/** The fixtures stay where they are written, as the tests are compiled. */
const fixtures = join("test", "store", "0.3.0");

interface Served {
  tokens: Record<string, string>;
  expected: {
    who: string;
    path: string;
    status: number;
    json: { errorCode?: number };
  }[];
}

/** Starts a server on a copy of a folder. */
async function open(name: string, without?: string) {
  const DATA_DIR = copyOf(join(fixtures, name));
  writeFileSync(join(DATA_DIR, "meta.json"), '{"format":3}\n');
  if (without) rmSync(join(DATA_DIR, without));
  const { tokens, expected }: Served = JSON.parse(
    readFileSync(join(fixtures, `${name}.json`), "utf8"),
  );
  const server = await serve({
    DATA_DIR,
    FEATURES: "idempotency,imports,batches,evolution",
    ...(name.startsWith("own")
      ? {
        COLLECTIONS: join(fixtures, "own.mjs"),
        JWT_SECRET: "fixture-secret-of-0.3.0-with-at-least-32-bytes",
      }
      : { JWT_SECRET: "" }),
  });
  const headers = (who: string, others = {}) => ({
    ...others,
    ...(who && { Authorization: `Bearer ${tokens[who]}` }),
  });
  return { server, expected, headers };
}

for (
  const [name, without] of [
    ["sample-killed"],
    ["sample-stopped"],
    ["own-killed"],
    ["own-stopped"],
    ["own-stopped", "snapshot-2.jsonl"], // so its log is read, which has exchanged names
  ] as const
) {
  test(`A store of 0.3.0 opens: ${name} ${without ?? ""}`, async () => {
    const { server, expected, headers } = await open(name, without);
    for (const { who, path, status, json } of expected) {
      const answer = await send(server.origin, path, { headers: headers(who) });
      const what = `${path} as ${who}: ${answer.text}`;
      assert.equal(answer.status, status, what);
      const found = answer.json;
      if (status >= 400) assert.equal(found.errorCode, json.errorCode, what);
      else if (!(name === "sample-killed" && path.startsWith("/v1/animals"))) {
        assert.deepEqual(found, json, what);
      }
    }
    if (name.startsWith("sample")) {
      const repeated = await send(server.origin, "/v1/animals", {
        headers: headers("kim", { "Idempotency-Key": "key-1" }),
        body: { zoo_id: 1, animal_type_id: 2, name: "Keyed" },
      });
      assert.deepEqual([repeated.status, repeated.json.id], [201, 7]);
    }
    if (name === "sample-killed") {
      const { json } = await send(server.origin, "/v1/tasks/1", {
        headers: headers("kim"),
      });
      assert.equal(json.status, "failed");
      const { headers: { "x-total-count": count } } = await send(
        server.origin,
        "/v1/animals?name:starts=L",
      );
      assert.deepEqual(Number(count), json.imported);
    }
    assert.equal(await stop(server), 0);
  });
}
