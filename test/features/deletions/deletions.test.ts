/** DELETE of a collection deletes what matches, in a task; a cascade may be of any size. */

import { strict as assert } from "node:assert";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { withCheckedRule } from "../../../src/cli/declaration/checked-rule.ts";
import { vocabulary } from "../../../src/cli/declaration/checked-vocabulary.ts";
import { isMarked, withMarks } from "../../../src/features/deletions/plan.ts";
import type { Mutation } from "../../../src/store/store.ts";
import { startApplication } from "../../application.ts";
import { apiOf } from "../../collections.ts";
import {
  adminPassword,
  type Answer,
  assertError,
  type Body,
  lacks,
} from "../../harness.ts";
import { type Library, startLibrary } from "../../library.ts";
import { runHere, type ServerHere, startHere } from "../../in-process.ts";
import { ended, taskWhen } from "../../lines.ts";
import { folderFor } from "../../store/support.ts";
import { commit } from "../../commit.ts";

const { collection, string, integer, optional, reference } = vocabulary;

const times = {
  created_at: "2026-01-01T00:00:00.000Z",
  updated_at: "2026-01-01T00:00:00.000Z",
};

/** Stores authors, and books of the first of them. */
async function fill(app: Library, authors: number, books: number) {
  const mutations: Mutation[] = [];
  for (let id = 1; id <= authors; id++) {
    mutations.push(["put", "authors", { id, name: `a${id}`, ...times }]);
  }
  for (let id = 1; id <= books; id++) {
    const book = { id, title: `b${id % 10}`, author_id: 1, ...times };
    mutations.push(["put", "books", book]);
  }
  await commit(app.store, mutations, 0);
}

/** Sends a request that waits for the end of its task, and returns that. */
async function endedTask(
  send: (headers: Readonly<Record<string, string>>) => Promise<Answer>,
): Promise<Body> {
  const answer = await send({ prefer: "respond-async, wait=25" });
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.headers.get("preference-applied"), "wait=25");
  return answer.body;
}

function remove(app: Library, path: string, token = app.token) {
  return endedTask((headers) =>
    app.request("DELETE", `/v1/${path}`, { token, headers })
  );
}

describe("DELETE of a collection", () => {
  test("of its own sender is no error, as it is done", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    const json = { username: "ada", role: "admin", password: adminPassword };
    await app.send("POST", "users", json);
    const token = await app.signIn("ada", adminPassword);
    const { status, headers } = await app.request(
      "DELETE",
      "/v1/users?username=ada",
      { token, headers: { prefer: "wait=25" } },
    );
    assert.equal(status, 202);
    assert.equal(headers.get("preference-applied"), null);
    const { body } = await app.request("GET", headers.get("location") ?? "", {
      token: app.token,
    });
    assert.deepEqual([body["status"], body["deleted"]], ["succeeded", 1]);
  });

  test("deletes what matches, in a task that can be read", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    await fill(app, 1, 1000);
    const { status, headers, body } = await app.send(
      "DELETE",
      "books?title=b3",
    );
    assert.equal(status, 202);
    const location = headers.get("location") ?? "";
    assert.equal(location, body.url);
    assert.equal(body["type"], "deletion");
    const task = await remove(app, "books?title:in=b4,b5&id:lte=500");
    assert.deepEqual(
      [task["matched"], task["deleted"], task["cascaded"], task["rejected"]],
      [100, 100, 0, 0],
    );
    const first = await app.request("GET", location, { token: app.token });
    assert.equal(first.body["status"], "succeeded");
    assert.equal(first.body["deleted"], 100);
    assert.equal(app.store.table("books").size, 800);
    assert.equal((await app.send("GET", "books/3")).status, 410);
    const none = await remove(app, "books?title=b3");
    assert.equal(none["matched"], 0);
  });

  test("counts no sign-ins of users", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    for (const name of ["mia", "mo"]) await app.join(name); // and signs in
    const task = await remove(app, "users?role=member");
    assert.deepEqual([task["deleted"], task["cascaded"]], [2, 0]);
  });

  test("does not keep what was searched for once its task has ended", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    await fill(app, 1, 20);
    // The author stays, as books refer to it.
    for (
      const path of ["books?title=b3", "authors?name=a1", "books?title=b0"]
    ) {
      await remove(app, path);
    }
    const table = app.store.table("tasks");
    assert.equal(table.size, 3);
    for (const { document } of table.rows()) {
      assert.doesNotMatch(JSON.stringify(document), /"(b3|a1|b0)"/);
    }
  });

  test("needs a filter, and only filters", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    await fill(app, 1, 5);
    const codes: Readonly<Record<string, number>> = {
      "books": 40000,
      "authors?cascade=true": 40000,
      "books?limit=1": 40003,
      "books?title=b1&sortby=id": 40003,
      "books?titel=b1": 40003,
      "books?author_id=x": 40004,
      "authors?id=1&cascade=perhaps": 40004,
      "books?title=b1&fields=id": 40003,
      // Values that somebody forgot fit all books.
      "books?title:contains=": 40004,
      "books?title:contains=%20%E2%80%8B": 40004,
      "books?title:starts=&id=1": 40004,
      "books?title:ne=": 40004,
      "books?title:gte=": 40004,
      "books?title:gte=%20": 40004,
      // Spaces around a text are not compared, so more would match than it says.
      "books?title:starts=b%20%E2%80%8E": 40004,
      "books?title:contains=%C2%AD%20b": 40004,
      [`books?title:contains=${encodeURIComponent("\u{1f3f4}\u{e0067}")}`]:
        40004,
      "books?title:starts=b1%20": 40004,
      "books?title:contains=%E3%80%80b": 40004,
      "books?title:ne=%E2%80%8B": 40004,
    };
    for (const [path, code] of Object.entries(codes)) {
      assertError(await app.send("DELETE", path), code);
    }
    const unknown = await app.send("DELETE", "authors?limit=1&id=1");
    assert.match(
      unknown.body.error,
      /"limit" is unknown; allowed: cascade, id, name, /,
    );
    assertError(await app.send("DELETE", "tasks?id=1"), 40500);
    assert.equal(app.store.table("books").size, 5);
  });

  test("needs the right to delete, also while it works", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    await fill(app, 1, 5);
    const librarian = await app.join("librarian", "librarian");
    const refused = await app.send(
      "DELETE",
      "books?id=1",
      undefined,
      librarian,
    );
    assertError(refused, 40300);
    const admin = await app.join("second", "admin");
    const { status, headers } = await app.send(
      "DELETE",
      "books?id:gt=0",
      undefined,
      admin,
    );
    assert.equal(status, 202);
    const [row] = app.store.table("users").rows(2);
    assert.ok(row);
    // Before the first batch, which begins in another turn of the event loop.
    app.store.apply([["put", "users", { ...row.document, role: "member" }]], 0);
    const location = headers.get("location") ?? "";
    let task: Body;
    do {
      task = (await app.request("GET", location, { token: app.token })).body;
    } while (/queued|running/.test(String(task["status"])));
    assert.equal(task["status"], "failed", JSON.stringify(task));
    assert.equal(app.store.table("books").size, 5);
  });

  test("rejects what others refer to, unless it cascades", async (t) => {
    const app = await startLibrary();
    t.after(() => app.stop());
    await fill(app, 3, 3);
    const task = await remove(app, "authors?id:gt=0");
    assert.deepEqual(
      [task["matched"], task["deleted"], task["rejected"]],
      [3, 2, 1],
    );
    const [error] = task.errors as unknown as {
      id: number;
      errors: unknown[];
    }[];
    assert.equal(error?.id, 1);
    assert.match(JSON.stringify(error), /3 books/);
    assert.equal(
      (await remove(app, "authors?id=1&cascade=true"))["deleted"],
      1,
    );
    const { body } = await app.send("GET", "books");
    assert.deepEqual(body.map((each) => each["author_id"]), [null, null, null]);
  });

  test("says what to do where a rule demands a reference to what is deleted", async (t) => {
    const posts = collection({
      name: "posts",
      singular: "post",
      access: { read: "anyone", write: "keeper", delete: "keeper" },
      properties: {
        title: string({ maxLength: 9 }),
        parent_id: optional(reference("posts", { as: "replies" })),
      },
      check: ({ title, parent_id }) =>
        title === "reply" && parent_id === null
          ? { parent_id: "must be set" }
          : undefined,
    });
    const app = await startLibrary({ declarations: [posts] });
    t.after(() => app.stop());
    await app.send("POST", "posts", { title: "first" });
    await app.send("POST", "posts", { title: "reply", parent_id: 1 });
    await app.send("POST", "posts", { title: "reply", parent_id: 2 });
    const path = "posts?title=reply&cascade=true";
    const { deleted, errors } = await remove(app, path);
    assert.equal(deleted, 1);
    assert.deepEqual(errors, [{
      id: 2,
      errors: [{
        field: "",
        code: "reference",
        message:
          'Deleting the post would break a rule of the post 3: "parent_id" must be set. Delete first what refers to it, or repeat the request if that matches too.',
      }],
    }]);
    assert.equal((await remove(app, path))["deleted"], 1);
  });
});

/** Collections in which a record that is deleted can be referred to by one that matches as well. */
const forum = apiOf(
  ["topics", "posts"].map((name, level) =>
    collection({
      name,
      singular: name.slice(0, -1),
      access: { read: "anyone", write: "keeper", delete: "keeper" },
      properties: level === 0
        ? { best_post_id: optional(reference("posts", { as: "best_of" })) }
        : {
          topic_id: reference("topics"),
          parent_id: optional(reference("posts", { as: "replies" })),
        },
    })
  ),
);

describe("a record whose reference the deletion itself empties", () => {
  /** Starts a forum with topics, and posts of the first one of which each replies to the one before. */
  async function startForum(t: TestContext, posts: number) {
    const app = await startLibrary({ declaration: forum });
    t.after(() => app.stop());
    await commit(app.store, [
      ["put", "topics", { id: 1, best_post_id: posts, ...times }],
      ["put", "topics", { id: 2, best_post_id: null, ...times }],
      ...Array.from({ length: posts }, (_, at): Mutation => [
        "put",
        "posts",
        { id: at + 1, topic_id: 1, parent_id: at || null, ...times },
      ]),
    ], 0);
    return app;
  }

  for (
    const [filter, count] of [
      ["parent_id:ne=null", 9],
      ["updated_at:lt=2026-02-01T00:00:00Z", 10],
    ] as const
  ) {
    test(`is deleted if it matched before: ${filter}`, async (t) => {
      const app = await startForum(t, 10);
      const task = await remove(app, `posts?${filter}&cascade=true`);
      assert.deepEqual([task["matched"], task["deleted"]], [count, count]);
      assert.equal(app.store.table("posts").size, 10 - count);
    });
  }

  test("is spared if it did not match, or if somebody changes it meanwhile", async (t) => {
    const app = await startForum(t, 3);
    const { store } = app;
    await remove(app, "posts?id=1&cascade=true");
    assert.equal(store.table("posts").size, 2);
    const { document } = store.table("posts").rows()[0] ?? {};
    assert.ok(document);
    const by = "7";
    const doomed = () => store.table("posts").get(2)?.document ?? { id: 0 };
    const marked = withMarks(
      [["put", "posts", document]],
      by,
      store.table("posts"),
      () => true,
    );
    await commit(store, marked, 0);
    assert.equal(isMarked(by, doomed()), true);
    assert.equal(isMarked("8", doomed()), false);
    const path = "posts/2";
    assert.deepEqual(
      (await app.send("GET", path)).body["_deletion"],
      undefined,
    );
    assert.equal((await app.send("PATCH", path, { topic_id: 2 })).status, 201);
    assert.equal(isMarked(by, doomed()), false);
  });

  for (const path of ["topics?best_post_id:ne=null", "posts/3000/best_of/1?"]) {
    test(`is deleted after all that belongs to it, also over a restart: ${path}`, async (t) => {
      const app = await startForum(t, 3000);
      const { store } = app;
      const { status, headers } = await app.send(
        "DELETE",
        `${path}&cascade=true`,
      );
      assert.equal(status, 202);
      const url = headers.get("location") ?? "";
      const posts = store.table("posts");
      while (posts.size === 3000) {
        await new Promise((resolve) => setImmediate(resolve));
      }
      assert.notEqual(posts.size, 0);
      await app.restart();
      let task;
      do task =
        (await app.request("GET", url, { token: app.token })).body; while (
        /queued|running/.test(String(task["status"]))
      );
      const { matched, deleted, cascaded } = task;
      assert.deepEqual([matched, deleted, cascaded], [1, 1, 3000]);
      assert.deepEqual([store.table("topics").size, posts.size], [1, 0]);
    });
  }
});

test("a check that throws, or a task that names nothing, ends no other deletion", async (t) => {
  const access = { read: "anyone", write: "keeper", delete: "keeper" };
  const declaration = apiOf([
    collection({
      name: "authors",
      singular: "author",
      access,
      properties: { name: string({ maxLength: 9 }) },
    }),
    collection({
      name: "books",
      singular: "book",
      access,
      properties: { author_id: optional(reference("authors")) },
      check({ author_id }) {
        if (author_id === null) throw new Error("a mistake");
        return undefined;
      },
    }),
  ].map(withCheckedRule));
  const app = await startLibrary({ declaration });
  t.after(() => app.stop());
  const { store } = app;
  await commit(store, [
    ...[1, 2, 3, 4].map((id): Mutation => [
      "put",
      "authors",
      { id, name: `a${id}`, ...times },
    ]),
    ...Array.from({ length: 2502 }, (_, at): Mutation => [
      "put",
      "books",
      { id: at + 1, author_id: at === 0 ? 1 : 2, ...times },
    ]),
  ], 0);
  const task = await remove(app, "authors?id:lt=3&cascade=true");
  assert.deepEqual([task["deleted"], task["rejected"]], [0, 2]);
  const { errors } = task as unknown as {
    errors: { id: number; errors: { message: string }[] }[];
  };
  assert.deepEqual(
    errors.map(({ id, errors: [first] }) => [id, first?.message]),
    [1, 2].map((id) => [id, "The check of books failed."]),
  );
  // Tasks that nobody can have sent.
  const row = store.table("tasks").get(task.id);
  assert.ok(row);
  for (const filters of [null, [], [["unknown", "1"]], 7]) {
    const { lastId } = store.table("tasks");
    const crafted = {
      ...row.document,
      id: lastId + 1,
      status: "queued",
      filters,
    };
    await commit(store, [["put", "tasks", crafted]], 0);
  }
  const next = await remove(app, "authors?id=3");
  assert.equal(next["deleted"], 1);
  assert.equal(store.table("authors").size, 3);
  const ends = store.table("tasks").rows().map(({ document }) =>
    document["status"]
  );
  assert.deepEqual(ends, [
    "succeeded",
    ...Array(4).fill("failed"),
    "succeeded",
  ]);
});

/** Shelves with books that require them, and pages that require the books. */
const shelves = apiOf(
  ["shelves", "books", "pages"].map((name, level) =>
    collection({
      name,
      singular: name === "shelves" ? "shelf" : name.slice(0, -1),
      access: { read: "anyone", write: "keeper", delete: "keeper" },
      properties: {
        title: string({ maxLength: 9 }),
        ...(level === 1 && {
          shelf_id: reference("shelves"),
          last_shelf_id: optional(reference("shelves", { as: "former_books" })),
        }),
        ...(level === 2 && { book_id: reference("books") }),
      },
    })
  ),
);

describe("a large cascade", () => {
  /** Starts shelves, of which the first has very many books and pages. */
  async function startFull(books: number, pages: number) {
    const app = await startApplication({ declaration: shelves });
    const title = "t";
    const mutations: Mutation[] = [
      ["put", "shelves", { id: 1, title, ...times }],
      ["put", "shelves", { id: 2, title, ...times }],
      ["put", "books", {
        id: books + 1,
        title,
        shelf_id: 2,
        last_shelf_id: 1,
        ...times,
      }],
    ];
    for (let id = 1; id <= books; id++) {
      const book = { id, title, shelf_id: 1, last_shelf_id: null, ...times };
      mutations.push(["put", "books", book]);
    }
    for (let id = 1; id <= pages; id++) {
      const page = { id, title, book_id: 1 + id % books, ...times };
      mutations.push(["put", "pages", page]);
    }
    await commit(app.store, mutations, 0);
    return app;
  }

  /** Deletes, and returns the URL of the task once the first pages are gone. */
  async function beginLarge(
    { request, store, token }: Awaited<ReturnType<typeof startFull>>,
    path: string,
  ): Promise<string> {
    const { size } = store.table("pages");
    const { status, body } = await request("DELETE", path, { token });
    assert.equal(status, 202);
    while (store.table("pages").size === size) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    return String(body["url"]);
  }

  test("of one record is a task, and leaves nothing behind", async (t) => {
    const app = await startFull(3000, 5000);
    t.after(() => app.stop());
    const task = await endedTask((headers) =>
      app.request("DELETE", "/v1/shelves/1?cascade=true", {
        token: app.token,
        headers,
      })
    );
    assert.deepEqual(
      [task["matched"], task["deleted"], task["cascaded"], task["rejected"]],
      [1, 1, 8000, 0],
    );
    const sizes = ["shelves", "books", "pages"].map((name) =>
      app.store.table(name).size
    );
    assert.deepEqual(sizes, [1, 1, 0]);
    const { body } = await app.request("GET", "/v1/books/3001");
    assert.equal(body["last_shelf_id"], null);
  });

  test("of one record spares what is moved meanwhile, and what belongs to that", async (t) => {
    const app = await startFull(3000, 3000);
    t.after(() => app.stop());
    const { store, token } = app;
    const url = await beginLarge(app, "/v1/shelves/1?cascade=true");
    const json = { shelf_id: 2 };
    const moved = await app.request("PATCH", "/v1/books/1", { token, json });
    assert.equal(moved.status, 201, moved.text);
    await taskWhen(app, { url, token, until: ended });
    const ids = (name: string) =>
      store.table(name).rows().map(({ document }) => document.id);
    assert.deepEqual(ids("shelves"), [2]);
    assert.deepEqual(ids("books"), [1, 3001]);
    assert.deepEqual(ids("pages"), [3000]); // of that book
  });

  test("of one record also deletes very many that refer to it since it has begun", async (t) => {
    const app = await startFull(3000, 3000);
    t.after(() => app.stop());
    const { store, token } = app;
    const url = await beginLarge(app, "/v1/shelves/1?cascade=true");
    const book = { title: "new", shelf_id: 1, last_shelf_id: null, ...times };
    await commit(
      store,
      Array.from({ length: 2500 }, (_, at): Mutation => [
        "put",
        "books",
        { ...book, id: 4000 + at },
      ]),
      0,
    );
    const task = await taskWhen(app, { url, token, until: ended });
    assert.deepEqual([task["deleted"], task["rejected"]], [1, 0]);
    assert.equal(store.table("books").size, 1);
  });

  test("ends when its record is changed so that it does not match", async (t) => {
    const app = await startFull(3000, 3000);
    t.after(() => app.stop());
    const { store, token } = app;
    const path = "/v1/shelves?title=t&id=1&cascade=true";
    const task = await beginLarge(app, path);
    const json = { title: "u" };
    const shelf = "/v1/shelves/1";
    const changed = await app.request("PATCH", shelf, { token, json });
    assert.equal(changed.status, 201, changed.text);
    const { status, deleted } = await taskWhen(app, {
      url: task,
      token,
      until: ended,
    });
    assert.deepEqual([status, deleted], ["succeeded", 0]);
    assert.equal((await app.request("GET", shelf)).status, 200);
    assert.ok(store.table("books").size > 1000);
  });

  test("of one record obeys the preconditions of that record", {
    skip: lacks("conditional"),
  }, async (t) => {
    const app = await startFull(3000, 10);
    t.after(() => app.stop());
    const path = "/v1/shelves/1?cascade=true";
    const { headers } = await app.request("GET", "/v1/shelves/1");
    const remove = (etag: string) =>
      app.request("DELETE", path, {
        token: app.token,
        headers: { "if-match": etag },
      });
    assertError(await remove('"other"'), 41200);
    assert.equal((await remove(headers.get("etag") ?? "")).status, 202);
  });

  test("of few is done at once", async (t) => {
    const app = await startFull(3, 5);
    t.after(() => app.stop());
    const path = "/v1/shelves/1?cascade=true";
    const { status } = await app.request("DELETE", path, { token: app.token });
    assert.equal(status, 204);
  });

  test("leads no reference nowhere, whenever somebody looks", async (t) => {
    const app = await startFull(2500, 2500);
    t.after(() => app.stop());
    const path = "/v1/shelves?title=t&id=1&cascade=true";
    const { headers } = await app.request("DELETE", path, { token: app.token });
    const { store } = app;
    const location = headers.get("location") ?? "";
    let looks = 0;
    let status;
    do {
      for (const { document } of store.table("books").rows()) {
        assert.ok(store.table("shelves").get(Number(document["shelf_id"])));
      }
      for (const { document } of store.table("pages").rows()) {
        assert.ok(store.table("books").get(Number(document["book_id"])));
      }
      looks++;
      const { body } = await app.request("GET", location, { token: app.token });
      status = body["status"];
    } while (status !== "succeeded");
    assert.ok(looks > 2);
    assert.equal(store.table("books").size, 1);
  });
});

const notes = apiOf([
  collection({
    name: "notes",
    singular: "note",
    access: { read: "viewer", write: "viewer", delete: "viewer" },
    private: true,
    properties: { stars: integer() },
  }),
]);

test("private records of others are not there", async (t) => {
  const app = await startLibrary({ declaration: notes });
  t.after(() => app.stop());
  const [one, two] = [
    await app.join("one", "viewer"),
    await app.join("two", "viewer"),
  ];
  for (const token of [one, two]) {
    assert.equal(
      (await app.send("POST", "notes", { stars: 5 }, token)).status,
      201,
    );
  }
  const task = await remove(app, "notes?stars=5", one);
  assert.equal(task["matched"], 1);
  assert.deepEqual(
    app.store.table("notes").rows().map(({ document }) => document.id),
    [2],
  );
  const other = await app.request("GET", String(task.url), { token: two });
  assertError(other, 40401);
});

/**
 * Begins a deletion of several batches by a user whose role changes meanwhile;
 * returns its task once that has ended.
 */
async function deleteAcrossRoles(
  t: TestContext,
  { from, to, owners }: {
    readonly from: string;
    readonly to: string;
    /** Of the notes, by their ids from 1 on. */
    readonly owners: readonly number[];
  },
) {
  const app = await startLibrary({ declaration: notes });
  t.after(() => app.stop());
  const one = await app.join("one", from);
  const all = owners.map((owner_id, at): Mutation => [
    "put",
    "notes",
    { id: at + 1, stars: 5, owner_id, ...times },
  ]);
  await commit(app.store, all, 0);
  const sent = await app.send("DELETE", "notes?stars=5", undefined, one);
  assert.equal(sent.status, 202);
  const row = app.store.table("users").get(2);
  assert.ok(row);
  app.store.apply([["put", "users", { ...row.document, role: to }]], 0);
  const url = String(sent.body["url"]);
  const task = await taskWhen(app, { url, token: app.token, until: ended });
  const ids = app.store.table("notes").rows().map(({ document }) =>
    document.id
  );
  return { task, ids };
}

test("who gets more rights while it works deletes no more than they asked for", async (t) => {
  const count = 5000;
  const { task, ids } = await deleteAcrossRoles(t, {
    ...{ from: "viewer", to: "admin" },
    owners: [...Array(count).fill(2), 1],
  });
  assert.deepEqual([task["status"], task["matched"]], ["succeeded", count]);
  assert.deepEqual(ids, [count + 1]);
});

test("of one record, however many refer to it, needs no right to read", async (t) => {
  const access = { read: "admin", write: "keeper", delete: "keeper" };
  const app = await startLibrary({
    declaration: apiOf(
      ["shelves", "books"].map((name) =>
        collection({
          name,
          singular: name === "books" ? "book" : "shelf",
          access,
          properties: name === "books"
            ? { shelf_id: reference("shelves") }
            : { title: string({ maxLength: 9 }) },
        })
      ),
    ),
  });
  t.after(() => app.stop());
  const keeper = await app.join("kim", "keeper");
  await commit(app.store, [
    ["put", "shelves", { id: 1, title: "a", ...times }],
    ...Array.from({ length: 2500 }, (_, at): Mutation => [
      "put",
      "books",
      { id: at + 1, shelf_id: 1, ...times },
    ]),
  ], 0);
  const task = await remove(app, "shelves/1?cascade=true", keeper);
  assert.deepEqual([task["status"], task["cascaded"]], ["succeeded", 2500]);
  assertError(await app.send("DELETE", "books?id=1", undefined, keeper), 40300);
});

test("of what matches ends once its sender may not read the collection any more", async (t) => {
  const access = { read: "anyone", write: "keeper", delete: "keeper" };
  const app = await startLibrary({
    declaration: apiOf([collection({
      name: "shelves",
      singular: "shelf",
      access,
      properties: { title: string({ maxLength: 9 }) },
    })]),
  });
  t.after(() => app.stop());
  const keeper = await app.join("kim", "keeper");
  const all = Array.from({ length: 20_000 }, (_, at): Mutation => [
    "put",
    "shelves",
    { id: at + 1, title: "a", ...times },
  ]);
  await commit(app.store, all, 0);
  app.store.table("tasks").listeners.add(() => access.read = "admin");
  const task = await remove(app, "shelves?title=a", keeper);
  assert.match(String(task["failure"]), /no longer has the rights/);
  assert.ok(app.store.table("shelves").size > 0);
});

test("who loses a right while it works is told that it has not ended", async (t) => {
  const { task, ids } = await deleteAcrossRoles(t, {
    ...{ from: "admin", to: "viewer" },
    owners: Array(20_000).fill(1),
  });
  assert.equal(task["status"], "failed");
  assert.match(String(task.failure), /no longer has the rights/);
  assert.ok(ids.length > 0);
});

/** Starts a server on a new folder that deletes its zoos, in several batches. */
async function beginDeletion(folder: string): Promise<ServerHere> {
  const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
  const seed = { zoos: Array(20_000).fill(zoo) };
  const server = await startHere({ folder, seed });
  const token = await server.signIn();
  const sent = await server.request("DELETE", "/v1/zoos?id:gt=0", { token });
  assert.equal(sent.status, 202);
  return server;
}

async function countZoos(server: ServerHere): Promise<number> {
  const { headers } = await server.request("GET", "/v1/zoos");
  return Number(headers.get("x-total-count"));
}

test(
  "one that is not finished is told by the commands and the next start, and can be cancelled",
  {
    skip: lacks("imports"),
  },
  async (t) => {
    const folder = join(await folderFor(t), "store");
    const server = await beginDeletion(folder);
    await server.end();
    const checked = await runHere(["check", "--data-dir", folder]);
    assert.match(
      checked.stderr,
      /^zoo-api: a deletion in zoos \(task 1\) is not finished: \d+ records are deleted; the next start .* DELETE \/v1\/tasks\/1 cancels it\n$/,
    );
    const env = { FEATURES: "imports" };
    const waiting = await startHere({ folder, env });
    const before = await countZoos(waiting);
    const cancel = { token: await waiting.signIn() };
    const cancelled = await waiting.request("DELETE", "/v1/tasks/1", cancel);
    assert.equal(cancelled.status, 204);
    await waiting.end();
    const last = await startHere({ folder });
    t.after(() => last.end());
    assert.equal(await countZoos(last), before);
  },
);

test("one that goes on after a start is logged", async (t) => {
  const folder = join(await folderFor(t), "store");
  const server = await beginDeletion(folder);
  await server.end();
  const next = await startHere({ folder });
  t.after(() => next.end());
  assert.match(next.output(), /"resumes a deletion"/);
});
