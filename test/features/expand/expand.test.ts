/** Expansion shows records with those that they refer to. */

import { strict as assert } from "node:assert";
import { describe, test } from "node:test";
import { vocabulary } from "../../../src/cli/declaration/checked-vocabulary.ts";
import { apiOf } from "../../collections.ts";
import { assertError, lacks } from "../../harness.ts";
import { type Library, startLibrary } from "../../library.ts";

const { collection, optional, reference, string } = vocabulary;
const name = string({ maxLength: 9 });

async function start(): Promise<Library> {
  const app = await startLibrary();
  await app.send("POST", "authors", { name: "Ada" });
  await app.send("POST", "authors", { name: "Bo" });
  await app.send("POST", "books", {
    title: "one",
    author_id: 1,
    translator_id: 2,
  });
  await app.send("POST", "books", {
    title: "two",
    author_id: 1,
    sequel_of_id: 1,
  });
  return app;
}

describe("expand", () => {
  test("shows the records that the document names, whatever their nouns are", async (t) => {
    const access = { read: "anyone", write: "keeper", delete: "keeper" };
    const nouns = [
      ...["new", "patch", "part", "list", "new but title"]
        .map((suffix) => `thing ${suffix}`),
      ...["link", "error", "field error", "root", "health", "memory"],
      ...["documentation", "capabilities", "signed in", "sign in"],
      ...["user", "authorization", "task", "listed task", "thing_list"],
    ];
    const declared = nouns.map((singular, n) =>
      collection({
        name: `others_${n}`,
        singular,
        access,
        properties: { [`only_${n}`]: name },
      })
    );
    const things = collection({
      name: "things",
      singular: "thing",
      access,
      properties: {
        ...Object.fromEntries(
          declared.map((each, n) => [`r${n}_id`, reference(each.name)]),
        ),
        // This one cannot be expanded.
        own_id: reference("others_0"),
        own: name,
      },
    });
    const app = await startLibrary({ declarations: [things, ...declared] });
    t.after(() => app.stop());
    for (const n of nouns.keys()) {
      await app.send("POST", `others_${n}`, { [`only_${n}`]: "x" });
      await app.send("GET", `others_${n}`); // is as documented, or it throws
      await app.send("GET", `others_${n}/1`);
    }
    const ids = nouns.map((_, n) => [`r${n}_id`, 1]);
    await app.send("POST", "things", {
      ...Object.fromEntries(ids),
      own_id: 1,
      own: "x",
    });
    const names = nouns.map((_, n) => `r${n}`);
    const { body } = await app.send("GET", `things/1?expand=${names}`);
    const shown = names.map((each, n) => Object(body[each])[`only_${n}`]);
    assert.deepEqual(shown, nouns.map(() => "x"));
    await app.send("GET", `things?expand=${names}`);
    await app.send("GET", "things");
    await app.send("GET", "things?limit=x"); // an error
    await app.request("GET", "/health");
    await app.request("GET", "/v1");
  });

  test("shows a record as its own URL does, null where there is none", async (t) => {
    const app = await start();
    t.after(() => app.stop());
    const [author, book] = [
      (await app.send("GET", "authors/1")).body,
      (await app.send("GET", "books/1")).body,
    ];
    const { body } = await app.send(
      "GET",
      "books/2?expand=author,sequel_of,translator",
    );
    const { link: _, ...own } = (await app.send("GET", "books/2")).body;
    const { link: __, ...shown } = body;
    assert.deepEqual(shown, {
      ...own,
      author,
      sequel_of: book,
      translator: null,
    });
    const list = await app.send("GET", "books?expand=author&expand=sequel_of");
    assert.equal(list.headers.get("x-total-count"), "2");
    assert.deepEqual(list.body.map((each) => each["author"]), [author, author]);
    assert.deepEqual(list.body[0]?.["sequel_of"], null);
    const part = await app.send(
      "GET",
      "authors/1/books?expand=author&fields=title",
    );
    assert.deepEqual(part.body, [
      { id: 1, title: "one", author },
      { id: 2, title: "two", author },
    ]);
    const one = await app.send("GET", "authors/1/books/2?expand=author");
    assert.deepEqual(one.body["author"], author);
  });

  test("pages like the list without it", async (t) => {
    const app = await start();
    t.after(() => app.stop());
    for (let n = 0; n < 28; n++) {
      await app.send("POST", "books", { title: "x", author_id: 2 });
    }
    const page = await app.send("GET", "books?expand=author");
    assert.equal(page.body.length, 20);
    const next = /<([^>]*)>; rel="next"/.exec(page.headers.get("link") ?? "");
    const { body } = await app.request("GET", next?.[1] ?? "");
    assert.equal(body.length, 10);
    assert.equal(
      (body[0]?.["author"] as unknown as { name: string }).name,
      "Bo",
    );
    const paged = await app.send(
      "GET",
      "books?expand=author&page=2&per_page=7",
    );
    assert.equal(paged.body.length, 7);
  });

  test("refuses other names, with those that there are", async (t) => {
    const app = await start();
    t.after(() => app.stop());
    for (
      const path of [
        "books?expand=zoo",
        "books/1?expand=author_id",
        "books?expand=",
        "books?expand=author,",
      ]
    ) {
      assertError(
        await app.send("GET", path),
        40004,
        "author, translator, sequel_of",
      );
    }
    assertError(await app.send("GET", "authors?expand=books"), 40003);
    assertError(
      await app.send("GET", "books/export?expand=author"),
      lacks("imports") ? 40400 : 40003,
    );
  });

  test("writes no name twice that a record has anyway", async (t) => {
    const access = { read: "anyone", write: "viewer", delete: "admin" };
    const link = collection({
      name: "links",
      singular: "link",
      access,
      properties: { name },
    });
    const properties = Object.fromEntries(
      ["link_id", "url_id", "visit_url_id", "page_id"].map((each) => [
        each,
        optional(reference("links", each === "link_id" ? {} : { as: each })),
      ]),
    );
    const visits = collection({
      name: "visits",
      singular: "visit",
      access,
      properties,
    });
    const app = await startLibrary({ declaration: apiOf([link, visits]) });
    t.after(() => app.stop());
    for (const each of ["link", "url", "visit_url"]) {
      assertError(await app.send("GET", `visits?expand=${each}`), 40004);
    }
    assert.equal((await app.send("GET", "visits?expand=page")).status, 200);
  });

  test("leaves a filter of its name alone", async (t) => {
    const app = await startLibrary({
      declaration: apiOf([
        collection({
          name: "parts",
          singular: "part",
          access: { read: "anyone", write: "viewer", delete: "viewer" },
          properties: { expand: name, part_id: optional(reference("parts")) },
        }),
      ]),
    });
    t.after(() => app.stop());
    await app.send("POST", "parts", { expand: "part" });
    await app.send("POST", "parts", { expand: "x", part_id: 1 });
    const { body } = await app.send("GET", "parts?expand=part");
    assert.deepEqual(body.map(({ id }) => id), [1]);
  });

  test("shows nothing that the caller could not read", async (t) => {
    const access = { read: "anyone", write: "viewer", delete: "keeper" };
    const app = await startLibrary({
      declaration: apiOf([
        collection({
          name: "plans",
          singular: "plan",
          access: { ...access, read: "keeper" },
          properties: { name },
        }),
        collection({
          name: "diaries",
          singular: "diary",
          private: true,
          access: { ...access, read: "viewer" },
          properties: { name },
        }),
        collection({
          name: "works",
          singular: "work",
          access,
          properties: {
            plan_id: optional(reference("plans")),
            diary_id: optional(reference("diaries")),
          },
        }),
      ]),
    });
    t.after(() => app.stop());
    const [one, two, keeper] = [
      await app.join("one", "viewer"),
      await app.join("two", "viewer"),
      await app.join("keeper", "keeper"),
    ];
    await app.send("POST", "plans", { name: "p" });
    await app.send("POST", "diaries", { name: "d" }, one);
    const made = await app.send(
      "POST",
      "works",
      { plan_id: 1, diary_id: 1 },
      one,
    );
    assert.equal(made.status, 201, made.text);
    const seen = async (token: string) => {
      const { body } = await app.send(
        "GET",
        "works?expand=plan,diary",
        undefined,
        token,
      );
      const [work] = body;
      return [work?.["plan"] !== null, work?.["diary"] !== null];
    };
    assert.deepEqual(await seen(""), [false, false]);
    assert.deepEqual(await seen(one), [false, true]);
    assert.deepEqual(await seen(two), [false, false]);
    assert.deepEqual(await seen(keeper), [true, false]);
    assert.deepEqual(await seen(app.token), [true, true]);
    if (lacks("conditional")) return;
    // Nor does an ETag tell about it.
    const etags = async (token: string) => {
      const paths = ["works", "works/1", "works/1?fields=id"];
      return await Promise.all(
        paths.map(async (path) => {
          const url = `${path}${
            path.includes("?") ? "&" : "?"
          }expand=plan,diary`;
          const { headers } = await app.send("GET", url, undefined, token);
          return headers.get("etag");
        }),
      );
    };
    const before = [await etags(""), await etags(two), await etags(one)];
    await app.send("POST", "plans", { name: "q" });
    await app.send("PATCH", "diaries/1", { name: "e" }, one);
    assert.deepEqual(await etags(""), before[0]);
    assert.deepEqual(await etags(two), before[1]);
    for (const [at, etag] of (await etags(one)).entries()) {
      assert.notEqual(etag, before[2]?.[at]);
    }
  });

  const skip =
    ["conditional", "negotiation", "imports"].map(lacks).find(Boolean) ?? false;

  test("has validators that follow what it shows", { skip }, async (t) => {
    const app = await start();
    t.after(() => app.stop());
    for (
      const path of ["/v1/books/1?expand=author", "/v1/books?expand=author"]
    ) {
      const get = (etag: string) =>
        app.request("GET", path, { headers: { "if-none-match": etag } });
      const first = await app.request("GET", path);
      const etag = first.headers.get("etag") ?? "";
      assert.match(etag, /^W\//);
      assert.equal(first.headers.get("last-modified"), null);
      assert.equal((await get(etag)).status, 304);
      const since = {
        "if-modified-since": new Date(Date.now() + 1e6).toUTCString(),
      };
      assert.equal(
        (await app.request("GET", path, { headers: since })).status,
        200,
      );
      await app.send("PATCH", "authors/1", { name: `A${path.length}` });
      const changed = await get(etag);
      assert.equal(changed.status, 200);
      assert.ok(changed.text.includes(`A${path.length}`));
      const asAdmin = await app.request("GET", path, { token: app.token });
      assert.notEqual(asAdmin.headers.get("etag"), changed.headers.get("etag"));
    }
    const plain = await app.request("GET", "/v1/books/1");
    assert.match(plain.headers.get("etag") ?? "", /^"/);
  });

  test("works with lines, HEAD and QUERY", { skip }, async (t) => {
    const app = await start();
    t.after(() => app.stop());
    const lines = await app.request(
      "GET",
      "/v1/books?expand=author&sortby=id",
      {
        headers: { accept: "application/x-ndjson" },
      },
    );
    const [first = ""] = lines.text.split("\n");
    const { id, author } = JSON.parse(first);
    assert.deepEqual([id, author.name], [1, "Ada"]);
    assert.equal(
      (await app.request("HEAD", "/v1/books?expand=author")).status,
      200,
    );
    const query = await app.request("QUERY", "/v1/books", {
      raw: "expand=author&title=one",
      headers: { "content-type": "application/x-www-form-urlencoded" },
    });
    assert.equal(
      (query.body[0]?.["author"] as unknown as { id: number }).id,
      1,
    );
  });
});
