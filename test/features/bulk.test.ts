/** Many records at a time: CONTRACT section 17, and the Idempotency-Key of section 8. */

import { test } from "node:test";
import type { More, Row } from "../rows.ts";
import { book, libraryRows } from "./library.ts";

const { rows, run } = await libraryRows(
  {
    book: ["books", { title: "Emma", genre: "novel", isbn: "978{n}" }],
    work: ["books", {
      title: "Work",
      genre: "novel",
      isbn: "978{n}",
      author_id: "{author}",
    }],
    loan: ["loans", { book_id: "{book}", due_on: "2026-01-01" }],
    note: ["notes", { text: "Mine" }],
    given: ["notes", { text: "Given", note_id: "{note}", owner_id: 2 }],
    remark: ["notes", { text: "Of a book", book_id: "{book}" }],
    wish: ["wishes", { title: "Wish {n}" }],
  },
  { FEATURES: "batches,deletions,aggregates,expand,idempotency" },
);

const author = { name: "A{n}" };
const none = { changes: "" };
const user = { username: "uu", password: "uu-password" };
const pair = [{ name: "B1" }, { name: "B2" }];
/** A row with an Idempotency-Key. */
const keyed = (
  name: string,
  who: string,
  line: `POST ${string}`,
  outcome: number,
  body: unknown,
  more: More = {},
): Row => [who, line, outcome, body, {
  ...more,
  headers: { "Idempotency-Key": name },
}];

rows("A batch creates all records or none", [
  ["anyone", "POST /authors", 40100, [author]],
  ["member", "POST /authors", 40300, [author]],
  ["librarian", "POST /authors", 40002, []],
  ["librarian", "POST /authors", 40002, [author, 1]],
  ["librarian", "POST /authors", 40002, [[author]]],
  ["librarian", "POST /authors", 40002, Array(1001).fill(author)],
  ["librarian", "POST /authors", 42200, Array(1000).fill({}), {
    has: { "Content-Length": /^\d{4}$/ }, // of a hundred
  }],
  ["librarian", "POST /authors", 40001, '[{"name":'],
  ["librarian", "POST /authors", 41300, `[${" ".repeat(1 << 20)}]`],
  ["librarian", "POST /authors", 41300, `{"name":${" ".repeat(70_000)}`],
  ["librarian", "POST /authors?cascade=true", 40003, [author]],
  ["librarian", "POST /authors", 42200, [{ name: "Good" }, {}], {
    errors: "name required",
    shows: { errors: [{ index: 1 }] },
  }],
  ["librarian", "POST /authors", 42200, [{ name: "Same" }, { name: "same " }], {
    errors: "name unique",
    shows: { errors: [{ index: 1 }] },
  }],
  ["admin", "POST /users", 40002, [user]],
  ["librarian", "POST /authors/999999/books", 40401, [{}]],
  ["librarian", "POST /authors", 201, [{ name: "One" }, { name: "Two" }], {
    shows: [{ id: 1, name: "One", url: "/v1/authors/1" }, { id: 2 }],
    changes: "/authors/1 /authors/2",
    has: { Location: undefined },
  }],
  // A record can refer to one before it.
  ["librarian", "POST /authors/1/books", 201, [
    book(1),
    book(2, { sequel_of_id: 1 }),
  ], {
    shows: [{ id: 1, author_id: 1 }, { id: 2, author_id: 1, sequel_of_id: 1 }],
    changes: "/books/1 /books/2",
  }],
  [
    "librarian",
    "POST /authors/1/books",
    42200,
    [book(3, { author_id: 2 })],
    "author_id read_only",
  ],
  ["member", "POST /wishes", 201, [{ title: "No reader" }], {
    changes: "/wishes/1",
  }],
]);

rows("A key makes one record of all repeats", [
  ["librarian", "POST /authors", 40000, author, {
    headers: { "Idempotency-Key": "a b" },
  }],
  ["librarian", "POST /authors", 40000, author, {
    headers: { "Idempotency-Key": "x".repeat(256) },
  }],
  keyed("a", "librarian", "POST /authors", 201, { name: "Key" }, {
    shows: { id: 3 },
    changes: "",
  }),
  keyed("a", "librarian", "POST /authors", 201, { name: "Key" }, {
    shows: { id: 3 },
    changes: "",
  }),
  keyed("a", "librarian", "POST /authors", 42201, { name: "Other" }),
  keyed("a", "admin", "POST /authors", 201, { name: "Another user" }),
  keyed("a", "librarian", "POST /books", 201, book(4)),
  ["librarian", "PATCH /authors/3", 201, { name: "Changed" }, none],
  keyed("a", "librarian", "POST /authors", 201, { name: "Key" }, {
    shows: { id: 3, name: "Changed" },
    changes: "",
  }),
  ["admin", "DELETE /authors/3", 204, none],
  keyed("a", "librarian", "POST /authors", 41000, { name: "Key" }),
  keyed("b", "librarian", "POST /authors", 201, pair, {
    shows: [{ id: 5 }, { id: 6 }],
    changes: "",
  }),
  ["admin", "DELETE /authors/5", 204, none],
  keyed("b", "librarian", "POST /authors", 201, pair, {
    shows: [6],
    changes: "",
  }),
  ["admin", "DELETE /authors/6", 204, none],
  keyed("b", "librarian", "POST /authors", 41000, pair),
  // A failure uses up no key.
  keyed("c", "librarian", "POST /authors", 42200, {}, {
    errors: "name required",
  }),
  keyed("c", "librarian", "POST /authors", 201, { name: "C" }),
  keyed("d", "member", "POST /wishes", 201, { title: "Unread" }),
  keyed("d", "member", "POST /wishes", 201, { title: "Unread" }, {
    changes: "",
    shows: /^$/,
    has: { Location: "/v1/wishes/2" },
  }),
  keyed("u", "admin", "POST /users", 201, user),
  keyed("u", "admin", "POST /users", 201, user, none),
  keyed("u", "admin", "POST /users", 42201, {
    ...user,
    password: "uu-passwort",
  }),
  keyed("u", "admin", "POST /users", 42201, { ...user, username: "uv" }),
]);

rows("A deletion by filter takes all that match or none", [
  ["librarian", "DELETE /loans", 40003],
  ["librarian", "DELETE /loans?limit=5&cascade=true", 40003],
  ["librarian", "DELETE /loans?fee=1&offset=1", 40003],
  ["librarian", "DELETE /loans?fee=1&limit=0", 40004],
  ["librarian", "DELETE /loans?fee=1&limit=1001", 40004],
  ["librarian", "DELETE /loans?fee=1&cascade=yes", 40004],
  ["librarian", "DELETE /loans?fee=x", 40004],
  ["member", "DELETE /loans?fee=1", 40300],
  ["admin", "DELETE /users?role=member", 40500],
  ["librarian", "DELETE /authors/999999/books?pages=1", 40401],
  ["librarian", "DELETE /loans?fee=1", 200, {
    shows: { deleted: 0, cascaded: 0 },
  }],
  ["librarian", "DELETE /books?id={book}", 40900, {
    with: "{loan}",
    says: /book \d+ still has 1 loan.*cascade=true/,
  }],
  ["librarian", "DELETE /books?id={book}&cascade=true", 200, {
    with: "{loan}",
    shows: { deleted: 1, cascaded: 1 },
    changes: "-/books/{book} -/loans/{loan}",
  }],
  // The notes of others cannot be emptied.
  ["librarian", "DELETE /books?id={book}&cascade=true", 40300, {
    with: "{remark}",
  }],
  ["admin", "DELETE /books?id={book}&cascade=true", 200, {
    with: "{remark}",
    shows: { deleted: 1, cascaded: 0 },
    changes: "-/books/{book} /notes/{remark}",
  }],
  ["admin", "DELETE /books?title=Work&limit=1&id:gte={work}", 200, {
    with: "{work}{work2}",
    shows: { deleted: 1, cascaded: 0 },
    changes: "-/books/{work}",
  }],
  ["admin", "DELETE /authors/{author}/books?title=Work", 200, {
    with: "{work}{author2}",
    shows: { deleted: 1, cascaded: 0 },
    changes: "-/books/{work}",
  }],
  ["member", "DELETE /notes?text=Mine", 200, {
    with: "{note}",
    shows: { deleted: 0, cascaded: 0 },
  }],
]);

rows("A reference to a record of another user stays, and is not expanded", [
  ["member", "PATCH /notes/{given}", 201, { slug: "changed" }],
  ["member", "PUT /notes/{given}", 201, { text: "Given", note_id: "{note}" }, {
    changes: "",
  }],
  ["admin", "GET /notes?text=Given&slug=null&limit=1&expand=note", 200, {
    with: "{given}",
    shows: [{ owner_id: 2, note: { text: "Mine" } }],
  }],
  ["member", "GET /notes?text=Given&slug=null&limit=1&expand=note", 200, {
    shows: [{ owner_id: 2, note: null }],
  }],
]);

rows("A date has no hours to group by", [
  ["member", "GET /loans?aggregate=count&by=day(due_on)", 200],
  ["member", "GET /loans?aggregate=count&by=hour(due_on)", 40004],
  ["member", "GET /loans?aggregate=count&by=year(state)", 40004],
]);

test("A key shows a record only to somebody who may still see it", async () => {
  const note = { text: "Keyed" };
  const { json: { id } } = await run(
    keyed("n", "member", "POST /notes", 201, note),
  );
  await run(["admin", `PATCH /notes/${id}`, 201, { owner_id: 1 }]);
  await run(keyed("n", "member", "POST /notes", 201, note, {
    changes: "",
    shows: /^$/,
    has: { Location: `/v1/notes/${id}` },
  }));
});
