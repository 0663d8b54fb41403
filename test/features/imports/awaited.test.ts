/** Records of an import that await others, under rules that such a record may break meanwhile. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { cp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { after, before, test, type TestContext } from "node:test";
import { awaitedTable } from "../../../src/api/own-tables.ts";
import { localOperator } from "../../../src/api/operator.ts";
import { recordsOf } from "../../../src/api/records/local.ts";
import {
  importBatch,
  includesId,
  type Progress,
} from "../../../src/features/imports/batch.ts";
import { openStore } from "../../../src/store/store.ts";
import { vocabulary } from "../../../src/cli/declaration/checked-vocabulary.ts";
import { apiOf } from "../../collections.ts";
import {
  removeFolder,
  reserveNothing,
  signInNew,
  start,
  temporaryFolder,
} from "../../harness.ts";
import { runHere, type ServerHere, startHere } from "../../in-process.ts";
import { startLibrary } from "../../library.ts";
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

const { collection, optional, reference, string } = vocabulary;
const access = { read: "anyone", write: "keeper", delete: "keeper" } as const;

type Check = Parameters<typeof collection>[0]["check"];

/** Rings, each of which may lead to a next one, with a rule. */
const ringsWith = (check: Check) =>
  collection({
    name: "rings",
    singular: "ring",
    access,
    properties: {
      name: string({ maxLength: 20 }),
      next_id: optional(reference("rings", { as: "previous" })),
    },
    ...(check && { check }),
  });

/** Each but the end must have a next one; links require one. */
const rings = apiOf([
  ringsWith(({ name, next_id }) =>
    next_id === null && name !== "end" ? { next_id: "must be set" } : {}
  ),
  collection({
    name: "links",
    singular: "link",
    access,
    properties: { ring_id: reference("rings") },
  }),
]);

/** The same in a file. */
const file = `export default ({ collection, optional, reference, string }) => {
  const access = { read: "anyone", write: "keeper", delete: "keeper" };
  return { collections: [collection({
    name: "rings", singular: "ring", access,
    properties: {
      name: string({ maxLength: 20 }),
      next_id: optional(reference("rings", { as: "previous" })),
      OTHER
    },
    check: ({ name, next_id }) =>
      next_id === null && name !== "end" ? { next_id: "must be set" } : {},
  }), collection({
    name: "others", singular: "other", access,
    properties: { text: string({ maxLength: 20 }) },
  })] };
};`;

let own: string;
before(async () => own = await temporaryFolder());
after(() => removeFolder(own));

async function startRings(t: TestContext) {
  const app = await startLibrary({ declaration: rings });
  t.after(() => app.stop());
  const ids = (name: string) =>
    app.store.table(name).rows().map(({ document }) => document.id);
  return { ...app, ids };
}

// In an order that the log does not have.
const ring = (id: number, next_id: number, name = "a") => ({
  id,
  next_id,
  name,
});

test("a record that breaks a rule without its reference is rejected with those that require it", async (t) => {
  const { ids, ...app } = await startRings(t);
  const { store, token } = app;
  const raw = toLines([ring(1, 77), ring(2, 3), ring(3, 2), ring(4, 1)]);
  const sent = sendLines(app, "/v1/rings", { token, raw });
  const { body } = await sent;
  // As a part of the same import: the command imports several files.
  const task = await taskWhen(app, { url: body.url, token, until: ended });
  assert.deepEqual([task.imported, task.rejected], [2, 2]);
  assert.deepEqual(task.errors.map(({ line }) => line), [1]);
  assert.deepEqual(ids("rings"), [2, 3]);
  assert.equal(store.table(awaitedTable).size, 0);
});

test("rings and links in several files: a ring that leads nowhere goes with its links", async () => {
  const api = join(own, "rings.mjs");
  await writeFile(
    api,
    file.replace("OTHER", "").replace(
      "})] };",
      `}), collection({ name: "links", singular: "link", access, properties: { ring_id: reference("rings") } })] };`,
    ),
  );
  const store = join(own, "rings-store");
  const files = { rings: "rings.ndjson", links: "links.ndjson" };
  await writeFile(
    join(own, files.rings),
    toLines([ring(1, 77), ring(2, 1), ring(3, 3)]),
  );
  await writeFile(
    join(own, files.links),
    toLines([{ id: 1, ring_id: 1 }, { id: 2, ring_id: 3 }]),
  );
  const place = ["--data-dir", store, "--collections", api];
  const imported = await runHere([
    "import",
    ...Object.entries(files).flatMap(([name, at]) => [name, join(own, at)]),
    ...place,
  ]);
  assert.equal(imported.code, 1);
  assert.match(imported.stdout, /^imported 2 rings, links, rejected 3\n$/);
  const checked = await runHere(["check", ...place]);
  assert.equal(checked.code, 0, checked.stdout);
  const exported = await runHere(["export", "links", ...place]);
  assert.deepEqual(fromLines(exported.stdout).map(({ id }) => id), [2]);
});

test("a record that stays without a rejected one is named, and keeps what else it awaits", async () => {
  const api = join(own, "nodes.mjs");
  await writeFile(
    api,
    `export default ({ collection, optional, reference, string }) => {
      const access = { read: "anyone", write: "keeper", delete: "keeper" };
      return { collections: [collection({
        name: "nodes", singular: "node", access,
        properties: {
          name: string({ maxLength: 20 }),
          parent_id: optional(reference("nodes", { as: "children" })),
          other_id: optional(reference("nodes", { as: "others" })),
        },
      }), collection({
        name: "items", singular: "item", access,
        properties: { node_id: reference("nodes") },
      })] };
    };`,
  );
  const node = (id: number, parent_id: number | null, other_id?: number) => ({
    id,
    name: "a",
    parent_id,
    other_id,
    created_at: "2020-01-01T00:00:00.000Z",
    updated_at: "2021-01-01T00:00:00.000Z",
  });
  const [nodes, items] = [join(own, "nodes"), join(own, "items")];
  await writeFile(
    nodes,
    toLines([node(1, 900), node(2, 1, 3), node(3, null), node(4, 1)]),
  );
  await writeFile(items, toLines([{ id: 1, node_id: 2 }]));
  const place = ["--data-dir", join(own, "nodes-store"), "--collections", api];
  const { code, stdout, stderr } = await runHere(
    ["import", "nodes", nodes, "items", items, ...place],
  );
  assert.equal(code, 1);
  assert.equal(stdout, "imported 3 nodes, items, rejected 2\n");
  assert.match(
    stderr,
    /^nodes line 1: "parent_id" is 900, .* Rejected with it, as they refer to it: node 4\. Stays, but without its reference to it: node 2\.\n/,
  );
  const exported = await runHere(["export", "nodes", ...place]);
  const found = fromLines(exported.stdout);
  assert.deepEqual(
    found.map(({ id, parent_id, other_id }) => [id, parent_id, other_id]),
    [[2, null, 3], [3, null, null]],
  );
  for (const { updated_at } of found) {
    assert.equal(updated_at, "2021-01-01T00:00:00.000Z");
  }
});

test("a chain that leads nowhere is rejected, however long", async (t) => {
  const { ids, ...app } = await startRings(t);
  const { token } = app;
  const raw = toLines(
    Array.from({ length: 2000 }, (_, at) => ring(at + 1, at + 2)),
  );
  const task = await importLines(app, "/v1/rings", { token, raw });
  assert.deepEqual([task.imported, task.rejected], [0, 2000]);
  assert.equal(task.errors.length, 1);
  assert.deepEqual(ids("rings"), []);
});

test("a check that fails ends neither the import nor those that wait", async (t) => {
  const app = await startLibrary({
    declaration: apiOf([
      ringsWith(({ name, next_id }) => {
        if (name === "boom" && next_id === null) throw new Error("boom");
      }),
    ]),
  });
  t.after(() => app.stop());
  const { token } = app;
  const raw = toLines([ring(1, 900, "boom")]);
  const task = await importLines(app, "/v1/rings", { token, raw });
  assert.deepEqual([task.status, task.rejected], ["succeeded", 1]);
  const next = await importLines(app, "/v1/rings", {
    token,
    raw: toLines([ring(2, 2)]),
  });
  assert.deepEqual([next.imported, next.rejected], [1, 0]);
});

test("a record that somebody else creates meanwhile is none of the import, whatever its id", async (t) => {
  const { ids, ...app } = await startRings(t);
  const { token, store } = app;
  const filler = Array.from(
    { length: 3000 },
    (_, at) => ({ id: at + 2, name: "end" }),
  );
  const raw = toLines([ring(1, 9000), ...filler, ring(6000, 4000)]);
  const { body } = await sendLines(app, "/v1/rings", { token, raw });
  while (store.table("rings").size === 0) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  const json = { name: "a", next_id: 1 };
  const posted = await app.request("POST", "/v1/rings", { token, json });
  assert.equal(posted.status, 201);
  const task = await taskWhen(app, { url: body.url, token, until: ended });
  assert.equal(task.status, "succeeded", String(task.failure));
  const path = `/v1/rings/${posted.body.id}`;
  const { body: kept } = await app.request("GET", path);
  assert.equal(kept["next_id"], 1);
  assert.ok(ids("rings").includes(1), "it is referred to");
  assert.ok(!ids("rings").includes(6000), "4000 never came");
});

test("a record that somebody changes meanwhile stays, with what it refers to; an unchanged one is rejected with that", async (t) => {
  const { ids, ...app } = await startRings(t);
  const { token, store } = app;
  const filler = Array.from(
    { length: 3000 },
    (_, at) => ({ id: at + 10, name: "end" }),
  );
  const times = {
    created_at: "2020-01-01T00:00:00.000Z",
    updated_at: "2021-01-01T00:00:00.000Z",
  };
  const raw = toLines([
    ...[ring(1, 90_000, "end"), ring(2, 1)],
    ...[ring(3, 90_000, "end"), { id: 4, name: "end" }],
    ...[ring(5, 90_000, "end"), ring(6, 5), { ...ring(7, 6), ...times }],
    ...[ring(8, 90_000, "end"), { ...ring(9, 8), ...times }],
    ...filler,
  ]);
  const { body } = await sendLines(app, "/v1/rings", { token, raw });
  while (store.table("rings").size < 9) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  const changes = [[2, { name: "mine" }], [4, { next_id: 3 }], [9, {
    name: "mine",
  }]] as const;
  store.apply(
    changes.map(([id, change]) => {
      const { document = { id } } = store.table("rings").get(id) ?? {};
      const updated_at = new Date(Date.now() + 9).toISOString();
      return ["put", "rings", { ...document, ...change, updated_at }];
    }),
    1,
  );
  assert.notEqual(store.table(awaitedTable).size, 0, "not yet settled");
  const task = await taskWhen(app, { url: body.url, token, until: ended });
  assert.equal(task.status, "succeeded", String(task.failure));
  const stay = [1, 2, 3, 4, 8, 9];
  assert.deepEqual(ids("rings").filter((id) => id < 10), stay);
  const next = stay.map((id) =>
    store.table("rings").get(id)?.document["next_id"]
  );
  assert.deepEqual(next, [null, 1, null, 3, null, 8]);
  assert.equal(task.rejected, 3);
  assert.deepEqual(
    task.errors.map(({ line, errors }) => [line, errors[1]?.message]),
    [
      [1, keptByOthers],
      [3, keptByOthers],
      [5, "Rejected with it, as they refer to it: ring 6, ring 7."],
      [8, keptByOthers],
    ],
  );
});

test("a reference to a record that somebody deletes meanwhile stays empty, and nothing else is rejected for that", async (t) => {
  const nodes = collection({
    name: "nodes",
    singular: "node",
    access,
    properties: {
      name: optional(string({ maxLength: 20 })),
      parent_id: optional(reference("nodes", { as: "children" })),
      other_id: optional(reference("nodes", { as: "others" })),
    },
    check: ({ name, parent_id }) =>
      name === "child" && parent_id === null
        ? { parent_id: "must be set" }
        : {},
  });
  const app = await startLibrary({ declaration: apiOf([nodes]) });
  t.after(() => app.stop());
  const { token, store } = app;
  const { listeners } = store.table("nodes");
  const { size } = listeners;
  const raw = toLines([
    { id: 1, parent_id: 2 },
    { id: 2, parent_id: 3, other_id: 4 },
    { id: 3, parent_id: 4 },
    { id: 4 },
    { id: 5, parent_id: 900_000 },
    { id: 6, parent_id: 7 },
    { id: 7, parent_id: 5 },
    { id: 8, parent_id: 9000 },
    ...Array.from({ length: 3000 }, (_, at) => ({ id: at + 10 })),
    { id: 5000, name: "child", parent_id: 5002 },
    { id: 5001, parent_id: 5000 },
    { id: 5002 },
    ...Array.from({ length: 3000 }, () => ({})),
    { id: 9000 },
  ]);
  const { body } = await sendLines(app, "/v1/nodes", { token, raw });
  while (!store.table("nodes").get(5002)) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.throws(() =>
    store.transact(1, (apply) => {
      apply(["put", "nodes", { id: 9000 }]);
      throw new Error("rolled back, which is no deletion");
    })
  );
  store.apply([["del", "nodes", 3], ["del", "nodes", 5002]], 1);
  const task = await taskWhen(app, { url: body.url, token, until: ended });
  assert.equal(task.status, "succeeded", String(task.failure));
  const texts = task.errors.map(({ line, errors }) => [
    line,
    ...errors.map(({ message }) => message),
  ]);
  const never = (id: number) =>
    `"parent_id" is ${id}, which does not exist: it must be the id of one of the nodes, or null.`;
  assert.deepEqual(texts, [
    [2, '"parent_id" stays empty: 3 was deleted meanwhile.'],
    [5, never(900_000), "Rejected with it, as they refer to it: node 7."],
    [6, never(7)], // deleted by the import itself
    [
      3009,
      '"parent_id" stays empty: 5002 was deleted meanwhile.',
      '"parent_id" must be set.',
      "Rejected with it, as they refer to it: node 5001.",
    ],
  ]);
  assert.deepEqual([task.imported, task.rejected], [6007, 5]);
  const left = [1, 2, 3, 4, 5, 6, 7, 8, 5000, 5001].map((id) =>
    store.table("nodes").get(id)?.document
  ).map((node) => node && [node["parent_id"], node["other_id"]]);
  const gone = undefined;
  assert.deepEqual(left, [
    ...[[2, null], [null, 4], gone, [null, null]],
    ...[gone, gone, gone, [9000, null], gone, gone],
  ]);
  while (listeners.size > size) await wait(2); // until nothing is noted any more
});

const keptByOthers =
  "The record stays without that reference, since records refer to it that somebody else has created or changed, or too many to reject with it.";

test("a record that somebody else creates meanwhile is none of an import with very many gaps between its ids", async (t) => {
  const { ids, ...app } = await startRings(t);
  const { token, store } = app;
  // The first one awaits a record that never comes.
  const odd = Array.from({ length: 12_000 }, (_, at) => ({
    id: 2 * at + 1,
    name: "end",
    ...(at === 0 && ring(1, 30_000)),
  }));
  const raw = toLines(odd);
  const { body } = await sendLines(app, "/v1/rings", { token, raw });
  while (store.table("rings").size < 2000) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  const json = { name: "a", next_id: 1 };
  const posted = await app.request("POST", "/v1/rings", { token, json });
  assert.equal(posted.status, 201);
  assert.equal(posted.body.id % 2, 0, "in a gap");
  const task = await taskWhen(app, { url: body.url, token, until: ended });
  assert.equal(task.status, "succeeded", String(task.failure));
  assert.equal(task.imported, 12_000);
  const all = ids("rings");
  assert.ok(all.includes(posted.body.id) && all.includes(1));
  const created = store.table("tasks").get(task.id)?.document["created"];
  assert.deepEqual(Object.values(Object(created)).flat(), [
    [1, posted.body.id - 1],
    [posted.body.id + 1, 23_999],
  ]);
});

test("an import in which lines with and without ids take turns knows all its records, however many turns", async (t) => {
  const { ids, ...app } = await startRings(t);
  const { token } = app;
  const turns = 1500;
  const raw = toLines(
    Array.from({ length: turns }, (_, at) => [
      // The next line that names an id has two more.
      {
        id: 2 * at + 1,
        name: "end",
        next_id: at + 1 < turns ? 2 * at + 3 : null,
      },
      { name: "end" },
    ]).flat(),
  );
  const task = await importLines(app, "/v1/rings", { token, raw });
  assert.deepEqual([task.imported, task.rejected], [2 * turns, 0]);
  assert.equal(ids("rings").length, 2 * turns);
});

test("an import that very many records of others interrupt takes none of these for its own", async (t) => {
  const { store } = await startRings(t);
  const records = recordsOf(store, rings, "rings");
  const { table } = records;
  let progress: Progress = {
    ...{ byte: 0, line: 0, lines: 0, imported: 0, rejected: 0 },
    errors: [],
  };
  const importLine = (id?: number) => {
    const bytes = Buffer.from(JSON.stringify({ id, name: "end" }));
    const place = { byte: 0, end: 0, line: 1, hasNewline: true };
    store.transact(0, (apply) => {
      ({ progress } = importBatch([{ bytes, ...place }], {
        ...{ progress, records, apply, latest: 0, given: {}, lastIds: {} },
        ...{ caller: localOperator, isTrusted: true, hasParts: false },
      }));
    });
  };
  const others: number[] = [];
  const createOther = () => {
    const id = table.lastId + 1;
    others.push(id);
    store.apply([["put", "rings", { id, name: "end", next_id: null }]], 0);
  };
  for (let turn = 0; turn < 1005; turn++) {
    importLine(table.lastId + 1);
    createOther();
  }
  importLine();
  importLine(table.lastId + 5);
  importLine(table.lastId + 1);
  const ids = progress.created?.["rings"] ?? [];
  assert.equal(ids.length, 1000);
  assert.deepEqual(others.filter((id) => includesId(ids, id)), []);
  assert.equal(progress.imported, 1008);
});

test("two imports at once: what the first creates was there before the second", async (t) => {
  const { ids, ...app } = await startRings(t);
  const { token } = app;
  const half = 5000; // the first has not ended when the second is sent
  const chain = Array.from(
    { length: 2 * half },
    (_, at) => at === 0 ? { id: 1, name: "end" } : ring(at + 1, at),
  );
  const sent = [];
  for (const from of [0, half]) {
    const raw = toLines(chain.slice(from, from + half));
    sent.push(await sendLines(app, "/v1/rings", { token, raw }));
  }
  for (const { body } of sent) {
    const task = await taskWhen(app, { url: body.url, token, until: ended });
    assert.deepEqual([task.imported, task.rejected], [half, 0]);
  }
  assert.equal(ids("rings").length, 2 * half);
});

test("an import does not tell whether somebody has a private record with an id", async (t) => {
  const messages: (string | undefined)[] = [];
  for (const exists of [true, false]) {
    const app = await startLibrary({
      declaration: apiOf([
        collection({
          name: "notes",
          singular: "note",
          private: true,
          access: { read: "viewer", write: "viewer", delete: "viewer" },
          properties: {
            name: string({ maxLength: 20 }),
            next_id: optional(reference("notes", { as: "previous" })),
          },
        }),
      ]),
    });
    t.after(() => app.stop());
    const { store } = app;
    const token = await signInNew(app, { token: app.token, username: "ann" });
    const raw = toLines([ring(1, 9000), ...Array(3000).fill({ name: "a" })]);
    const { body } = await sendLines(app, "/v1/notes", { token, raw });
    while (store.table("notes").size === 0) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    const note = { id: 9000, name: "b", next_id: null, owner_id: 1 };
    if (exists) await commit(store, [["put", "notes", note]], 1);
    const task = await taskWhen(app, { url: body.url, token, until: ended });
    assert.deepEqual([task.rejected, task.errors.length], [1, 1]);
    messages.push(task.errors[0]?.errors[0]?.message);
  }
  const [first, second] = messages;
  assert.match(first ?? "", /"next_id" is 9000, which does not exist: /);
  assert.equal(first, second);
});

test("a rejected line with the id of another one changes nothing, however many were rejected before", async (t) => {
  const { store, ...app } = await startRings(t);
  const { token } = app;
  const bad = Array.from({ length: 120 }, () => ({ name: 7 }));
  const end = { id: 2000, name: "end", next_id: null };
  const raw = toLines([
    ...bad,
    end,
    { id: 2001, name: "end" },
    { ...end, next_id: 2001 },
    ring(3000, 3001),
    ring(3001, 3000),
  ]);
  const task = await importLines(app, "/v1/rings", { token, raw });
  assert.deepEqual([task.imported, task.rejected], [4, 121]);
  const { document } = store.table("rings").get(2000) ?? assert.fail();
  assert.equal(document["next_id"], null);
});

const count = 3000;
// Of three one refers to the next, one to none, and one to the last of all.
const chain = Array.from({ length: count }, (_, at) => {
  const id = at + 1;
  if (id % 3 === 1) return ring(id, id + 1);
  return id % 3 === 2 || id === count ? { id, name: "end" } : ring(id, count);
});

let interrupted: Promise<string> | undefined;

/** Returns the folder of a server that died in the midst of the first pass of an import of a chain by a keeper, user 2. */
async function createInterrupted(): Promise<string> {
  const api = join(own, "rings.mjs");
  await writeFile(api, file.replace("OTHER", ""));
  const folder = join(own, "interrupted");
  const env = { COLLECTIONS: api };
  const nodeArgs = signalBeforeWrite("SIGKILL", '"id":1500,"name"');
  const server = await start({ folder, env, nodeArgs });
  const admin = await server.signIn();
  const kim = { token: admin, username: "kim", role: "keeper" };
  const token = await signInNew(server, kim);
  const raw = toLines(chain);
  const { status } = await sendLines(server, "/v1/rings", { token, raw });
  assert.equal(status, 202);
  assert.equal(await server.ended, null);
  return folder;
}

/** Returns a copy of that folder, with a declaration file of its own. */
async function interrupt(name: string) {
  const api = join(own, `${name}.mjs`);
  await writeFile(api, file.replace("OTHER", ""));
  const folder = join(own, name);
  interrupted ??= createInterrupted();
  const filter = (path: string) => !/reserve$|\.sock$/.test(path);
  await cp(await interrupted, folder, { recursive: true, filter });
  await reserveNothing(folder);
  return { api, folder, place: ["--data-dir", folder, "--collections", api] };
}

/** Waits until no record awaits another; returns their next ones. */
async function settled(server: ServerHere): Promise<unknown[]> {
  // The first one is half done until all lines are read.
  const { body } = await server.request("GET", "/v1/rings?limit=1");
  const isOpen = body[0]?.["next_id"] === null;
  const { text } = isOpen
    ? { text: "" }
    : await fetchLines(server, "/v1/rings");
  const all = fromLines(text);
  const isDone = !isOpen &&
    all.every(({ name, next_id }) => next_id || name === "end");
  if (isDone) return all.map(({ next_id }) => next_id);
  await wait(20);
  return await settled(server);
}

test("until an import goes on, its records are no damage, and do not hinder a new declaration", async (t) => {
  const { folder, api, place } = await interrupt("changed");
  const checked = await runHere(["check", ...place]);
  assert.equal(checked.code, 0, checked.stdout + checked.stderr);
  await writeFile(
    api.replace("changed", "later"),
    file.replace("OTHER", "size: optional(string({ maxLength: 9 })),"),
  );
  const env = { COLLECTIONS: api.replace("changed", "later") };
  const server = await startHere({ folder, env });
  t.after(() => server.end());
  const task = await taskWhen(server, {
    url: "/v1/tasks/1",
    token: await server.signIn(),
    until: ended,
  });
  assert.deepEqual([task.imported, task.rejected], [count, 0]);
});

/** Interrupts an import, deletes what a path names, and waits until no record is half done; returns the server. */
async function settleWithout(
  t: TestContext,
  path: string,
): Promise<ServerHere> {
  const { folder, api } = await interrupt(path.replaceAll("/", "-"));
  const env = { COLLECTIONS: api };
  const between = await startHere({
    folder,
    env: { ...env, FEATURES: "deletions" },
  });
  const token = await between.signIn();
  const { text } = await between.request("GET", "/v1/rings?limit=1");
  assert.match(text, /"next_id":null/);
  const { status } = await between.request("DELETE", path, { token });
  assert.equal(status, 204);
  await between.end();
  const server = await startHere({ folder, env });
  t.after(() => server.end());
  // The last one was not imported; the others are complete.
  const next = await settled(server);
  assert.ok(next.length > 500 && next.length < 1000, `${next.length}`);
  assert.ok(!next.includes(count));
  return server;
}

test("after the task of an import is deleted, no record stays half done", async (t) => {
  await settleWithout(t, "/v1/tasks/1");
});

for (const when of ["its lines are read", "its references are set"]) {
  test(`what an import that is cancelled while ${when} has done stays, without references to what never came`, async (t) => {
    const nodes = collection({
      name: "nodes",
      singular: "node",
      access,
      properties: { parent_id: optional(reference("nodes")) },
    });
    const app = await startLibrary({ declaration: apiOf([nodes]) });
    t.after(() => app.stop());
    const { store, token } = app;
    const count = 30_000;
    const raw = toLines(
      Array.from(
        { length: count },
        (_, at) => ({ id: at + 1, parent_id: count + 1 }),
      ),
    );
    const { body } = await sendLines(app, "/v1/nodes", { token, raw });
    const path = String(body.url).replace(/^https?:\/\/[^/]+/, "");
    const counter = when === "its lines are read" ? "imported" : "rejected";
    let done = 0;
    while (done === 0) {
      const task = await app.request("GET", path, { token });
      done = Number(task.body[counter]);
    }
    assert.equal((await app.request("DELETE", path, { token })).status, 204);
    const { size } = store.table("nodes");
    while (store.table(awaitedTable).size > 0) await wait(5);
    const rows = store.table("nodes").rows();
    assert.ok(rows.length > 0 && rows.length < count, `${rows.length}`);
    assert.ok(rows.length >= size, `${rows.length} of ${size}`);
    const parents = new Set(rows.map(({ document }) => document["parent_id"]));
    assert.deepEqual([...parents], [null]);
  });
}

test("after the sender of an import is deleted, it fails, and no record stays half done", async (t) => {
  const server = await settleWithout(t, "/v1/users/2");
  const url = "/v1/tasks/1";
  const token = await server.signIn();
  const task = await taskWhen(server, { url, token, until: ended });
  assert.equal(
    task.failure,
    "The user no longer has the rights that the request had.",
  );
});

test("a property that is renamed or removed meanwhile, or a whole collection, keeps the references that were read", async (t) => {
  for (const how of ["renamed", "removed", "without its collection"]) {
    const { folder, api } = await interrupt(how);
    const former = await readFile(api, "utf8");
    const property =
      'next_id: optional(reference("rings", { as: "previous" })),';
    const later = how === "without its collection"
      ? former.replace(/\[collection\([^]*?\n {2}\}\), /, "[")
      : former.replace(/check:[^]*: {},/, "").replace(
        property,
        how === "renamed"
          ? 'after_id: optional(reference("rings", { as: "previous", renamed: "next_id" })),'
          : "",
      );
    const changed = join(own, `${how}-later.mjs`);
    await writeFile(changed, later);
    const server = await startHere({ folder, env: { COLLECTIONS: changed } });
    const token = await server.signIn();
    const url = "/v1/tasks/1";
    await taskWhen(server, { url, token, until: ended });
    await server.end();
    // As it was declared first.
    const back = how === "renamed"
      ? former.replace('as: "previous"', 'as: "previous", renamed: "after_id"')
      : former;
    const again = join(own, `${how}-again.mjs`);
    await writeFile(again, back);
    const last = await startHere({ folder, env: { COLLECTIONS: again } });
    t.after(() => last.end());
    const next = await settled(last);
    assert.ok(next.filter(Boolean).length > 250, `${how}: ${next.length}`);
    assert.ok(!next.includes(count), how);
  }
});

test("what an import has left behind when it ended rejects no record later, even if its task is gone", async (t) => {
  const { folder, api } = await interrupt("ended");
  const former = (await readFile(api, "utf8")).replace(/check:[^]*: {},/, "");
  const [without, again] = ["without", "again"].map((name) =>
    join(own, `ended-${name}.mjs`)
  );
  assert.ok(without && again);
  await writeFile(without, former.replace(/next_id: .*,/, ""));
  await writeFile(again, former);
  const server = await startHere({ folder, env: { COLLECTIONS: without } });
  const token = await server.signIn();
  const url = "/v1/tasks/1";
  await taskWhen(server, { url, token, until: ended });
  const removed = await server.request("DELETE", url, { token });
  assert.equal(removed.status, 204);
  const idsOf = async (of: ServerHere) =>
    fromLines((await fetchLines(of, "/v1/rings")).text).map(({ id }) => id);
  const ids = await idsOf(server);
  await server.end();
  const last = await startHere({ folder, env: { COLLECTIONS: again } });
  t.after(() => last.end());
  // One that nobody rejects; what the others await never came.
  const settled = ids.filter((id) => id % 3 === 1 && ids.includes(id + 1));
  const isDone = async () => {
    const path = "/v1/rings?next_id:ne=null";
    const { headers } = await last.request("GET", path);
    return headers.get("x-total-count") === String(settled.length);
  };
  while (!await isDone()) await wait(20);
  assert.deepEqual(await idsOf(last), ids);
});

test("what records await is pruned with the property, or with their collection", async (t) => {
  for (const name of ["rings.next_id", "rings"]) {
    const { folder, api } = await interrupt(`pruned-${name}`);
    const later = join(own, `pruned-${name}-later.mjs`);
    const former = await readFile(api, "utf8");
    await writeFile(
      later,
      name === "rings"
        ? former.replace(/\[collection\([^]*?\n {2}\}\), /, "[")
        : former.replace(/check:[^]*: {},/, "").replace(/next_id: .*,/, ""),
    );
    const server = await startHere({ folder, env: { COLLECTIONS: later } });
    const token = await server.signIn();
    const url = "/v1/tasks/1";
    await taskWhen(server, { url, token, until: ended });
    await server.end();
    const place = ["--data-dir", folder, "--collections", later];
    const pruned = await runHere(["prune", name, ...place]);
    assert.equal(pruned.code, 0, pruned.stderr);
    const store = await openStore({ folder, tables: [] });
    t.after(() => store.close());
    for (const { document } of store.tables.get(awaitedTable)?.rows() ?? []) {
      assert.equal(name, "rings.next_id");
      assert.doesNotMatch(String(document["items"]), /next_id/);
    }
  }
});

test("a copy of a store in which an import is in progress has no record half done once it is served", async (t) => {
  const { api, place } = await interrupt("copied");
  const copy = join(own, "copy");
  const backup = await runHere(["backup", copy, ...place]);
  assert.equal(backup.code, 0, backup.stderr);
  const server = await startHere({ folder: copy, env: { COLLECTIONS: api } });
  t.after(() => server.end());
  const token = await server.signIn();
  const task = await taskWhen(server, {
    url: "/v1/tasks/1",
    token,
    until: ended,
  });
  assert.equal(task.status, "failed");
  // The last one is in the part that is not in the copy.
  const next = await settled(server);
  assert.ok(!next.includes(count));
  assert.equal(task.imported, next.length);
  assert.ok(task.rejected > 200 && next.length > 500, `${task.rejected}`);
});
