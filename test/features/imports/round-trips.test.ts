/** What is exported is imported again, whatever refers to what. */

import { strict as assert } from "node:assert";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { recordsOf } from "../../../src/api/records/local.ts";
import { seedEmptyStore } from "../../../src/api/seed.ts";
import { tablesOf } from "../../../src/api/routes.ts";
import { loadFile } from "../../../src/cli/declaration/load-file.ts";
import { openDataFolder } from "../../../src/data-folder.ts";
import { openStore } from "../../../src/store/store.ts";
import { extension } from "../../root.ts";
import {
  command as mainCommand,
  removeFolder,
  reserveNothing,
  runNode,
  start,
  storedAdmin,
  temporaryFolder,
} from "../../harness.ts";
import { startApplication } from "../../application.ts";
import { apiOf } from "../../collections.ts";
import { vocabulary } from "../../../src/cli/declaration/checked-vocabulary.ts";
import { runHere, startHere } from "../../in-process.ts";
import { library, startLibrary } from "../../library.ts";
import {
  ended,
  fetchLines,
  fromLines,
  importLines,
  sendLines,
  taskWhen,
  toLines,
} from "../../lines.ts";
import { signalBeforeWrite } from "./interrupted.ts";
import { commit } from "../../commit.ts";

let own: string;
before(async () => own = await temporaryFolder());
after(() => removeFolder(own));

/** Returns a generator of numbers from 0 to below `limit`, the same for the same seed. */
function random(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (state * 1664525 + 1013904223) % 2 ** 32;
    return Math.floor(state / 2 ** 32 * limit);
  };
}

/** A reference of a generated collection, by the numbers of the collections. */
interface Reference {
  readonly property: string;
  readonly to: number;
  readonly isRequired: boolean;
}

/** Generates collections that refer to each other and to themselves, and records of them. */
function generate(seed: number) {
  const next = random(seed);
  const count = 1 + next(4);
  const references: Reference[][] = [];
  for (let from = 0; from < count; from++) {
    references[from] = Array.from({ length: next(4) }, (_, at) => {
      const to = next(count);
      const property = `r${at}_id`;
      // Required references form no circle.
      return { property, to, isRequired: to < from && next(2) === 0 };
    });
  }
  const ids = references.map(() => {
    let id = 0;
    return Array.from({ length: 1 + next(30) }, () => id += 1 + next(3));
  });
  const records = references.map((each, from) =>
    (ids[from] ?? []).map((id) => ({
      id,
      name: `record ${id} of ${from} Öß "\\`,
      ...Object.fromEntries(each.map(({ property, to, isRequired }) => {
        const others = ids[to] ?? [];
        const isEmpty = !isRequired && next(3) === 0;
        return [property, isEmpty ? null : others[next(others.length)]];
      })),
    }))
  );
  const collections = references.map((each, from) => {
    const properties = each.map(({ property, to, isRequired }, at) => {
      const word = `reference("c${to}", { as: "from_${from}_${at}" })`;
      return `${property}: ${isRequired ? word : `optional(${word})`},`;
    });
    return `collection({
      name: "c${from}", singular: "s${from}", private: ${next(4) === 0},
      access: { read: "viewer", write: "keeper", delete: "keeper" },
      properties: { name: string({ maxLength: 50 }), ${properties.join(" ")} },
    }),`;
  });
  const declaration =
    `export default ({ collection, string, optional, reference }) => ({
    collections: [${collections.join("\n")}],
  });`;
  const seeds = Object.fromEntries(
    records.map((each, from) => [`c${from}`, each]),
  );
  return { declaration, seeds, count, next };
}

async function command(folder: string, declaration: string, args: string[]) {
  const all = [...args, "--data-dir", folder, "--collections", declaration];
  const result = await runHere(all);
  assert.equal(result.code, 0, `${args.join(" ")}: ${result.stderr}`);
  return result.stdout;
}

/** Returns the content of all files in a folder. */
async function contentOf(folder: string): Promise<Record<string, string>> {
  const files = await readdir(folder);
  return Object.fromEntries(
    await Promise.all(files.map(async (file) => [
      file,
      await readFile(join(folder, file), "utf8"),
    ])),
  );
}

const rounds = process.env["WHOLE"] === "1" ? 12 : 5;

for (let seed = 1; seed <= rounds; seed++) {
  test(`a store that was exported is imported again: seed ${seed}`, async () => {
    const { declaration, seeds, count, next } = generate(seed);
    const place = (name: string) => join(own, `${seed}-${name}`);
    const file = place("api.mjs");
    await writeFile(file, declaration);
    const api = await loadFile(file);
    const tables = tablesOf(api, []);
    const store = await openStore({ folder: place("first"), tables });
    await store.durable(seedEmptyStore(store, api, JSON.stringify(seeds)).seq);
    // Times that differ from those of the import.
    const records = recordsOf(store, api, "c0");
    for (const { document } of records.table.rows()) {
      const updated_at = records.timestamp(document["updated_at"]);
      store.apply([records.putMutation({ ...document, updated_at })], 0);
    }
    await store.close();
    await command(place("first"), file, ["export", "--to", place("files")]);
    const exported = await contentOf(place("files"));
    assert.equal(Object.keys(exported).length, count);

    await reserveNothing(place("second"));
    await command(place("second"), file, ["import", "--from", place("files")]);
    await command(place("second"), file, ["export", "--to", place("again")]);
    assert.deepEqual(await contentOf(place("again")), exported);

    const pairs = Array.from({ length: count }, (_, from) => [
      `c${from}`,
      join(place("files"), `c${from}.ndjson`),
    ]).sort(() => next(2) - 0.5);
    await reserveNothing(place("third"));
    await command(place("third"), file, ["import", ...pairs.flat()]);
    await command(place("third"), file, ["export", "--to", place("mixed")]);
    assert.deepEqual(await contentOf(place("mixed")), exported);

    const copy = await openStore({ folder: place("seeded"), tables });
    const again = Object.entries(exported)
      .map(([name, text]) => [name.replace(".ndjson", ""), fromLines(text)]);
    const text = JSON.stringify(Object.fromEntries(again));
    await copy.durable(seedEmptyStore(copy, api, text).seq);
    await copy.close();
    await command(place("seeded"), file, ["export", "--to", place("grown")]);
    assert.deepEqual(await contentOf(place("grown")), exported);
  });
}

const title = (id: number, sequel_of_id: number | null, more = {}) => ({
  id,
  title: `Book ${id}`,
  sequel_of_id,
  ...more,
});

/** Books that refer to later ones, themselves and each other. */
const circles = [
  title(1, 2),
  title(2, 1),
  title(3, 3),
  title(4, 9),
  title(5, 4),
  title(9, 5),
];

test("a collection that refers to itself is imported over HTTP as it was exported", async (t) => {
  const [one, other] = [await startLibrary(), await startLibrary()];
  t.after(() => Promise.all([one.stop(), other.stop()]));
  const raw = toLines(circles);
  const task = await importLines(one, "/v1/books", { token: one.token, raw });
  assert.deepEqual([task.imported, task.rejected], [6, 0]);
  const { text } = await fetchLines(one, "/v1/books");
  assert.match(text, /"id":4,.*"sequel_of_id":9,/);
  const again = await importLines(other, "/v1/books", {
    token: other.token,
    raw: text,
  });
  assert.deepEqual([again.imported, again.rejected], [6, 0]);
  assert.equal((await fetchLines(other, "/v1/books")).text, text);
});

test("an export of a collection that is sorted by default goes in again", async (t) => {
  const declaration = {
    ...library,
    collections: library.collections.map((each) => ({
      ...each,
      sort: each.name === "books" ? ["title" as const] : [],
    })),
  };
  const [one, other] = [
    await startLibrary({ declaration }),
    await startLibrary({ declaration }),
  ];
  t.after(() => Promise.all([one.stop(), other.stop()]));
  for (const name of ["Zebra", "Ant", "Mole"]) {
    await one.send("POST", "books", { title: name });
  }
  const list = await one.request("GET", "/v1/books");
  assert.deepEqual(list.body.map(({ id }) => id), [2, 3, 1]);
  const { text } = await fetchLines(one, "/v1/books");
  assert.deepEqual(fromLines(text).map(({ id }) => id), [1, 2, 3]);
  const sorted = await fetchLines(one, "/v1/books?order=desc");
  assert.deepEqual(fromLines(sorted.text).map(({ id }) => id), [1, 3, 2]);
  const task = await importLines(other, "/v1/books", {
    token: other.token,
    raw: text,
  });
  assert.deepEqual([task.imported, task.rejected], [3, 0]);
  assert.equal((await fetchLines(other, "/v1/books")).text, text);
});

test("whatever POST accepts goes in again, however long its text", async (t) => {
  const { collection, text } = vocabulary;
  const declaration = apiOf([
    collection({
      name: "docs",
      singular: "doc",
      access: { read: "anyone", write: "keeper", delete: "keeper" },
      properties: { body: text({ maxLength: 60_000 }) },
    }),
  ]);
  const [app, other] = await Promise.all([
    startApplication({ declaration }),
    startApplication({ declaration }),
  ]);
  t.after(() => Promise.all([app.stop(), other.stop()]));
  for (const character of ["\u{1f600}", "\n\t", '"', "a"]) {
    const json = { body: `x${character}`.repeat(20_000) };
    const { token } = app;
    const made = await app.request("POST", "/v1/docs", { token, json });
    assert.equal(made.status, 201);
  }
  const exported = await fetchLines(app, "/v1/docs");
  const task = await importLines(other, "/v1/docs", {
    token: other.token,
    raw: exported.text,
  });
  assert.deepEqual([task.imported, task.errors], [4, []]);
  assert.equal((await fetchLines(other, "/v1/docs")).text, exported.text);
  const raw = toLines([{ body: "x".repeat(400_000) }]);
  const long = await importLines(other, "/v1/docs", {
    token: other.token,
    raw,
  });
  assert.match(
    long.errors[0]?.errors[0]?.message ?? "",
    /longer than 305536 bytes/,
  );
});

test("private records keep an owner who comes with them, and get none of the other store", async () => {
  const place = (name: string) => join(own, `private-${name}`);
  const api = place("api.mjs");
  await writeFile(
    api,
    `export default ({ collection, string, unique }) => ({
      collections: [collection({
        name: "notes", singular: "note", private: true,
        access: { read: "viewer", write: "viewer", delete: "viewer" },
        properties: { text: unique(string({ maxLength: 20 })) },
      })],
    });`,
  );
  const at = (name: string) => [
    ...["--data-dir", place(name), "--collections", api],
  ];
  const run = async (words: string[], input = "") => {
    const result = await runHere(words, { input });
    assert.equal(result.code, 0, result.stderr);
    return result.stdout;
  };
  const password = "a long enough one\n";
  for (const name of ["boss", "ann", "gone", "lost"]) {
    await run(["user", "add", name, ...at("one")], password);
  }
  const times = {
    created_at: "2026-01-01T00:00:00.000Z",
    updated_at: "2026-01-01T00:00:00.000Z",
  };
  // Two of the owners are gone; their texts are the same.
  const { store } = await open("one");
  await commit(
    store,
    [2, 3, 4].map((owner_id, index) => [
      "put",
      "notes",
      { id: index + 1, text: "same", owner_id, ...times },
    ]),
    0,
  );
  await commit(store, [["del", "users", 3], ["del", "users", 4]], 0);
  await store.close();
  async function open(name: string) {
    const declaration = await loadFile(api);
    return { store: await openDataFolder(place(name), declaration) };
  }
  const owners = async (name: string) =>
    fromLines(await run(["export", "notes", ...at(name)]))
      .map((note) => note["owner_id"]);
  assert.deepEqual(await owners("one"), [2, 3, 4]);
  await run(["export", "--to", place("files"), ...at("one")]);
  const hashes = ["export", "users", "--with-hashes", ...at("one")];
  await writeFile(place("users"), await run(hashes));

  // Of another store, whose user 2 is somebody else.
  for (const name of ["boss", "eve"]) {
    await run(["user", "add", name, ...at("two")], password);
  }
  await run(["import", "--from", place("files"), ...at("two")]);
  assert.deepEqual(await owners("two"), [null, null, null]);
  // Of a new one, with its users.
  await run([
    ...["import", "users", place("users")],
    ...["notes", join(place("files"), "notes.ndjson"), ...at("three")],
  ]);
  assert.deepEqual(await owners("three"), [2, null, null]);
  // Where others have the ids of its users, the owners are lost, and it says so.
  await run(["user", "add", "eve", ...at("four")], password);
  const { code, stderr } = await runHere([
    ...["import", "users", place("users")],
    ...["notes", join(place("files"), "notes.ndjson"), ...at("four")],
  ]);
  assert.equal(code, 1);
  assert.match(
    stderr,
    /\nprivate records of the users who were rejected have no owner: /,
  );
  assert.deepEqual((await owners("four"))[1], null);
  await run(["check", ...at("three")]);
});

test("a record that gets an id from the server is not the one that another line means by it", async () => {
  const place = (name: string) => join(own, `given-${name}`);
  const api = place("api.mjs");
  await writeFile(
    api,
    `export default ({ collection, optional, reference, string }) => {
      const access = { read: "viewer", write: "viewer", delete: "viewer" };
      const text = string({ maxLength: 20 });
      return { collections: [
        collection({
          name: "notes", singular: "note", private: true, access,
          properties: {
            text, next_id: optional(reference("notes", { as: "previous" })),
          },
        }),
        collection({
          name: "marks", singular: "mark", access,
          properties: { note_id: reference("notes") },
        }),
      ] };
    };`,
  );
  const at = (name: string) => [
    ...["--data-dir", place(name), "--collections", api],
  ];
  for (const name of ["ann", "kim"]) {
    const add = ["user", "add", name, ...at("one")];
    await runHere(add, { input: "a long enough one\n" });
  }
  const hashes = ["export", "users", "--with-hashes", ...at("one")];
  const users = fromLines((await runHere(hashes)).stdout);
  const added = users.map(({ password }, at) => ({
    username: `new.${at}`,
    role: "viewer",
    password,
  }));
  const files = {
    users: [...added, ...users],
    notes: [
      { text: "new" },
      { id: 5, text: "kim's", owner_id: 2 },
      { id: 6, text: "of old 1", next_id: 1 },
      { text: "of 5", next_id: 5 },
    ],
    marks: [{ note_id: 1 }, { note_id: 5 }],
  };
  const words = await Promise.all(
    Object.entries(files).map(async ([name, lines]) => {
      await writeFile(place(name), toLines(lines));
      return [name, place(name)];
    }),
  );
  const all = ["import", ...words.flat(), ...at("two")];
  const { code, stdout, stderr } = await runHere(all);
  assert.equal(code, 1);
  assert.equal(stdout, "imported 6 users, notes, marks, rejected 4\n", stderr);
  assert.match(stderr, /notes line 3: "next_id" is 1, which/);
  assert.match(stderr, /marks line 1: "note_id" is 1, which/);
  const notes = fromLines(
    (await runHere(["export", "notes", ...at("two")])).stdout,
  );
  assert.deepEqual(
    notes.map(({ id, text, owner_id }) => [id, text, owner_id]),
    [[1, "new", null], [5, "kim's", null], [6, "of 5", null]],
  );
});

test("a user who is created while an import of users is interrupted owns none of its records", async () => {
  const place = ["--data-dir", join(own, "strangers")];
  const api = join(own, "strangers.mjs");
  await writeFile(
    api,
    `export default ({ collection, string }) => ({
      collections: [collection({
        name: "notes", singular: "note", private: true,
        access: { read: "viewer", write: "viewer", delete: "viewer" },
        properties: { text: string({ maxLength: 20 }) },
      })],
    });`,
  );
  const { password } = storedAdmin;
  // So many that the signal comes before the last one, however late it is noticed.
  const ids = Array.from({ length: 10_000 }, (_, at) => at + 1);
  const files: Record<string, object[]> = {
    users: ids.map((id) => ({ username: `user${id}`, password, id })),
    notes: ids.map((id) => ({ text: "secret", owner_id: id })),
  };
  const words = ["import"];
  for (const [name, lines] of Object.entries(files)) {
    const file = join(own, `strangers-${name}`);
    await writeFile(file, toLines(lines));
    words.push(name, file);
  }
  const flags = [...place, "--collections", api];
  const stopped = await runNode([
    ...signalBeforeWrite("SIGINT", '"id":1000,"username"'),
    ...[...mainCommand, ...words, ...flags],
  ]);
  assert.equal(stopped.code, 1, stopped.stderr);
  const added = await runHere(["user", "add", "bob", ...flags], {
    input: "a long enough one\n",
  });
  assert.equal(added.code, 0, added.stderr);
  const input = toLines([{ text: "another", owner_id: null }]);
  const next = await runHere(["import", "notes", "-", ...flags], { input });
  assert.equal(next.code, 1, next.stderr);
  assert.match(next.stderr, /^task 1, resumed: users line \d+: "id" is /m);
  const exported = async (name: string) =>
    fromLines((await runHere(["export", name, ...flags])).stdout);
  const users = await exported("users");
  const { id: bob = 0 } = users.find(({ username }) => username === "bob") ??
    {};
  assert.ok(bob > 1 && bob < ids.length, `${bob}`);
  const owners = (await exported("notes")).map(({ owner_id }) => owner_id);
  assert.equal(owners.length, ids.length + 1);
  // The line of the user with that id was rejected.
  const known = owners.filter((owner) => owner !== null);
  assert.deepEqual(known, ids.filter((id) => id !== bob));
});

test("a line imported through another record keeps it, and its validator changes with it", async (t) => {
  const app = await startLibrary();
  t.after(() => app.stop());
  await app.send("POST", "authors", { name: "A" });
  const raw = toLines([title(1, 2), title(2, 1)]);
  const path = "/v1/authors/1/books";
  const task = await importLines(app, path, { token: app.token, raw });
  assert.deepEqual([task.imported, task.rejected], [2, 0]);
  for (const [id, sequel_of_id] of [[1, 2], [2, 1]]) {
    const { body } = await app.send("GET", `books/${id}`);
    assert.equal(body["author_id"], 1);
    assert.equal(body["sequel_of_id"], sequel_of_id);
  }
  const { document } = app.store.table("books").get(1) ?? assert.fail();
  assert.ok(String(document["updated_at"]) > String(document["created_at"]));
});

test("no reader of an import sees a reference that leads nowhere, and what leads nowhere in the end is rejected", async (t) => {
  const app = await startLibrary();
  t.after(() => app.stop());
  const table = app.store.table("books");
  const chain = Array.from(
    { length: 2000 },
    (_, at) => title(100 + at, 101 + at),
  );
  const bad = [
    title(1, 2), // rejected, as 2 is
    title(2, 3), // as 3 is
    title(3, 4000), // which never comes
    title(4, 1),
    title(5, 4),
    title(6, 7), // whose line is invalid
    title(7, 5, { title: 7 }),
  ];
  const books = [...bad, ...chain, title(2100, 100)];
  const raw = [
    toLines(books),
    toLines([{ title: "Without an id", sequel_of_id: 2100 }, {
      title: "Refers to a rejected one",
      sequel_of_id: 4,
    }]),
    toLines([{ title: "Leads nowhere", sequel_of_id: 5000 }]),
  ].join("");
  const { body } = await sendLines(app, "/v1/books", {
    token: app.token,
    raw,
  });
  let isEnded = false;
  const watch = async () => {
    while (!isEnded) {
      for (const { document: { id, sequel_of_id } } of table.rows()) {
        const isThere = sequel_of_id === null ||
          table.get(Number(sequel_of_id)) !== undefined;
        assert.ok(isThere, `${id} refers to ${sequel_of_id}`);
      }
      await nextTurn();
    }
  };
  const watching = watch();
  const task = await taskWhen(app, {
    url: body.url,
    token: app.token,
    until: ended,
  }).finally(() => isEnded = true);
  await watching;
  assert.equal(task.status, "succeeded", String(task.failure));
  const left = table.rows().map(({ document }) => document.id);
  const expected = [...chain.map(({ id }) => id), 2100, 2101];
  assert.deepEqual(left, expected);
  assert.deepEqual([task.imported, task.rejected], [expected.length, 9]);
  for (const { document: { id, sequel_of_id } } of table.rows()) {
    const next = id === 2100 ? 100 : id === 2101 ? 2100 : id + 1;
    assert.equal(sequel_of_id, next);
  }
  const [, { errors: ofThree = [] } = {}] = task.errors;
  assert.equal(
    ofThree[1]?.message,
    "Rejected with it, as they refer to it: book 2, book 1, book 4, book 5.",
  );
  const errors = task.errors.map(({ line, errors: [first] }) => [
    line,
    `${first?.field} ${first?.code}`,
  ]);
  assert.deepEqual(errors, [
    [7, "title type"],
    [3, "sequel_of_id reference"],
    [6, "sequel_of_id reference"],
    [books.length + 2, "sequel_of_id reference"],
    [books.length + 3, "sequel_of_id reference"],
  ]);
});

test("an import that is killed in its second pass goes on at the next start", async (t) => {
  const folder = join(own, "killed");
  const file = join(own, "ring.ndjson");
  const api = join(
    import.meta.dirname,
    `../../library/collections${extension}`,
  );
  const ring = Array.from({ length: 3000 }, (_, at) => ({
    id: at + 1,
    title: "A",
    genre: "novel",
    isbn: String(9780000000000 + at),
    sequel_of_id: at === 2999 ? 1 : at + 2,
  }));
  await writeFile(file, toLines(ring));
  const env = { COLLECTIONS: api };
  const nodeArgs = signalBeforeWrite("SIGKILL", '"sequel_of_id":1500,');
  const server = await start({ folder, env, nodeArgs });
  const token = await server.signIn();
  const raw = toLines(ring);
  const { status } = await sendLines(server, "/v1/books", { token, raw });
  assert.equal(status, 202);
  assert.equal(await server.ended, null);
  const again = await startHere({ folder, env });
  t.after(() => again.stop());
  const task = await taskWhen(again, {
    url: "/v1/tasks/1",
    token: await again.signIn(),
    until: ended,
  });
  assert.deepEqual([task.imported, task.rejected], [3000, 0]);
  const { text } = await fetchLines(again, "/v1/books?sortby=id");
  const found = text.split("\n").slice(0, -1)
    .map((line) => JSON.parse(line).sequel_of_id);
  assert.deepEqual(found, ring.map(({ sequel_of_id }) => sequel_of_id));
});

test("a record that others require stays, without a reference that leads nowhere", async () => {
  const place = (name: string) => join(own, `required-${name}`);
  const api = place("api.mjs");
  await writeFile(
    api,
    `export default ({ collection, reference, optional }) => {
      const access = { read: "viewer", write: "keeper", delete: "keeper" };
      return { collections: [
        collection({ name: "pages", singular: "page", access, properties: { book_id: reference("books") } }),
        collection({ name: "books", singular: "book", access, properties: { next_id: optional(reference("books", { as: "previous" })) } }),
      ] };
    };`,
  );
  await mkdir(place("files"));
  const write = (name: string, records: unknown[]) =>
    writeFile(join(place("files"), `${name}.ndjson`), toLines(records));
  await write("pages", [{ id: 1, book_id: 1 }, { id: 2, book_id: 2 }]);
  await write("books", [{ id: 1, next_id: 9 }, { id: 2, next_id: 1 }]);
  const data = ["--data-dir", place("store"), "--collections", api];
  const { code, stdout, stderr } = await runHere([
    ...["import", "--from", place("files")],
    ...data,
  ]);
  assert.equal(stdout, "imported 4 books, pages, rejected 0\n", stderr);
  assert.match(stderr, /^books line 1: "next_id" is 9, which does not exist/);
  assert.equal(code, 1);
  const books = await runHere(["export", "books", ...data]);
  assert.match(books.stdout, /"id":1,"next_id":null,.*\n.*"id":2,"next_id":1,/);
});
