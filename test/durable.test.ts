/** What the disk does decides what clients get: CONTRACT section 4, durable. `features/crash.test.ts` has what is there after a crash. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { checkAnswer } from "./rows.ts";
import {
  type Answer,
  clientsOf,
  createDisk,
  send,
  serve,
  signIn,
  stop,
  temporaryFolder,
} from "./server.ts";

const zoo = (name: string) => ({ name, city: "b", country: "NL" });

test("A disk decides when a write counts", async (t) => {
  const { disk, environment, untilHeld } = createDisk();
  const DATA_DIR = join(temporaryFolder(), "store");
  const options = { DATA_DIR, ...environment };
  let server = await serve(options);
  const { request } = clientsOf(() => server.origin);
  const { json: { id } } = await request("admin", "POST /zoos", zoo("first"));
  await request("admin", "POST /zoos", zoo("other"));

  // It depends on no record; each of its responses gives the others time.
  const pass = async () => {
    for (let turn = 0; turn < 100; turn++) {
      await request("admin", "OPTIONS /zoos");
    }
  };

  await t.test("A write that is not durable is neither acknowledged nor shown", async () => {
    disk("hold");
    const ended: string[] = [];
    const begin = async (name: string, answer: Promise<Answer>) => {
      const { status } = await answer;
      ended.push(name);
      return status;
    };
    const all = [
      begin("POST", request("admin", "POST /zoos", zoo("second"))),
      begin("PATCH", request("admin", `PATCH /zoos/${id}`, { city: "c" })),
      begin("DELETE", request("admin", `DELETE /zoos/${id + 1}`)),
      begin(
        "sign-in",
        signIn(server.origin),
      ),
    ];
    await pass();
    const paths = [
      `/zoos/${id}`,
      `/zoos/${id + 1}`,
      `/zoos/${id + 2}`,
      "/zoos",
      `/zoos/${id + 2}/animals`,
    ];
    all.push(
      ...paths.map((path) => begin(path, request("admin", `GET ${path}`))),
    );
    all.push(begin("double", request("admin", `DELETE /zoos/${id + 1}`)));
    await pass();
    assert.deepEqual(ended, []);
    disk("");
    assert.deepEqual(await Promise.all(all), [
      201,
      201,
      204,
      201,
      200,
      410,
      200,
      200,
      200,
      404,
    ]);
  });

  await t.test("A full disk refuses writes and changes nothing", async () => {
    disk("hold");
    const begun = [request("admin", "POST /zoos", zoo("held"))];
    await untilHeld();
    begun.push(request("admin", "POST /zoos", zoo("behind")));
    await pass();
    begun.push(request("admin", "GET /zoos"));
    await pass();
    disk("full");
    const outcomes = (await Promise.all(begun)).map(({ status, json }) =>
      json.errorCode ?? status
    );
    assert.deepEqual(outcomes, [201, 50301, 50302]);
    const before = (await request("admin", "GET /zoos")).text;
    for (
      const answer of [
        await request("admin", "POST /zoos", zoo("third")),
        await request("admin", `PATCH /zoos/${id}`, { city: "d" }),
      ]
    ) {
      checkAnswer(answer, "zoo-api");
      assert.equal(answer.json.errorCode, 50301);
    }
    assert.equal((await request("admin", "GET /zoos")).text, before);
    disk("");
    assert.equal(
      (await request("admin", `PATCH /zoos/${id}`, { city: "d" })).status,
      201,
    );
  });

  await t.test("A disk that fails leaves the outcome open, then only reads", async () => {
    disk("fault");
    const before = (await request("admin", "GET /zoos")).text;
    const answer = await request("admin", `PATCH /zoos/${id}`, { city: "e" });
    checkAnswer(answer, "zoo-api");
    assert.equal(answer.json.errorCode, 50000);
    disk("");
    assert.equal(
      (await request("admin", "POST /zoos", zoo("fourth"))).json.errorCode,
      50300,
    );
    // What is wrong with a request comes before what is wrong with the disk.
    for (
      const [code, line, body] of [
        [42200, "POST /zoos", {}],
        [40401, "PATCH /zoos/999", {}],
        [40901, "DELETE /users/1"],
        [50300, `DELETE /zoos/${id}`],
      ] as const
    ) {
      const { json } = await request("admin", line, body);
      assert.equal(json.errorCode, code, line);
    }
    assert.equal((await request("admin", "GET /zoos")).text, before);
    const health = await send(server.origin, "/health");
    assert.deepEqual([health.status, health.json.status], [503, "read-only"]);
    await stop(server, "SIGKILL");
    server = await serve(options);
    const { json: [first] } = await send(server.origin, "/v1/zoos");
    assert.match(first.city, /d|e/);

    // A stop answers what is under way, and makes it durable.
    disk("hold");
    const pending = request("admin", "POST /zoos", zoo("last"));
    await untilHeld();
    const ended = stop(server);
    disk("");
    assert.deepEqual([(await pending).status, await ended], [201, 0]);
  });
});
