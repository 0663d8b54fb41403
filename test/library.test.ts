/** A library that is served from its declaration alone, as a client sees it. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import {
  type Answer,
  lacks,
  type RequestOptions,
  type Server,
  start,
} from "./harness.ts";
import { extension } from "./root.ts";

const file = join(import.meta.dirname, `library/collections${extension}`);

const seed = {
  authors: [
    { name: "Christa Wolf", born_on: "1929-03-18" },
    { name: "Ursula K. Le Guin" },
  ],
  books: [
    { title: "Kassandra", author_id: 1, genre: "novel", isbn: "9783423000015" },
    {
      title: "The Lathe of Heaven",
      author_id: 2,
      genre: "novel",
      isbn: "9783423000022",
      pages: 184,
      published_on: "1971-01-01",
    },
    {
      title: "Always Coming Home",
      author_id: 2,
      translator_id: 1,
      sequel_of_id: 2,
      genre: "science",
      isbn: "9793423000039",
    },
  ],
  notes: [{ owner_id: 1, text: "of the admin" }],
};

let server: Server;
let admin: string;
let librarian: string;
let member: string;
/** Everything that the server has logged. */
const said: string[] = [];

async function send(
  method: string,
  path: string,
  options: RequestOptions = {},
): Promise<Answer> {
  const response = await server.request(method, path, options);
  said.push(`${method} ${path}`, response.text, ...response.headers.values());
  return response;
}

async function signUp(username: string, role?: string): Promise<string> {
  const password = "a long enough one";
  const json = { username, password, ...(role && { role }) };
  const { status, body } = await send("POST", "/v1/users", {
    token: admin,
    json,
  });
  assert.equal(status, 201);
  assert.equal(body.role, role ?? "member");
  return await server.signIn(username, password);
}

before(async () => {
  const args = ["--collections", file];
  server = await start({ args, seed, isNew: true, env: { COLLECTIONS: "" } });
  admin = await server.signIn();
  librarian = await signUp("lia", "librarian");
  member = await signUp("mo");
});
after(() => server.stop());

const titles = ({ body }: Answer) =>
  body.map(({ title }: { title: string }) => title);

/** The fields and codes of the errors of a response. */
const errorsOf = ({ status, body, text }: Answer) => {
  assert.equal(status, 422, text);
  return body.errors.map((each: { field: string; code: string }) =>
    `${each.field} ${each.code}`
  );
};

describe("a library", () => {
  test("has its collections at the root, with the seed in them", async () => {
    const { body } = await send("GET", "/");
    assert.equal(body.authors_url, "/v1/authors");
    assert.equal(body.books_url, "/v1/books");
    const { headers } = await send("GET", "/v1/authors");
    assert.equal(headers.get("x-total-count"), "2");
    // Of the user that the same start creates.
    const own = await send("GET", "/v1/notes/1", { token: admin });
    assert.equal(own.body.owner_id, 1);
  });

  test("sorts its books by title, and by what a client asks for", async () => {
    const sorted = ["Always Coming Home", "Kassandra", "The Lathe of Heaven"];
    assert.deepEqual(titles(await send("GET", "/v1/books")), sorted);
    assert.deepEqual(
      titles(await send("GET", "/v1/books?sortby=genre,title&order=asc,desc")),
      ["The Lathe of Heaven", "Kassandra", "Always Coming Home"],
    );
  });

  test("links a book with its author, translator, sequels, or none", async () => {
    const { body: one } = await send("GET", "/v1/books/1");
    assert.equal(one.author_url, "/v1/authors/1");
    assert.equal(one.translator_id, null);
    assert.equal(one.translator_url, null);
    assert.equal(one.sequel_of_url, null);
    assert.equal(one.sequels_url, "/v1/books/1/sequels");
    const { body: wolf } = await send("GET", "/v1/authors/1");
    assert.equal(wolf.books_url, "/v1/authors/1/books");
    assert.deepEqual(titles(await send("GET", wolf.books_url)), ["Kassandra"]);
    assert.equal(wolf.translations_url, "/v1/authors/1/translations");
    const third = ["Always Coming Home"];
    assert.deepEqual(titles(await send("GET", wolf.translations_url)), third);
    assert.deepEqual(titles(await send("GET", "/v1/books/2/sequels")), third);
    assert.deepEqual(
      titles(await send("GET", "/v1/books?translator_id=null&sortby=id")),
      ["Kassandra", "The Lathe of Heaven"],
    );
  });

  test("checks every property of a book, and the book as a whole", async () => {
    const wrong = await send("POST", "/v1/books", {
      token: librarian,
      json: {
        author_id: 99,
        title: " ",
        genre: "drama",
        pages: 0,
        isbn: "9783423",
        published_on: "1983-02-30",
        shelf: 1,
      },
    });
    assert.deepEqual(errorsOf(wrong).toSorted(), [
      "author_id reference",
      "genre enum",
      "isbn format",
      "pages range",
      "published_on format",
      "shelf unknown",
      "title length",
    ]);
    assert.match(wrong.text, /must be 13 digits that begin with 978 or 979/);
    const json = {
      title: "Medea",
      genre: "novel",
      isbn: "9783423000015",
      published_on: "1996-01-01",
      reprinted_on: "1995-01-01",
    };
    const token = librarian;
    const twice = await send("POST", "/v1/books", { token, json });
    assert.deepEqual(errorsOf(twice), ["isbn unique"]);
    const isbn = "9783423000046";
    const earlier = await send("POST", "/v1/books", {
      token,
      json: { ...json, isbn },
    });
    assert.deepEqual(errorsOf(earlier), ["reprinted_on rule"]);
    const { status, body } = await send("POST", "/v1/authors/1/books", {
      token,
      json: { ...json, isbn, reprinted_on: null },
    });
    assert.equal(status, 201);
    assert.equal(body.author_id, 1);
    assert.equal(body.pages, null);
    const patched = await send("PATCH", body.url, {
      token,
      json: { reprinted_on: "1995-12-31" },
    });
    assert.deepEqual(errorsOf(patched), ["reprinted_on rule"]);
  });

  test("knows its own roles", async () => {
    const json = { name: "Maryse Condé" };
    const refused = await send("POST", "/v1/authors", { token: member, json });
    assert.equal(refused.status, 403);
    assert.match(refused.body.error, /librarian/);
    const created = await send("POST", "/v1/authors", {
      token: librarian,
      json,
    });
    assert.equal(created.status, 201);
    const { url } = created.body;
    const kept = await send("DELETE", url, { token: librarian });
    assert.equal(kept.status, 403);
    assert.equal((await send("DELETE", url, { token: admin })).status, 204);
    const users = { token: librarian };
    assert.equal((await send("GET", "/v1/users", users)).status, 403);
    const keeper = await send("PATCH", "/v1/users/3", {
      token: admin,
      json: { role: "keeper" },
    });
    assert.deepEqual(errorsOf(keeper), ["role enum"]);
    assert.match(keeper.text, /\\"member\\", \\"librarian\\", \\"admin\\"/);
  });

  test("keeps an author with books, unless the books may be without an author", async () => {
    const token = admin;
    const refused = await send("DELETE", "/v1/authors/2", { token });
    assert.equal(refused.status, 409);
    const path = "/v1/authors/2?cascade=true";
    assert.equal((await send("DELETE", path, { token })).status, 204);
    const { body } = await send("GET", "/v1/books/2");
    assert.equal(body.author_id, null);
    assert.equal(body.author_url, null);
  });

  test("shows the notes of each user only to that user and the highest role", async () => {
    const note = { text: "return Kassandra" };
    const { status, body } = await send("POST", "/v1/notes", {
      token: member,
      json: note,
    });
    assert.equal(status, 201);
    assert.equal(body.owner_id, 3);
    for (const [token, count] of [[member, "1"], [librarian, "0"]] as const) {
      const { headers } = await send("GET", "/v1/notes", { token });
      assert.equal(headers.get("x-total-count"), count);
    }
    const { url } = body;
    const json = { text: "mine" };
    for (const method of ["GET", "PATCH", "DELETE"]) {
      const options = { token: librarian, ...(method === "PATCH" && { json }) };
      assert.equal((await send(method, url, options)).status, 404);
    }
    const seen = await send("GET", url, { token: admin });
    assert.equal(seen.body.text, note.text);
    const changed = await send("PATCH", url, { token: member, json });
    assert.equal(changed.status, 201);
    assert.equal(changed.body.owner_id, 3);
    assert.equal((await send("GET", "/v1/notes")).status, 401);
  });

  test(
    "imports books by the same rules",
    { skip: lacks("imports") },
    async () => {
      const lines = [
        { title: "A", genre: "poetry", isbn: "9780000000001" },
        {
          title: "B",
          genre: "poetry",
          isbn: "9780000000002",
          published_on: "2001-01-01",
          reprinted_on: "2000-01-01",
        },
      ];
      const { headers } = await send("POST", "/v1/books", {
        token: librarian,
        raw: lines.map((line) => `${JSON.stringify(line)}\n`).join(""),
        headers: { "content-type": "application/x-ndjson" },
      });
      const task = headers.get("location") ?? "";
      let body;
      do {
        ({ body } = await send("GET", task, { token: librarian }));
      } while (!["succeeded", "failed"].includes(body.status));
      assert.equal(body.imported, 1);
      assert.equal(body.errors[0]?.errors[0]?.code, "rule");
    },
  );

  test("has its own title everywhere, and never that of the sample", async () => {
    const token = admin;
    const [, claims = ""] = token.split(".");
    const { iss } = JSON.parse(Buffer.from(claims, "base64url").toString());
    assert.equal(iss, "Library API");
    const anonymous = await send("POST", "/v1/books", { json: {} });
    assert.equal(
      anonymous.headers.get("www-authenticate"),
      'Bearer realm="Library API"',
    );
    for (const path of ["/v1/books", "/v1/authors/1", "/v1/users"]) {
      await send("OPTIONS", path, { token });
    }
    await send("GET", "/nowhere");
    await send("GET", "/v1/books?colour=red");
    await send("GET", "/health");
    if (lacks("openapi") === false) {
      const { body } = await send("GET", "/v1/openapi.json");
      assert.equal(body.info.title, "Library API");
    }
    if (lacks("metrics") === false) {
      const { text } = await send("GET", "/metrics", { token });
      assert.match(text, /^library_api_/m);
    }
    await server.end();
    for (const text of [iss, server.output(), ...said]) {
      assert.doesNotMatch(text, /zoo|keeper|viewer|animal/i);
    }
  });
});
