import { strict as assert } from "node:assert";
import { once } from "node:events";
import { connect } from "node:net";
import { describe, test } from "node:test";
import type { ApiDeclaration } from "../../src/api/declaration/api.ts";
import { declareApi } from "../../src/api/declaration/api.ts";
import type { Declaration } from "../../src/api/declaration/declaration.ts";
import { vocabulary } from "../../src/cli/declaration/checked-vocabulary.ts";
import { asExport } from "../../src/api/query/export.ts";
import { parseQuery } from "../../src/api/query/parameters.ts";
import { showNdjson } from "../../src/api/formats/ndjson.ts";
import { listRecords } from "../../src/api/records/reading.ts";
import { loadSeed } from "../../src/api/seed.ts";
import { operatorContext } from "../operator.ts";
import { select } from "../../src/api/query/select.ts";
import { recordsOf } from "../../src/api/records/local.ts";
import { openDataFolder } from "../../src/data-folder.ts";
import { loadFeatures } from "../../src/features.ts";
import type { Answer } from "../harness.ts";
import { lacks, removeFolder, temporaryFolder } from "../harness.ts";
import { notes as declaration, startNotes } from "../library.ts";
import { fetchLines, fromLines, importLines, toLines } from "../lines.ts";
import { featureNames } from "../../src/features.ts";

const ids = ({ body }: Answer) => body.map(({ id }: { id: number }) => id);

describe("private records", () => {
  test(
    "have an ETag that changes with one's own records, never with those of others",
    {
      skip: lacks("conditional"),
    },
    async (t) => {
      const { send, ada, bob } = await startNotes(t);
      for (const path of ["notes", "books/1/notes", "notes?text:contains=a"]) {
        const read = async () => {
          const { headers } = await send("GET", path, undefined, ada);
          return headers.get("etag") ?? "";
        };
        const seen = new Set([await read()]);
        const note = { text: "a", book_id: 1 };
        const other = await send("POST", "notes", note, bob);
        await send("PATCH", `notes/${other.body.id}`, { text: "b" }, bob);
        assert.ok(seen.has(await read()), path);
        await send("DELETE", `notes/${other.body.id}`, undefined, bob);
        assert.ok(seen.has(await read()), path);
        const changes = [
          await send("POST", "notes", note, ada),
          await send("POST", "notes", note, ada),
        ].map(({ body }) => `notes/${body.id}`);
        const steps: [string, string, object?][] = [
          ["PATCH", changes[0] ?? "", { text: "b" }],
          ["DELETE", changes[1] ?? ""],
          ["POST", "notes", note],
          ["DELETE", changes[0] ?? ""],
        ];
        assert.ok(!seen.has(await read()), path);
        seen.add(await read());
        for (const [method, url, body] of steps) {
          const { status } = await send(method, url, body, ada);
          assert.ok(status < 300, `${method} ${url} ${status}`);
          assert.ok(!seen.has(await read()), `${method} ${path}`);
          seen.add(await read());
        }
      }
    },
  );

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
      if (!featureNames.includes("imports")) continue;
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
      refused.body.errors[0]?.message,
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
    assert.deepEqual(body.schema.properties?.owner_id?.type, [
      "integer",
      "null",
    ]);
    assert.equal(body.schema.properties?.owner_id.readOnly, true);
    assert.deepEqual(body.writable, ["book_id", "draft_of_id", "text"]);
  });

  test("of a deleted user stay, for the highest role alone to see, change and delete", async (t) => {
    const { send, ada, bob, join } = await startNotes(t);
    assert.equal((await send("DELETE", "users/2")).status, 204);
    assert.equal((await send("GET", "notes/1", undefined, ada)).status, 401);
    assert.equal((await send("GET", "notes/1", undefined, bob)).status, 404);
    // No id is used twice: a new user of that name is not the owner.
    const again = await join("ada");
    assert.deepEqual(ids(await send("GET", "notes", undefined, again)), []);
    const found = await send("GET", "notes?owner_id=2");
    assert.deepEqual(ids(found), [1]);
    const put = await send("PATCH", "notes/1", { text: "kept" });
    assert.equal(put.status, 201, put.text);
    assert.equal(put.body.owner_id, 2);
    assert.equal((await send("DELETE", "notes/1")).status, 204);
  });

  const noValidators = { skip: !featureNames.includes("conditional") };
  test(
    "have different validators for different owners",
    noValidators,
    async (t) => {
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
    },
  );

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
        task.errors[0]?.errors[0]?.message ?? "",
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

  test("of all users are not shown to somebody who lost the highest role while waiting", async (t) => {
    const { store } = await startNotes(t);
    const records = recordsOf(store, declaration, "notes");
    const { roles } = declaration;
    const actor = (role: string) => {
      const grants = roles.grantsOf(role);
      assert.ok(grants);
      return { id: 1, role, grants };
    };
    const newContext = () => {
      const context = operatorContext({
        method: "GET",
        caller: actor("admin"),
        scope: () => records.scopeOf(context),
        afterWaiting: async (promise, resume) => {
          const value = await promise;
          context.caller = context.authenticate();
          return await resume(value);
        },
        authenticate: () => actor("editor"),
      }, {
        /** As a feature that searches in steps. */
        select: async (query, selection) => {
          await Promise.resolve();
          return await select(query, selection);
        },
      });
      return context;
    };
    // Enough of them that an export is read in parts.
    const notes = Array.from(
      { length: 20_000 },
      (_, index) => ["put", "notes", { id: index + 3, text: "of" }] as const,
    );
    store.apply(notes, 0);
    const search = new Map([["text:contains", "of"]]);
    const query = parseQuery(records.collection, search);
    const refused = { code: 40300 };
    await assert.rejects(
      async () => await listRecords(records, newContext(), query),
      refused,
    );
    const all = asExport(parseQuery(records.collection, new Map()));
    const show = showNdjson(records.representation);
    const read = async (roleNow: string) => {
      const context = newContext();
      context.authenticate = () => actor("admin");
      const { stream } = await listRecords(records, context, all, show);
      context.authenticate = () => actor(roleNow);
      let text = "";
      for await (const part of stream?.() ?? []) text += part;
      return fromLines(text).length;
    };
    await assert.rejects(() => read("editor"), refused);
    assert.equal(await read("admin"), 20_002);
  });

  const noExports = { skip: !featureNames.includes("imports") };
  test(
    "are not exported to their owner after signing out",
    noExports,
    async (t) => {
      const app = await startNotes(t);
      const { store, request, port, ada } = app;
      const owner_id = store.table("notes").get(1)?.document["owner_id"];
      assert.ok(owner_id);
      const note = { text: "of".repeat(400), book_id: 1, owner_id };
      store.apply(
        Array.from(
          { length: 20_000 }, // more than the buffers of a socket hold
          (_, index) => ["put", "notes", { ...note, id: index + 3 }] as const,
        ),
        0,
      );
      const socket = connect(port, "127.0.0.1");
      socket.write(
        `GET /v1/notes HTTP/1.1\r\nHost: a\r\nAccept: application/x-ndjson\r\nAuthorization: Bearer ${ada}\r\n\r\n`,
      );
      await once(socket, "readable");
      const signedIn = await request("GET", "/v1/authorizations", {
        token: ada,
      });
      const path = `/v1/authorizations/${signedIn.body[0]?.id}`;
      const { status } = await request("DELETE", path, { token: ada });
      assert.equal(status, 204);
      let text = "";
      socket.on("error", () => {}).on("data", (bytes) => text += bytes);
      await once(socket, "close");
      assert.match(text, /^HTTP\/1\.1 200 /);
      assert.doesNotMatch(text, /\r\n0\r\n\r\n$/, "it is incomplete");
    },
  );

  test("say in the OpenAPI document that each user has their own", {
    skip: lacks("openapi"),
  }, async (t) => {
    const { send } = await startNotes(t);
    const { body } = await send("GET", "openapi.json");
    const { get } = body.paths["/v1/books/{book_id}/notes"] ?? {};
    assert.match(
      get?.description ?? "",
      /^Requires the role member\. Each user has their own records; only the role admin has those of all\./,
    );
    const { owner_id } = body.components.schemas["NotePart"]?.properties ?? {};
    assert.deepEqual(owner_id?.type, ["integer", "null"]);
    const other = body.paths["/v1/quotes"]?.["get"]?.description;
    assert.match(other ?? "", /^Requires the role member\.(?!.*their own)/);
  });

  test("are unique among those of their owner, whoever changes them", async (t) => {
    const { string, unique } = vocabulary;
    const text = string({ maxLength: 9 });
    const api = withChange(declaration, "marks", {
      properties: { title: unique(text), place: text, shelf: text },
      unique: [["place", "shelf"]],
    });
    const app = await startNotes(t, () => api);
    const { send, ada, bob, token, store } = app;
    const mark = { title: "one", place: "a", shelf: "b" };
    const codes = ({ body }: Answer) =>
      body.errors?.map(({ field, code }) => `${field} ${code}`);
    for (const owner of [ada, bob, token]) {
      assert.equal((await send("POST", "marks", mark, owner)).status, 201);
      const twice = await send("POST", "marks", mark, owner);
      assert.deepEqual(codes(twice), ["title unique", "place unique"]);
    }
    const other = { title: "two", place: "a", shelf: "c" };
    await send("POST", "marks", other, bob);
    for (const [method, json] of [["PATCH", {}], ["PUT", mark]] as const) {
      const change = { ...json, title: "ONE", shelf: "b" };
      const refused = await send(method, "marks/4", change, token);
      assert.deepEqual(codes(refused), ["title unique", "place unique"]);
    }
    assert.equal(
      (await send("PATCH", "marks/4", { title: "One" })).status,
      422,
    );
    assert.equal((await send("PATCH", "marks/1", other, token)).status, 201);
    const nobodys = JSON.stringify({ marks: [{ ...mark, title: "new" }] });
    const again = JSON.stringify({ marks: [{ ...other, title: "NEW" }] });
    loadSeed(store, api, nobodys);
    loadSeed(store, api, again); // they may have been of different users
  });

  test("must be unique among all records once they are no longer private", {
    skip: lacks("evolution"),
  }, async (t) => {
    const [feature] = await loadFeatures(["evolution"]);
    const folder = await temporaryFolder();
    t.after(() => removeFolder(folder));
    const { string, unique } = vocabulary;
    const title = unique(string({ maxLength: 9 }));
    const api = (isPrivate: boolean) =>
      withChange(declaration, "marks", {
        private: isPrivate,
        properties: { title },
      });
    const store = await openDataFolder(folder, api(true));
    store.apply(
      [1, 2].map((id) => ["put", "marks", { id, title: "a", owner_id: id }]),
      0,
    );
    await store.close();
    await assert.rejects(
      () => openDataFolder(folder, api(false), { ...feature }),
      /marks\.title/,
    );
    await (await openDataFolder(folder, api(true))).close();
  });

  test("that others already refer to can be sent back as they were read", async (t) => {
    const { send, ada, token } = await startNotes(t);
    const quote = { note_id: 2, place: "1" };
    await send("POST", "quotes", quote, token);
    const same = { ...quote, place: "2" };
    assert.equal((await send("PUT", "quotes/1", same, ada)).status, 201);
    await send("POST", "quotes", { note_id: 1, place: "3" }, ada);
    assert.equal((await send("PUT", "quotes/2", quote, ada)).status, 422);
  });

  test(
    "belong to the owner that the highest role or the command line names when they are copied",
    {
      skip: lacks("imports"),
    },
    async (t) => {
      const app = await startNotes(t);
      const { store, token } = app;
      const raw = toLines(
        [3, null, undefined, 99, "3", 0].map((owner_id) => ({
          text: "I",
          book_id: 1,
          owner_id,
        })),
      );
      const task = await importLines(app, "/v1/notes", { token, raw });
      assert.deepEqual([task.imported, task.rejected], [4, 2]);
      for (const { errors } of task.errors) {
        assert.deepEqual(errors, [{
          field: "owner_id",
          code: "reference",
          message: '"owner_id" must be null or the id of a user.',
        }]);
      }
      const owners = (name: string) =>
        store.table(name).rows().map(({ document }) => document["owner_id"]);
      assert.deepEqual(owners("notes"), [2, 3, 3, null, 1, null]); // nobody is 99
      const seed = (owner_id: unknown) =>
        loadSeed(store, declaration, JSON.stringify({ marks: [{ owner_id }] }));
      seed(2);
      seed(null);
      seed(99);
      assert.throws(
        () => seed("2"),
        /marks\[0\] in the seed: "owner_id" must be/,
      );
      assert.deepEqual(owners("marks"), [2, null, null]);
    },
  );
});

/** Returns an API with other options of one collection. */
function withChange(
  { roles, collections }: ApiDeclaration,
  name: string,
  options: Partial<Declaration>,
): ApiDeclaration {
  return declareApi({
    roles: roles.names,
    collections: collections.map((each) =>
      each.name === name ? { ...each, ...options } : each
    ),
  });
}
