/** Events of private records: who is sent them. */

import { strict as assert } from "node:assert";
import { describe, test } from "node:test";
import { startNotes } from "../../library.ts";
import { follow } from "./follower.ts";

describe("private records", () => {
  test("are sent in events to their owner and the highest role alone", async (t) => {
    const { send, port, ada, bob, token } = await startNotes(t);
    const streams = await Promise.all(
      [ada, bob, token].map((each) => follow(port, each)),
    );
    await send("PATCH", "notes/1", { text: "new" }, ada);
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
      ["notes.updated 1", "notes.deleted 1", "books.created 2"],
      ["notes.deleted 2", "books.created 2"],
      [
        "notes.updated 1",
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
      const last = String(store.seq);
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
    "that were deleted long ago reset the events of those who may have had them",
    async (t) => {
      const { send, port, ada, token, store } = await startNotes(t);
      const last = String(store.seq);
      await send("DELETE", "notes/1", undefined, ada);
      const marks = Array.from({ length: 10_000 }, (_, index) => index + 1);
      store.apply(
        marks.map((id) => ["put", "marks", { id, owner_id: 3 }] as const),
        0,
      );
      store.apply(marks.map((id) => ["del", "marks", id] as const), 0);
      await send("POST", "books", { title: "the end" });
      const [own, all] = [
        await follow(port, ada, last),
        await follow(port, token, last),
      ];
      assert.equal((await own.next()).type, "reset");
      assert.equal((await own.next()).type, "books.created");
      assert.equal((await all.next()).type, "notes.deleted");
      own.cut();
      all.cut();
    },
  );
});
