/**
 * Idempotency-Key over time: a retry is recognized after a restart, and after
 * kill -9 in the midst of fifty at once, but not after a day, and not if it is
 * among the oldest of too many.
 */

import { strict as assert } from "node:assert";
import { describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { type Running, startApplication } from "../../application.ts";
import {
  type Answer,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../../harness.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

function post(
  at: Pick<Server, "request">,
  token: string,
  key: string,
): Promise<Answer> {
  const headers = { "idempotency-key": key };
  return at.request("POST", "/v1/zoos", { token, json: zoo, headers });
}

/** Returns the number of zoos. */
async function count(at: Pick<Server, "request">): Promise<number> {
  const { headers } = await at.request("GET", "/v1/zoos");
  return Number(headers.get("x-total-count"));
}

test(
  "fifty retries to a server that is killed create one record",
  {},
  async () => {
    const folder = await temporaryFolder();
    let server = await start({ folder });
    try {
      const token = await server.signIn();
      for (let round = 1; round <= 4; round++) {
        const key = `round-${round}`;
        const seen: Answer[] = [];
        const answers = Array.from(
          { length: 50 },
          () =>
            post(server, token, key).then(
              (answer) => seen.push(answer),
              () => {},
            ),
        );
        // At any stage: before the first arrives, or after all have their
        // responses.
        await delay(Math.random() * 40);
        await Promise.all([server.end("SIGKILL"), ...answers]);
        server = await start({ folder });
        const last = await Promise.all(
          Array.from({ length: 50 }, () => post(server, token, key)),
        );
        for (const answer of [...seen, ...last]) {
          assert.equal(answer.status, 201, answer.text);
          assert.equal(answer.text, last[0]?.text);
          const location = answer.headers.get("location");
          assert.equal(location, last[0]?.headers.get("location"));
        }
        assert.equal(await count(server), round);
      }
    } finally {
      await server.stop();
      await removeFolder(folder);
    }
  },
);

test("a retry is recognized after a restart", async () => {
  const folder = await temporaryFolder();
  const before = await start({ folder });
  const token = await before.signIn();
  const first = await post(before, token, "key");
  await before.stop();
  const server = await start({ folder });
  try {
    const again = await post(server, token, "key");
    assert.equal(again.status, 201, again.text);
    assert.equal(again.text, first.text);
    assert.equal(again.headers.get("location"), first.headers.get("location"));
    assert.equal(again.headers.get("etag"), first.headers.get("etag"));
    const headers = { "idempotency-key": "key" };
    const other = await server.request("POST", "/v1/zoos", {
      token,
      json: { ...zoo, name: "B" },
      headers,
    });
    assert.equal(other.status, 422);
    assert.equal(other.body.errorCode, 42201, other.text);
    assert.equal(await count(server), 1);
  } finally {
    await server.stop();
    await removeFolder(folder);
  }
});

test("the stored hash of a body with a password is as hard to guess from as the password's", async () => {
  const application = await startApplication();
  try {
    const { token, store } = application;
    const headers = { "idempotency-key": "key" };
    const make = (password: string) =>
      application.request("POST", "/v1/users", {
        token,
        json: { username: "kim", password },
        headers,
      });
    const first = await make("the password of kim");
    assert.equal(first.status, 201, first.text);
    assert.equal((await make("the password of kim")).text, first.text);
    assert.equal((await make("another password")).body.errorCode, 42201);
    await post(application, token, "key");
    const hashes = store.table("answers").rows().map(({ document }) =>
      String(document["hash"]).split("$")[0]
    );
    assert.equal(hashes.length, 2);
    assert.equal(hashes[0], "scrypt");
  } finally {
    await application.stop();
  }
});

describe("a key is valid", () => {
  const day = 24 * 60 * 60 * 1000;

  test("for a day, and is then a new one", async () => {
    let now = Date.now();
    const application = await startApplication({ now: () => now });
    try {
      const keys = ["a", "b", "c", "d", "e"];
      for (const key of keys) {
        await post(application, await application.signIn("admin"), key);
      }
      now += day - 1;
      let token = await application.signIn("admin");
      assert.equal((await post(application, token, "e")).body.id, 5);
      now += 1;
      token = await application.signIn("admin");
      // Responses of that day are still stored: the new one must count, not
      // these.
      const renewed = await post(application, token, "e");
      assert.equal(renewed.body.id, 6);
      const again = await post(application, token, "e");
      assert.equal(again.text, renewed.text);
      assert.equal(await count(application), 6);
    } finally {
      await application.stop();
    }
  });

  test(
    "as one of the last ten thousand of its user",
    async () => {
      const application = await startApplication();
      try {
        const { token } = application;
        const first = await post(application, token, "first");
        const kept = application.store.table("answers");
        await fill(application, 9998);
        assert.equal(kept.size, 9999);
        await post(application, token, "last");
        assert.equal(kept.size, 10_000);
        assert.equal(
          (await post(application, token, "first")).text,
          first.text,
        );
        await post(application, token, "one-more");
        assert.equal(kept.size, 10_000);
        const renewed = await post(application, token, "first");
        assert.notEqual(renewed.text, first.text);
        assert.equal(renewed.status, 201);
        const last = await post(application, token, "last");
        assert.equal(await count(application), 4, last.text);
        // The keys of another user displace only that user's own.
        const password = "long enough, this";
        await application.request("POST", "/v1/users", {
          token,
          json: { username: "kim", role: "keeper", password },
        });
        await post(
          application,
          await application.signIn("kim", password),
          "kim",
        );
        assert.equal(kept.size, 10_001);
      } finally {
        await application.stop();
      }
    },
  );
});

/** Stores as many more responses, like the newest one. */
async function fill({ store }: Running, more: number): Promise<void> {
  const kept = store.table("answers");
  const newest = kept.get(kept.lastId);
  assert.ok(newest);
  const { document } = newest;
  for (let at = 1; at <= more; at++) {
    const id = document.id + at;
    store.apply([["put", "answers", { ...document, id, key: `x ${at}` }]], 0);
    if (at % 1000 === 0) await store.durable(store.seq);
  }
  await store.durable(store.seq);
}
