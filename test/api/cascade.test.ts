import { strict as assert } from "node:assert";
import { test } from "node:test";
import { collection } from "../../src/api/declaration/declaration.ts";
import { reference, string } from "../../src/api/declaration/properties.ts";
import type { Mutation } from "../../src/store/store.ts";
import { startApplication } from "../application.ts";
import { adminPassword } from "../harness.ts";

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
    await post("/v1/users", {
      username: "kim",
      role: "keeper",
      password: adminPassword,
    });
    const keeper = await app.signIn("kim");
    await post("/v1/shelves", { name: "a" });
    await post("/v1/shelves", { name: "b" });
    await post("/v1/shelves/1/books", { name: "c" });
    await post("/v1/books", { name: "d", shelf_id: 1 });
    await post("/v1/books/1/pages", {});
    await post("/v1/books/2/pages", {});
    await post("/v1/pages", { book_id: 2 });

    const path = "/v1/shelves/1?cascade=true";
    const refused = await app.request("DELETE", path, { token: keeper });
    assert.equal(refused.status, 403);
    assert.equal(refused.body.errorCode, 40300);
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
    assert.equal(unknown.body.errorCode, 40003);
  } finally {
    await app.stop();
  }
});

test("a cascade that would hold up other requests is refused", async () => {
  const app = await startApplication({ declarations: [shelves, books, pages] });
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
    assert.deepEqual([refused.status, refused.body.errorCode], [409, 40900]);
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
    assert.deepEqual([refused.status, refused.body.errorCode], [400, 40001]);
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
    await app.store.commit([["put", "shelves", { id, name: "last" }]], 0);
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
