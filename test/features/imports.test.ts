/** Imports, exports and tasks: CONTRACT section 8. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { appendFileSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import {
  ahead,
  authorize,
  beside,
  fileOf,
  outputOf,
  preload,
  send,
  temporaryFolder,
} from "../server.ts";
import { book, linesOf, listed, ndjson, startLibrary } from "./library.ts";

const library = await startLibrary({
  FEATURES: "imports,aggregates,idempotency,batches,conditional",
});
const { request, expect, count, importLines, ended } = library;
await importLines("admin", "/books", linesOf([book(0, { title: "First" })]));

/** Returns a record. */
const get = async (path: string) =>
  (await request("admin", `GET ${path}`)).json;
const past = "2001-02-03T04:05:06.789Z";
const future = "2999-01-01T00:00:00Z";

test("Each line is judged like a POST, in order", async () => {
  const task = await importLines(
    "librarian",
    "/books",
    [
      linesOf([book(1), book(1)]),
      "\n \r\n",
      linesOf([
        book(2, { id: 10, created_at: past }),
        book(3, { id: 10 }),
        book(4, { id: 9 }),
        book(5, { id: 1_000_011 }),
        book(6, { id: 0 }),
        book(7, { id: 11, created_at: future }),
        book(8, { id: 11, updated_at: "now" }),
        book(9, { genre: "x", pages: 0 }),
        book(10, {
          id: 12,
          created_at: past,
          updated_at: "2002-01-01T01:00:00+01:00",
        }),
        book(11, { created_at: future, title: "x".repeat(300_000) }),
        book(12, { created_at: future }),
        book(13, { owner_id: 1 }),
      ]),
      '[1]\n{"title":\n\xff\n',
      JSON.stringify(book(14, { author_id: 999 })),
    ].join(""),
  );
  assert.deepEqual(listed(task), {
    2: "isbn unique",
    6: "id unique",
    7: "id unique",
    8: "id range",
    9: "id range",
    10: "created_at range, updated_at range",
    11: "updated_at format",
    12: "genre enum, pages range",
    14: "format",
    16: "owner_id unknown",
    17: "format",
    18: "format",
    19: "format",
    20: "author_id reference",
  });
  const { status, lines, imported, rejected, type, collection } = task;
  assert.deepEqual({ status, lines, imported, rejected, type, collection }, {
    status: "succeeded",
    lines: 20,
    imported: 4,
    rejected: 14,
    type: "import",
    collection: "books",
  });
  const { created_at, updated_at } = await get("/books/10");
  assert.deepEqual([created_at, updated_at], [past, past]);
  const twelve = await get("/books/12");
  assert.deepEqual(
    [twelve.created_at, twelve.updated_at],
    [past, "2002-01-01T00:00:00.000Z"],
  );
  const [last] = await get("/books?sortby=id&order=desc&limit=1");
  assert.deepEqual([last.id, last.isbn, last.author_id], [
    13,
    "9780000000012",
    null,
  ]);
});

test("The first 100 rejected lines are listed, with ten errors each", async () => {
  const bad = Object.fromEntries("abcdefghijkl".split("").entries());
  const lines = linesOf(Array(101).fill(bad));
  const { rejected, errors } = await importLines("admin", "/notes", lines);
  const counts = errors.map(({ errors }) => errors.length);
  assert.deepEqual([rejected, counts], [101, Array(100).fill(10)]);
});

test("The highest role may go as far up as it likes", async () => {
  const lines = linesOf([{ text: "a", id: 5_000_000 }, {
    text: "b",
    id: 2 ** 53 - 1,
  }]);
  const { imported, errors } = await importLines("admin", "/notes", lines);
  assert.deepEqual([imported, listed({ errors })], [1, { 2: "id range" }]);
  const { json } = await request("member", "POST /notes", { text: "c" });
  assert.equal(json.id, 5_000_001);
});

test("A reference to a later line is set at the end", async () => {
  const lines = linesOf([
    book(0, { id: 1, sequel_of_id: 102 }), // rejected, so nothing of it counts
    book(101, {
      id: 101,
      sequel_of_id: 102,
      updated_at: past,
      created_at: past,
    }),
    book(102, { id: 102, sequel_of_id: 104 }),
    book(103, { id: 103, sequel_of_id: 101, author_id: 999 }),
    book(104, { sequel_of_id: 105 }), // without an id it is judged at once
    book(105),
    book(106),
    book(107, { id: 105, sequel_of_id: 101 }), // rejected too
  ]);
  const task = await importLines("librarian", "/books", lines);
  assert.deepEqual(listed(task), {
    1: "id unique, isbn unique",
    4: "author_id reference",
    5: "sequel_of_id reference",
    8: "id unique",
  });
  assert.deepEqual([task.lines, task.imported, task.rejected], [8, 5, 3]);
  const shown = await get(
    "/books?id:gte=101&sortby=id&fields=sequel_of_id,updated_at",
  );
  assert.deepEqual(
    shown.map((
      { id, sequel_of_id }: Record<string, number>,
    ) => [id, sequel_of_id]),
    [[101, 102], [102, 104], [103, 101], [104, null], [105, null]],
  );
  assert.equal(shown[0].updated_at, past);
  assert.equal((await get("/books/1")).sequel_of_id, null);
});

test("Tasks belong to who made them", async () => {
  const { id } = await importLines(
    "member",
    "/notes",
    linesOf([{ text: "Mine" }, {}]),
  );
  assert.deepEqual((await request("member2", "GET /tasks")).json, []);
  const { json: [listed] } = await request("member", "GET /tasks?rejected=1");
  assert.equal(listed.id, id);
  for (
    const [who, line, status] of [
      ["anyone", `GET /tasks/${id}`, 401],
      ["member2", `GET /tasks/${id}`, 404],
      ["member2", `DELETE /tasks/${id}`, 404],
      ["admin", `GET /tasks/${id}`, 200],
      ["member", "GET /tasks?aggregate=count&by=errors", 400],
      ["member", "PUT /tasks/1", 405],
      ["member", `DELETE /tasks/${id}`, 204],
      ["member", `GET /tasks/${id}`, 410],
    ] as const
  ) await expect(status, who, line);
  const notes = await request("member2", "GET /notes");
  assert.deepEqual(notes.json, []);
});

test("An import is refused at once for what a POST is refused for", async () => {
  const rows: [string, string, number, object?, string?][] = [
    ["anyone", "/books", 40100],
    ["member", "/books", 40300],
    ["admin", "/users", 41500],
    ["librarian", "/books/999999/sequels", 40401],
    ["librarian", "/books", 40001, {}, ""],
    ["librarian", "/books?limit=1", 40003],
    ["librarian", "/books", 41200, { "If-Match": '"x"' }],
  ];
  for (const [who, path, code, fields, body = "{}\n"] of rows) {
    const headers = { ...ndjson, ...fields };
    await expect(code, who, `POST ${path}`, body, headers);
  }
});

test("A body of which nothing comes for 30 s gets 408", async () => {
  const { server, tokenOf } = await startLibrary({
    FEATURES: "imports",
    NODE_OPTIONS: preload("features/hasty"),
  });
  const token = await tokenOf("admin");
  const types = ["application/json", "application/x-ndjson"];
  await Promise.all(types.map(async (type) => {
    const request = httpRequest(`${server.origin}/v1/wishes`, {
      method: "POST",
      headers: { "Content-Type": type, Authorization: `Bearer ${token}` },
    });
    request.write("{}\n");
    const [response] = await once(request, "response");
    assert.equal(response.statusCode, 408);
  }));
});

const other = await startLibrary({ FEATURES: "imports" });

test("What is exported goes in again", async () => {
  const asLines = { Accept: "application/x-ndjson" };
  const { text, headers } = await request(
    "admin",
    "GET /books?sortby=id",
    undefined,
    asLines,
  );
  assert.equal(headers["content-type"], "application/x-ndjson");
  assert.doesNotMatch(text, /url/);
  const task = await other.importLines("librarian", "/books", text);
  assert.deepEqual([task.imported, task.rejected], [
    text.split("\n").length - 1,
    0,
  ]);
  const again = await other.request(
    "admin",
    "GET /books?sortby=id",
    undefined,
    asLines,
  );
  assert.equal(again.text, text);
  const some = await request(
    "admin",
    "GET /books?id=101&fields=title,url",
    undefined,
    asLines,
  );
  assert.equal(some.text, '{"id":101,"title":"Book 101"}\n');
  const none = await request("admin", "GET /books?id=1", undefined, {
    ...asLines,
    "If-None-Match": "*",
  });
  assert.equal(none.status, 304); // what is empty has a tag too
});

test("An ended task is gone after 7 days", async () => {
  for (const [days, status] of [[6, 200], [8, 410]] as const) {
    await other.restart("SIGTERM", ahead(days * 86_400_000));
    const { origin } = other.server;
    const headers = await authorize(origin); // again, as the first one has expired
    const answer = await send(origin, "/v1/tasks/1", { headers });
    assert.equal(answer.status, status);
  }
});

test("The command sets references between its files at the end", async () => {
  const folder = temporaryFolder();
  const from = join(folder, "in");
  mkdirSync(from);
  const files = {
    books: [
      book(1, { id: 1, author_id: 5, sequel_of_id: 2 }),
      book(2, { id: 2, author_id: 77 }),
      book(3, { author_id: 5 }),
      book(4, { isbn: "x" }),
    ],
    notes: [{ id: 4, text: "Of nobody", owner_id: 3, book_id: 1 }],
    loans: [{ // declared before books
      book_id: 1,
      due_on: "2026-12-24",
      remark: "😀".repeat(30_000), // with the rest longer than a body
    }],
    authors: [{ id: 5, name: "Author" }],
  };
  for (const [name, records] of Object.entries(files)) {
    writeFileSync(join(from, `${name}.ndjson`), linesOf(records));
  }
  const environment = {
    COLLECTIONS: beside("library"),
    DATA_DIR: join(folder, "store"),
  };
  const output = await outputOf(["import", "--from", from], environment, 1);
  assert.match(output, /imported 6, rejected 1/);
  assert.match(output, /books\.ndjson:2: "author_id" is 77/);
  assert.match(output, /books\.ndjson:4: "isbn"/);
  const notes = await outputOf(["export", "notes"], environment);
  assert.match(notes, /"owner_id":null/); // there is no such user
  const exported = await outputOf(["export", "books"], environment);
  const references = exported.trim().split("\n").map((line) => JSON.parse(line))
    .map(({ author_id, sequel_of_id }) => [author_id, sequel_of_id]);
  assert.deepEqual(references, [[5, 2], [null, null], [5, null]]);
});

/** Lines of which the first refer to the last, so that all are read twice. */
const many = linesOf(
  Array.from(
    { length: 3000 },
    (_, at) => book(1000 + at, { id: 1000 + at, sequel_of_id: 3999 - at }),
  ),
);

test("An import survives crashes, each line in exactly once", async () => {
  // A restart reads the declaration from a snapshot, which comes after 8 MiB.
  const notes = Array(330).fill({ text: "€".repeat(1000) });
  while (!readdirSync(library.options.DATA_DIR).includes("snapshot-2.jsonl")) {
    await expect(201, "librarian", "POST /notes", notes);
  }
  const begin = () =>
    expect(202, "librarian", "POST /books", many, {
      ...ndjson,
      "Idempotency-Key": "many",
    });
  const { json, headers } = await begin();
  const task = `GET /tasks/${json.id}`;
  for (const lines of [0, 1000, 2000]) {
    for (let now = json; now.lines < lines && !now.ended_at;) {
      now = (await request("librarian", task)).json;
    }
    await library.restart();
  }
  const repeat = await begin();
  assert.equal(repeat.headers["location"], headers["location"]);
  const { lines, imported, rejected } = await ended("librarian", json.id);
  assert.deepEqual([lines, imported, rejected], [3000, 3000, 0]);
  const path = "/books?id:gte=1000&sequel_of_id:ne=null&limit=1";
  assert.equal(await count(path), 3000);
});

test("Imports whose outcome a failed disk leaves open are resumed", async () => {
  await other.tokenOf("librarian");
  // Another process changes the log, so a write fails when it is on the disk.
  appendFileSync(join(other.options.DATA_DIR, "wal-1.jsonl"), "\0");
  const lines = linesOf([{ text: "Kept" }]);
  const post = () => other.request("librarian", "POST /notes", lines, ndjson);
  await Promise.all([post(), post(), post(), post()]);
  await other.restart("SIGTERM");
  const tasks = await other.request("librarian", "GET /tasks");
  for (const { id } of tasks.json) {
    assert.equal((await other.ended("librarian", id)).status, "succeeded");
  }
});

test("An import ends when its sender or the declaration is gone", async () => {
  await request("member3", "GET /notes"); // who is created now
  const [{ id: sender }] =
    (await request("admin", "GET /users?username=member3")).json;
  const begin = async (who: string) => {
    const lines = linesOf(
      Array.from({ length: 20_000 }, () => ({ text: "many" })),
    );
    const { json } = await request(who, "POST /notes", lines, ndjson);
    return json.id;
  };
  const id = await begin("member3");
  await expect(204, "admin", `DELETE /users/${sender}`);
  const { status, lines, imported, message } = await ended("admin", id);
  assert.deepEqual([status, imported], ["failed", lines]);
  assert.match(message, new RegExp(`line ${lines}, .*sender`));
  const other = await begin("admin");
  const COLLECTIONS = fileOf(
    "library.mjs",
    `import library from ${JSON.stringify(beside("library"))};
    export default (words) => library({ __proto__: words, string: (options) =>
      words.string({ ...options, maxLength: options.maxLength + (options.maxLength === 1000) }) });`,
  );
  await library.restart("SIGKILL", {
    COLLECTIONS,
    FEATURES: "imports,evolution",
  });
  const failed = await ended("admin", other);
  assert.match(failed.message, /declaration has changed/);
  const found = await count("/notes?text=many&limit=1");
  assert.equal(found, failed.lines + lines);
});
