import { strict as assert } from "node:assert";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { vocabulary } from "../../src/cli/declaration/checked-vocabulary.ts";
import { tablesOf } from "../../src/api/routes.ts";
import { loadSeed, seedEmptyStore } from "../../src/api/seed.ts";
import { withCheckedRule } from "../../src/cli/declaration/checked-rule.ts";
import { apiOf, sample } from "../collections.ts";
import { recordsOf } from "../../src/api/records/local.ts";
import { openStore } from "../../src/store/store.ts";
import { removeFolder, root, temporaryFolder } from "../harness.ts";

const folder = await temporaryFolder();
after(() => removeFolder(folder));
let stores = 0;

/** Loads a seed into a new store, and returns the ids of its records by collection. */
async function load(
  text: string,
  declaration = sample,
): Promise<Record<string, number[]>> {
  const store = await openStore({
    folder: join(folder, String(++stores)),
    tables: tablesOf(declaration, []),
  });
  try {
    const all = new Map(
      declaration.collections
        .map(({ name }) => [name, recordsOf(store, declaration, name)]),
    );
    try {
      await store.durable(loadSeed(store, declaration, text).seq);
    } catch (error) {
      assert.equal(store.seq, 0);
      for (const { table } of all.values()) {
        assert.equal(table.size + table.lastId + table.lastSeq, 0);
      }
      throw error;
    }
    return Object.fromEntries(
      Array.from(all, ([name, { table }]) => [
        name,
        table.rows().map(({ document }) => document.id),
      ]),
    );
  } finally {
    await store.close();
  }
}

const loadJson = (seed: unknown) => load(JSON.stringify(seed));

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

test("a check that throws names its record", async () => {
  const { collection, string } = vocabulary;
  const books = collection({
    name: "books",
    singular: "book",
    access: { read: "anyone", write: "keeper", delete: "keeper" },
    properties: { title: string({ maxLength: 9 }) },
    check: () => {
      throw new Error("a mistake");
    },
  });
  await assert.rejects(
    load('{"books":[{"title":"a"}]}', apiOf([withCheckedRule(books)])),
    /books\[0\] in the seed: The check of books failed: a mistake/,
  );
});

test("the sample records fill every collection with varied data", async () => {
  const text = await readFile(join(root, "data/seed.json"), "utf8");
  const ids = await load(text);
  const count = (name: string) => ids[name]?.length ?? 0;
  assert.ok(count("zoos") >= 12);
  assert.ok(count("animals") >= 250);
  assert.equal(count("employees"), 60);
  const { animals } = JSON.parse(text);
  const species = new Set(
    animals.map((animal: { species: string }) => animal.species),
  );
  assert.ok(species.size >= 40);
});

test("a store that an import is to fill is not empty", async () => {
  const store = await openStore({
    folder: join(folder, String(++stores)),
    tables: [...tablesOf(sample, []), { name: "tasks" }],
  });
  const seed = () =>
    seedEmptyStore(store, sample, JSON.stringify({ zoos: [zoo] }));
  try {
    for (const status of ["queued", "running"]) {
      store.apply([["put", "tasks", { id: 1, type: "import", status }]], 0);
      assert.equal(seed().seq, store.seq);
      assert.equal(store.table("zoos").lastId, 0);
    }
    const ended = { id: 1, type: "import", status: "failed" };
    const other = { id: 2, type: "deletion", status: "queued" };
    store.apply([["put", "tasks", ended], ["put", "tasks", other]], 0);
    await store.durable(seed().seq);
    assert.equal(store.table("zoos").size, 1);
  } finally {
    await store.close();
  }
});

test("a record without an id gets the next one", async () => {
  const { zoos } = await loadJson({
    zoos: [zoo, { ...zoo, id: 7 }, zoo, { ...zoo, id: 3 }],
  });
  assert.deepEqual(zoos, [1, 3, 7, 8]);
});

test("a record may refer to one that comes later in the file", async () => {
  const animal = { zoo_id: 1, animal_type_id: 1, name: "Ada" };
  const { animals } = await loadJson({ animals: [animal], zoos: [zoo] });
  assert.deepEqual(animals, [1]);
});

test("an error names the record and the property, and nothing is stored", async () => {
  const employee = { zoo_id: 1, name: "A", job_title: "Vet" };
  const cases: readonly [unknown, RegExp][] = [
    [[], /must be a JSON object/],
    [{ planets: [] }, /"planets".*zoos, animals, employees/],
    [{ zoos: {} }, /"zoos" in the seed is not an array/],
    [{ zoos: [7] }, /zoos\[0\].*not an object/],
    [{ zoos: [zoo, { ...zoo, country: "nl" }] }, /zoos\[1\].*"country"/],
    [{ zoos: [{ ...zoo, id: "1" }] }, /zoos\[0\].*"id"/],
    [{ zoos: [{ ...zoo, id: 1 }, { ...zoo, id: 1 }] }, /zoos\[1\].*"id" 1/],
    [
      { animals: [{ zoo_id: 1, animal_type_id: 1, name: "A" }] },
      /animals\[0\].*"zoo_id"/,
    ],
    [
      {
        zoos: [zoo],
        employees: [
          { ...employee, email: "a@example.org" },
          { ...employee, email: "A@example.org" },
        ],
      },
      /employees\[1\].*"email"/,
    ],
  ];
  for (const [seed, message] of cases) {
    await assert.rejects(loadJson(seed), { message });
  }
  await assert.rejects(load("{"), { code: 40001 });
  await assert.rejects(load("[".repeat(100)), {
    message: /at most 1000000000 names and arrays, in at most 64 levels/,
  });
});

test("records that refer to each other are loaded in whatever order they are declared", async () => {
  const { collection, reference, optional } = vocabulary;
  const access = { read: "anyone", write: "keeper", delete: "keeper" };
  const books = collection({
    name: "books",
    singular: "book",
    access,
    properties: {
      author_id: reference("authors"),
      sequel_of_id: optional(reference("books", { as: "sequels" })),
      shelf_id: optional(reference("shelves")),
    },
  });
  const authors = collection({
    name: "authors",
    singular: "author",
    access,
    properties: { best_id: optional(reference("books", { as: "fans" })) },
  });
  const shelves = collection({
    name: "shelves",
    singular: "shelf",
    access,
    properties: {},
  });
  const seed = {
    books: [{ author_id: 1, shelf_id: 1 }, { author_id: 1, sequel_of_id: 1 }],
    authors: [{}],
    shelves: [{}],
  };
  const orders = [[books, authors, shelves], [shelves, authors, books]];
  for (const collections of orders) {
    const ids = await load(JSON.stringify(seed), { ...sample, collections });
    assert.deepEqual(ids, { books: [1, 2], authors: [1], shelves: [1] });
  }
  // References may lead to later records, and in circles.
  const collections = [books, authors, shelves];
  const later = {
    ...seed,
    books: [{ author_id: 1, sequel_of_id: 2 }, {
      author_id: 1,
      sequel_of_id: 2,
    }],
    authors: [{ best_id: 1 }],
  };
  const api = { ...sample, collections };
  assert.deepEqual((await load(JSON.stringify(later), api)).books, [1, 2]);
  const nowhere = { ...later, authors: [{ best_id: 3 }] };
  await assert.rejects(load(JSON.stringify(nowhere), api), {
    message: /^authors\[0\] in the seed: "best_id" is 3, which does not exist/,
  });
  await assert.rejects(
    load(JSON.stringify(later), { ...sample, collections: [books, authors] }),
    { message: /^the seed has "shelves", which is not a collection/ },
  );
});
