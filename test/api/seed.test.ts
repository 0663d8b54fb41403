import { strict as assert } from "node:assert";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { tablesOf } from "../../src/api/routes.ts";
import { loadSeed } from "../../src/cli/seed.ts";
import { sample } from "../collections.ts";
import { recordsOf } from "../../src/data-folder.ts";
import { openStore } from "../../src/store/store.ts";
import { removeFolder, root, temporaryFolder } from "../harness.ts";

const folder = await temporaryFolder();
after(() => removeFolder(folder));
let stores = 0;

/** Loads a seed into a new store, and returns the ids of its records by collection. */
async function load(text: string): Promise<Record<string, number[]>> {
  const store = await openStore({
    folder: join(folder, String(++stores)),
    tables: tablesOf(sample, []),
  });
  try {
    const all = new Map(
      sample.collections
        .map(({ name }) => [name, recordsOf(store, sample, name)]),
    );
    try {
      await store.durable(loadSeed(store, sample, text).seq);
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
});
