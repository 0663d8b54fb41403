/** Servers that share a store in etcd, over HTTP and from the command line. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { type Running, startApplication } from "../application.ts";
import { apiOf, collections } from "../collections.ts";
import { openDataFolder } from "../../src/data-folder.ts";
import { EtcdStore } from "../../src/etcd/store.ts";
import { asShared, type EtcdOptions } from "../../src/store/shared.ts";
import { follow } from "../follower.ts";
import {
  adminPassword,
  assertError,
  lacks,
  removeFolder,
  signInNew,
  temporaryFolder,
} from "../harness.ts";
import { notes } from "../library.ts";
import { Gateway } from "./gateway.ts";

/** An import as it is stored before its first line is read. */
const queued = {
  id: 1,
  type: "import",
  collection: "zoos",
  status: "queued",
  lines: 0,
  imported: 0,
  rejected: 0,
  errors: [],
  failure: null,
  user_id: 1,
  spool: "none",
  given: {},
  byte: 0,
  line: 0,
  created_at: "2026-01-01T00:00:00.000Z",
  updated_at: "2026-01-01T00:00:00.000Z",
};

const serverOf = ({ store }: Running) => asShared(store)?.serverId ?? "";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

/** Starts servers that share a store. */
async function startServers(
  t: TestContext,
  count = 2,
  options: Partial<EtcdOptions> = {},
) {
  const gateway = new Gateway();
  const etcd = { ...await gateway.listen(t), ...options };
  const servers: Running[] = [];
  for (let each = 0; each < count; each++) {
    const server = await startApplication({ etcd });
    t.after(() => server.stop());
    servers.push(server);
  }
  const [one, other] = servers;
  if (one === undefined || other === undefined) throw new Error("Too few");
  return { gateway, etcd, servers, one, other, token: one.token };
}

test("what one server has answered every other one shows at once, although its watch is silent", async (t) => {
  const { gateway, one, other, token } = await startServers(t);
  gateway.isWatchSilent = true;
  const { status } = await one.request("POST", "/v1/zoos", {
    token,
    json: zoo,
  });
  assert.equal(status, 201);
  const first = await one.request("GET", "/v1/zoos/1");
  const second = await other.request("GET", "/v1/zoos/1");
  assert.equal(second.text, first.text);
  assert.equal(second.headers.get("etag"), first.headers.get("etag"));
  assert.equal(
    (await other.request("DELETE", "/v1/zoos/1", { token })).status,
    204,
  );
  assertError(await one.request("GET", "/v1/zoos/1"), 41000);
});

test("of requests that exclude each other, at two servers at once, one succeeds", async (t) => {
  const { servers, one, token } = await startServers(t);
  const json = { username: "anna", password: adminPassword };
  const created = await Promise.all(
    servers.map((each) => each.request("POST", "/v1/users", { token, json })),
  );
  assert.deepEqual(created.map(({ status }) => status).sort(), [201, 422]);
  const { headers } = await one.request("POST", "/v1/zoos", {
    token,
    json: zoo,
  });
  const ifMatch = { "if-match": String(headers.get("etag")) };
  const changed = await Promise.all(
    servers.map((each, at) =>
      each.request("PATCH", "/v1/zoos/1", {
        token,
        json: { city: `City ${at}` },
        headers: ifMatch,
      })
    ),
  );
  assert.deepEqual(changed.map(({ status }) => status).sort(), [201, 412]);
});

test(
  "a deletion whose end is awaited is begun once, although another server writes meanwhile",
  {
    skip: lacks("deletions"),
  },
  async (t) => {
    const { one, other, token } = await startServers(t);
    for (const city of ["A", "A", "A"]) {
      await one.request("POST", "/v1/zoos", { token, json: { ...zoo, city } });
    }
    let isDone = false;
    const headers = { prefer: "wait=30" };
    const deleting = one.request("DELETE", "/v1/zoos?city=A", {
      token,
      headers,
    })
      .finally(() => isDone = true);
    while (!isDone) {
      await other.request("POST", "/v1/zoos", { token, json: zoo });
    }
    const { status, body } = await deleting;
    assert.equal(status, 200);
    assert.deepEqual([body["matched"], body["deleted"]], [3, 3]);
    const { body: tasks } = await one.request("GET", "/v1/tasks", { token });
    assert.equal(tasks.length, 1);
  },
);

test("a refusal knows what others have answered, also while a commit of its own server is not answered", async (t) => {
  const { gateway, one, other, token } = await startServers(t);
  gateway.isWatchSilent = true;
  await one.request("GET", "/v1/zoos"); // so that its commit is the next
  gateway.faultOf = (path) => {
    if (path !== "kv/txn") return undefined;
    gateway.faultOf = () => undefined;
    return "late";
  };
  const options = { token, json: zoo };
  const own = one.request("POST", "/v1/zoos", options);
  while (!gateway.release) await wait(1);
  const made = await other.request("POST", "/v1/zoos", options);
  const path = `/v1/zoos/${made.body["id"]}`;
  const deleted = one.request("DELETE", path, { token });
  await wait(50); // it is judged, and waits
  gateway.release();
  assert.equal((await own).status, 201);
  assert.equal((await deleted).status, 204);
});

test("ids are given once, and all servers agree", async (t) => {
  const { servers, token } = await startServers(t, 3);
  const answers = await Promise.all(
    Array.from(
      { length: 30 },
      (_, at) =>
        servers[at % 3]?.request("POST", "/v1/zoos", { token, json: zoo }),
    ),
  );
  for (const each of answers) assert.equal(each?.status, 201);
  const ids = new Set(answers.map((each) => each?.body["id"]));
  assert.equal(ids.size, 30);
  const lists = await Promise.all(
    servers.map((each) => each.request("GET", "/v1/zoos?limit=100")),
  );
  const [first, ...others] = lists.map(({ text }) => text);
  for (const each of others) assert.equal(each, first);
  assert.equal(lists[0]?.headers.get("x-total-count"), "30");
});

test("a token is valid at every server until it is signed out at one", async (t) => {
  const { one, other, token } = await startServers(t);
  const mine = await other.signIn("admin");
  assert.equal(
    (await one.request("GET", "/v1/user", { token: mine })).status,
    200,
  );
  const list = await one.request("GET", "/v1/authorizations", { token });
  const { id } = list.body.at(-1) ?? {};
  const path = `/v1/authorizations/${id}`;
  assert.equal((await one.request("DELETE", path, { token })).status, 204);
  assertError(await other.request("GET", "/v1/user", { token: mine }), 40104);
});

test("who is created at one server signs in at another one", async (t) => {
  const { gateway, one, other, token } = await startServers(t);
  gateway.isWatchSilent = true;
  const json = { username: "anna", password: adminPassword };
  await one.request("POST", "/v1/users", { token, json });
  assert.ok(await other.signIn("anna"));
});

test(
  "an import with a key is taken once, whatever parameters its type has",
  { skip: lacks("imports") || lacks("idempotency") },
  async (t) => {
    const { gateway, servers, one, token } = await startServers(t);
    gateway.isWatchSilent = true;
    const send = (server: Running, key: string, parameter = "") =>
      server.request("POST", "/v1/zoos", {
        token,
        raw: JSON.stringify(zoo),
        headers: {
          "content-type": `application/x-ndjson${parameter}`,
          "idempotency-key": key,
        },
      });
    const parameters = ["", ";charset=utf-8", "; charset=utf-8"];
    for (const [index, parameter] of parameters.entries()) {
      const key = `in-turn-${index}`;
      const [first, second] = [
        await send(servers[0] ?? one, key, parameter),
        await send(servers[1] ?? one, key, parameter),
      ];
      assert.equal(first.status, 202);
      assert.equal(second.text, first.text, parameter);
    }
    const both = await Promise.all(
      servers.map((each) => send(each, "at-once")),
    );
    assert.deepEqual(both.map(({ status }) => status), [202, 202]);
    assert.equal(both[1]?.text, both[0]?.text);
  },
);

test(
  "a POST with a key is answered again by another server",
  { skip: lacks("idempotency") },
  async (t) => {
    const { servers, token } = await startServers(t);
    const headers = { "idempotency-key": "k1" };
    const [first, second] = await Promise.all(
      servers.map((each) =>
        each.request("POST", "/v1/zoos", { token, json: zoo, headers })
      ),
    );
    assert.equal(first?.status, 201);
    assert.equal(second?.text, first?.text);
  },
);

test(
  "events continue at another server after the last one",
  { skip: lacks("events") },
  async (t) => {
    const { one, other, token } = await startServers(t);
    const earlier = await follow(one.port, token);
    await earlier.until(() => earlier.lastEventId !== "");
    earlier.cut();
    for (let each = 0; each < 3; each++) {
      await one.request("POST", "/v1/zoos", { token, json: zoo });
    }
    const follower = await follow(other.port, token, earlier.lastEventId);
    t.after(() => follower.cut());
    assert.equal((await follower.next()).data["id"], 1);
    assert.equal((await follower.next()).data["id"], 2);
    assert.equal((await follower.next()).data["id"], 3);
    await one.request("PATCH", "/v1/zoos/1", { token, json: { city: "B" } });
    assert.equal((await follower.next()).type, "zoos.updated");
  },
);

test(
  "events of private records continue at any server, also after a deletion",
  { skip: lacks("events") },
  async (t) => {
    const gateway = new Gateway();
    const etcd = await gateway.listen(t);
    const options = { etcd, declaration: notes };
    const servers = [
      await startApplication(options),
      await startApplication(options),
    ];
    for (const each of servers) t.after(() => each.stop());
    const [one, other] = servers;
    assert.ok(one && other);
    const { token } = one;
    const bob = await signInNew(one, {
      token,
      username: "bob",
      role: "member",
    });
    let id: string | undefined;
    for (const { port } of [one, other, one, other]) {
      const follower = await follow(port, bob, id);
      await follower.until(() => /^id: .*\n/m.test(follower.text));
      follower.cut();
      assert.match(follower.text, /^retry: 1000\n:\nid: .*\n\n$/);
      id = follower.lastEventId;
    }
    // A change and a deletion in one batch: the id between them is not the last one.
    const note = { id: 1, book_id: 1, text: "1", owner_id: 2 };
    const seq = one.store.apply([["put", "notes", note]], 0);
    await one.store.durable(one.store.apply([["del", "notes", 1, 2]], 0));
    const [, history] = String(id).split("-");
    const follower = await follow(other.port, bob, `${seq}-${history}`);
    await one.request("POST", "/v1/books", { token, json: { title: "B" } });
    assert.equal((await follower.next()).type, "notes.deleted");
    follower.cut();
  },
);

test("without etcd, requests get 503 and nothing changes; /health says so, and it goes on by itself", async (t) => {
  const { gateway, one, token } = await startServers(t, 2, { timeoutMs: 1000 });
  await one.request("POST", "/v1/zoos", { token, json: zoo });
  gateway.faultOf = (path) => path.startsWith("kv/") ? "no leader" : undefined;
  const answers = await Promise.all([
    one.request("GET", "/v1/zoos/1"),
    one.request("POST", "/v1/zoos", { token, json: zoo }),
  ]);
  for (const each of answers) {
    assertError(each, 50302);
    assert.equal(each.headers.get("retry-after"), "1");
  }
  const health = await one.request("GET", "/health");
  assert.equal(health.status, 503);
  assert.match(
    health.body["notices"]?.join() ?? "",
    /^etcd cannot be used: the log/,
  );
  gateway.faultOf = () => undefined;
  while ((await one.request("GET", "/health")).status !== 200) await wait(10);
  const { body } = await one.request("GET", "/v1/zoos");
  assert.equal(body.length, 1);
  const next = await one.request("POST", "/v1/zoos", { token, json: zoo });
  assert.equal(next.body["id"], 2);
});

test("a write whose outcome is unknown gets 500, and is there if etcd has it", async (t) => {
  const { gateway, one, other, token } = await startServers(t, 2, {
    timeoutMs: 1000,
  });
  gateway.faultOf = (path) =>
    path === "kv/txn" ? "lost" : path === "kv/range" ? "broken" : undefined;
  while ((await one.request("GET", "/health")).status === 200) await wait(10);
  const refused = await one.request("POST", "/v1/users", {
    token,
    json: { username: "anna", password: adminPassword },
  });
  assertError(refused, 50302);
  gateway.faultOf = (path, { success }) =>
    path === "kv/txn" && success ? "lost" : undefined;
  while ((await one.request("GET", "/health")).status !== 200) await wait(10);
  const lost = await one.request("POST", "/v1/zoos", { token, json: zoo });
  assertError(lost, 50000);
  gateway.faultOf = () => undefined;
  while ((await one.request("GET", "/health")).status !== 200) await wait(10);
  const lists = await Promise.all(
    [one, other].map((each) => each.request("GET", "/v1/zoos")),
  );
  assert.equal(lists[0]?.body.length, 1);
  assert.equal(lists[1]?.text, lists[0]?.text);
});

test("when etcd is full, writes get 503 with its own code", async (t) => {
  const { gateway, one, token } = await startServers(t);
  gateway.faultOf = (path) => path === "kv/txn" ? "full" : undefined;
  assertError(
    await one.request("POST", "/v1/zoos", { token, json: zoo }),
    50301,
  );
  assert.equal((await one.request("GET", "/v1/zoos")).status, 200);
});

test("with local reads, a server answers from memory for a second without etcd, then no more", async (t) => {
  const { gateway, one, other, token } = await startServers(t, 2, {
    hasLocalReads: true,
    timeoutMs: 1000,
  });
  await one.request("POST", "/v1/zoos", { token, json: zoo });
  const isThere = async () =>
    (await other.request("GET", "/v1/zoos/1")).status === 200;
  while (!await isThere()) await wait(10);
  const reads = () =>
    gateway.calls.filter((each) => each === "kv/range").length;
  const before = reads();
  for (let each = 0; each < 50; each++) assert.ok(await isThere());
  assert.ok(reads() - before < 50);
  gateway.faultOf = () => "no leader";
  while (await isThere()) await wait(10);
  assertError(await other.request("GET", "/v1/zoos/1"), 50302);
});

test("a server with another declaration than the one in force refuses requests, until that is its own again", async (t) => {
  const { one, other } = await startServers(t);
  const { store } = one;
  assert.ok(other.store instanceof EtcdStore);
  other.store.suspend("Another declaration is in force");
  assertError(await other.request("GET", "/v1/zoos"), 50302);
  const { status, body } = await other.request("GET", "/health");
  assert.equal(status, 503);
  assert.deepEqual(body["notices"], ["Another declaration is in force"]);
  other.store.suspend(undefined);
  assert.equal((await other.request("GET", "/v1/zoos")).status, 200);
  assert.ok(store.isWritable);
});

test("a server that is still starting learns of the declaration of one that starts meanwhile", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  let learned = () => {};
  const isKnown = new Promise<void>((resolve) => learned = resolve);
  const openAs = async (name: string) => {
    const store = await openDataFolder(join(folder, name), apiOf(collections), {
      etcd,
      adaptRecords({ apply, store }) {
        apply(["put", "_declaration", { id: 1, names: { [name]: "" } }]);
        if (name === "one") {
          store.table("_declaration").listeners.add((_before, after) => {
            if (Object.hasOwn(Object(after?.document["names"]), "other")) {
              learned();
            }
          });
        }
        return name === "one"; // a snapshot must follow
      },
    });
    t.after(() => store.close());
    assert.ok(store instanceof EtcdStore);
    return store;
  };
  let other: Promise<EtcdStore> | undefined;
  gateway.delayOf = async (_path, { success: [change] = [] }) => {
    const { key = "" } = change?.request_put ?? {};
    if (other || atob(key) !== "zoo/snapshot-lock") return;
    await (other = openAs("other"));
    await isKnown;
  };
  const one = await openAs("one");
  await assert.rejects(
    Promise.resolve(one.confirm(true)),
    /changed the declaration in force/,
  );
  await (await other)?.confirm(true);
});

test(
  "a follower whose last event is older than the log gets a reset, and nothing is logged",
  { skip: lacks("events") },
  async (t) => {
    const etcd = await new Gateway().listen(t);
    const logged: string[] = [];
    const log = (level: string, line: string) => {
      if (level === "error") logged.push(line);
    };
    const server = await startApplication({ etcd, log });
    t.after(() => server.stop());
    const { port, store, token } = server;
    const first = await follow(port, token);
    await first.until(() => first.lastEventId !== "");
    first.cut();
    for (let each = 0; each < 3; each++) {
      const url = "/v1/zoos";
      const { status } = await server.request("POST", url, {
        token,
        json: zoo,
      });
      assert.equal(status, 201);
      await store.checkpoint();
    }
    const late = await follow(port, token, first.lastEventId);
    assert.equal((await late.next()).type, "reset");
    late.cut();
    assert.deepEqual(logged, []);
  },
);

test("a server whose clock is behind says so, once, and both serve requests", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const hourMs = 3_600_000;
  const reports: Record<string, string[]> = {};
  const startAt = async (name: string, offsetMs: number) => {
    const lines: string[] = reports[name] = [];
    const server = await startApplication({
      etcd,
      now: () => Date.now() + offsetMs,
      log: (_level, message) => {
        if (/clock/.test(message)) lines.push(message);
      },
    });
    t.after(() => server.stop());
    return server;
  };
  const ahead = await startAt("ahead", 2 * hourMs);
  const behind = await startAt("behind", 0);
  const near = await startAt("near", 5_000); // by which clocks may differ
  for (const server of [ahead, behind, near, ahead, behind, near]) {
    const token = await server.signIn("admin");
    const options = { token, json: zoo };
    const { status, body } = await server.request("POST", "/v1/zoos", options);
    assert.equal(status, 201);
    for (const each of [ahead, behind, near]) {
      const url = `/v1/zoos/${body["id"]}`;
      assert.equal((await each.request("GET", url)).status, 200);
    }
  }
  assert.deepEqual(reports["ahead"], []);
  for (const name of ["behind", "near"]) {
    const [report, ...more] = reports[name] ?? [];
    assert.match(
      report ?? "",
      /^The clock of this server is 7[12]\d\d s behind that of another one: sign-ins end/,
    );
    assert.deepEqual(more, []);
  }
});

test(
  "the body of an import that another server cancels is removed from the disk of its own, and no other one",
  { skip: lacks("imports") },
  async (t) => {
    t.mock.timers.enable({ apis: ["setInterval"] });
    const { gateway, one, other, token } = await startServers(t, 2, {
      timeoutMs: 1000,
    });
    const files = join(one.store.folder.folder, "spool");
    await mkdir(files);
    for (const id of [1, 2, 3]) {
      await writeFile(join(files, `body-${id}.spool`), "{}");
      const task = {
        ...queued,
        id,
        collection: "users", // which no server imports
        spool: `body-${id}`,
        server: serverOf(one),
      };
      await one.store.settle(() => ({
        seq: one.store.apply([["put", "tasks", task]], 1),
      }));
    }
    // Each look ends before the next response: it waits for nothing but the store.
    t.mock.timers.tick(20_000);
    // A deletion that is rolled back removes nothing, also by a look meanwhile.
    gateway.faultOf = (path) => path === "kv/txn" ? "silent" : undefined;
    const { length } = gateway.calls;
    const failing = one.request("DELETE", "/v1/tasks/1", { token });
    while (!gateway.calls.includes("kv/txn", length)) await wait(2);
    t.mock.timers.tick(20_000);
    assertError(await failing, 50000);
    gateway.faultOf = () => undefined;
    while (!one.store.isWritable) await wait(2);
    t.mock.timers.tick(20_000);
    assert.equal(
      (await one.request("GET", "/v1/tasks/1", { token })).status,
      200,
    );
    assert.equal((await readdir(files)).length, 3);
    for (const id of [1, 3]) {
      const path = `/v1/tasks/${id}`;
      const deleted = await other.request("DELETE", path, { token });
      assert.equal(deleted.status, 204);
      assertError(await one.request("GET", path, { token }), 41000);
      t.mock.timers.tick(20_000);
      const body = `body-${id}.spool`;
      while ((await readdir(files)).includes(body)) await wait(2);
    }
    assert.deepEqual(await readdir(files), ["body-2.spool"]);
  },
);

test(
  "an import whose server is gone fails and says so, also after etcd was away",
  { skip: lacks("imports") },
  async (t) => {
    t.mock.timers.enable({ apis: ["setInterval"] });
    const { gateway, one, token } = await startServers(t);
    const task = { ...queued, server: "gone" };
    const store = (imported: number) =>
      one.store.settle(() => {
        const mutation = ["put", "tasks", { ...task, imported }] as const;
        return { seq: one.store.apply([mutation], 1) };
      });
    await store(0);
    for (const fault of ["full", "no leader"] as const) {
      let isAsked = false;
      gateway.faultOf = (_path, { key = "" }) => {
        const text = Buffer.from(key, "base64").toString();
        const isLook = text.endsWith("servers/gone");
        isAsked ||= isLook;
        return isLook ? fault : undefined;
      };
      t.mock.timers.tick(20_000);
      while (!isAsked) await wait(2);
    }
    // While etcd is asked, the last batch of that server becomes visible.
    await store(5);
    gateway.faultOf = () => undefined;
    const status = async () =>
      (await one.request("GET", "/v1/tasks/1", { token })).body;
    while ((await status())["status"] === "queued") await wait(10);
    const { status: end, imported, failure } = await status();
    assert.equal(end, "failed");
    assert.equal(imported, 5);
    assert.equal(failure, "The server that had the request body is gone.");
  },
);
