import { strict as assert } from "node:assert";
import { test } from "node:test";
import { deriveCollections } from "../../src/api/declaration/declaration.ts";
import {
  integer,
  optional,
  reference,
  string,
} from "../../src/api/declaration/properties.ts";
import { parseParameters, parseQuery } from "../../src/api/query/parameters.ts";
import { featureNames } from "../../src/features.ts";
import { collections } from "../collections.ts";
import { startApplication } from "../application.ts";
import { fetchLines, fromLines } from "../lines.ts";

test("the parameters of a URL are decoded; a plus sign is a plus sign", () => {
  const table: readonly [string, [string, string][]][] = [
    ["", []],
    ["&&", []],
    ["a=1&b=", [["a", "1"], ["b", ""]]],
    ["a", [["a", ""]]],
    ["a=b=c", [["a", "b=c"]]],
    ["a=1+2", [["a", "1+2"]]],
    ["a+b=+", [["a+b", "+"]]],
    ["a=1%2B2%20%C3%A9", [["a", "1+2 é"]]],
    ["a=é", [["a", "é"]]],
  ];
  for (const [text, parameters] of table) {
    assert.deepEqual([...parseParameters(text)], parameters, text);
  }
});

test("a declaration can set the sort order of its collection, which sortby overrides", async (t) => {
  const access = { read: "anyone", write: "keeper", delete: "keeper" } as const;
  const title = string({ maxLength: 9 });
  const shelves = { name: "shelves", singular: "shelf", access };
  const books = {
    name: "books",
    singular: "book",
    access,
    properties: {
      shelf_id: reference("shelves"),
      title,
      pages: optional(integer()),
    },
    sort: ["pages", "title", "pages"],
  };
  const declarations = [{ ...shelves, properties: { title } }, books];
  const app = await startApplication({ declarations });
  t.after(() => app.stop());
  const { token } = app;
  await app.request("POST", "/v1/shelves", { token, json: { title: "A" } });
  const all = [["c", 2], ["b", null], ["a", 2], ["d", 1], ["b", null]];
  for (const [title, pages] of all) {
    const json = { shelf_id: 1, title, pages };
    await app.request("POST", "/v1/books", { token, json });
  }
  const orders: [string, number[]][] = [
    ["", [4, 3, 1, 2, 5]],
    ["order=desc", [1, 3, 4, 5, 2]],
    ["pages=2", [3, 1]],
    ["pages:gt=1&order=desc", [1, 3]],
    ["sortby=id", [1, 2, 3, 4, 5]],
    ["sortby=title&order=desc", [4, 1, 5, 2, 3]],
  ];
  const ids = (records: readonly { id: number }[]) =>
    records.map(({ id }) => id);
  for (const [query, expected] of orders) {
    for (const path of ["/v1/books", "/v1/shelves/1/books"]) {
      const page = await app.request("GET", `${path}?${query}`);
      assert.deepEqual(ids(page.body), expected, `${path}?${query}`);
    }
    const form = { "content-type": "application/x-www-form-urlencoded" };
    const options = { raw: query, headers: form };
    if (featureNames.includes("negotiation")) {
      const queried = await app.request("QUERY", "/v1/books", options);
      assert.deepEqual(ids(queried.body), expected, `QUERY ${query}`);
    }
    if (!featureNames.includes("imports")) continue;
    const lines = await fetchLines(app, `/v1/books?${query}`);
    // In the order in which they can be imported, unless another is asked for.
    const exported = /sortby|order/.test(query)
      ? expected
      : expected.toSorted();
    assert.deepEqual(ids(fromLines(lines.text)), exported, `export ${query}`);
  }
  if (featureNames.includes("openapi")) {
    const { body } = await app.request("GET", "/v1/openapi.json");
    const defaults = Object.values(body.components.parameters as object)
      .filter(({ name }) => name === "sortby")
      .map(({ schema }) => schema.default.join());
    assert.ok(defaults.includes("pages,title,pages"), String(defaults));
  }
});

test("a query has at most a hundred parameters, and a list at most a thousand values", () => {
  const names = (count: number) =>
    Array.from({ length: count }, (_, index) => `p${index}=1`).join("&");
  assert.equal(parseParameters(names(100)).size, 100);
  assert.throws(() => parseParameters(names(101)), {
    code: 40003,
    message: /at most 100 /,
  });
  const zoos = deriveCollections(collections).get("zoos");
  assert.ok(zoos);
  const ids = (count: number) =>
    parseQuery(
      zoos,
      parseParameters(`id:in=${Array(count).fill("7").join(",")}`),
    );
  assert.equal(ids(1000).filters[0]?.valueSet?.size, 1);
  assert.throws(() => ids(1001), { code: 40004, message: /at most 1000 / });
});

test("records are sorted by at most eight properties", () => {
  const names = Array.from(
    "abcdefghi",
    (name) => [name, string({ maxLength: 9 })] as const,
  );
  const declaration = {
    name: "books",
    singular: "book",
    access: { read: "anyone", write: "keeper", delete: "keeper" },
    properties: Object.fromEntries(names),
  };
  const [books = assert.fail()] = deriveCollections([declaration]).values();
  const parse = (sortby: string) =>
    parseQuery(books, new Map([["sortby", sortby]]));
  assert.equal(parse("a,b,c,d,e,f,g,h").sort.length, 9); // and the id
  assert.throws(() => parse("a,b,c,d,e,f,g,h,i"), {
    code: 40004,
    message: /must be a list of at most 8 different properties/,
  });
});
