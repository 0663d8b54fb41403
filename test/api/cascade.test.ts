import { strict as assert } from "node:assert";
import { test } from "node:test";
import { collection } from "../../src/api/declaration/declaration.ts";
import {
  optional,
  reference,
  string,
} from "../../src/api/declaration/properties.ts";
import type { Mutation } from "../../src/store/store.ts";
import { startApplication } from "../application.ts";
import { assertError, signInNew } from "../harness.ts";
import { featureNames } from "../../src/features.ts";
import { startLibrary } from "../library.ts";
import { commit } from "../commit.ts";

const shelves = collection({
  name: "shelves",
  singular: "shelf",
  access: { read: "anyone", write: "keeper", delete: "keeper" },
  properties: { name: string({ maxLength: 9 }) },
});
const books = collection({
  name: "books",
  singular: "book",
  access: { read: "anyone", write: "keeper", delete: "admin" },
  properties: {
    shelf_id: reference("shelves"),
    name: string({ maxLength: 9 }),
  },
});
const pages = collection({
  name: "pages",
  singular: "page",
  access: { read: "anyone", write: "keeper", delete: "admin" },
  properties: { book_id: reference("books") },
});

test("a cascade requires the role for every collection that it deletes from, and deletes all or nothing", async () => {
  const app = await startApplication({ declarations: [shelves, books, pages] });
  try {
    const { token } = app;
    const post = (path: string, json: unknown) =>
      app.request("POST", path, { token, json });
    const user = { token, username: "kim", role: "keeper" };
    const keeper = await signInNew(app, user);
    await post("/v1/shelves", { name: "a" });
    await post("/v1/shelves", { name: "b" });
    await post("/v1/shelves/1/books", { name: "c" });
    await post("/v1/books", { name: "d", shelf_id: 1 });
    await post("/v1/books/1/pages", {});
    await post("/v1/books/2/pages", {});
    await post("/v1/pages", { book_id: 2 });

    const path = "/v1/shelves/1?cascade=true";
    const refused = await app.request("DELETE", path, { token: keeper });
    assertError(refused, 40300);
    assert.match(refused.body.message, /books.*admin/);
    assert.equal(app.store.table("pages").size, 3);

    const conflict = await app.request("DELETE", "/v1/shelves/1", { token });
    assert.equal(conflict.status, 409);
    assert.match(conflict.body.error, /still has 2 books:/);

    const { seq } = app.store;
    const deleted = await app.request("DELETE", path, { token });
    assert.equal(deleted.status, 204);
    assert.equal(app.store.seq, seq + 1, "one transaction");
    const sizes = ["shelves", "books", "pages"].map((name) =>
      app.store.table(name).size
    );
    assert.deepEqual(sizes, [1, 0, 0]);
    const unreferenced = await app.request("DELETE", "/v1/shelves/2", {
      token: keeper,
    });
    assert.equal(unreferenced.status, 204);
    const unknown = await app.request("DELETE", "/v1/pages/1?cascade=true", {
      token,
    });
    assertError(unknown, 40003);
  } finally {
    await app.stop();
  }
});

/** With this feature a large cascade is a task. */
const features = featureNames.filter((name) => name !== "deletions");

test("a cascade that would hold up other requests is refused", async () => {
  const declarations = [shelves, books, pages];
  const app = await startApplication({ declarations, features });
  try {
    const { token, store } = app;
    store.apply([["put", "shelves", { id: 1, name: "a" }]], 0);
    const put = (table: string, id: number, values: object): Mutation => [
      "put",
      table,
      { id, ...values },
    ];
    const books = Array.from(
      { length: 1000 },
      (_, index) => put("books", index + 1, { shelf_id: 1, name: "b" }),
    );
    const pages = Array.from(
      { length: 1001 },
      (_, index) => put("pages", index + 1, { book_id: 7 }),
    );
    store.apply([...books, ...pages], 0);
    const path = "/v1/shelves/1?cascade=true";
    const refused = await app.request("DELETE", path, { token });
    assertError(refused, 40900);
    assert.match(refused.body.error, /more than 2000 records/);
    assert.equal(store.table("books").size, 1000);
    await app.request("DELETE", "/v1/pages/9", { token });
    const deleted = await app.request("DELETE", path, { token });
    assert.equal(deleted.status, 204);
    assert.deepEqual(
      ["shelves", "books", "pages"].map((name) => store.table(name).size),
      [0, 0, 0],
    );
  } finally {
    await app.stop();
  }
});

test("a body with a thousand unknown names has an error for each, and one with more is refused", async () => {
  const app = await startApplication({ declarations: [shelves] });
  try {
    const post = (count: number) => {
      const names = Array.from({ length: count }, (_, at) => [`p${at}`, 1]);
      const json = Object.fromEntries(names);
      return app.request("POST", "/v1/shelves", { token: app.token, json });
    };
    const refused = await post(1001);
    assertError(refused, 40001);
    const response = await post(1000);
    assert.equal(response.status, 422);
    assert.equal(response.body.errors.length, 1001);
    assert.ok(response.text.length < 200_000, `${response.text.length}`);
  } finally {
    await app.stop();
  }
});

test("a collection that has assigned the highest possible id refuses new records", async () => {
  const app = await startApplication({ declarations: [shelves] });
  try {
    const id = Number.MAX_SAFE_INTEGER;
    await commit(app.store, [["put", "shelves", { id, name: "last" }]], 0);
    const response = await app.request("POST", "/v1/shelves", {
      token: app.token,
      json: { name: "more" },
    });
    assert.equal(response.status, 503);
    assert.match(response.body.error, /highest id/);
    assert.equal(app.store.table("shelves").size, 1);
  } finally {
    await app.stop();
  }
});

test("a cascade empties the optional references to what it deletes, in the same transaction", async (t) => {
  const app = await startLibrary({ now: () => 1e12 });
  t.after(() => app.stop());
  const { send, store } = app;
  await send("POST", "authors", { name: "Ada" });
  await send("POST", "authors", { name: "Bob" });
  await send("POST", "books", { title: "A", author_id: 1, translator_id: 1 });
  await send("POST", "books", { title: "B", author_id: 2, translator_id: 1 });
  await send("POST", "books", { title: "C", sequel_of_id: 1 });
  const refused = await send("DELETE", "authors/1");
  assert.equal(
    refused.body.error,
    "The author 1 still has 1 book and 2 books (translations): delete or change them first, or use ?cascade=true.",
  );
  const { seq } = store;
  const before = await send("GET", "books/1");
  const deleted = await send("DELETE", "authors/1?cascade=true");
  assert.equal(deleted.status, 204);
  assert.equal(store.seq, seq + 1, "one transaction");
  const after = await send("GET", "books/1");
  const { updated_at } = after.body;
  assert.deepEqual(after.body, {
    ...before.body,
    author_id: null,
    author_url: null,
    translator_id: null,
    translator_url: null,
    updated_at,
  });
  assert.ok(updated_at > before.body.updated_at);
  const { body: other } = await send("GET", "books/2");
  assert.deepEqual([other.author_id, other.translator_id], [2, null]);
  assert.equal((await send("GET", "books?author_id=null")).body.length, 2);
});

test("a record that only refers to itself can be deleted, and one in a cycle by a cascade", async (t) => {
  const app = await startLibrary();
  t.after(() => app.stop());
  const { send, store } = app;
  await send("POST", "books", { title: "A" });
  await send("PATCH", "books/1", { sequel_of_id: 1 });
  await send("POST", "books/1/sequels", { title: "B" });
  const refused = await send("DELETE", "books/1");
  assert.match(refused.body.error, /still has 1 book \(sequels\): /);
  await send("PATCH", "books/2", { sequel_of_id: 2 });
  assert.equal((await send("DELETE", "books/1")).status, 204);
  await send("POST", "books/2/sequels", { title: "C" });
  await send("PATCH", "books/2", { sequel_of_id: 3 });
  assert.equal((await send("DELETE", "books/2?cascade=true")).status, 204);
  assert.equal(store.table("books").get(3)?.document["sequel_of_id"], null);
});

test("a cascade that empties a reference requires write access, and must not break a rule of that record", async (t) => {
  const parts = collection({
    name: "parts",
    singular: "part",
    access: { read: "anyone", write: "admin", delete: "keeper" },
    properties: {
      shelf_id: optional(reference("shelves")),
      note: optional(string({ maxLength: 9 })),
    },
    check: ({ shelf_id, note }) =>
      shelf_id === null && note === null
        ? { note: "must be there without a shelf" }
        : undefined,
  });
  const app = await startLibrary({ declarations: [shelves, parts] });
  t.after(() => app.stop());
  const { send, store } = app;
  const keeper = await app.join("kim", "keeper");
  await send("POST", "shelves", { name: "a" });
  await send("POST", "parts", { shelf_id: 1 });
  const { seq } = store;
  const path = "shelves/1?cascade=true";
  const forbidden = await send("DELETE", path, undefined, keeper);
  assert.equal(forbidden.status, 403);
  assert.equal(
    forbidden.body.errorMsg,
    "Deleting the shelf would also change parts, which requires the role admin.",
  );
  const broken = await send("DELETE", path);
  assert.equal(broken.status, 409);
  assert.equal(
    broken.body.error,
    'Deleting the shelf would break a rule of the part 1: "note" must be there without a shelf.',
  );
  assert.equal(store.seq, seq);
  await send("PATCH", "parts/1", { note: "x" });
  assert.equal((await send("DELETE", path)).status, 204);
  assert.equal(store.table("parts").get(1)?.document["shelf_id"], null);
});

test("records that a cascade changes count towards its limit, each once", async (t) => {
  const app = await startLibrary({ features });
  t.after(() => app.stop());
  const { send, store } = app;
  await send("POST", "authors", { name: "Ada" });
  const book = (id: number): Mutation => [
    "put",
    "books",
    { id, author_id: 1, translator_id: 1, sequel_of_id: id },
  ];
  store.apply(Array.from({ length: 2001 }, (_, index) => book(index + 1)), 0);
  const path = "authors/1?cascade=true";
  const refused = await send("DELETE", path);
  assert.equal(refused.status, 409);
  assert.match(refused.body.error, /delete or change more than 2000 records/);
  await send("DELETE", "books/2001");
  assert.equal((await send("DELETE", path)).status, 204);
  assert.equal(store.table("books").count("author_id", 1), 0);
  assert.equal(store.table("books").size, 2000);
});

test("a cascade that would change records of more than four mebibytes is refused", async (t) => {
  const app = await startLibrary({ features });
  t.after(() => app.stop());
  const { send, store } = app;
  await send("POST", "authors", { name: "Ada" });
  const title = "é".repeat(1 << 19); // a mebibyte
  const book = (id: number): Mutation => [
    "put",
    "books",
    { id, author_id: 1, translator_id: 1, title },
  ];
  store.apply([1, 2, 3, 4].map(book), 0);
  const path = "authors/1?cascade=true";
  const refused = await send("DELETE", path);
  assert.equal(refused.status, 409);
  assert.match(
    refused.body.error,
    /also change more than 4 MiB of records: delete or change some of them first/,
  );
  await send("DELETE", "books/4");
  assert.equal((await send("DELETE", path)).status, 204);
  assert.equal(store.table("books").count("author_id", 1), 0);
});

/** A record of the graphs below: its references are ids of the same or the other kind. */
type Node = { id: number } & Record<string, number | null>;
type Graph = Record<"as" | "bs" | "cs", Map<number, Node>>;

const nodes = { read: "anyone", write: "keeper", delete: "keeper" };
const graphReferences = {
  as: { peer_id: ["as", "peers"], b_id: ["bs", "owners"] },
  bs: { a_id: ["as"], twin_id: ["bs", "twins"] },
  cs: { a_id: ["as"], b_id: ["bs"], other_a_id: ["as", "others"] },
} as const;
/** The references that are not optional. */
const required = ["bs a_id", "cs b_id"];
const graphDeclarations = Object.entries(graphReferences).map(
  ([name, references]) =>
    collection({
      name,
      singular: name.slice(0, 1),
      access: nodes,
      properties: Object.fromEntries(
        Object.entries(references).map(([property, [target, as]]) => {
          const of = reference(target, { as });
          const isRequired = required.includes(`${name} ${property}`);
          return [property, isRequired ? of : optional(of)];
        }),
      ),
    }),
);

/** Deletes in the simplest way: until nothing refers to a deleted record. */
function deleteNaively(graph: Graph, kind: keyof Graph, id: number): void {
  graph[kind].delete(id);
  for (const name of ["as", "bs", "cs"] as const) {
    for (const node of [...graph[name].values()]) {
      for (
        const [property, [target]] of Object.entries(graphReferences[name])
      ) {
        if (!graph[name].has(node.id)) break;
        const to = node[property] ?? null;
        if (to === null || graph[target as keyof Graph].has(to)) continue;
        if (!required.includes(`${name} ${property}`)) continue;
        deleteNaively(graph, name, node.id);
      }
    }
  }
}

test("after a cascade in any graph no reference is dangling, and nothing else has changed", async (t) => {
  let state = 7;
  const random = (below: number) => {
    state = state * 48271 % 2147483647;
    return state % below;
  };
  const app = await startLibrary({ declarations: graphDeclarations });
  t.after(() => app.stop());
  const { send, store } = app;
  const kinds = ["as", "bs", "cs"] as const;
  for (let round = 0; round < 60; round++) {
    const first = round * 100;
    const count = 2 + random(8);
    const pick = (isRequired: boolean) =>
      isRequired || random(3) > 0 ? first + 1 + random(count) : null;
    const puts = kinds.flatMap((name) =>
      Array.from({ length: count }, (_, index): Mutation => {
        const values = Object.keys(graphReferences[name]).map((property) => [
          property,
          pick(required.includes(`${name} ${property}`)),
        ]);
        const at = "2026-01-01T00:00:00.000Z";
        const times = { created_at: at, updated_at: at };
        const id = first + index + 1;
        return ["put", name, { id, ...Object.fromEntries(values), ...times }];
      })
    );
    store.apply(puts, 0);
    const read = () =>
      new Map(kinds.map((name) => [
        name,
        new Map(
          store.table(name).rows().map((
            { document },
          ) => [document.id, document]),
        ),
      ]));
    const before = read();
    const kind = kinds[random(2)] ?? "as";
    const id = first + 1 + random(count);
    const expected = Object.fromEntries(
      kinds.map((name) => [name, new Map(before.get(name))]),
    ) as unknown as Graph;
    deleteNaively(expected, kind, id);
    const { status } = await send("DELETE", `${kind}/${id}?cascade=true`);
    assert.equal(status, 204);
    const after = read();
    for (const name of kinds) {
      const rows = after.get(name) ?? new Map();
      assert.deepEqual([...rows.keys()], [...expected[name].keys()]);
      for (const [id, document] of rows) {
        const old = before.get(name)?.get(id);
        const emptied = { ...old };
        for (
          const [property, [target]] of Object.entries(graphReferences[name])
        ) {
          const to = Number(old?.[property] ?? 0);
          const isGone = to > 0 && !expected[target as keyof Graph].has(to);
          if (isGone) emptied[property] = null;
        }
        const isSame = JSON.stringify(emptied) === JSON.stringify(old);
        if (!isSame) emptied["updated_at"] = document["updated_at"];
        assert.deepEqual(document, emptied, `${name} ${id}, round ${round}`);
        assert.equal(document["updated_at"] !== old?.["updated_at"], !isSame);
      }
    }
  }
});

test("no message tells of records that the caller may not read", async (t) => {
  const diaries = collection({
    name: "diaries",
    singular: "diary",
    access: { read: "admin", write: "keeper", delete: "keeper" },
    properties: {
      shelf_id: optional(reference("shelves")),
      text: string({ maxLength: 9 }),
    },
    check: ({ shelf_id, text }) =>
      shelf_id === null ? { text: `must have a shelf: ${text}` } : {},
  });
  const notes = collection({
    name: "notes",
    singular: "note",
    access: { read: "anyone", write: "keeper", delete: "keeper" },
    properties: { diary_id: optional(reference("diaries")) },
  });
  const app = await startLibrary({ declarations: [shelves, diaries, notes] });
  t.after(() => app.stop());
  const { send } = app;
  const keeper = await app.join("kim", "keeper");
  await send("POST", "shelves", { name: "a" });
  for (const text of ["secret 1", "secret 2"]) {
    await send("POST", "diaries", { text, shelf_id: 1 });
  }
  const path = "shelves/1?cascade=true";
  const refused = async (url: string, token?: string) =>
    (await send("DELETE", url, undefined, token)).body.error;
  assert.match(await refused("shelves/1", keeper), /^[^2]* still has diaries:/);
  assert.match(await refused("shelves/1"), /still has 2 diaries:/);
  assert.match(
    await refused(path, keeper),
    /would break a rule of the diary\.$/,
  );
  assert.match(
    await refused(path),
    /the diary 1: .* must have a shelf: secret 1/,
  );
  await send("DELETE", "diaries/2");
  const statuses = async (token: string) => [
    (await send("GET", "diaries/2/notes", undefined, token)).status,
    (await send("GET", "diaries/3/notes", undefined, token)).status,
  ];
  assert.deepEqual(await statuses(keeper), [404, 404]);
  assert.deepEqual(await statuses(app.token), [410, 404]);
});
