/** An API of one's own: CONTRACT section 13, and 11 of collections. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { against, type Row } from "./rows.ts";
import { beside } from "./server.ts";

const book = { title: "Emma", genre: "novel", isbn: "978{n}" };
const loan = { book_id: "{book}", due_on: "2026-02-01" };
const note = { text: "Read on", slug: "s{n}" };
const { forget, request, rows } = await against({
  title: "Library API",
  roles: ["member", "librarian", "admin"],
  collections: ["authors", "books", "loans", "notes"],
  fixtures: {
    author: ["authors", { name: "Author {n}" }],
    strasse: ["authors", { name: "Strasse{n}" }],
    book: ["books", book],
    work: ["books", {
      ...book,
      isbn: "978{n3}",
      author_id: "{author}",
      translator_id: "{author}",
    }],
    sequel: ["books", {
      ...book,
      isbn: "978{n4}",
      sequel_of_id: "{book}",
      title: "Anna",
    }],
    loan: ["loans", loan],
    note: ["notes", note],
    remark: ["notes", { text: "Of a book", book_id: "{book}" }],
    user: ["users", { username: "user{n}", password: "user-password" }],
  },
  environment: { COLLECTIONS: beside("library") },
});

rows("Addresses and names follow from the declaration", [
  ["anyone", "GET /", 200, undefined, {
    shows: {
      authors_url: "/v1/authors",
      notes_url: "/v1/notes",
      zoos_url: undefined,
    },
  }],
  ["anyone", "GET /zoos", 40400],
  ["anyone", "GET /authors/{author}", 200, undefined, {
    shows: {
      books_url: "/v1/authors/{author}/books",
      translations_url: "/v1/authors/{author}/translations",
      born_on: null,
    },
  }],
  ["anyone", "GET /books/{work}", 200, undefined, {
    shows: {
      author_url: "/v1/authors/{author}",
      translator_url: "/v1/authors/{author}",
      sequel_of_url: null,
      sequels_url: "/v1/books/{work}/sequels",
    },
  }],
  ["anyone", "GET /authors/{author}/translations", 200, undefined, {
    with: "{work}{book}",
    shows: [{ id: "{work}" }],
  }],
  ["anyone", "GET /books/{book}/sequels", 200, undefined, {
    with: "{sequel}",
    shows: [{ id: "{sequel}" }],
  }],
  ["librarian", "POST /authors/{author}/translations", 201, book, {
    shows: { translator_id: "{author}", author_id: null },
  }],
  ["anyone", "GET /authors/{author}/sequels", 40400],
  ["anyone", "GET /books?id:in={book},{sequel}&order=desc", 200, undefined, {
    shows: [{ id: "{sequel}" }, { id: "{book}" }],
  }],
  ["anyone", "GET /books?id:in={sequel},{book}", 200, undefined, {
    shows: [{ id: "{sequel}" }, { id: "{book}" }],
  }],
  [
    "anyone",
    "GET /books?id:in={work},{sequel},{book}&sortby=title,id&order=desc,asc",
    200,
    undefined,
    {
      shows: [{ id: "{work}" }, { id: "{book}" }, { id: "{sequel}" }],
    },
  ],
  ["member", "POST /authors", 40300, {}],
  ["librarian", "DELETE /authors/{author}", 40300],
  ["librarian", "GET /users", 40300],
  ["member", "GET /loans", 200],
  ["anyone", "GET /notes", 40100],
]);

const invalid = (
  line: `${string} ${string}`,
  body: object,
  errors: Record<string, string>,
  more = {},
): Row => ["admin", line, 42200, body, { errors, ...more }];
rows("Rules of the declaration hold for each write", [
  ["librarian", "POST /books", 201, {
    ...book,
    published_on: "2001-01-01",
    reprinted_on: "2001-01-01",
  }],
  invalid("POST /books", {
    ...book,
    published_on: "2001-01-02",
    reprinted_on: "2001-01-01",
  }, { reprinted_on: "rule" }),
  ["librarian", "PUT /books/{book}", 201, {
    ...book,
    published_on: "2001-01-01",
  }],
  invalid("PUT /books/{book}", {
    ...book,
    published_on: "2001-01-02",
    reprinted_on: "2001-01-01",
  }, { reprinted_on: "rule" }),
  invalid("PATCH /books/{book}", {
    published_on: "2001-01-02",
    reprinted_on: "2001-01-01",
  }, { reprinted_on: "rule" }),
  invalid("POST /books", { ...book, isbn: "9771234567890" }, {
    isbn: "format",
  }),
  invalid("POST /books", { ...book, genre: "drama" }, { genre: "enum" }),
  invalid("POST /books", { ...book, pages: 0 }, { pages: "range" }),
  invalid("POST /books", { ...book, author_id: 999999 }, {
    author_id: "reference",
  }),
  invalid("PATCH /books/{book}", { isbn: "978{n2}" }, { isbn: "unique" }, {
    with: "{book2}",
  }),
  invalid(
    "POST /loans",
    { ...loan, book_id: "{book}" },
    { book_id: "unique" },
    { with: "{loan}" },
  ),
  ["member", "POST /loans", 201, { ...loan, due_on: "2026-02-02" }, {
    with: "{loan}",
    shows: { returned: false, state: "new", fee: null },
  }],
  ["member", "PUT /loans/{loan}", 201, { ...loan, fee: 0 }],
  invalid("POST /loans", { ...loan, returned: null, state: null, fee: 10.5 }, {
    returned: "type",
    state: "type",
    fee: "range",
  }),
  invalid("POST /loans", { ...loan, returned: "true" }, { returned: "type" }),
  ["member", "POST /loans", 201, {
    ...loan,
    lent_at: "2026-01-31T12:00:00.5+01:00",
  }, { shows: { lent_at: "2026-01-31T11:00:00.500Z" } }],
  ...[
    "2026-01-31T12:00:00.1234Z",
    "2026-01-31",
    "2026-02-30T12:00:00Z",
    "2026-01-31T24:00:00Z",
    "2026-01-31T12:00:00",
  ].map((lent_at) =>
    invalid("POST /loans", { ...loan, lent_at }, { lent_at: "format" }, {
      with: " ",
    })
  ),
  ["member", "POST /loans", 201, { ...loan, remark: "a\r\nb\rc\n\td" }, {
    shows: { remark: "a\nb\nc\n\td" },
  }],
  invalid("POST /loans", { ...loan, remark: "a\u0000" }, { remark: "format" }),
  ["member", "POST /loans", 201, {
    ...loan,
    remark: "\u{1F98A}".repeat(29_900),
  }],
  ["member", "POST /loans", 41300, " ".repeat(120_001)],
  ["anyone", "GET /books?pages=1&genre=poetry", 200, undefined, { shows: [] }],
  ["member", "GET /loans?returned=true&remark:contains=a", 200, undefined, {
    shows: [],
  }],
  ...["sortby=remark", "remark:lt=a", "remark:starts=a", "remark:in=a"].map((
    query,
  ): Row => [
    "member",
    `GET /loans?${query}`,
    /sortby/.test(query) ? 40004 : 40003,
  ]),
]);

rows("unique ignores case, form and space", [
  ...["straße{n}", " STRASSE{n} ", "ＳＴＲＡＳＳＥ{n}"].map((name): Row =>
    invalid("PUT /authors/{author}", { name }, { name: "unique" }, {
      with: "{strasse}",
    })
  ),
]);

rows("DELETE with cascade empties what may be empty", [
  ["admin", "DELETE /authors/{author}", 40900, undefined, {
    with: "{work}",
    says: /1 book/,
  }],
  ["admin", "DELETE /authors/{author}?cascade=true", 204, undefined, {
    with: "{work}",
    changes: ["-/v1/authors/{author}", "/v1/books/{work}"],
  }],
  ["librarian", "DELETE /books/{book}?cascade=true", 204, undefined, {
    with: "{loan}{sequel}",
    changes: ["-/v1/books/{book}", "-/v1/loans/{loan}", "/v1/books/{sequel}"],
  }],
  ["librarian", "DELETE /books/{book}", 40900, undefined, {
    with: "{remark}",
    says: /\bothers\b/,
  }],
  ["librarian", "DELETE /books/{book}", 40900, undefined, {
    with: "{remark}{remark2}",
    says: /^(?!.*\b2\b)/,
  }],
  ["librarian", "DELETE /books/{book}?cascade=true", 40300, undefined, {
    with: "{remark}",
  }],
  ["admin", "DELETE /books/{book}?cascade=true", 204, undefined, {
    with: "{remark}",
    changes: ["-/v1/books/{book}", "/v1/notes/{remark}"],
  }],
]);

rows("A private record is its owner's and the highest role's", [
  ["admin", "GET /notes/{note}", 200, undefined, { shows: { owner_id: 1 } }],
  ...["member"].flatMap((who): Row[] => [
    ...["GET", "PUT", "PATCH", "DELETE"].map((
      method,
    ): Row => [
      who,
      `${method} /notes/{note}`,
      40401,
      /P/.test(method) ? note : undefined,
    ]),
    [who, "GET /notes/{note-gone}", 40401],
  ]),
  ["librarian", "GET /notes", 200, undefined, {
    with: "{note}",
    shows: [],
    has: { "X-Total-Count": "0" },
  }],
  ["librarian", "GET /notes?owner_id=1&sortby=text", 200, undefined, {
    with: "{note}",
    shows: [],
  }],
  ["member", "GET /notes/{note}/replies", 40401],
  ["member", "POST /notes/{note}/replies", 40401, note],
  ["member", "POST /notes", 42200, { ...note, note_id: "{note}" }, {
    errors: { note_id: "reference" },
  }],
  ["admin", "POST /notes/{note}/replies", 201, { text: "Yes" }, {
    shows: { note_id: "{note}" },
  }],
  ["librarian", "GET /books/{book}/notes", 200, undefined, {
    with: "{remark}",
    shows: [],
  }],
  ["librarian", "GET /books/{book}/notes/{remark}", 40401],
  ["member", "POST /notes", 201, note, {
    with: "{note}",
    shows: { owner_id: /^[^1]$/ },
  }],
  ["admin", "POST /notes", 42200, note, {
    with: "{note}",
    errors: { slug: "unique" },
  }],
  ["member", "POST /notes", 42200, { ...note, owner_id: 1 }, {
    errors: { owner_id: "read_only" },
  }],
  ["admin", "POST /notes", 201, { ...note, owner_id: "{user}" }, {
    shows: { owner_id: "{user}" },
  }],
  ["admin", "PATCH /notes/{note}", 201, { owner_id: "{user}" }, {
    shows: { owner_id: "{user}" },
  }],
  ["admin", "POST /notes", 42200, { ...note, owner_id: 999999 }, {
    errors: { owner_id: "reference" },
  }],
]);

test("A private record is shown to its owner alone", async () => {
  const { json } = await request("member", "POST", "/notes", note);
  const status = async (who: string, method = "GET") =>
    (await request(
      who,
      method,
      `/notes/${json.id}`,
      method === "PATCH" ? {} : undefined,
    )).status;
  assert.deepEqual([
    await status("member"),
    await status("librarian"),
    await status("admin"),
  ], [200, 404, 200]);
  const owners = (await request("member", "GET", "/notes?limit=100")).json.map((
    { owner_id }: { owner_id: number },
  ) => owner_id);
  assert.deepEqual([...new Set(owners)], [json.owner_id]);
  assert.deepEqual([
    await status("member", "PATCH"),
    await status("librarian", "PATCH"),
    await status("admin", "PATCH"),
  ], [201, 404, 201]);
  assert.deepEqual([
    await status("librarian", "DELETE"),
    await status("member", "DELETE"),
  ], [404, 204]);
  forget();
});

test("Another role can oversee private records", async () => {
  const { run } = await against({
    title: "API",
    roles: ["viewer", "keeper", "admin"],
    collections: ["drafts"],
    fixtures: { draft: ["drafts", { text: "A" }] },
    environment: { COLLECTIONS: beside("overseen") },
  });
  await run(["anyone", "GET /drafts", 40100]);
  await run(["keeper", "GET /drafts/{draft}", 200]);
  await run(["viewer", "GET /drafts/{draft}", 40401]);
});
