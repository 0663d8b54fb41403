import { strict as assert } from "node:assert";
import { test } from "node:test";
import { lacks } from "../harness.ts";
import { type Library, library, startLibrary } from "../library.ts";

async function withLibrary(t: { after(end: () => unknown): void }) {
  const app = await startLibrary();
  t.after(() => app.stop());
  await app.send("POST", "authors", { name: "Ada" });
  await app.send("POST", "authors", { name: "Bob" });
  return app;
}

const ids = async ({ send }: Library, path: string) =>
  (await send("GET", path)).body.map(({ id }: { id: number }) => id);

test("an optional reference is null with its URL, and can be set and emptied", async (t) => {
  const app = await withLibrary(t);
  const { send } = app;
  const created = await send("POST", "books", { title: "A" });
  assert.equal(created.status, 201);
  const { author_id, author_url, sequel_of_url } = created.body;
  assert.deepEqual([author_id, author_url, sequel_of_url], [null, null, null]);
  await send("POST", "books", { title: "B", author_id: 1 });
  assert.deepEqual(await ids(app, "books?author_id=null"), [1]);
  assert.deepEqual(await ids(app, "books?author_id:ne=null"), [2]);
  const listed = await send("GET", "books?sortby=author_id&fields=author_url");
  assert.deepEqual(
    listed.body.map((each) => each.author_url),
    ["/v1/authors/1", null],
  );
  const patched = await send("PATCH", "books/2", { author_id: null });
  assert.equal(patched.body.author_url, null);
  const set = await send("PATCH", "books/1", { author_id: 2 });
  assert.equal(set.body.author_url, "/v1/authors/2");
  const wrong = await send("PATCH", "books/1", { author_id: 3 });
  assert.equal(
    wrong.body.errors[0]?.message,
    '"author_id" is 3, which does not exist: it must be the id of one of the authors, or null.',
  );
  const { body } = await send("OPTIONS", "books");
  assert.deepEqual(body.schema.properties?.author_url, {
    type: ["string", "null"],
    format: "uri-reference",
    readOnly: true,
  });
  assert.deepEqual(body.schema.properties?.url?.type, "string");
});

test("several references to one collection have a URL each", async (t) => {
  const app = await withLibrary(t);
  const { send } = app;
  const { body: author } = await send("GET", "authors/1");
  assert.equal(author.books_url, "/v1/authors/1/books");
  assert.equal(author.translations_url, "/v1/authors/1/translations");
  const path = "authors/1/translations";
  const translation = await send("POST", path, { title: "T", author_id: 2 });
  assert.equal(translation.body.translator_id, 1);
  assert.equal(translation.body.author_id, 2);
  assert.equal(translation.body.link.href, "/v1/authors/1/translations");
  assert.equal(translation.headers.get("location"), "/v1/books/1");
  const own = await send("POST", "authors/1/books", { title: "O" });
  assert.deepEqual([own.body.author_id, own.body.translator_id], [1, null]);
  assert.deepEqual(await ids(app, path), [1]);
  assert.deepEqual(await ids(app, "authors/1/books"), [2]);
  assert.deepEqual(await ids(app, "authors/2/books"), [1]);
  assert.equal((await send("GET", `${path}/1`)).status, 200);
  const absent = await send("GET", `${path}/2`);
  assert.equal(absent.status, 404);
  assert.equal(absent.body.error, "There is no book 2 in the author 1.");
  await send("POST", path, { title: "U" });
  const page = await send("GET", `${path}?limit=1`);
  assert.match(
    page.headers.get("link") ?? "",
    /<\/v1\/authors\/1\/translations\?limit=1&offset=1>; rel="next"/,
  );
  for (const [json, value] of [[null, "null"], [2, "2"]] as const) {
    const refused = await send("POST", path, {
      title: "X",
      translator_id: json,
    });
    assert.equal(
      refused.body.errors[0]?.message,
      `"translator_id" is ${value}, but the URL says 1: leave it out, or send 1.`,
    );
  }
  // PUT through a sub-collection keeps the record in it.
  const put = await send("PUT", `${path}/1`, { title: "V" });
  assert.deepEqual([put.body.translator_id, put.body.author_id], [1, null]);
});

test("a record can refer to its own collection", async (t) => {
  const app = await withLibrary(t);
  const { send } = app;
  await send("POST", "books", { title: "I" });
  const second = await send("POST", "books/1/sequels", { title: "II" });
  assert.equal(second.body.sequel_of_id, 1);
  assert.equal(second.body.sequel_of_url, "/v1/books/1");
  assert.equal(second.body.sequels_url, "/v1/books/2/sequels");
  assert.deepEqual(await ids(app, "books/1/sequels"), [2]);
  assert.deepEqual(await ids(app, "books?sequel_of_id=1"), [2]);
  const itself = await send("PATCH", "books/2", { sequel_of_id: 2 });
  assert.equal(itself.status, 201);
  assert.deepEqual(await ids(app, "books/2/sequels"), [2]);
});

test(
  "the OpenAPI document names the URLs of all references, each operation once",
  { skip: lacks("openapi") },
  async (t) => {
    const { send } = await withLibrary(t);
    const { body: document } = await send("GET", "openapi.json");
    for (
      const path of [
        "/v1/authors/{author_id}/books/{id}",
        "/v1/authors/{author_id}/translations/{id}",
        "/v1/books/{book_id}/sequels",
      ]
    ) assert.ok(document.paths[path], path);
    const { post } = document.paths["/v1/authors/{author_id}/translations"] ??
      {};
    assert.equal(post?.operationId, "createAuthorTranslations");
    assert.equal(
      post.summary,
      "Create a new book of an author, by translator_id",
    );
    const names = Object.values<object>(document.paths)
      .flatMap((item) => Object.values(item))
      .flatMap(({ operationId }) => operationId ?? []);
    assert.equal(new Set(names).size, names.length);
  },
);

test("two URLs whose operations would have one name have two", {
  skip: lacks("openapi"),
}, async (t) => {
  const { collections: [authors, books] } = library;
  assert.ok(authors && books);
  const drafts = { ...authors, name: "author_books", singular: "draft" };
  const app = await startLibrary({
    declaration: { ...library, collections: [authors, books, drafts] },
  });
  t.after(() => app.stop());
  const { paths } = (await app.send("GET", "openapi.json")).body;
  const ids = ["/v1/authors/{author_id}/books", "/v1/author_books"]
    .map((path) => paths[path]?.["get"]?.operationId);
  assert.deepEqual(ids.sort(), ["listAuthorBooks", "listAuthorBooks2"]);
});
