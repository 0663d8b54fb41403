import { strict as assert } from "node:assert";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { planSeed } from "../../src/api/seed.ts";
import { collections } from "../../src/collections.ts";
import { root } from "../harness.ts";

const at = "2026-01-01T00:00:00.000Z";
const plan = (seed: unknown) => planSeed(JSON.stringify(seed), collections, at);

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

test("the sample records are as many and as varied as they should be", async () => {
  const text = await readFile(join(root, "data/seed.json"), "utf8");
  const operations = planSeed(text, collections, at);
  const count = (name: string) =>
    operations.filter(([, table]) => table === name).length;
  assert.ok(count("zoos") >= 12);
  assert.ok(count("animals") >= 250);
  assert.equal(count("employees"), 60);
  const { animals } = JSON.parse(text);
  const species = new Set(
    animals.map((animal: { species: string }) => animal.species),
  );
  assert.ok(species.size >= 40);
});

test("records get the next id unless they bring one", () => {
  const ids = plan({ zoos: [zoo, { ...zoo, id: 7 }, zoo, { ...zoo, id: 3 }] })
    .map(([, , document]) => typeof document === "object" && document.id);
  assert.deepEqual(ids, [1, 7, 8, 3]);
});

test("a record may refer to one that stands later in the file", () => {
  const animal = { zoo_id: 1, animal_type_id: 1, name: "Ada" };
  assert.equal(plan({ animals: [animal], zoos: [zoo] }).length, 2);
});

test("what is wrong in a seed is named by record and property", () => {
  const employee = { zoo_id: 1, name: "A", job_title: "Vet" };
  const table: readonly [unknown, RegExp][] = [
    [[], /not a JSON object/],
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
  for (const [seed, message] of table) {
    assert.throws(() => plan(seed), { name: "SeedError", message });
  }
  assert.throws(() => planSeed("{", collections, at), { name: "SeedError" });
});
