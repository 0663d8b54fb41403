/** An API of one's own: CONTRACT section 13, and 11 of collections. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { against, type Row } from "./rows.ts";
import { libraryRows } from "./features/library.ts";
import { beside, fileOf } from "./server.ts";

const book = { title: "Emma", genre: "novel", isbn: "978{n}" };
const loan = { book_id: "{book}", due_on: "2026-02-01" };
const note = { text: "Read on", slug: "s{n}" };
const wish = { title: "Wish {n}", place: "Shelf" };

/** Three records whose values ascend, and one without them. */
const seed = {
  authors: ["1815-12-10", "1900-02-28", "2000-02-29", null].map((
    born_on,
    at,
  ) => ({ name: `Seed ${at}`, born_on })),
  books: [1, 20, 300, null].map((pages, at) => ({
    title: "Seed",
    genre: "poetry",
    isbn: `979000000000${at}`,
    pages,
    author_id: pages && at + 1,
  })),
  loans: [
    [0, "2026-01-01T00:00:00Z", true, "A\r\nb"],
    [2.5, "2026-01-31T12:00:00.5+01:00", false, "Straße"],
    [10, "2026-01-31T11:00:00.501Z", true, "%"],
    [null, null, false, null],
  ].map(([fee, lent_at, returned, remark]) => (
    {
      book_id: 1,
      due_on: `2026-01-0${String(fee).length}`,
      fee,
      lent_at,
      returned,
      remark,
    }
  )),
  wishes: ["Z", "a", "\u00e7", null].map((place, at) => ({
    title: `W${at}`,
    place,
  })),
};
const SEED = fileOf("seed.json", JSON.stringify(seed));
const { expect, forget, request, rows, run } = await libraryRows(
  {
    strasse: ["authors", { name: "Strasse Σ{n} i" }],
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
    dated: ["books", { ...book, published_on: "2001-01-02" }],
    note: ["notes", note],
    wish: ["wishes", wish],
    remark: ["notes", { text: "Of a book", book_id: "{book}" }],
    user: ["users", { username: "user{n}", password: "user-password" }],
  },
  { SEED },
);

/** The ids, of the seed's four records, that a query finds. */
const finds = (collection: string, query: string, ids: number[]): Row => [
  "librarian",
  `GET /${collection}?${query}&id:lte=4`,
  200,
  { shows: ids, has: { "X-Total-Count": String(ids.length) } },
];
const refuses = (collection: string, query: string, code: number): Row => [
  "librarian",
  `GET /${collection}?${query}`,
  code,
  { says: new RegExp(query.replace(/=.*/, "")) },
];
/** Every operator, for a property of which the first three records have ascending values. */
const compares = (
  collection: string,
  name: string,
  [one, two, three]: [unknown, unknown, unknown],
): Row[] => [
  finds(collection, `${name}=${two}`, [2]),
  finds(collection, `${name}:ne=${two}`, [1, 3, 4]),
  finds(collection, `${name}:lt=${two}`, [1]),
  finds(collection, `${name}:lte=${two}`, [1, 2]),
  finds(collection, `${name}:gt=${two}`, [3]),
  finds(collection, `${name}:gte=${two}`, [2, 3]),
  finds(collection, `${name}:in=${three},${one}`, [1, 3]),
  finds(collection, `${name}:in=${three}&${name}:in=null`, [3, 4]),
  finds(collection, `${name}=null`, [4]),
  finds(collection, `${name}:ne=null`, [1, 2, 3]),
  finds(collection, `sortby=${name}`, [1, 2, 3, 4]),
  finds(collection, `sortby=${name}&order=desc`, [3, 2, 1, 4]),
  refuses(collection, `${name}:lt=null`, 40004),
  refuses(collection, `${name}:like=${one}`, 40003),
  refuses(collection, `${name}:lt=${one}&${name}:lt=${one}`, 40003),
];
rows("Every operator compares every type of property", [
  ...compares("loans", "fee", [0, 2.5, 10]),
  ...compares("loans", "lent_at", [
    "2025-12-31T23:00:00-01:00",
    "2026-01-31t11:00:00.50z",
    "2026-01-31T12:00:00.501%2B01:00",
  ]),
  ...compares("authors", "born_on", ["1815-12-10", "1900-02-28", "2000-02-29"]),
  ...compares("books", "pages", [1, 20, 300]),
  ...compares("books", "author_id", [1, 2, 3]),
  ...compares("wishes", "place", ["Z", "a", "%C3%A7"]),
  finds("wishes", "place:contains=z", [1]),
  finds("wishes", "place:starts=%C3%87", [3]),
  finds("loans", "returned=true", [1, 3]),
  finds("loans", "returned:ne=true", [2, 4]),
  finds("loans", "returned:in=true,false", [1, 2, 3, 4]),
  finds("loans", "sortby=returned,id&order=asc,desc", [4, 2, 3, 1]),
  finds("loans", "remark=A%0Ab", [1]),
  finds("loans", "remark:ne=A%0Ab", [2, 3, 4]),
  finds("loans", "remark=null", [4]),
  finds("loans", "remark:contains=STRASSE", [2]),
  finds("loans", "remark:contains=%25", [3]),
  finds("books", "order=desc", [4, 3, 2, 1]),
  ...["fee", "lent_at", "due_on", "book_id", "returned", "id"].flatMap((
    name,
  ) => [
    refuses("loans", `${name}:contains=1`, 40003),
    refuses("loans", `${name}:starts=1`, 40003),
  ]),
  ...["lt", "lte", "gt", "gte"].flatMap((operator) => [
    refuses("loans", `returned:${operator}=true`, 40003),
    refuses("books", `genre:${operator}=novel`, 40003),
  ]),
  ...[
    "fee=1,5",
    "fee=0x1",
    "fee=1e400",
    "returned=1",
    "returned=null",
    "lent_at=2026-01-31",
    "lent_at=2026-01-31T12:00:00.1234Z",
    "due_on=2026-1-1",
    "due_on=null",
    "book_id=0x1",
    "book_id=1.5",
  ].map((query) => refuses("loans", query, 40004)),
  ["anyone", "GET /books?titel=a", 40003, {
    says: /\btitle\b.*\btitle\b/,
  }],
]);

rows("Addresses and names follow from the declaration", [
  ["anyone", "GET /", 200, {
    shows: {
      authors_url: "/v1/authors",
      notes_url: "/v1/notes",
      zoos_url: undefined,
    },
  }],
  ["anyone", "GET /zoos", 40400],
  ["anyone", "GET /authors/{author}", 200, {
    shows: {
      books_url: "/v1/authors/{author}/books",
      translations_url: "/v1/authors/{author}/translations",
      born_on: null,
    },
  }],
  ["anyone", "GET /books/{work}", 200, {
    shows: {
      author_url: "/v1/authors/{author}",
      translator_url: "/v1/authors/{author}",
      sequel_of_url: null,
      sequels_url: "/v1/books/{work}/sequels",
    },
  }],
  ["anyone", "GET /authors/{author}/translations", 200, {
    with: "{work}{book}",
    shows: [{ id: "{work}" }],
  }],
  ["anyone", "GET /books/{book}/sequels", 200, {
    with: "{sequel}",
    shows: [{ id: "{sequel}" }],
  }],
  ["librarian", "POST /authors/{author}/translations", 201, book, {
    shows: { translator_id: "{author}", author_id: null },
  }],
  ["anyone", "GET /authors/{author}/sequels", 40400],
  ["anyone", "GET /books?id:in={book},{sequel}&order=desc", 200, {
    shows: [{ id: "{book}" }, { id: "{sequel}" }],
  }],
  ["anyone", "GET /books?id:in={sequel},{book}", 200, {
    shows: [{ id: "{sequel}" }, { id: "{book}" }],
  }],
  [
    "anyone",
    "GET /books?id:in={work},{sequel},{book}&sortby=title,id&order=desc,asc",
    200,
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
  line: `P${string} ${string}`,
  body: unknown,
  errors: string,
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
  }, "reprinted_on rule"),
  ["librarian", "PUT /books/{book}", 201, {
    ...book,
    published_on: "2001-01-01",
  }],
  invalid("PUT /books/{book}", {
    ...book,
    published_on: "2001-01-02",
    reprinted_on: "2001-01-01",
  }, "reprinted_on rule"),
  invalid("PATCH /books/{book}", {
    published_on: "2001-01-02",
    reprinted_on: "2001-01-01",
  }, "reprinted_on rule"),
  [
    "admin",
    "PATCH /books/{dated}",
    42200,
    { reprinted_on: "2001-01-01" },
    "reprinted_on rule",
  ],
  ["admin", "PATCH /books/{dated}", 201, { reprinted_on: "2001-01-02" }],
  ["admin", "POST /books", 42200, { ...book, isbn: "9771234567890" }, {
    errors: "isbn format",
    shows: { errors: [{ message: /13 digits that begin/ }] },
  }],
  ["admin", "POST /books", 201, { ...book, isbn: " 978{n}\u00a0" }, {
    shows: { isbn: "978{n}" },
  }],
  ["admin", "POST /wishes", 201, { title: " Wish {n} ", place: " a " }, {
    shows: { title: "Wish {n}", place: "a" },
  }],
  invalid(
    "POST /wishes",
    { title: "w", place: "" },
    "title length, place length",
  ),
  invalid(
    "POST /wishes",
    { title: "WISH {n}", place: "shelf " },
    "title unique",
    { with: "{wish}" },
  ),
  ["member", "POST /wishes", 201, { title: "Wish {n}", place: null }, {
    with: "{wish}",
  }],
  ["member", "POST /wishes", 201, { title: "Wish {n}", place: null }],
  ["admin", "PATCH /wishes/{wish}", 201, { price: -1e300 }],
  invalid(
    "PATCH /wishes/{wish}",
    '{"price":1e400,"urgent":1}',
    "price range, urgent type",
  ),
  invalid("PATCH /wishes/{wish}", { title: "Wish {n2}" }, "title unique", {
    with: "{wish2}",
  }),
  invalid(
    "POST /loans",
    { ...loan, book_id: 1.5, fee: "1", due_on: null },
    "book_id type, fee type, due_on type",
  ),
  invalid(
    "POST /loans",
    '{"book_id":1e400,"due_on":"2026-01-01","fee":-1e400}',
    "book_id range, fee range",
  ),
  invalid("POST /books", { ...book, genre: "drama" }, "genre enum"),
  invalid("POST /books", { ...book, pages: 0 }, "pages range"),
  invalid("POST /books", { ...book, author_id: 999999 }, "author_id reference"),
  invalid("PATCH /books/{book}", { isbn: "978{n2}" }, "isbn unique", {
    with: "{book2}",
  }),
  invalid(
    "POST /loans",
    { ...loan, book_id: "{book}" },
    "book_id unique",
    { with: "{loan}" },
  ),
  ["member", "POST /loans", 201, { ...loan, due_on: "2026-02-02" }, {
    with: "{loan}",
    shows: { returned: false, state: "new", fee: null },
  }],
  ["member", "PUT /loans/{loan}", 201, { ...loan, fee: 0 }],
  invalid(
    "POST /loans",
    { ...loan, returned: null, state: null, fee: 10.5 },
    "returned type, state type, fee range",
  ),
  invalid("POST /loans", { ...loan, returned: "true" }, "returned type"),
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
    invalid("POST /loans", { ...loan, lent_at }, "lent_at format", {
      with: " ",
    })
  ),
  ["member", "POST /loans", 201, { ...loan, remark: "a\r\nb\rc\n\td" }, {
    shows: { remark: "a\nb\nc\n\td" },
  }],
  invalid("POST /loans", { ...loan, remark: "a\u0000" }, "remark format"),
  ["member", "POST /loans", 201, {
    ...loan,
    remark: "\u{1F98A}".repeat(29_900),
  }],
  ["member", "POST /loans", 41300, " ".repeat(120_001)],
  ["anyone", "GET /books?pages=1&genre=novel", 200, { shows: [] }],
  [
    "member",
    "GET /loans?returned=true&remark:contains=stra%C3%9Fe",
    200,
    {
      shows: [],
    },
  ],
  ...["sortby=remark", "remark:lt=a", "remark:starts=a", "remark:in=a"].map((
    query,
  ): Row => [
    "member",
    `GET /loans?${query}`,
    /sortby/.test(query) ? 40004 : 40003,
  ]),
]);

rows("unique ignores case, form and space", [
  ["librarian", "PUT /authors/{author}", 201, { name: "Straße Σ{n} ı" }, {
    with: "{strasse}",
  }],
  ...["straße σ{n} I", " STRASSE ς{n} i ", "ＳＴＲＡＳＳＥ Σ{n} i"].map((
    name,
  ): Row =>
    invalid("PUT /authors/{author}", { name }, "name unique", {
      with: "{strasse}",
    })
  ),
]);

rows("DELETE with cascade empties what may be empty", [
  ["admin", "DELETE /authors/{author}", 40900, {
    with: "{work}",
    says: /1 book/,
  }],
  ["admin", "DELETE /authors/{author}?cascade=true", 204, {
    with: "{work}",
    changes: "-/authors/{author} /books/{work}",
  }],
  ["librarian", "DELETE /books/{book}?cascade=true", 204, {
    with: "{loan}{sequel}",
    changes: "-/books/{book} -/loans/{loan} /books/{sequel}",
  }],
  ["librarian", "DELETE /books/{book}", 40900, {
    with: "{remark}",
    says: /\bothers\b/,
  }],
  ["librarian", "DELETE /books/{book}", 40900, {
    with: "{remark}{remark2}",
    says: /^(?!.*\b2\b)/,
  }],
  ["librarian", "DELETE /books/{book}?cascade=true", 40300, {
    with: "{remark}",
  }],
  ["admin", "DELETE /books/{book}?cascade=true", 204, {
    with: "{remark}",
    changes: "-/books/{book} /notes/{remark}",
  }],
]);

rows("Who may not read what they change sees nothing of it", [
  ["member", "POST /wishes", 201, wish, { shows: wish }],
  ["member", "PUT /wishes/{wish}", 204, { title: "Other {n}" }, {
    changes: "/wishes/{wish}",
  }],
  ["member", "PATCH /wishes/{wish}", 204, { urgent: true }, {
    changes: "/wishes/{wish}",
  }],
  ["member", "PATCH /wishes/{wish}", 204, {}, { changes: "" }],
  ["librarian", "PATCH /wishes/{wish}", 201, { urgent: true }],
  ["member", "PATCH /wishes/{wish}", 42200, { title: "x" }, "title length"],
  ["member", "DELETE /wishes/{wish}", 204],
  ["member", "GET /wishes/{wish}", 40300],
  ["member", "GET /wishes", 40300],
]);

rows("A private record is its owner's and the highest role's", [
  ["admin", "GET /notes/{note}", 200, { shows: { owner_id: 1 } }],
  ["member", "GET /notes/{note}", 40401],
  ["member", "PUT /notes/{note}", 40401, note],
  ["member", "PATCH /notes/{note}", 40401, note],
  ["member", "DELETE /notes/{note}", 40401],
  ["member", "GET /notes/{note-gone}", 40401],
  ["librarian", "GET /notes", 200, {
    with: "{note}",
    shows: [],
    has: { "X-Total-Count": "0" },
  }],
  ["librarian", "GET /notes?owner_id=1&sortby=text", 200, {
    with: "{note}",
    shows: [],
  }],
  ["member", "GET /notes/{note}/replies", 40401],
  ["member", "POST /notes/{note}/replies", 40401, note],
  [
    "member",
    "POST /notes",
    42200,
    { ...note, note_id: "{note}" },
    "note_id reference",
  ],
  ["admin", "POST /notes/{note}/replies", 201, { text: "Yes" }, {
    shows: { note_id: "{note}" },
  }],
  ["librarian", "GET /books/{book}/notes", 200, {
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
    errors: "slug unique",
  }],
  [
    "member",
    "POST /notes",
    42200,
    { ...note, owner_id: 1 },
    { with: "{note}", errors: "owner_id read_only" }, // nothing of its slug
  ],
  ["admin", "POST /notes", 201, { ...note, owner_id: "{user}" }, {
    shows: { owner_id: "{user}" },
  }],
  ["admin", "PATCH /notes/{note}", 201, { owner_id: "{user}" }, {
    shows: { owner_id: "{user}" },
  }],
  ...["1", true, 1.5, [1]].map((owner_id): Row =>
    invalid("POST /notes", { ...note, owner_id }, "owner_id type|reference")
  ),
  [
    "admin",
    "POST /notes",
    42200,
    { ...note, owner_id: 999999 },
    "owner_id reference",
  ],
]);

test("A circle of references can be deleted", async () => {
  const create = async (isbn: string) =>
    (await request("admin", "POST /books", { ...book, isbn })).json.id;
  const one = await create("9781234567890");
  await expect(201, "admin", `PATCH /books/${one}`, { sequel_of_id: one });
  await expect(204, "admin", `DELETE /books/${one}`);
  const two = await create("9781234567891");
  const three = await create("9781234567892");
  await expect(201, "admin", `PATCH /books/${two}`, { sequel_of_id: three });
  await expect(201, "admin", `PATCH /books/${three}`, { sequel_of_id: two });
  await expect(409, "admin", `DELETE /books/${two}`);
  await expect(204, "admin", `DELETE /books/${two}?cascade=true`);
  const { json } = await request("admin", `GET /books/${three}`);
  assert.equal(json.sequel_of_id, null);
  await expect(204, "admin", `DELETE /books/${three}`);
  forget();
});

test("A private record is shown to its owner alone", async () => {
  const { json } = await request("member", "POST /notes", note);
  const owners = (await request("member", "GET /notes?limit=100")).json.map((
    { owner_id }: { owner_id: number },
  ) => owner_id);
  assert.deepEqual([...new Set(owners)], [json.owner_id]);
  forget();
  const url = `/notes/${json.id}`;
  await run(
    ["member", `GET ${url}`, 200],
    ["librarian", `GET ${url}`, 40401],
    ["admin", `GET ${url}`, 200],
    ["member", `PATCH ${url}`, 201, {}, { changes: "" }],
    ["librarian", `PATCH ${url}`, 40401, {}],
    ["admin", `PATCH ${url}`, 201, {}, { changes: "" }],
    ["librarian", `DELETE ${url}`, 40401],
    ["member", `DELETE ${url}`, 204],
  );
});

test("Another role can oversee private records", async () => {
  const drafts = [{ text: "nobody's" }];
  const SEED = fileOf("seed.json", JSON.stringify({ drafts }));
  const { forget, request, run, tokenOf } = await against({
    title: "API",
    roles: ["viewer", "keeper", "admin"],
    collections: ["drafts"],
    fixtures: { draft: ["drafts", { text: "A" }] },
    environment: { COLLECTIONS: beside("overseen"), SEED },
  });
  const own = await request("viewer", "POST /drafts", { text: "B" });
  const url = `/drafts/${own.json.id}`;
  const { json: other } = await request("keeper", "GET /user");
  const [, claims = ""] = (await tokenOf("viewer")).split(".");
  assert.match(Buffer.from(claims, "base64url").toString(), /"iss":"API"/);
  forget();
  const owner = { owner_id: other.id };
  await run(
    ["anyone", "GET /drafts", 40100],
    ["viewer", "GET /drafts/{draft}", 40401],
    ["viewer", "GET /drafts", 200, {
      with: "{draft}",
      shows: [own.json.id],
    }],
    ["keeper", "GET /drafts/{draft}", 200],
    ["admin", `GET ${url}`, 200],
    ["viewer", `PATCH ${url}`, 42200, owner, "owner_id read_only"],
    ["viewer", `PUT ${url}`, 201, { ...own.json, text: "C" }],
    ["keeper", `PATCH ${url}`, 201, { text: "D" }, {
      shows: { owner_id: own.json.owner_id },
    }],
    ["keeper", `PUT ${url}`, 201, { text: "D", ...owner }, { shows: owner }],
    ["viewer", `GET ${url}`, 40401],
    ["keeper", "PUT /drafts/1", 201, { text: "E", owner_id: null }],
    ["keeper", "PATCH /drafts/1", 201, { text: "F" }, {
      shows: { owner_id: null },
    }],
    ["keeper", `DELETE ${url}`, 204],
    ["keeper", `GET ${url}`, 41000],
    ["viewer", `GET ${url}`, 40401],
    ["viewer", "PATCH /user", 42200, { role: "admin" }, "role read_only"],
  );
});
