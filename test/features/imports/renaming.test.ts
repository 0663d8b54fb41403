/** Unfinished imports whose collection or properties are renamed. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { test, type TestContext } from "node:test";
import {
  collection,
  type CollectionDeclaration,
} from "../../../src/api/declaration/declaration.ts";
import {
  optional,
  reference,
  string,
} from "../../../src/api/declaration/properties.ts";
import { tablesOf } from "../../../src/api/routes.ts";
import { operatorContext } from "../../operator.ts";
import { recordsOf } from "../../../src/api/records/local.ts";
import { openDataFolder } from "../../../src/data-folder.ts";
import { loadFeatures } from "../../../src/features.ts";
import { feature } from "../../../src/features/imports/feature.ts";
import { receiveImport } from "../../../src/features/imports/requests.ts";
import { type Task } from "../../../src/features/imports/task.ts";
import { tasks } from "../../../src/api/tasks/tasks.ts";
import { createWorker } from "../../../src/features/imports/worker.ts";
import type { Store } from "../../../src/store/store.ts";
import { apiOf } from "../../collections.ts";
import { lacks, removeFolder, temporaryFolder } from "../../harness.ts";
import { commit } from "../../commit.ts";

const skip = lacks("evolution");

const access = { read: "anyone", write: "keeper", delete: "keeper" };
const text = string({ maxLength: 20 });
const title = text;
const shelf_id = optional(reference("shelves"));

const shelves = collection({
  name: "shelves",
  singular: "shelf",
  access,
  properties: { label: text },
});

const books = (options: Partial<CollectionDeclaration> = {}) =>
  collection({
    name: "books",
    singular: "book",
    access,
    properties: { title, shelf_id },
    ...options,
  });

/** A data folder that is opened in this process, with the worker of imports. */
async function library(t: TestContext) {
  const folder = await temporaryFolder();
  let last: Store | undefined;
  // A store that is still open may write into the folder while it is removed.
  t.after(async () => {
    await last?.close();
    await removeFolder(folder);
  });
  return {
    async open(...collections: CollectionDeclaration[]) {
      const declaration = apiOf([shelves, ...collections]);
      const tables = tablesOf(declaration, [feature]);
      const [{ adaptRecords } = {}] = await loadFeatures(["evolution"]);
      const options = { tables, adaptRecords };
      const store = await openDataFolder(folder, declaration, options);
      last = store;
      const names = declaration.collections.map(({ name }) => name);
      const target = (name: string) => recordsOf(store, declaration, name);
      const worker = createWorker({
        declaration,
        store,
        records: recordsOf(store, declaration, tasks(declaration.roles)),
        importable: (name) => names.includes(name) ? target(name) : undefined,
        now: Date.now,
        log: () => {},
      });
      return { store, worker, target };
    },
  };
}

async function* bodyOf(lines: readonly object[]) {
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
  yield await Promise.resolve(Buffer.from(text));
}
/** The declaration of the next start, and the reason why the import then fails. */
const changes: Readonly<
  Record<string, readonly [readonly CollectionDeclaration[], RegExp]>
> = {
  "its collection is renamed": [
    [books({ name: "novels", renamed: "books" })],
    /renamed after the request/,
  ],
  "a property is renamed": [
    [books({ properties: { name: { ...text, renamed: "title" }, shelf_id } })],
    /renamed after the request/,
  ],
  "the reference in its URL is renamed": [
    [books({
      properties: { title, rack_id: { ...shelf_id, renamed: "shelf_id" } },
    })],
    /renamed after the request/,
  ],
  "the reference in its URL is removed": [
    [books({ properties: { title } })],
    /^The property "shelf_id" no longer exists\.$/,
  ],
  "a property that its lines may have is removed": [
    [books({ properties: { shelf_id } })],
    /^The property "title" no longer exists\.$/,
  ],
};

for (const [change, [declared, reason]] of Object.entries(changes)) {
  for (const isHalfDone of [false, true]) {
    const state = isHalfDone ? "half done" : "queued";
    test(`an import that is ${state} fails with the reason if ${change}`, {
      skip,
    }, async (t) => {
      const { open } = await library(t);
      const { store, worker, target } = await open(books());
      await commit(store, [["put", "shelves", { id: 1, label: "A" }]], 0);
      const records = target("books");
      const [parent] = records.collection.parents;
      const context = operatorContext({ ids: [1] });
      const scope = () => records.scopeOf(context, parent);
      const call = operatorContext({ ids: [1], scope });
      const started = new Promise<void>((resolve) => {
        records.table.listeners.add(() => resolve());
      });
      await receiveImport(worker, {
        call,
        body: bodyOf(Array.from({ length: 20_000 }, () => ({ title: "Emma" }))),
        target: records,
      });
      if (isHalfDone) await started;
      await worker.stop();
      const imported = records.table.size;
      assert.equal(imported > 0, isHalfDone);
      assert.ok(imported < 20_000);
      await store.close();

      const next = await open(...declared);
      await next.worker.start();
      await next.worker.idle();
      const task = next.store.table("tasks").get(1)?.document as Task;
      assert.equal(task.status, "failed");
      assert.match(String(task.failure), reason);
      assert.deepEqual([task.imported, task.rejected], [imported, 0]);
      const stored = ["books", "novels"].map((name) =>
        next.store.tables.get(name)?.size ?? 0
      );
      assert.equal(Math.max(...stored), imported);
      assert.equal(Math.min(...stored), 0);
    });
  }
}

/** Stores an import of one book, whose server stops before it begins. */
async function queued(t: TestContext) {
  const { open } = await library(t);
  const { store, worker, target } = await open(books());
  await receiveImport(worker, {
    call: operatorContext(),
    body: bodyOf([{ title: "Emma" }]),
    target: target("books"),
  });
  await worker.stop();
  return { open, store };
}

test("an import continues after a change that renames nothing", {
  skip,
}, async (t) => {
  const { open, store } = await queued(t);
  await store.close();
  const pages = optional(string({ maxLength: 9 }));
  const next = await open(books({ properties: { title, shelf_id, pages } }));
  await next.worker.start();
  await next.worker.idle();
  const task = next.store.table("tasks").get(1)?.document as Task;
  assert.deepEqual([task.status, task.imported], ["succeeded", 1]);
});

test("an import that an earlier version has queued continues although a property is removed", async (t) => {
  const { open, store } = await queued(t);
  const { accepted, ...earlier } = store.table("tasks").get(1)
    ?.document as Task;
  assert.ok(accepted?.includes("shelf_id"));
  await commit(store, [["put", "tasks", earlier]], 0);
  await store.close();
  const next = await open(books({ properties: { title } }));
  await next.worker.start();
  await next.worker.idle();
  const task = next.store.table("tasks").get(1)?.document as Task;
  assert.deepEqual([task.status, task.imported], ["succeeded", 1]);
});
