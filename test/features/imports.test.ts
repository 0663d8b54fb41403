/** Imports, exports and tasks: CONTRACT section 8. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { book, linesOf, listed, ndjson, startLibrary } from "./library.ts";

const library = await startLibrary({
  FEATURES: "imports,aggregates,idempotency,batches",
});
const { request, importLines, ended } = library;
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
        book(11, { created_at: future, title: "x".repeat(70_000) }),
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
    imported: 5,
    rejected: 13,
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
    14,
    "9780000000014",
    null,
  ]);
});

test("The highest role may go as far up as it likes", async () => {
  const lines = linesOf([{ text: "a", id: 5_000_000 }, {
    text: "b",
    id: 2 ** 53 - 1,
  }]);
  const { imported, errors } = await importLines("admin", "/notes", lines);
  assert.deepEqual([imported, listed({ errors })], [1, { 2: "id range" }]);
  assert.equal(
    (await request("member", "POST /notes", { text: "c" })).json.id,
    5_000_001,
  );
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
    book(104, { sequel_of_id: 105 }),
    book(105),
  ]);
  const task = await importLines("librarian", "/books", lines);
  assert.deepEqual(listed(task), {
    1: "id unique, isbn unique",
    4: "author_id reference",
    5: "sequel_of_id reference",
  });
  assert.deepEqual([task.lines, task.imported, task.rejected], [6, 5, 1]);
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

/** Lines of which the first refer to the last, so that all are read twice. */
const many = linesOf(
  Array.from(
    { length: 3000 },
    (_, at) => book(1000 + at, { id: 1000 + at, sequel_of_id: 3999 - at }),
  ),
);

test("An import survives crashes, each line in exactly once", async () => {
  const { status, json, headers } = await request(
    "librarian",
    "POST /books",
    many,
    {
      ...ndjson,
      "Idempotency-Key": "many",
    },
  );
  assert.equal(status, 202);
  for (let crash = 0; crash < 4; crash++) {
    await new Promise((resolve) => setTimeout(resolve, 30 * crash));
    await library.restart();
  }
  const repeat = await request("librarian", "POST /books", many, {
    ...ndjson,
    "Idempotency-Key": "many",
  });
  assert.deepEqual([repeat.status, repeat.headers["location"]], [
    202,
    headers["location"],
  ]);
  const task = await ended("librarian", json.id);
  assert.deepEqual([task.lines, task.imported, task.rejected], [3000, 3000, 0]);
  const found = await request(
    "librarian",
    "GET /books?id:gte=1000&sequel_of_id:ne=null&limit=1",
  );
  assert.equal(found.headers["x-total-count"], "3000");
});
