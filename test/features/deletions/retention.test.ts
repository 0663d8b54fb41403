/** What a declaration keeps for a while is deleted when it is older, unless the clock has made a leap. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { once } from "node:events";
import { join } from "node:path";
import { writeFile } from "node:fs/promises";
import { test, type TestContext } from "node:test";
import { declareApi } from "../../../src/api/declaration/api.ts";
import { recordsOf } from "../../../src/api/records/local.ts";
import { tablesOf } from "../../../src/api/routes.ts";
import { tasks } from "../../../src/api/tasks/tasks.ts";
import { withCheckedRule } from "../../../src/cli/declaration/checked-rule.ts";
import { vocabulary } from "../../../src/cli/declaration/checked-vocabulary.ts";
import {
  endedTasks,
  expire,
} from "../../../src/features/deletions/retention.ts";
import { retentionTable } from "../../../src/api/own-tables.ts";
import type { Document } from "../../../src/store/store.ts";
import { openEtcdStore } from "../../../src/etcd/open.ts";
import { DeletionWorker } from "../../../src/features/deletions/worker.ts";
import { openStore } from "../../../src/store/file-store.ts";
import { Gateway } from "../../etcd/gateway.ts";
import { runHere } from "../../in-process.ts";
import {
  lacks,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../../harness.ts";
import { commit } from "../../commit.ts";

const { collection, date, integer, optional, reference, timestamp } =
  vocabulary;

const access = { read: "anyone", write: "keeper", delete: "keeper" };
const api = declareApi({
  collections: [
    collection({
      name: "sensors",
      singular: "sensor",
      access,
      properties: { bought_on: optional(date()) },
      keep: { days: 10, by: "bought_on" },
    }),
    collection({
      name: "loans",
      singular: "loan",
      access,
      properties: { next_id: optional(reference("loans", { as: "former" })) },
      keep: { days: 30, by: "updated_at" },
    }),
    collection({
      name: "alarms",
      singular: "alarm",
      access,
      properties: { sensor_id: reference("sensors") },
    }),
    collection({
      name: "readings",
      singular: "reading",
      access,
      properties: {
        value: integer(),
        sensor_id: optional(reference("sensors")),
        main_sensor_id: optional(reference("sensors", { as: "main_readings" })),
        required_by: optional(integer()),
        taken_at: optional(timestamp()),
      },
      keep: { days: 90, by: "taken_at" },
      check: ({ value, sensor_id }) => {
        if (value === -2 && sensor_id === null) throw new Error("a mistake");
        return Number(value) < 0 && sensor_id === null
          ? { sensor_id: "must be set" }
          : undefined;
      },
    }),
  ].map(withCheckedRule),
});

const day = 86_400_000;
const today = Date.parse("2026-06-01T12:00:00Z");

/** Opens a store, with a clock that a test sets. */
async function open(t: TestContext) {
  const folder = await temporaryFolder();
  const feature = {
    collections: () => [tasks(api.roles)],
    tables: [{ name: retentionTable }],
  };
  const store = await openStore({
    folder: join(folder, "store"),
    tables: tablesOf(api, [feature]),
  });
  t.after(async () => {
    await store.close();
    await removeFolder(folder);
  });
  const logged: string[] = [];
  const clock = { at: today };
  const records = recordsOf(store, api, tasks(api.roles));
  const own = (name: string) => recordsOf(store, api, name);
  const context = {
    declaration: api,
    store,
    records,
    recordsOf: own,
    now: () => clock.at,
    log: (level: string, message: string) => {
      logged.push(`${level} ${message}`);
    },
  };
  const kept = [
    ...["sensors", "loans", "readings"].map((name) => {
      const each = own(name);
      const { keep } = each.collection;
      assert.ok(keep);
      return { records: each, by: "created_at", ...keep };
    }),
    { records, ...endedTasks },
  ];
  const put = async (name: string, ...documents: Document[]) => {
    const times = { created_at: iso(0), updated_at: iso(0) };
    await commit(
      store,
      documents.map((each) => ["put", name, { ...times, ...each }]),
      0,
    );
  };
  const { signal } = new AbortController();
  return {
    store,
    clock,
    logged,
    put,
    look: () => expire(context, kept, signal),
    ids: (name: string) =>
      store.table(name).rows().map(({ document }) => document.id),
  };
}

/** The time so many days before today. */
const iso = (days: number) => new Date(today - days * day).toISOString();

test("what is older than its days is deleted, and what has no date stays", async (t) => {
  const { put, look, ids, logged } = await open(t);
  await put(
    "readings",
    { id: 1, value: 1, taken_at: iso(91) },
    { id: 2, value: 1, taken_at: iso(89) },
    { id: 3, value: 1, taken_at: null },
    { id: 4, value: 1, taken_at: iso(-400) },
    { id: 5, value: 1, taken_at: iso(90.001) },
  );
  await look();
  assert.deepEqual(ids("readings"), [2, 3, 4]);
  assert.deepEqual(logged, ["info deleted what had expired"]);
  await look();
  assert.equal(logged.length, 1, "nothing more");
});

test("what others require stays until they are gone; other references are emptied", async (t) => {
  const { put, look, ids, store } = await open(t);
  const bought_on = "2026-01-01";
  await put("sensors", { id: 1, bought_on }, { id: 2, bought_on });
  await put("alarms", { id: 1, sensor_id: 1 });
  await put("readings", { id: 1, value: 1, sensor_id: 2, taken_at: null });
  await look();
  assert.deepEqual(ids("sensors"), [1]);
  assert.equal(store.table("readings").get(1)?.document["sensor_id"], null);
  await commit(store, [["del", "alarms", 1]], 0);
  await look();
  assert.deepEqual(ids("sensors"), []);
});

test("what has expired goes although a reference of it was emptied, which changes it", async (t) => {
  const { put, look, ids } = await open(t);
  const old = { created_at: iso(50), updated_at: iso(50) };
  await put(
    "loans",
    { id: 1, next_id: null, ...old },
    ...[2, 3, 4].map((id) => ({ id, next_id: id - 1, ...old })),
    { id: 5, next_id: 4 },
  );
  await look();
  assert.deepEqual(ids("loans"), [5]);
});

test("a server deletes what has expired although another one writes before each batch, and counts all of it", async (t) => {
  const gateway = new Gateway();
  const folder = await temporaryFolder();
  const etcd = await gateway.listen(t);
  const feature = {
    collections: () => [tasks(api.roles)],
    tables: [{ name: retentionTable }],
  };
  const [store, other] = await Promise.all(
    ["one", "two"].map((name) =>
      openEtcdStore({
        folder: join(folder, name),
        tables: tablesOf(api, [feature]),
      }, etcd)
    ),
  );
  assert.ok(store && other);
  const times = { created_at: iso(0), updated_at: iso(0) };
  const write = async (id: number, days: number) => {
    const taken_at = iso(days);
    const reading = { id, value: 1, taken_at, ...times };
    await commit(other, [["put", "readings", reading]], 0);
  };
  const expired = 12;
  for (let id = 1; id <= expired; id++) await write(id, 91);
  await store.confirm(true);
  // So a batch has few records.
  let readings = 0;
  const now = performance.now.bind(performance);
  t.mock.method(performance, "now", () => now() + readings++ / 2);
  let attempts = 0;
  let overtaken = 0;
  gateway.delayOf = async (path, { success: [log] = [] }) => {
    const { value = "" } = log?.request_put ?? {};
    const text = Buffer.from(value, "base64").toString();
    const isSweep = path === "kv/txn" && /_retention|"del"/.test(text);
    if (isSweep && attempts++ % 2 === 0) {
      await write(expired + ++overtaken, 1);
    }
  };
  const own = (name: string) => recordsOf(store, api, name);
  const records = own("readings");
  const logged: unknown[] = [];
  const worker = new DeletionWorker({
    declaration: api,
    store,
    records: recordsOf(store, api, tasks(api.roles)),
    recordsOf: own,
    now: () => today,
    log: (...line) => void logged.push(line),
  }, [{ records, days: 90, by: "taken_at" }]);
  t.after(async () => {
    await worker.stop();
    await Promise.all([store.close(), other.close()]);
    await removeFolder(folder);
  });
  await worker.start();
  while (logged.length === 0) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const fields = { collection: "readings", days: 90, by: "taken_at" };
  assert.deepEqual(logged, [
    ["info", "deleted what had expired", { ...fields, count: expired }],
  ]);
  assert.ok(overtaken > 2);
  assert.equal(records.table.size, overtaken);
});

test("ended tasks go after seven days", async (t) => {
  const { put, look, ids } = await open(t);
  await put("readings", { id: 1, value: 1, taken_at: null }); // of today
  const task = { type: "import", collection: "readings", user_id: 1 };
  const old = { updated_at: iso(8) };
  await put(
    "tasks",
    { id: 1, ...task, status: "succeeded", ...old },
    { id: 2, ...task, status: "failed", ...old },
    { id: 3, ...task, status: "running", ...old },
    { id: 4, ...task, status: "succeeded", updated_at: iso(6) },
  );
  await look();
  assert.deepEqual(ids("tasks"), [3, 4]);
});

test("after a leap of the clock nothing is deleted for a week, and the log says so", async (t) => {
  const { put, look, ids, clock, logged } = await open(t);
  await put("readings", { id: 1, value: 1, taken_at: iso(0) });
  await look();
  clock.at += 5 * 365 * day; // it is wrong
  await look();
  assert.match(
    String(logged),
    /^error the clock is 1825 days later than before/,
  );
  clock.at += 3 * day;
  await look();
  assert.match(String(logged.at(-1)), /^error the clock/);
  assert.deepEqual(ids("readings"), [1]);
  clock.at = today + day;
  await look();
  assert.match(String(logged.at(-1)), /the clock is 1827 days earlier/);
  for (let days = 0; days < 8; days++) {
    clock.at += day;
    await look();
  }
  assert.deepEqual(ids("readings"), [1], "not older than 90 days");
  clock.at += 100 * day; // the machine was off
  await look();
  assert.deepEqual(ids("readings"), [1]);
  for (let days = 0; days < 7; days++) {
    assert.deepEqual(ids("readings"), [1]);
    clock.at += day;
    await look();
  }
  assert.deepEqual(ids("readings"), []);
});

test("a machine that is off at night and at weekends deletes what has expired", async (t) => {
  const { put, look, ids, clock, logged } = await open(t);
  await put("readings", { id: 1, value: 1, taken_at: iso(89) });
  for (const hours of [0, 14, 10, 14, 62, 10]) {
    clock.at += hours * day / 24;
    await look();
  }
  assert.deepEqual(ids("readings"), []);
  assert.doesNotMatch(String(logged), /clock/);
});

test("at the first look the clock is compared with the newest records", async (t) => {
  const { put, look, ids, clock, logged } = await open(t);
  await put("readings", { id: 1, value: 1, taken_at: iso(0) });
  clock.at += 5 * 365 * day;
  await look();
  assert.deepEqual(ids("readings"), [1]);
  assert.match(String(logged), /1825 days later/);
});

test("an old seed is no leap, as the user of its first start is new", async (t) => {
  const { put, look, clock, logged } = await open(t);
  await put("readings", { id: 1, value: 1, taken_at: iso(0) });
  clock.at += 40 * day;
  const updated_at = new Date(clock.at).toISOString();
  await put("users", { id: 1, username: "admin", updated_at });
  await look();
  assert.deepEqual(logged, []);
});

test("a time without records is no leap", async (t) => {
  const { put, look, clock, logged, store } = await open(t);
  const { seq } = store;
  await look();
  assert.equal(store.seq, seq, "nothing is written while nothing was there");
  await put("readings", { id: 1, value: 1, taken_at: iso(0) });
  await look();
  await commit(store, [["del", "readings", 1]], 0);
  for (let days = 0; days < 40; days++) {
    clock.at += day;
    await look();
  }
  const taken_at = new Date(clock.at).toISOString();
  await put("readings", { id: 2, value: 1, taken_at });
  await look();
  assert.deepEqual(logged, []);
});

test("what a check cannot judge stays, and everything else goes", async (t) => {
  const { put, look, ids } = await open(t);
  const bought_on = "2026-01-01";
  await put("sensors", ...[1, 2, 3].map((id) => ({ id, bought_on })));
  const reading = { main_sensor_id: null, taken_at: null, value: -2 };
  await put("readings", { ...reading, id: 1, sensor_id: 1 });
  const many = Array.from({ length: 2500 }, (_, at) => ({
    ...reading,
    id: at + 2,
    sensor_id: 2,
  }));
  await put("readings", ...many);
  const old = { ...reading, sensor_id: 3, taken_at: iso(91) };
  await put("readings", { ...old, id: 3000 });
  await look();
  assert.deepEqual(ids("sensors"), [1, 2, 3]);
  await look(); // without the reading
  assert.deepEqual(ids("sensors"), [1, 2]);
  assert.equal(ids("readings").length, 2501);
});

test("very many references to what has expired are emptied, unless one is required, or a rule requires one", async (t) => {
  const { put, look, ids, store } = await open(t);
  const bought_on = "2026-01-01";
  await put("sensors", ...[1, 2, 3].map((id) => ({ id, bought_on })));
  const many = (sensor_id: number, from: number) =>
    Array.from({ length: 2500 }, (_, index) => ({
      id: from + index,
      value: 1,
      sensor_id,
      main_sensor_id: sensor_id,
      taken_at: null,
    }));
  await put("readings", ...many(1, 1), ...many(2, 3001), ...many(3, 6001));
  const [last] = many(3, 9001);
  assert.ok(last);
  await put("readings", { ...last, value: -1 });
  await put("alarms", { id: 1, sensor_id: 2 });
  await look();
  assert.deepEqual(ids("sensors"), [2, 3]);
  const left = (name: string, id: number) =>
    store.table("readings").count(name, id);
  assert.deepEqual(
    [left("sensor_id", 1), left("main_sensor_id", 1), left("sensor_id", 2)],
    [0, 0, 2500],
  );
  assert.equal(left("sensor_id", 3), 2501);
});

test("what becomes required while very many references are emptied stays, with what requires it", async (t) => {
  const { put, look, ids, store } = await open(t);
  await put("sensors", { id: 1, bought_on: "2026-01-01" });
  const readings = Array.from({ length: 2500 }, (_, index) => ({
    id: 1 + index,
    value: 1,
    sensor_id: 1,
    taken_at: null,
  }));
  await put("readings", ...readings);
  const looking = look();
  const left = () => store.table("readings").count("sensor_id", 1);
  while (left() === 2500) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  await put("alarms", { id: 1, sensor_id: 1 });
  await looking;
  assert.deepEqual(ids("sensors"), [1]);
  const [alarm] = store.table("alarms").rows();
  assert.equal(alarm?.document["sensor_id"], 1);
  assert.ok(left() > 0);
});

test("a look remembers the time no more than twice a day", async (t) => {
  const { store, look, clock, put } = await open(t);
  await put("readings", { id: 1, value: 1, taken_at: iso(0) });
  await look();
  const { seq } = store;
  for (let hour = 1; hour <= 24; hour++) {
    clock.at += 3_600_000;
    await look();
  }
  assert.ok(store.seq <= seq + 2);
});

const declaration = `export default ({ collection, integer, timestamp }) => ({
  collections: [collection({
    name: "readings", singular: "reading",
    access: { read: "anyone", write: "keeper", delete: "keeper" },
    properties: { value: integer(), taken_at: timestamp() },
    keep: { days: 1, by: "taken_at" },
  })],
});`;

test("a server without the feature refuses to start with what it would not do", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const file = join(folder, "api.mjs");
  await writeFile(file, declaration);
  const { code, stderr } = await runHere(["serve", "--port", "0"], {
    env: { COLLECTIONS: file, FEATURES: "imports" },
  });
  assert.equal(code, 2, stderr);
  assert.match(
    stderr,
    /^zoo-api: readings: this server lacks the feature for keep\n$/,
  );
});

/** Waits for the end of a task, in however many requests. */
async function taskEnded(server: Server, token: string, url: string) {
  while (true) {
    const { body } = await server.request("GET", url, { token });
    if (!/queued|running/.test(String(body["status"]))) return body;
  }
}

test(
  "a server deletes at its start, and goes on with a deletion after a kill",
  { skip: lacks("batches") },
  async (t) => {
    const folder = await temporaryFolder();
    t.after(() => removeFolder(folder));
    const file = join(folder, "api.mjs");
    await writeFile(file, declaration);
    const options = {
      folder: join(folder, "store"),
      env: { COLLECTIONS: file },
    };
    let server = await start(options);
    t.after(() => server.stop());
    let token = await server.signIn();
    const now = new Date().toISOString();
    const post = (taken_at: string, value: number) =>
      server.request("POST", "/v1/readings", {
        token,
        json: Array.from({ length: 1000 }, () => ({ value, taken_at })),
      });
    await post("2020-01-01T00:00:00Z", 1);
    for (let batch = 0; batch < 10; batch++) {
      assert.equal((await post(now, 2)).status, 201);
    }
    const url = "/v1/readings?value=2";
    const { headers } = await server.request("DELETE", url, { token });
    await server.end("SIGKILL");
    server = await start(options);
    token = await server.signIn();
    const task = await taskEnded(server, token, headers.get("location") ?? "");
    assert.deepEqual(
      [task["matched"], task["deleted"], task["rejected"], task["status"]],
      [10_000, 10_000, 0, "succeeded"],
    );
    // The old ones go in the background.
    while (!/deleted what had expired/.test(server.output())) {
      await once(server.child.stdout ?? server.child, "data");
    }
    const left = await server.request("GET", "/v1/readings");
    assert.deepEqual(left.body, []);
  },
);
