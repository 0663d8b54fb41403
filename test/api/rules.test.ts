import { strict as assert } from "node:assert";
import { featureNames } from "../../src/features.ts";
import { test } from "node:test";
import { declareApi } from "../../src/api/declaration/api.ts";
import type { Declaration } from "../../src/api/declaration/declaration.ts";
import { withCheckedRule } from "../../src/cli/declaration/checked-rule.ts";
import { vocabulary } from "../../src/cli/declaration/checked-vocabulary.ts";
import { loadSeed } from "../../src/api/seed.ts";
import { library, startLibrary } from "../library.ts";
import { lacks } from "../harness.ts";
import { importLines } from "../lines.ts";

const { collection, string, optional, integer, reference } = vocabulary;

const wrong = {
  title: "A",
  published_on: "2020-01-02",
  reprinted_on: "2020-01-01",
};
const message = '"reprinted_on" must not be before published_on.';

test("a check refuses a record that would break it, whatever the request", async (t) => {
  const app = await startLibrary();
  t.after(() => app.stop());
  const { send, store } = app;
  const refuse = async (method: string, path: string, json: object) => {
    const { status, body } = await send(method, path, json);
    assert.equal(status, 422, `${method} ${path}`);
    assert.deepEqual(body.errors, [
      { field: "reprinted_on", code: "rule", message },
    ]);
  };
  await refuse("POST", "books", wrong);
  assert.equal(store.table("books").lastId, 0);
  await send("POST", "books", { ...wrong, reprinted_on: null });
  const patch = { reprinted_on: wrong.reprinted_on };
  await refuse("PATCH", "books/1", patch);
  await refuse("PUT", "books/1", wrong);
  const { status } = await send("PATCH", "books/1", { reprinted_on: null });
  assert.equal(status, 201);
  const other = await startLibrary();
  t.after(() => other.stop());
  const seed = JSON.stringify({ books: [wrong] });
  assert.throws(() => loadSeed(other.store, library, seed), {
    message: `books[0] in the seed: ${message}`,
  });
});

/** Starts an API with one collection that has a check, and a log. */
async function startChecked(
  t: { after(end: () => unknown): void },
  check: Declaration["check"],
) {
  const logged: string[] = [];
  const things = collection({
    name: "things",
    singular: "thing",
    access: { read: "anyone", write: "keeper", delete: "keeper" },
    properties: {
      name: string({ maxLength: 9 }),
      count: optional(integer(), 7),
      part_of_id: optional(reference("things", { as: "parts" })),
    },
    ...(check && { check }),
  });
  const app = await startLibrary({
    declaration: declareApi({ collections: [withCheckedRule(things)] }),
    // It asks the check about its examples.
    features: featureNames.filter((name) => name !== "openapi"),
    log: (level, message, fields) => {
      const more = typeof fields === "function" ? fields() : fields;
      logged.push(`${level} ${message} ${JSON.stringify(more)}`);
    },
  });
  t.after(() => app.stop());
  return { ...app, logged };
}

test("a check sees a copy of the complete record, once all properties pass and something changes", async (t) => {
  const seen: unknown[] = [];
  const { send, store } = await startChecked(t, (record) => {
    seen.push({ ...record });
    Object.assign(record, { name: "hacked", id: 99 });
  });
  await send("POST", "things", { name: "a" });
  assert.deepEqual(seen, [store.table("things").get(1)?.document]);
  assert.deepEqual(Object.values(seen[0] ?? {}).slice(0, 4), [1, "a", 7, null]);
  await send("POST", "things", { name: 1 });
  await send("PATCH", "things/1", { name: "a" });
  assert.equal(seen.length, 1);
  await send("PATCH", "things/1", { count: 8 });
  const { document } = store.table("things").get(1) ?? {};
  assert.equal(document?.["name"], "a");
  assert.deepEqual(seen[1], document);
});

test("a message that ends with a full stop gets no second one, and undefined is not a message", async (t) => {
  const { send } = await startChecked(
    t,
    () => ({ name: "is dull.", count: undefined }),
  );
  const { body } = await send("POST", "things", { name: "a" });
  const messages = body.errors.map(({ message }) => message);
  assert.deepEqual(messages, ['"name" is dull.']);
});

test("a check that fails is an internal error: nothing is stored, and the log says why", async (t) => {
  const failures: (() => unknown)[] = [
    () => "wrong",
    () => false,
    () => ["name"],
    () => Promise.reject(new Error("nobody waits")),
    () => ({ nmae: "is wrong" }),
    () => ({ name: 7 }),
    () => {
      throw new TypeError("my secret mistake");
    },
  ];
  let fail = () => {};
  const app = await startChecked(t, () => fail());
  for (const each of failures) {
    fail = each as typeof fail;
    app.logged.length = 0;
    const { status, text } = await app.send("POST", "things", { name: "a" });
    assert.equal(status, 500, text);
    assert.doesNotMatch(text, /check|secret|things/);
    assert.match(app.logged.join(), /The check of things failed: /);
  }
  assert.match(app.logged.join(), /TypeError: my secret mistake\\n/);
  assert.equal(app.store.table("things").size, 0);
});

test("an imported record is checked with its own id and times", {
  skip: lacks("imports"),
}, async (t) => {
  const seen: unknown[] = [];
  const app = await startChecked(t, ({ id, created_at }) => {
    seen.push([id, created_at]);
  });
  const time = "2020-01-01T00:00:00.000Z";
  const line = { id: 40, name: "a", created_at: time, updated_at: time };
  const raw = `${JSON.stringify(line)}\n{"name":"b"}\n`;
  const { token } = app;
  assert.equal(
    (await importLines(app, "/v1/things", { token, raw })).imported,
    2,
  );
  assert.deepEqual(seen[0], [40, time]);
  assert.equal(app.store.table("things").lastId, 41);
});

test(
  "a check refuses the lines of an import that would break it, and fails the import if it fails itself",
  { skip: lacks("imports") },
  async (t) => {
    const app = await startChecked(t, ({ name }) => {
      if (name === "fatal") throw new Error("my mistake");
      return name === "bad" ? { name: "must be good" } : undefined;
    });
    const { token, store } = app;
    const send = (raw: string) =>
      importLines(app, "/v1/things", { token, raw });
    const task = await send('{"name":"bad"}\n{"name":"good"}\n');
    assert.deepEqual([task.imported, task.rejected], [1, 1]);
    assert.deepEqual(task.errors[0]?.errors, [
      { field: "name", code: "rule", message: '"name" must be good.' },
    ]);
    const failed = await send('{"name":"good"}\n{"name":"fatal"}\n');
    assert.equal(failed.status, "failed");
    assert.equal(failed.failure, "The check of things failed.");
    // A slow machine commits the first line in a batch of its own.
    assert.equal(store.table("things").size, 1 + failed.imported);
  },
);
