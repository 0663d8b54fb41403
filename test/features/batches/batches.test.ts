/** Batches: POST of an array creates all records in one transaction, or none. */

import { strict as assert } from "node:assert";
import { describe, test } from "node:test";
import { vocabulary } from "../../../src/cli/declaration/checked-vocabulary.ts";
import { startApplication } from "../../application.ts";
import { apiOf } from "../../collections.ts";
import {
  type Answer,
  assertError,
  lacks,
  removeFolder,
  start,
  temporaryFolder,
} from "../../harness.ts";
import { startHere } from "../../in-process.ts";
import { startLibrary } from "../../library.ts";

const { collection, string, unique, optional, reference } = vocabulary;

const authors = (count: number, from = 0) =>
  Array.from({ length: count }, (_, index) => ({ name: `a${from + index}` }));

/** Asserts a 422, and returns the places and codes of its errors. */
function faultsOf(answer: Answer): string[] {
  assertError(answer, 42200);
  return (answer.body.errors as unknown as Record<string, unknown>[])
    .map(({ index, field, code }) => `${index} ${field} ${code}`);
}

describe("a batch", () => {
  test("creates all records, in their order, in one transaction", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    const { seq } = app.store;
    const answer = await app.send("POST", "authors", authors(1000));
    assert.equal(answer.status, 201, answer.text);
    assert.equal(answer.headers.get("location"), null);
    assert.equal(app.store.seq, seq + 1);
    assert.equal(answer.body.length, 1000);
    for (const [index, each] of answer.body.entries()) {
      assert.equal(each.id, index + 1);
      assert.equal(each["name"], `a${index}`);
    }
    const list = await app.send("GET", "authors?limit=2");
    assert.deepEqual(list.body, answer.body.slice(0, 2));
  });

  test("creates none if one is invalid, and lists the errors of all", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    const { seq } = app.store;
    const answer = await app.send("POST", "books", [
      { title: "fits" },
      { title: "x".repeat(21), author_id: 99 },
      { title: "fits", published_on: "2026-02-01", reprinted_on: "2026-01-01" },
      {},
    ]);
    assert.deepEqual(faultsOf(answer), [
      "1 author_id reference",
      "1 title length",
      "2 reprinted_on rule",
      "3 title required",
    ]);
    assert.equal(app.store.seq, seq);
    const next = await app.send("POST", "books", { title: "first" });
    assert.equal(next.body.id, 1, "no id was used up");
    const many = Array.from({ length: 1000 }, () => ({ title: 5, x: 1 }));
    assert.equal(faultsOf(await app.send("POST", "books", many)).length, 100);
  });

  test("has from 1 to 1,000 objects", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    for (const sent of [[], authors(1001), [{ name: "a" }, 5], [[]], [null]]) {
      assertError(await app.send("POST", "authors", sent), 40002);
    }
    // Where no batch is possible, an array is what it was.
    assertError(await app.send("PUT", "authors/1", authors(1)), 40002);
    assertError(
      await app.send("POST", "authorizations", [{ username: "a" }]),
      40002,
    );
    assert.equal(app.store.table("authors").size, 0);
    // Of what has passwords, fewer: hashing more would take minutes.
    const users = Array.from(
      { length: 101 },
      (_, at) => ({ username: `u${at}` }),
    );
    const refused = await app.send("POST", "users", users);
    assertError(refused, 40002);
    assert.match(refused.text, /an array of 1 to 100 of them, not of 101/);
    assertError(await app.send("POST", "users", users.slice(1)), 42200);
  });

  test("has limits of names and levels for each record, and 1 MiB in all", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    const names = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, n) => [`n${n}`, 1]));
    const nested = (levels: number) => ({
      name: JSON.parse("[".repeat(levels) + "]".repeat(levels)),
    });
    const fits = [names(1000), names(1000), nested(63)];
    assert.equal(faultsOf(await app.send("POST", "authors", fits)).length, 100);
    for (const each of [names(1001), nested(64)]) {
      const answer = await app.send("POST", "authors", [{ name: "a" }, each]);
      assertError(answer, 40001);
    }
    const tooMany = "[" + "{},".repeat(300_000) + "{}]";
    const send = (raw: string) =>
      app.request("POST", "/v1/authors", {
        token: app.token,
        raw,
        headers: { "content-type": "application/json" },
      });
    assertError(await send(tooMany), 40001);
    const name = "x".repeat(1 << 20);
    assertError(await send(`[{"name":"${name}"}]`), 41300);
    const long = name.slice(0, 100_000);
    assertError(await send(`{"name":"${long}"}`), 41300);
    const twice = `[{"name":"a"},{"name":"a","name":"b"}]`;
    assertError(await send(twice), 40001);
    assert.deepEqual(faultsOf(await send(`[{"name":"${long}"}]`)), [
      "0 name length",
    ]);
  });

  test("may not repeat a unique value, and may refer to its own records", async (t) => {
    const access = { read: "anyone", write: "keeper", delete: "keeper" };
    const declaration = apiOf([
      collection({
        name: "parts",
        singular: "part",
        access,
        properties: {
          code: unique(string({ maxLength: 9 })),
          part_of_id: optional(reference("parts", { as: "pieces" })),
        },
      }),
    ]);
    const app = await startApplication({ declaration });
    t.after(() => app.stop());
    const post = (json: unknown) =>
      app.request("POST", "/v1/parts", { token: app.token, json });
    assert.deepEqual(
      faultsOf(await post([{ code: "a" }, { code: "b" }, { code: "A" }])),
      ["2 code unique"],
    );
    const { body } = await post([{ code: "a" }, { code: "b", part_of_id: 1 }]);
    assert.equal(body[1]?.["part_of_id"], 1);
    const inPart = await app.request("POST", "/v1/parts/1/pieces", {
      token: app.token,
      json: [{ code: "c" }, { code: "d" }],
    });
    assert.deepEqual(inPart.body.map((each) => each["part_of_id"]), [1, 1]);
    const gone = { token: app.token, json: [{ code: "e" }] };
    assertError(
      await app.request("POST", "/v1/parts/9/pieces", gone),
      40401,
    );
  });

  test("needs the right to write", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    const stranger = await app.send("POST", "authors", authors(2), "");
    assert.equal(stranger.status, 401);
    const member = await app.join("member");
    const answer = await app.send("POST", "authors", authors(2), member);
    assertError(answer, 40300);
  });

  test("of users hashes their passwords", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    const user = (username: string) => ({
      username,
      password: `${username} has a long password`,
      role: "member",
    });
    const two = ["one", "two"].map(user);
    assert.deepEqual(
      faultsOf(await app.send("POST", "users", [...two, user("one")])),
      ["2 username unique"],
    );
    const created = await app.send("POST", "users", two);
    assert.equal(created.status, 201, created.text);
    assert.ok(!created.text.includes("password"));
    const { password } = user("two");
    assert.ok(await app.signIn("two", password));
  });

  const noKeys = lacks("idempotency");

  test("is created once with a key", { skip: noKeys }, async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    const send = (json: unknown) =>
      app.request("POST", "/v1/authors", {
        token: app.token,
        json,
        headers: { "idempotency-key": "k" },
      });
    const first = await send(authors(3));
    assert.equal(first.status, 201);
    await app.send("PATCH", "authors/2", { name: "changed" });
    const again = await send(authors(3));
    assert.equal(again.text, first.text);
    assert.equal(app.store.table("authors").size, 3);
    assertError(await send(authors(4)), 42201);
    await app.send("DELETE", "authors/2");
    assertError(await send(authors(3)), 41000);
  });
});

test("of batches that a kill interrupts, each is complete or absent", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const server = await start({ folder });
  t.after(() => server.stop());
  const token = await server.signIn();
  const batch = (number: number) =>
    Array.from({ length: 50 }, () => ({
      name: `b${number}`,
      city: "Ulm",
      country: "DE",
    }));
  let acknowledged = 0;
  const sender = async () => {
    for (let number = acknowledged;; number++) {
      const { status } = await server.request("POST", "/v1/zoos", {
        token,
        json: batch(number),
      });
      assert.equal(status, 201);
      acknowledged++;
      if (acknowledged === 20) void server.end("SIGKILL");
    }
  };
  await assert.rejects(Promise.all([sender(), sender(), sender()]));
  const again = await startHere({ folder });
  t.after(() => again.stop());
  const { headers } = await again.request("GET", "/v1/zoos?limit=1");
  const stored = Number(headers.get("x-total-count"));
  assert.equal(stored % 50, 0);
  assert.ok(stored >= 50 * acknowledged);
});
