/** Deletions when the power fails at any moment. */

import { strict as assert } from "node:assert";
import { test, type TestContext } from "node:test";
import { deriveCollections } from "../../../src/api/declaration/declaration.ts";
import { retentionTable } from "../../../src/api/own-tables.ts";
import { Records } from "../../../src/api/records/records.ts";
import { tablesOf } from "../../../src/api/routes.ts";
import { newTask, tasks } from "../../../src/api/tasks/tasks.ts";
import { digestOfRules } from "../../../src/features/deletions/task.ts";
import { DeletionWorker } from "../../../src/features/deletions/worker.ts";
import {
  type Document,
  openStore,
  type Store,
} from "../../../src/store/store.ts";
import { sample } from "../../collections.ts";
import { storedAdmin } from "../../harness.ts";
import { folderFor } from "../../store/support.ts";
import { Disk } from "../../torture/disk.ts";
import { Random } from "../../torture/random.ts";
import { commit } from "../../commit.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
const zoos = 600;
/** Of every third zoo; so many that one has more than a DELETE deletes at once. */
const animalsOfLarge = 2500;

/** The worker of deletions on a store without a server. */
function workerOn(store: Store): DeletionWorker {
  const collections = deriveCollections([
    ...sample.collections,
    tasks(sample.roles),
  ]);
  const all = new Map(
    Array.from(collections.values(), (collection) => {
      const context = { store, collections, prefix: "/", now: Date.now };
      return [collection.name, new Records(collection, context)];
    }),
  );
  const records = all.get("tasks");
  assert.ok(records);
  return new DeletionWorker({
    declaration: sample,
    store,
    records,
    recordsOf: (name) => all.get(name),
    now: Date.now,
    log: () => {},
  }, []);
}

/** Waits until no task is left, and stops the worker. */
async function workOff(worker: DeletionWorker): Promise<void> {
  const { store } = worker.context;
  await worker.start();
  const isLeft = () =>
    store.table("tasks").rows().some(({ document }) =>
      /queued|running/.test(String(document["status"]))
    );
  while (isLeft() && store.isWritable) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await worker.stop();
}

function open(disk: Disk): Promise<Store> {
  return openStore({
    folder: disk.folder,
    files: disk,
    tables: tablesOf(sample, [
      {
        collections: (roles) => [tasks(roles)],
        tables: [{ name: retentionTable }],
      },
    ]),
    limits: { reserveBytes: 0, minLogBytes: 100_000, markerDelayMs: 5 },
  });
}

/** Fills a store with zoos, half of them to be deleted, and their animals. */
async function fill(store: Store): Promise<void> {
  const at = storedAdmin.created_at;
  const put = (name: string, document: Document) =>
    ["put", name, { ...document, created_at: at, updated_at: at }] as const;
  let id = 0;
  const animal = (zoo_id: number) =>
    put("animals", { id: ++id, zoo_id, name: "Leo", animal_type_id: 1 });
  await commit(store, [["put", "users", storedAdmin]], 0);
  await commit(
    store,
    Array.from({ length: zoos }, (_, each) => {
      const country = each % 2 === 0 ? "NL" : "DE";
      return put("zoos", { ...zoo, id: each + 1, country });
    }),
    0,
  );
  for (let of = 1; of <= zoos; of += 3) await commit(store, [animal(of)], 0);
  const large = Array.from({ length: animalsOfLarge }, () => animal(1));
  await commit(store, large, 0);
}

/** Stores the task that deletes the zoos of one country. */
async function beginDeletion(
  store: Store,
  cascade: boolean,
  more: object = {},
): Promise<void> {
  const { context } = workerOn(store);
  const task = {
    ...newTask(context, {
      type: "deletion",
      collection: "zoos",
      sender: { id: storedAdmin.id, role: "admin", grants: new Set() },
    }),
    filters: [["country", "NL"]],
    cascade,
    given: {},
    rules: digestOfRules(store),
    after: 0,
    upTo: store.table("zoos").lastId,
    ...more,
  };
  await commit(store, [["put", "tasks", task]], storedAdmin.id);
}

/** Returns how many operations of the disk a deletion takes. */
async function countSteps(t: TestContext, cascade: boolean): Promise<number> {
  const disk = new Disk({ folder: await folderFor(t) });
  const store = await open(disk);
  await fill(store);
  await beginDeletion(store, cascade);
  let count = 0;
  disk.fate = () => {
    count++;
    return undefined;
  };
  await workOff(workerOn(store));
  await store.close();
  return count;
}

async function cutAndResume(
  t: TestContext,
  random: Random,
  { cascade, steps: all }: {
    readonly cascade: boolean;
    readonly steps: number;
  },
): Promise<string> {
  const disk = new Disk({ folder: await folderFor(t) });
  const store = await open(disk);
  await fill(store);
  await beginDeletion(store, cascade);
  const later = await folderFor(t);
  let steps = random.below(all);
  let crashed: Disk | undefined;
  disk.fate = () => {
    if (steps-- === 0) crashed = disk.crash(later, random);
    return undefined;
  };
  await workOff(workerOn(store));
  await store.close();
  crashed ??= disk.crash(later, random);

  const again = await open(crashed);
  const before = String(again.table("tasks").get(1)?.document["status"]);
  await workOff(workerOn(again));
  const left = again.table("zoos").rows().map(({ document }) => document);
  const animals = again.table("animals").rows().map(({ document }) => document);
  const task = again.table("tasks").get(1)?.document;
  // Zoos 1, 7, 13, … are of this country and have animals.
  const withAnimals = zoos / 6;
  const kept = cascade ? 0 : withAnimals;
  const gone = left.filter(({ country }) => country === "NL");
  assert.equal(gone.length, kept);
  assert.equal(left.length - gone.length, zoos / 2);
  const ids = new Set(left.map(({ id }) => id));
  for (const { zoo_id } of animals) assert.ok(ids.has(Number(zoo_id)));
  assert.ok(task);
  const { status, matched, deleted, cascaded, rejected } = task as Readonly<
    Record<string, unknown>
  >;
  assert.deepEqual({ status, matched, deleted, cascaded, rejected }, {
    status: "succeeded",
    matched: zoos / 2,
    deleted: zoos / 2 - kept,
    cascaded: cascade ? withAnimals + animalsOfLarge : 0,
    rejected: kept,
  });
  await again.close();
  return before;
}

for (const cascade of [false, true]) {
  test(
    `a power cut at any step of a deletion ${
      cascade ? "with all that refers to it " : ""
    }leaves each record once, or deletes and counts it once`,
    async (t) => {
      const random = new Random(11);
      const steps = await countSteps(t, cascade);
      const states: string[] = [];
      for (let round = 0; round < 20; round++) {
        states.push(await cutAndResume(t, random, { cascade, steps }));
      }
      // Without what refers to it, one transaction may be enough.
      if (cascade) {
        assert.ok(states.includes("running"), `${steps}: ${states}`);
      }
    },
  );
}

test("a deletion ends under another declaration, by which other records could match", async (t) => {
  const store = await open(new Disk({ folder: await folderFor(t) }));
  t.after(() => store.close());
  await fill(store);
  await beginDeletion(store, true, { rules: "another" });
  await workOff(workerOn(store));
  const failure = store.table("tasks").get(1)?.document["failure"];
  assert.equal(failure, "The declaration was changed after the request.");
  assert.equal(store.table("zoos").size, zoos);
});

test("a deletion goes on under other policies, which do not decide what matches", async (t) => {
  const store = await open(new Disk({ folder: await folderFor(t) }));
  t.after(() => store.close());
  await fill(store);
  const remember = async (document: object) => {
    const row = { id: 1, names: {}, ...document };
    await store.durable(store.apply([["put", "_declaration", row]], 0));
  };
  await remember({}); // as an earlier version does
  await beginDeletion(store, true);
  await remember({ policies: { zoos: "{}" } });
  await workOff(workerOn(store));
  assert.equal(store.table("tasks").get(1)?.document["status"], "succeeded");
});

test("the deletion of a server that shared the store goes on in a copy of it", async (t) => {
  const store = await open(new Disk({ folder: await folderFor(t) }));
  t.after(() => store.close());
  await fill(store);
  await beginDeletion(store, true, { server: "of another store" });
  await workOff(workerOn(store));
  assert.equal(store.table("tasks").get(1)?.document["status"], "succeeded");
});
