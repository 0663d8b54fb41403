import { strict as assert } from "node:assert";
import { test } from "node:test";
import {
  type Declaration,
  deriveCollections,
  toIndexKey,
} from "../../src/api/declaration/declaration.ts";
import {
  boolean,
  integer,
  optional,
  type Property,
  reference,
  string,
  unique,
} from "../../src/api/declaration/properties.ts";
import { collections } from "../collections.ts";
import { importLines } from "../lines.ts";
import { startApplication } from "../application.ts";
import { lacks } from "../harness.ts";
import { commit } from "../commit.ts";

function declaration(
  name: string,
  properties: Readonly<Record<string, Property>> = {},
): Declaration {
  const access = { read: "anyone", write: "keeper", delete: "keeper" } as const;
  return { name, singular: "thing", access, properties };
}

test("references can be followed both ways, and two to one collection have two names", () => {
  const derived = deriveCollections([
    ...collections,
    declaration("transfers", {
      from_zoo_id: reference("zoos"),
      to_zoo_id: optional(reference("zoos", { as: "arrivals" })),
    }),
  ]);
  assert.deepEqual(derived.get("zoos")?.urlProperties.map(({ name }) => name), [
    "url",
    "animals_url",
    "employees_url",
    "transfers_url",
    "arrivals_url",
  ]);
  assert.deepEqual(
    derived.get("transfers")?.urlProperties.map(({ name }) => name),
    [
      "url",
      "from_zoo_url",
      "to_zoo_url",
    ],
  );
});

test("a stored null is shown as the default of a property that is not nullable", async () => {
  const sex = collections[1]?.properties["sex"];
  assert.equal(sex?.default, "unknown");
  const app = await startApplication();
  try {
    const at = "2026-01-01T00:00:00.000Z";
    await commit(app.store, [["put", "animals", {
      id: 1,
      zoo_id: 1,
      animal_type_id: 1,
      name: "Otto",
      species: null,
      sex: null, // stored before the declaration had a default
      born_on: null,
      weight_kg: null,
      created_at: at,
      updated_at: at,
    }]], 0);
    for (const path of ["animals/1", "animals/1?fields=sex", "animals"]) {
      const { body } = await app.request("GET", `/v1/${path}`);
      assert.equal([body]?.flat()[0]?.sex, "unknown", path);
    }
    const found = await app.request("GET", "/v1/animals?sex=unknown");
    assert.equal(found.body.length, 1);
  } finally {
    await app.stop();
  }
});

test("strings that differ only in case have the same key, even with a final sigma", () => {
  for (
    const [one, other] of [["Leo", "lEO"], ["\u0391\u03a3", "\u03b1\u03c3"]]
  ) {
    assert.equal(toIndexKey(one), toIndexKey(other));
  }
  assert.notEqual(toIndexKey("a"), toIndexKey("\u00e4"));
});

test("a filter sees the default of a reference that an older record lacks", async () => {
  const books = declaration("books", {
    author_id: optional(reference("authors"), 7),
  });
  const app = await startApplication({
    declarations: [declaration("authors"), books],
  });
  try {
    const at = "2026-01-01T00:00:00.000Z";
    const times = { created_at: at, updated_at: at };
    await commit(app.store, [
      ["put", "authors", { id: 7, ...times }],
      ["put", "books", { id: 1, ...times }],
      ["put", "books", { id: 2, author_id: 7, ...times }],
      ["put", "books", { id: 3, author_id: 8, ...times }],
    ], 0);
    for (
      const query of ["author_id=7", "author_id=7&id:gt=0&sortby=author_id"]
    ) {
      const { body } = await app.request("GET", `/v1/books?${query}`);
      assert.deepEqual(body.map(({ id }: { id: number }) => id), [1, 2], query);
    }
    const one = await app.request("GET", "/v1/authors/7/books/1");
    assert.deepEqual([one.status, one.body.author_url], [200, "/v1/authors/7"]);
  } finally {
    await app.stop();
  }
});

test(
  "a group of properties is unique together, whichever request writes them",
  {
    skip: lacks("imports"),
  },
  async (t) => {
    const loans = {
      ...declaration("loans", {
        reader: optional(string({ maxLength: 9 })),
        copy: optional(integer(), 1),
        note: optional(string({ maxLength: 9 })),
      }),
      unique: [["reader", "copy"], ["copy", "note"]],
    };
    const app = await startApplication({ declarations: [loans] });
    t.after(() => app.stop());
    const at = "2026-01-01T00:00:00.000Z";
    const old = { id: 1, reader: "Ada", created_at: at, updated_at: at };
    await commit(app.store, [["put", "loans", old]], 0);
    const send = async (method: string, path: string, json: object) => {
      const { token } = app;
      const { status, body } = await app.request(method, path, { token, json });
      if (status !== 422) return status;
      const { errors } = body;
      return errors.map(({ field, code }) => `${field} ${code}`);
    };
    const sharing = { reader: "ADA", copy: 1 };
    assert.deepEqual(await send("POST", "/v1/loans", sharing), [
      "reader unique",
    ]);
    assert.equal(
      await send("POST", "/v1/loans", { reader: "ada", copy: 2 }),
      201,
    );
    assert.equal(await send("POST", "/v1/loans", { copy: 2 }), 201);
    assert.equal(
      await send("POST", "/v1/loans", { copy: 2 }),
      201,
      "null differs",
    );
    const two = "/v1/loans/2";
    assert.deepEqual(await send("PUT", two, sharing), ["reader unique"]);
    assert.deepEqual(await send("PATCH", two, { copy: 1 }), ["reader unique"]);
    assert.equal(
      await send("PATCH", two, { note: "x" }),
      201,
      "its own values",
    );
    assert.deepEqual(
      await send("POST", "/v1/loans", { reader: "ada", copy: 2, note: "X" }),
      ["reader unique", "copy unique"],
    );
    assert.deepEqual(
      await send("POST", "/v1/loans", { reader: 7, copy: 2, note: "x" }),
      ["reader type", "copy unique"],
      "a group with an invalid value is not compared",
    );
    const imported = await importLines(app, "/v1/loans", {
      token: app.token,
      raw: '{"reader":"Bob"}\n{"reader":"bob"}\n',
    });
    assert.equal(imported.imported, 1);
    assert.match(
      imported.errors[0]?.errors[0]?.message ?? "",
      /^Another thing has the same "reader" and "copy": /,
    );
  },
);

test("a unique boolean is enforced, and can be looked up, also in a group of one", async (t) => {
  const lamps = {
    ...declaration("lamps", { is_main: unique(optional(boolean())) }),
    unique: [["is_main"]],
  };
  const app = await startApplication({ declarations: [lamps] });
  t.after(() => app.stop());
  const { token } = app;
  const statuses = [];
  for (const is_main of [true, false, null, null, true, false]) {
    const json = { is_main };
    const response = await app.request("POST", "/v1/lamps", { token, json });
    statuses.push(response.status);
  }
  assert.deepEqual(statuses, [201, 201, 201, 201, 422, 422]);
  const { body } = await app.request("GET", "/v1/lamps?is_main=false&id:gt=1");
  assert.deepEqual(body.map(({ id }: { id: number }) => id), [2]);
});

test("a stored property that is no longer declared survives every change", async (t) => {
  const app = await startApplication();
  t.after(() => app.stop());
  const { token } = app;
  const at = "2026-01-01T00:00:00.000Z";
  const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
  const stored = {
    id: 1,
    ...zoo,
    opened_on: null,
    website: null,
    motto: "Natura Artis Magistra",
    rooms: null,
    created_at: at,
    updated_at: at,
  };
  app.store.apply([["put", "zoos", stored]], 0);
  const patch = { city: "Haarlem" };
  for (const [method, body] of [["PATCH", patch], ["PUT", zoo]] as const) {
    const response = await app.request(method, "/v1/zoos/1", {
      token,
      json: body,
    });
    assert.equal(response.status, 201);
    assert.equal(Object.hasOwn(response.body, "motto"), false);
    const { document } = app.store.table("zoos").get(1) ?? {};
    assert.equal(document?.["city"], { ...zoo, ...body }.city);
    assert.equal(document?.["motto"], stored.motto);
    assert.equal(document?.["rooms"], null);
  }
});
