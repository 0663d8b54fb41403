/** Events of private records: who is sent them. */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import { PassThrough } from "node:stream";
import { describe, test } from "node:test";
import { createReader } from "../../../src/cli/command-line.ts";
import { declareApi } from "../../../src/api/declaration/api.ts";
import { buildRoutes } from "../../../src/api/routes.ts";
import { TokenSigner } from "../../../src/auth/jwt.ts";
import { operatorContext } from "../../operator.ts";
import { feature } from "../../../src/features/events/feature.ts";
import { jwtSecret } from "../../harness.ts";
import { notes, startNotes } from "../../library.ts";
import { toEventId } from "../../../src/features/events/history.ts";
import { follow } from "../../follower.ts";
import { commit } from "../../commit.ts";
import { restore, stateOf } from "../../../src/store/memory/exchange.ts";
import {
  getOrCreateTable,
  type Tables,
} from "../../../src/store/memory/table.ts";
import { beginHistory, maxHistories } from "../../../src/api/own-tables.ts";

describe("private records", () => {
  test("are sent in events to their owner and the highest role alone", async (t) => {
    const { send, port, ada, bob, token } = await startNotes(t);
    const streams = await Promise.all(
      [ada, bob, token].map((each) => follow(port, each)),
    );
    await send("PATCH", "notes/1", { text: "new" }, ada);
    // Nothing is sent of a record that is gone by then.
    const [ofAda, , ofAll] = streams;
    for (const stream of [ofAda, ofAll]) {
      const { type, data } = await stream?.next() ?? {};
      assert.equal(`${type} ${data?.id}`, "notes.updated 1");
    }
    await send("DELETE", "notes/2");
    await send("DELETE", "notes/1", undefined, ada);
    await send("POST", "books", { title: "the end" });
    const seen = [];
    for (const stream of streams) {
      const events: unknown[] = [];
      while (events.at(-1) !== "books.created 2") {
        const { type, data } = await stream.next();
        events.push(`${type} ${data.id}`);
      }
      seen.push(events);
      stream.cut();
    }
    assert.deepEqual(seen, [
      ["notes.deleted 1", "books.created 2"],
      ["notes.deleted 2", "books.created 2"],
      [
        "notes.deleted 2",
        "notes.deleted 1",
        "books.created 2",
      ],
    ]);
  });

  test(
    "are not sent from memory to a user who had the highest role before",
    async (t) => {
      const { send, join, port, bob, token, store } = await startNotes(t);
      const other = await follow(port, token); // events stay in memory for it
      const zoe = await join("zoe", "admin");
      const last = toEventId(store, store.seq);
      const stream = await follow(port, zoe);
      await send("PATCH", "notes/2", { text: "new" }, bob);
      assert.equal((await stream.next()).type, "notes.updated");
      await send("PATCH", "users/4", { role: "member" });
      await stream.closed;
      await send("POST", "books", { title: "the end" });
      const again = await follow(port, zoe, last);
      assert.equal((await again.next()).type, "books.created");
      again.cut();
      other.cut();
    },
  );

  test(
    "that were deleted are shown to their owner only; where the log does not say who that is, all are reset",
    async (t) => {
      const { send, port, ada, bob, token, store } = await startNotes(t);
      const last = toEventId(store, store.seq);
      await send("DELETE", "notes/1", undefined, ada);
      await send("POST", "books", { title: "the end" });
      const typesOf = async (token: string, count: number) => {
        const feed = await follow(port, token, last);
        await feed.until(() => feed.events.length === count);
        feed.cut();
        return feed.events.map(({ type }) => type);
      };
      const shown = ["notes.deleted", "books.created"];
      assert.deepEqual(await typesOf(ada, 2), shown);
      assert.deepEqual(await typesOf(token, 2), shown);
      assert.deepEqual(await typesOf(bob, 1), ["books.created"]);
      // As an older version wrote it.
      await commit(store, [["del", "notes", 2]], 0);
      await send("POST", "books", { title: "the end" });
      assert.deepEqual(await typesOf(bob, 3), [
        "books.created",
        "reset",
        "books.created",
      ]);
      assert.deepEqual((await typesOf(token, 4)).at(2), "notes.deleted");
    },
  );

  test(
    "that are gone are not sent again, not even from memory, and ids tell nothing about those of others",
    async (t) => {
      const { send, port, ada, bob, token, store } = await startNotes(t);
      const first = await follow(port, token);
      await first.until(() => first.lastEventId !== "");
      const quiet = await follow(port, bob);
      await quiet.until(() => quiet.lastEventId !== "");
      const { seq = 0 } = store.table("notes").get(2) ?? {};
      assert.equal(parseInt(quiet.lastEventId), seq);
      await send("POST", "notes", { book_id: 1, text: "secret" }, ada);
      await send("POST", "notes", { book_id: 1, text: "other" }, ada);
      await first.until(() => first.events.length === 2);
      await send("DELETE", "notes/3", undefined, ada);
      await first.until(() => first.events.length === 3);
      const again = await follow(port, token, toEventId(store, store.seq - 3));
      await again.until(() => again.events.length === 2);
      assert.deepEqual(
        again.events.map(({ type, data }) => [type, data.id]),
        [["notes.created", 4], ["notes.deleted", 3]],
      );
      assert.doesNotMatch(again.text, /secret/);
      assert.equal(parseInt(quiet.lastEventId), seq);
      for (const each of [first, quiet, again]) each.cut();
    },
  );

  test(
    "of others are told neither by the id of a reset nor by which ids are one",
    async (t) => {
      const { send, join, port, ada, store } = await startNotes(t);
      const cy = await join("cy");
      const current = toEventId(store, store.seq);
      const ids = [undefined, "x", "0-00"].concat(
        [0, 1, 2, 9].map((more) =>
          current.replace(/\d+/, (seq) => String(Number(seq) + more))
        ),
      );
      const texts = () =>
        Promise.all(ids.map(async (id) => {
          const feed = await follow(port, cy, id);
          await feed.until(() => /^id: .*\n(.+\n)*\n/m.test(feed.text));
          feed.cut();
          return feed.text;
        }));
      const before = await texts();
      const intervals = t.mock.method(globalThis, "setInterval");
      const feed = await follow(port, cy, "x");
      const { id } = await feed.next();
      const heartbeat = intervals.mock.calls
        .find(({ arguments: [, ms] }) => ms === 15_000);
      for (const text of ["1", "2"]) {
        await send("POST", "notes", { book_id: 1, text }, ada);
      }
      assert.deepEqual(await texts(), before);
      assert.equal(before.filter((text) => text.includes("reset")).length, 2);
      const { length } = feed.text;
      heartbeat?.arguments[0]();
      await feed.until(() => feed.text.length > length);
      assert.equal(feed.text.slice(length), `:\nid: ${id}\n\n`);
      feed.cut();
    },
  );

  test(
    "of others cause no reset, however many: the logs and histories that a user needs are those with a change for them",
    async (t) => {
      const { send, port, ada, bob, store } = await startNotes(t);
      const fill = async () => {
        for (const text of ["1", "2", "3"]) {
          await send("POST", "notes", { book_id: 1, text }, ada);
          await store.checkpoint();
        }
      };
      /** Opens a stream until it has sent an id, makes a change, and returns the first event. */
      const eventAfter = async (id?: string, change = async () => {}) => {
        const feed = await follow(port, bob, id);
        await feed.until(() => /^id: .*\n/m.test(feed.text));
        await change();
        const { type } = await feed.next();
        feed.cut();
        return { type, id: feed.lastEventId };
      };
      const create = () => send("POST", "books", { title: "B" }).then(() => {});
      const begin = async () => {
        const feed = await follow(port, bob);
        await feed.until(() => feed.lastEventId !== "");
        feed.cut();
        return feed.lastEventId;
      };
      const first = await begin();
      await fill();
      const created = await eventAfter(first, create);
      assert.equal(created.type, "books.created");
      await send("DELETE", "notes/2", undefined, bob);
      await send("POST", "notes", { book_id: 1, text: "4" }, ada);
      const deleted = await eventAfter(created.id);
      assert.equal(deleted.type, "notes.deleted");
      await fill();
      const reset = await eventAfter(first);
      assert.equal(reset.type, "reset");
      await fill();
      const resumed = await eventAfter(reset.id, create);
      assert.equal(resumed.type, "books.created");
      // The history of Bob's last change is forgotten.
      for (let each = 0; each < maxHistories; each++) {
        await beginHistory(store, () => {});
      }
      const last = await eventAfter(await begin(), create);
      assert.equal(last.type, "books.created");
    },
  );

  test(
    "are encoded once for all connections of a user, and for one in a turn of the event loop",
    async (t) => {
      const { port, ada, bob, token, store } = await startNotes(t);
      const ids = Array.from({ length: 1000 }, (_, index) => index + 3);
      store.apply(
        ids.map((id) => {
          const note = { id, book_id: 1, text: "x", owner_id: 2 + id % 2 };
          return ["put", "notes", note] as const;
        }),
        0,
      );
      await store.durable(store.seq);
      const tokens = [ada, ada, ada, ada, bob, bob, token];
      const streams = await Promise.all(
        tokens.map((each) => follow(port, each)),
      );
      let turn = 0;
      let isCounting = true;
      const count = () => {
        turn++;
        if (isCounting) setImmediate(count);
      };
      setImmediate(count);
      t.after(() => isCounting = false);
      // Each event is compared with the rights of the reader.
      const turns = new Map<number, number>();
      const { has } = Set.prototype;
      for (const role of ["member", "admin"]) {
        const grants = notes.roles.grantsOf(role) ?? assert.fail();
        t.mock.method(
          grants,
          "has",
          function (this: Set<string>, name: string) {
            if (name === "member") turns.set(turn, 1 + (turns.get(turn) ?? 0));
            return has.call(this, name);
          },
        );
      }
      store.apply([
        ...ids.map((id) => ["del", "notes", id, 2 + id % 2] as const),
        ["del", "books", 1],
      ], 0);
      const sent = await Promise.all(streams.map(async (stream) => {
        for (let count = 1;; count++) {
          const { type } = await stream.next();
          if (type === "books.deleted") return count;
        }
      }));
      assert.deepEqual(sent, [501, 501, 501, 501, 501, 501, 1001]);
      const large = [...turns.values()].filter((count) => count > 900);
      assert.equal(large.length, 3);
      assert.ok(large.every((count) => count < 1100), String(large));
      for (const stream of streams) stream.cut();
    },
  );

  test(
    "are not sent from memory to their owner with the rights of a former role",
    async (t) => {
      const { send, join, port, token, store } = await startNotes(
        t,
        ({ roles, collections }) =>
          declareApi({
            roles: roles.names,
            collections: collections.map((each) =>
              each.name === "books"
                ? { ...each, access: { ...each.access, read: "editor" } }
                : each
            ),
          }),
      );
      const other = await follow(port, token); // events stay in memory for it
      const eve = await join("eve", "editor");
      const last = toEventId(store, store.seq);
      const stream = await follow(port, eve);
      const of = { id: 9, owner_id: 4, book_id: 1, text: "own" };
      store.apply([["put", "books", { id: 2, title: "B" }], [
        "put",
        "notes",
        of,
      ]], 0);
      assert.equal((await stream.next()).type, "books.created");
      await send("PATCH", "users/4", { role: "member" });
      await stream.closed;
      const again = await follow(port, eve, last);
      assert.equal((await again.next()).type, "notes.created");
      again.cut();
      other.cut();
    },
  );
});

test("a collection that is loaded anew hides no change of another one", async (t) => {
  const { send, port, ada, store } = await startNotes(t);
  await send("POST", "marks", {}, ada);
  const stream = await follow(port, ada);
  await send("PATCH", "notes/1", { text: "one" }, ada);
  const { id } = await stream.next();
  stream.cut();
  await send("PATCH", "notes/1", { text: "two" }, ada);
  const marks = getOrCreateTable(store.tables as Tables, "marks");
  restore(marks, stateOf(marks));
  const again = await follow(port, ada, id);
  await again.until(() =>
    again.text.includes("two") || again.text.includes(": reset")
  );
  again.cut();
  assert.match(again.text, /two/);
});

test("nothing is written to a stream that a stopping server has ended", async (t) => {
  const { store } = await startNotes(t);
  const seq = toEventId(store, store.seq);
  for (let id = 2; id < 100; id++) {
    await commit(
      store,
      [["put", "books", { id, title: "x".repeat(20_000) }]],
      0,
    );
  }
  const { routes } = buildRoutes({
    declaration: notes,
    store,
    signer: new TokenSigner([jwtSecret], notes.title),
    base: { origin: "", path: "/" },
    now: Date.now,
    log: () => {},
    settings: createReader(new Map(), {}),
  }, [feature]);
  const context = operatorContext({ headers: { "last-event-id": seq } });
  const get = routes.get("/v1/events")?.operations.get("GET");
  const result = await get?.run(context, undefined, {});
  // Nobody reads it, so it does not close when it ends.
  const output = new PassThrough({ highWaterMark: 1 << 30 });
  const failed = once(output, "error");
  const sent = result?.live?.(output);
  await once(output, "readable");
  output.end();
  const outcome = await Promise.race([failed, sent?.then(() => "ended")]);
  assert.equal(outcome, "ended");
});
