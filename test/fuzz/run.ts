/**
 * Sends requests that nobody thought of: `npm run fuzz -- --lane=model
 * --requests=200000 --seed=1`. The lane `model` compares each response with what
 * a model foresees, also over restarts.
 */

import assert from "node:assert/strict";
import { inspect, parseArgs } from "node:util";
import { linesOf, startLibrary } from "../features/library.ts";
import { ordinary, siege } from "../features/load.ts";
import { respond, roles, type Value } from "./model.ts";
import { createRequests } from "./requests.ts";

const { values: { lane = "model", requests = 300, seed = 1 } }: Value =
  parseArgs({ strict: false });

/** Returns what the model knows of a response. */
const shown = (value: Value) =>
  JSON.stringify(
    value,
    (name, value) => /_at$|url$|^link$/.test(name) ? undefined : value,
    1,
  );

async function model() {
  const { request, restart, ended } = await startLibrary({ FEATURES: "all" });
  const users: Value[] = ["anyone", "admin", "librarian", "member"]
    .map((username, id) => ({ username, id, role: username }));
  for (const { username } of users) await request(username, "GET /"); // creates them
  const next = createRequests(Number(seed), users);
  const send = ({ user, method, path, query, body, headers }: Value) =>
    request(
      user.username,
      `${method} ${path}?${new URLSearchParams(query)}`,
      "Content-Type" in headers ? linesOf([body].flat()) : body,
      headers,
    );
  for (let count = 0; count < requests; count++) {
    const call = next();
    const { user, headers: { "Idempotency-Key": key } } = call;
    if (count % 9 === 0 && user.id > 1) {
      user.role = roles[count % 2];
      await request("admin", `PATCH /users/${user.id}`, user);
    }
    if (count % 9 === 1 && user.id === 1 && key) {
      send(call).catch(() => {}); // it may take effect or not, and is repeated
      await request("anyone", "GET /");
      await restart(count % 4 ? "SIGKILL" : "SIGTERM");
    }
    const { status, headers, json: shows } = await send(call);
    const task = status === 202 && await ended(user.username, shows.id);
    const json = task ? [task.imported, task.rejected] : shows;
    const { etag: tag, "x-total-count": total } = headers;
    const actual = { outcome: json?.errorCode ?? status, tag, total, json };
    const expected = await new Promise<Value>((resolve) =>
      resolve(respond(call, tag))
    ).catch((error) => error);
    const { outcome } = expected;
    assert.equal(
      shown(actual),
      shown({ ...actual, ...expected, outcome }),
      `Request ${count} of seed ${seed}: ${inspect(call)}`,
    );
  }
}

const lanes: Value = { model, siege, ordinary };
await lanes[lane](requests);
