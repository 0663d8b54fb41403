import { strict as assert } from "node:assert";
import { describe, test } from "node:test";
import { declareApi } from "../../src/api/declaration/api.ts";
import { vocabulary } from "../../src/api/declaration/vocabulary.ts";
import { parseQuery } from "../../src/api/query/parameters.ts";
import { listRecords } from "../../src/api/records/reading.ts";
import { loadSeed } from "../../src/cli/seed.ts";
import { operator, recordsOf } from "../../src/data-folder.ts";
import type { Answer } from "../harness.ts";
import { lacks } from "../harness.ts";
import { startLibrary } from "../library.ts";
import { fetchLines, fromLines, importLines } from "../lines.ts";
import { follow } from "../features/events/follower.ts";

const { collection, string, optional, reference } = vocabulary;

const access = { read: "member", write: "member", delete: "member" };
const text = string({ maxLength: 20 });

const declaration = declareApi({
  title: "Notes",
  roles: ["member", "editor", "admin"],
  collections: [
    collection({
      name: "books",
      singular: "book",
      access: { ...access, read: "anyone" },
      properties: { title: text },
    }),
    collection({
      name: "notes",
      singular: "note",
      private: true,
      access,
      properties: {
        book_id: reference("books"),
        draft_of_id: optional(reference("notes", { as: "drafts" })),
        text,
      },
      check: ({ text }) => text === "bad" ? { text: "must not be bad" } : null,
    }),
    collection({
      name: "quotes",
      singular: "quote",
      access,
      properties: { note_id: reference("notes"), place: text },
    }),
    collection({
      name: "marks",
      singular: "mark",
      private: true,
      access,
      properties: { book_id: optional(reference("books")) },
    }),
  ],
});

/** Starts the API with a book, and one note of Ada and one of Bob in it. */
async function startNotes(t: { after(end: () => unknown): void }) {
  const app = await startLibrary({ declaration });
  t.after(() => app.stop());
  const { send } = app;
  const ada = await app.join("ada");
  const bob = await app.join("bob");
  await send("POST", "books", { title: "A" });
  await send("POST", "notes", { book_id: 1, text: "of Ada" }, ada);
  await send("POST", "books/1/notes", { text: "of Bob" }, bob);
  return { ...app, ada, bob };
}

const ids = ({ body }: Answer) => body.map(({ id }: { id: number }) => id);

describe("private records", () => {
  test("are listed, counted and exported to their owner and the highest role alone", async (t) => {
    const app = await startNotes(t);
    const { send, ada, bob, token } = app;
    const users = [[ada, [1]], [bob, [2]], [token, [1, 2]]] as const;
    for (const [token, expected] of users) {
      for (
        const path of [
          "notes",
          "books/1/notes",
          "notes?sortby=text&order=desc",
          "notes?text:contains=of",
          "notes?id:in=1,2",
          "books/1/notes?owner_id:gt=1",
        ]
      ) {
        const answer = await send("GET", path, undefined, token);
        assert.deepEqual(ids(answer).sort(), expected, path);
        assert.equal(
          answer.headers.get("x-total-count"),
          String(expected.length),
        );
      }
      const exported = await fetchLines(app, "/v1/notes", token);
      const lines = fromLines(exported.text);
      assert.deepEqual(lines.map(({ id }) => id), expected);
    }
    const found = await send("GET", "notes?owner_id=3");
    assert.deepEqual(ids(found), [2]);
    const others = await send("GET", "notes?owner_id=3", undefined, ada);
    assert.deepEqual(ids(others), []);
    const editor = await app.join("eve", "editor");
    const none = await send("GET", "notes", undefined, editor);
    assert.deepEqual(ids(none), []);
  });

  test("do not exist for others, by any method and URL", async (t) => {
    const { send, ada, bob, store } = await startNotes(t);
    await send("DELETE", "notes/1", undefined, ada);
    const at = { note_id: 2, place: "1" };
    assert.equal((await send("POST", "quotes", at, bob)).status, 201);
    const { seq } = store;
    const methods = ["GET", "HEAD", "PUT", "PATCH", "DELETE"];
    for (const path of ["notes/", "books/1/notes/"]) {
      for (const method of methods) {
        const json = { text: "x", book_id: 1 };
        const body = method.startsWith("P") ? json : undefined;
        const about = async (id: number) => {
          const answer = await send(method, `${path}${id}`, body, ada);
          return [answer.status, answer.text.replaceAll(`note ${id}`, "")];
        };
        // 1 was deleted, 2 is Bob's, 3 never existed: there is no difference.
        const [status, text] = await about(2);
        assert.equal(status, 404);
        assert.deepEqual(await about(1), [404, text], `${method} ${path}`);
        assert.deepEqual(await about(3), [404, text], `${method} ${path}`);
      }
    }
    for (
      const path of ["notes/2/quotes", "notes/2/quotes/1", "notes/2/drafts"]
    ) {
      const answer = await send("GET", path, undefined, ada);
      assert.equal(answer.body.error, "There is no note 2.");
    }
    const posted = await send("POST", "notes/2/quotes", { place: "2" }, ada);
    assert.equal(posted.status, 404);
    assert.equal(store.seq, seq);
    assert.equal((await send("GET", "notes/1")).status, 410);
  });

  test("cannot be referred to by others", async (t) => {
    const { send, ada, bob, token } = await startNotes(t);
    const quote = { note_id: 2, place: "1" };
    const refused = await send("POST", "quotes", quote, ada);
    assert.equal(
      refused.body.errors[0].message,
      '"note_id" is 2, which does not exist: it must be the id of one of the notes.',
    );
    assert.equal((await send("POST", "quotes", quote, bob)).status, 201);
    assert.equal((await send("POST", "quotes", quote, token)).status, 201);
    const draft = { draft_of_id: 2 };
    assert.equal((await send("PATCH", "notes/1", draft, ada)).status, 422);
  });

  test("have the read-only id of their owner", async (t) => {
    const { send, ada, token, store } = await startNotes(t);
    const one = await send("GET", "notes/1", undefined, ada);
    assert.equal(one.body.owner_id, 2);
    const names = Object.keys(one.body);
    assert.equal(names[names.indexOf("text") + 1], "owner_id");
    const sent = { book_id: 1, text: "mine", owner_id: 3 };
    const created = await send("POST", "notes", sent, ada);
    assert.equal(created.body.owner_id, 2);
    const put = await send("PUT", "notes/1", { ...sent, text: "new" }, token);
    assert.equal(put.body.owner_id, 2, "whoever changes it");
    assert.deepEqual(Object.keys(put.body), names);
    const loaded = loadSeed(
      store,
      declaration,
      '{"marks":[{"book_id":1}]}',
    );
    await store.durable(loaded.seq);
    assert.deepEqual(ids(await send("GET", "marks?owner_id=null")), [1]);
    assert.deepEqual(ids(await send("GET", "marks", undefined, ada)), []);
    const { body } = await send("OPTIONS", "notes", undefined, ada);
    assert.deepEqual(body.schema.properties.owner_id.type, ["integer", "null"]);
    assert.equal(body.schema.properties.owner_id.readOnly, true);
    assert.deepEqual(body.writable, ["book_id", "draft_of_id", "text"]);
  });

  test("have validators that tell their owners apart", async (t) => {
    const { ada, bob, request, token } = await startNotes(t);
    const etags = [];
    for (const path of ["/v1/notes", "/v1/books/1/notes"]) {
      for (const reader of [ada, bob, token]) {
        const { headers } = await request("GET", path, { token: reader });
        const etag = headers.get("etag") ?? "";
        etags.push(etag);
        for (const [other, status] of [[ada, 200], [bob, 200]] as const) {
          const answer = await request("GET", path, {
            token: other,
            headers: { "if-none-match": etag },
          });
          assert.equal(answer.status, other === reader ? 304 : status);
        }
      }
    }
    assert.equal(new Set(etags).size, etags.length);
    const { headers } = await request("GET", "/v1/notes/1", { token: ada });
    const stolen = { "if-none-match": headers.get("etag") ?? "" };
    for (const method of ["GET", "PATCH", "DELETE"]) {
      const answer = await request(method, "/v1/notes/1", {
        token: bob,
        headers: stolen,
        ...(method === "PATCH" && { json: {} }),
      });
      assert.equal(answer.status, 404);
    }
  });

  test("of others are deleted and changed in a cascade only by the highest role", async (t) => {
    const { send, ada, bob, store } = await startNotes(t);
    const refused = await send("DELETE", "books/1", undefined, ada);
    assert.match(refused.body.error, /The book 1 still has notes: /);
    const path = "books/1?cascade=true";
    const forbidden = await send("DELETE", path, undefined, ada);
    assert.equal(forbidden.status, 403);
    assert.equal(
      forbidden.body.errorMsg,
      "Deleting the book would also delete notes of other users, which requires the role admin.",
    );
    await send("DELETE", "notes/1", undefined, ada);
    assert.equal((await send("DELETE", path, undefined, bob)).status, 204);
    await send("POST", "books", { title: "B" });
    await send("POST", "books/2/marks", {}, bob);
    const changed = await send(
      "DELETE",
      "books/2?cascade=true",
      undefined,
      ada,
    );
    assert.match(changed.body.errorMsg, /also change marks of other users/);
    assert.equal((await send("DELETE", "books/2?cascade=true")).status, 204);
    assert.equal(store.table("marks").get(1)?.document["book_id"], null);
  });

  test(
    "are imported as the sender's own",
    { skip: lacks("imports") },
    async (t) => {
      const app = await startNotes(t);
      const { ada, bob, store } = app;
      const line = (json: object) => `${JSON.stringify(json)}\n`;
      const raw = line({ id: 9, text: "I", owner_id: 3 }) +
        line({ text: "II", draft_of_id: 2 }) + line({ text: "III" });
      const task = await importLines(app, "/v1/books/1/notes", {
        token: ada,
        raw,
      });
      assert.deepEqual([task.imported, task.rejected], [2, 1]);
      assert.match(
        task.errors[0].errors[0].message,
        /is 2, which does not exist/,
      );
      for (const id of [9, 10]) {
        assert.equal(store.table("notes").get(id)?.document["owner_id"], 2);
      }
      const refused = await app.request("POST", "/v1/notes/9/drafts", {
        token: bob,
        raw: line({ text: "IV", book_id: 1 }),
        headers: { "content-type": "application/x-ndjson" },
      });
      assert.equal(refused.status, 404);
    },
  );

  test("are sent in events to their owner and the highest role alone", {
    skip: lacks("events"),
  }, async (t) => {
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
    { skip: lacks("events") },
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
    { skip: lacks("events") },
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

  test("of all users are not shown to somebody who lost the highest role while waiting", async (t) => {
    const { store } = await startNotes(t);
    const records = recordsOf(store, declaration, "notes");
    const { roles } = declaration;
    const actor = (role: string) => {
      const grants = roles.grantsOf(role);
      assert.ok(grants);
      return { id: 1, grants };
    };
    const scope = records.scope();
    const contextOf = (asNdjson: boolean) => {
      const context = {
        ...operator,
        method: "GET",
        asNdjson,
        caller: actor("admin"),
        resolveScope: scope,
        afterWaiting: async <T, R>(
          promise: Promise<T>,
          resume: (value: T) => R | Promise<R>,
        ) => {
          const value = await promise;
          context.caller = context.reauthenticate();
          return await resume(value);
        },
        reauthenticate: () => actor("editor"),
      };
      return context;
    };
    // So many that a search for them waits.
    const notes = Array.from(
      { length: 20_000 },
      (_, index) => ["put", "notes", { id: index + 3, text: "of" }] as const,
    );
    store.apply(notes, 0);
    const search = new Map([["text:contains", "of"]]);
    const query = parseQuery(records.collection, search);
    const refused = { code: 40300 };
    await assert.rejects(
      async () => await listRecords(records, contextOf(false), query),
      refused,
    );
    const all = parseQuery(records.collection, new Map());
    const read = async (roleNow: string) => {
      const context = contextOf(true);
      const { stream } = await listRecords(records, context, all);
      context.reauthenticate = () => actor(roleNow);
      let text = "";
      for await (const part of stream?.() ?? []) text += part;
      return fromLines(text).length;
    };
    await assert.rejects(() => read("editor"), refused);
    assert.equal(await read("admin"), 20_002);
  });

  test("say in the OpenAPI document that each user has their own", {
    skip: lacks("openapi"),
  }, async (t) => {
    const { send } = await startNotes(t);
    const { body } = await send("GET", "openapi.json");
    const { get } = body.paths["/v1/books/{book_id}/notes"];
    assert.equal(
      get.description,
      "Requires the role member. Each user has their own records; only the role admin has those of all.",
    );
    const { owner_id } = body.components.schemas.NotePart.properties;
    assert.deepEqual(owner_id.type, ["integer", "null"]);
    const other = body.paths["/v1/quotes"].get.description;
    assert.equal(other, "Requires the role member.");
  });
});
