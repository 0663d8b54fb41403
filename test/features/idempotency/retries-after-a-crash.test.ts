/**
 * Idempotency-Key over time: a retry is recognized after a restart, and after
 * kill -9 in the midst of fifty at once, but not after a day, and not if it is
 * among the oldest of too many.
 */

import { strict as assert } from "node:assert";
import process from "node:process";
import { describe, test } from "node:test";
import { getHeapStatistics } from "node:v8";
import { setTimeout as delay } from "node:timers/promises";
import { type Running, startApplication } from "../../application.ts";
import {
  type Answer,
  assertError,
  removeFolder,
  type Server,
  signInNew,
  start,
  temporaryFolder,
} from "../../harness.ts";
import { type ServerHere, startHere } from "../../in-process.ts";
import { commit } from "../../commit.ts";

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

/** How often the server is killed. */
const kills = process.env["WHOLE"] === "1" ? 8 : 2;

test(
  "fifty retries to a server that is killed create one record",
  {},
  async () => {
    const folder = await temporaryFolder();
    let server = await start({ folder });
    try {
      const token = await server.signIn();
      for (let round = 1; round <= kills; round++) {
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
  const before = await startHere({ folder });
  const token = await before.signIn();
  const first = await post(before, token, "key");
  await before.stop();
  const server = await startHere({ folder });
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
    assertError(other, 42201);
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
    assertError(await make("another password"), 42201);
    await post(application, token, "key");
    const keys = store.table("answers").rows().map(({ document }) =>
      String(document["keys"])
    );
    assert.equal(keys.length, 2);
    assert.match(String(keys[0]), /^ .{12}scrypt\$[^:]{60,}:2@[a-z0-9]{8}$/);
    assert.match(String(keys[1]), /^ .{12}[^$:]{8}:1@[a-z0-9]{8}$/);
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
      now += day / 2;
      let token = await application.signIn("admin");
      assert.equal((await post(application, token, "between")).body.id, 6);
      now += day / 2 - 1;
      token = await application.signIn("admin");
      assert.equal((await post(application, token, "e")).body.id, 5);
      now += 1;
      token = await application.signIn("admin");
      // Responses of that day are still stored: the new one must count, not
      // these.
      const renewed = await post(application, token, "e");
      assert.equal(renewed.body.id, 7);
      const again = await post(application, token, "e");
      assert.equal(again.text, renewed.text);
      assert.equal(await count(application), 7);
    } finally {
      await application.stop();
    }
  });

  test("although the clock was set in between", async () => {
    let now = 0; // of a machine that does not know the time when it starts
    const application = await startApplication({ now: () => now });
    try {
      const send = async (key: string) =>
        await post(application, await application.signIn("admin"), key);
      const first = await send("a");
      for (const time of [Date.now(), Date.now() + 3 * day, Date.now()]) {
        now = time;
        assert.equal((await send("a")).text, first.text);
        await send(`at-${time}`); // of which each deletes what has expired
        assert.equal((await send("a")).text, first.text);
        await application.restart();
        assert.equal((await send("a")).text, first.text);
        await send(`again-at-${time}`);
        assert.equal((await send("a")).text, first.text);
      }
    } finally {
      await application.stop();
    }
  });

  test("and not for ever on a server that gets no other", async () => {
    let now = Date.now();
    const application = await startApplication({ now: () => now });
    try {
      const send = async () =>
        await post(application, await application.signIn("admin"), "a");
      const first = await send();
      now += 2 * day; // or the clock was set
      assert.equal((await send()).text, first.text);
      now += 2 * day;
      const next = await send();
      assert.equal(next.status, 201);
      assert.notEqual(next.text, first.text);
    } finally {
      await application.stop();
    }
  });

  test("unless those of its user, or of all, take too many bytes", async () => {
    const application = await startApplication();
    try {
      const { token, store } = application;
      const stored = store.table("answers");
      const user = { token, username: "kim", role: "keeper" };
      const kim = await signInNew(application, user);
      const others = await post(application, kim, "kim");
      const first = await post(application, token, "first");
      await fill(application, 1, 5);
      const repeated = await post(application, token, "first");
      assert.equal(repeated.text, first.text);
      await fill(application, 1, 9);
      const last = await post(application, token, "last");
      const renewed = await post(application, token, "first");
      assert.equal(renewed.status, 201);
      assert.notEqual(renewed.text, first.text);
      assert.equal((await post(application, token, "last")).text, last.text);
      // The keys of a user displace only that user's own.
      assert.equal((await post(application, kim, "kim")).text, others.text);
      // Until all together take too many.
      for (let by = 10; by < 20; by++) await fill(application, by, 7);
      const { size } = stored;
      await post(application, token, "one-more");
      assert.ok(stored.size < size, `${stored.size} of ${size}`);
      assert.notEqual((await post(application, kim, "kim")).text, others.text);
    } finally {
      await application.stop();
    }
  });
});

test("a key survives kill -9 after its record was changed, and after it was deleted", async () => {
  const folder = await temporaryFolder();
  const killed = await start({ folder });
  let server: ServerHere | undefined;
  try {
    const token = await killed.signIn();
    const changed = await post(killed, token, "changed");
    const deleted = await post(killed, token, "deleted");
    await killed.request("PATCH", changed.body.url, {
      token,
      json: { city: "Bonn" },
    });
    await killed.request("DELETE", deleted.body.url, { token });
    await killed.end("SIGKILL");
    server = await startHere({ folder });
    const again = await post(server, token, "changed");
    assert.equal(again.text, changed.text);
    assert.equal(again.headers.get("etag"), changed.headers.get("etag"));
    const gone = await post(server, token, "deleted");
    assertError(gone, 41000);
    assert.equal(await count(server), 1);
  } finally {
    await server?.stop();
    await removeFolder(folder);
  }
});

/** Stores rows that each take an eighth of what the keys of one user may take, or a little less. */
async function fill(
  { store }: Running,
  by: number,
  rows: number,
): Promise<void> {
  const most = Math.min(4 << 20, getHeapStatistics().heap_size_limit / 512);
  const { lastId } = store.table("answers");
  const keys = ` ${"x".repeat(most / 8 - 1000)}:1`;
  for (let at = 1; at <= rows; at++) {
    const row = { id: lastId + at, by, at: Date.now(), keys };
    await commit(store, [["put", "answers", row]], 0);
  }
}
