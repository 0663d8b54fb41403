/** A changed declaration never loses data: CONTRACT sections 14 and 11. */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  clientsOf,
  copyOf,
  fileOf,
  outputOf,
  serve,
  stop,
  temporaryFolder,
} from "../server.ts";

const folder = temporaryFolder();
const FEATURES = "evolution";

/** Returns the settings for a declaration: collections by their names, each with its properties and what else it has. */
function declare(
  collections: Record<string, string>,
  DATA_DIR: string,
) {
  const texts = Object.entries(collections).map(([name, text]) =>
    `collection({ name: "${name}", singular: "thing", access: {
      read: "viewer", write: "viewer", delete: "viewer" }, ${text} })`
  );
  const COLLECTIONS = fileOf(
    "declared.mjs",
    `export default ({ collection, string, integer, date, choice, optional, unique, reference, text }) =>
      ({ collections: [${texts.join(",\n")}] });`,
  );
  return { COLLECTIONS, DATA_DIR, FEATURES };
}

/** Starts a server and returns what sends requests as admin. */
async function open(environment: ReturnType<typeof declare>) {
  const server = await serve(environment);
  const clients = clientsOf(() => server.origin);
  /** Returns the records of a list, without what the server adds. */
  const list = async (path: string) =>
    (await clients.request("admin", `GET ${path}`)).json.map((record: object) =>
      Object.fromEntries(
        Object.entries(record).filter(([name]) => !/_at$|url$/.test(name)),
      )
    );
  return { server, ...clients, list };
}

const authors = `properties: { name: string({ maxLength: 20 }) }`;
const books = (properties: string, more = "") =>
  `properties: { title: string({ maxLength: 20 }), author_id: reference("authors"),
    pages: optional(integer()), kind: choice("a", "b"), ${properties} }, ${more}`;
const notes = (more = "private: true") =>
  `properties: { text: string({ maxLength: 50 }) }, ${more}`;
const base = { authors, books: books(""), notes: notes() };

const DATA_DIR = join(folder, "store");
const first = await open(declare(base, DATA_DIR));
for (const name of ["x", "y"]) {
  await first.expect(201, "admin", "POST /authors", { name });
}
for (let pages = 1; pages < 25; pages++) {
  const title = pages > 22 ? "same" : `book ${pages}`;
  const kind = pages > 4 ? "a" : "b";
  const body = { title, author_id: 1, pages, kind };
  await first.expect(201, "admin", "POST /books", body);
}
await first.request("admin", "POST /notes", { text: "mine" });
await stop(first.server);
/** Without the zeros that follow the last line. */
const log = () =>
  readFileSync(join(DATA_DIR, "wal-1.jsonl"), "utf8").replace(/\0+$/, "");
const before = log();

/** Declarations, and what is said of each; nothing if it is allowed. */
const changes: [
  what: string,
  declaration: Record<string, string>,
  ...says: RegExp[],
][] = [
  ["More choices and properties, less of what all fit, another name", {
    authors,
    shelves: authors,
    books: books("isbn: optional(string({ maxLength: 13 }))")
      .replace("20", "7")
      .replace('"a"', '"c", "a"')
      .replace(/pages.*?,/, "")
      .replace("title: string({", 'name: string({ stored: "title",'),
  }],
  [
    "A limit, a choice, what is required and who is private",
    {
      authors: `${authors}, private: true`,
      books: books("isbn: string({ maxLength: 13 })")
        .replace("20", "6")
        .replace("integer()", "integer({ maximum: 2 })")
        .replace(', "b"', ""),
      notes: notes(""),
    },
    /books\.title: 13 of 24 records do not fit \(id 10, 11, 12, .*\): .* 7 characters.*it must be.*prune books\.title/,
    /books\.pages: 22 of 24 .*\(id 3, 4, .*22, …\)/,
    /books\.kind: 4 of 24 .*\(id 1, 2, 3, 4\): .*one of "a"/,
    /books\.isbn: 24 of 24 .*required.*default.*stored/,
    /authors: "private" cannot be switched while there are records, here 2/,
    /notes: "private" cannot be switched .*here 1/,
  ],
  [
    "A property that is unique, and another type",
    {
      ...base,
      books: base.books
        .replace(
          "string({ maxLength: 20 })",
          "unique(string({ maxLength: 20 }))",
        )
        .replace("optional(integer())", "optional(date())"),
    },
    /books\.title: 1 of 24 .*\(id 23\): .*another/,
    /books\.pages: 24 of 24 .*"pages" is a number; it must be .*YYYY-MM-DD/,
  ],
  [
    "A group that is unique, and a reference",
    {
      ...base,
      books: books("", 'unique: [["title", "kind"]]').replace(
        "pages: optional(integer())",
        'pages_id: optional(reference("authors", { as: "p", stored: "pages" }))',
      ),
    },
    /books\.title: 1 of 24 .*title and kind/,
    /books\.pages_id: 22 of 24 .*no such record in authors/,
  ],
  [
    "A rule, and one that fails",
    {
      ...base,
      authors: `${authors}, check: ({ name }) => name.nothing.at`,
      books: books(
        "",
        'check: ({ pages }) => pages > 20 ? { pages: "is too many" } : undefined',
      ),
    },
    /authors\.check: 2 of 2 .*rule fails/,
    /books\.pages: 4 of 24 .*\(id 21, 22, 23, 24\): .*is too many/,
  ],
  [
    "Another API",
    { cars: authors },
    /authors, books, notes.*cars.*--collections.*--data-dir/,
  ],
];

for (const [what, declaration, ...says] of changes) {
  test(`${what}: ${says[0] ? "refused" : "allowed"}`, async () => {
    const environment = declare(declaration, DATA_DIR);
    const judge = async (word: string, exit: number) => {
      const output = await outputOf([word], environment, exit);
      for (const each of says) assert.match(output, each);
      return output;
    };
    await judge("check", says[0] ? 2 : 0);
    if (!/limit|API/.test(what)) return;
    assert.match(await judge("serve", 1), /nothing was changed/);
  });
}

test("A changed declaration needs the feature", async () => {
  const environment = declare({ ...base, shelves: authors }, DATA_DIR);
  const off = { ...environment, FEATURES: "none" };
  const output = await outputOf(["serve"], off, 1);
  assert.match(output, /nothing was changed.*evolution/);
});

test("A judged store is as it was", () => assert.equal(log(), before));

test("Hidden data survives writes, backup and repair", async () => {
  const own = copyOf(DATA_DIR);
  const renamed = {
    writers: `${authors.replace("name", "label")}, stored: "authors"`.replace(
      "string({",
      'string({ stored: "name",',
    ),
    books:
      `properties: { name: string({ maxLength: 20, stored: "title" }), author_id: reference("writers"), kind: choice("a", "b") }`,
  };
  const { server, expect, list } = await open(declare(renamed, own));
  const book = { id: 1, name: "book 1", author_id: 1, kind: "b" };
  assert.deepEqual(await list("/books?limit=1"), [book]);
  assert.deepEqual(await list("/writers?label=x"), [{ id: 1, label: "x" }]);
  await expect(404, "admin", "GET /notes");
  await expect(400, "admin", "GET /books?pages=1");
  const changed = { ...book, name: "changed" };
  await expect(201, "admin", "PUT /books/1", changed);
  await expect(201, "admin", "PATCH /books/2", { kind: "a" });
  const copy = join(folder, "copy");
  await outputOf(["backup", copy], declare(renamed, own));
  assert.equal(await stop(server), 0);
  // A bit of the last line is damaged, and the start after it refuses to serve.
  const path = join(copy, "wal-1.jsonl");
  const text = readFileSync(path, "utf8");
  writeFileSync(path, text.replace('"book 9"', '"book 8"'));
  await outputOf(["repair"], declare(renamed, copy));
  for (const place of [own, copy]) {
    const again = await open(declare(base, place));
    const [one, two, ...others] = await again.list("/books?limit=100");
    assert.deepEqual(one, {
      id: 1,
      title: "changed",
      author_id: 1,
      pages: 1,
      kind: "b",
    });
    assert.deepEqual([two.pages, two.kind], [2, "a"]);
    assert.equal(others.length, place === own ? 22 : 21);
    assert.deepEqual(await again.list("/authors"), [
      { id: 1, name: "x" },
      { id: 2, name: "y" },
    ]);
    assert.equal((await again.list("/notes"))[0].text, "mine");
    await stop(again.server);
  }
});

test("A default that changes does not change stored records", async () => {
  const own = copyOf(DATA_DIR);
  const language = async (
    text: string | undefined,
    expected: unknown,
    mine: unknown,
  ) => {
    const property = text === undefined
      ? ""
      : `language: optional(string({ maxLength: 5 })${text})`;
    const { server, request, list, count } = await open(
      declare({ ...base, books: books(property) }, own),
    );
    for (const { language } of await list("/books?limit=2")) {
      assert.deepEqual(language, expected);
    }
    const { json } = await request("admin", "POST /books", {
      title: "n",
      author_id: 1,
      kind: "a",
    });
    assert.deepEqual(json.language, mine);
    const { json: same } = await request("admin", "PATCH /books/2", {});
    assert.equal(same.updated_at, same.created_at);
    if (typeof expected === "string") {
      assert.ok(await count(`/books?language=${expected}`) >= 24);
      const path = `/books?language:ne=${expected}&title:ne=n`;
      assert.equal(await count(path), 0);
    }
    await stop(server);
  };
  await language(', "en"', "en", "en");
  await language(', "de"', "en", "de");
  await language(undefined, undefined, undefined);
  await language(', "fr"', "en", "fr");
  await language("", null, null);
  await language(', "it"', "it", "it");
});
