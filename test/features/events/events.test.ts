/** Events: which changes are sent, to whom, starting where, and when a stream ends. */

import { toEventId } from "../../../src/features/events/history.ts";
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import process from "node:process";
import { after, before, describe, mock, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import {
  eventually,
  type Running,
  startApplication,
} from "../../application.ts";
import { type Event, follow, type Follower } from "../../follower.ts";
import {
  adminPassword,
  type Answer,
  type Body,
  exchange,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../../harness.ts";
import { type FileSystem, realFiles } from "../../../src/store/store.ts";
import { Random } from "../../torture/random.ts";
import { commit } from "../../commit.ts";

const changes = Number(process.env["EVENTS_CHANGES"] || 600);

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

type Api = Pick<Running, "port" | "request" | "signIn">;

/** Creates a record and returns it as an element of its collection. */
async function make(
  { request }: Api,
  { token, path, json }: { token: string; path: string; json: unknown },
): Promise<Body> {
  const answer = await request("POST", path, { token, json });
  assert.equal(answer.status, 201, answer.text);
  const { link: _, ...element } = JSON.parse(answer.text);
  return element;
}

/** Creates a user and returns its id and a token. */
async function makeUser(api: Api, token: string, role: string, name: string) {
  const json = { username: name, role, password: adminPassword };
  const { id } = await make(api, { token, path: "/v1/users", json });
  return { id: Number(id), token: await api.signIn(name, adminPassword) };
}

function typesOf(events: readonly Event[]): string[] {
  return events.map(({ type }) => type);
}

/** Returns the id of an event that comes some sequence numbers later. */
function later(id: string, by: number): string {
  return id.replace(/\d+/, (seq) => String(Number(seq) + by));
}

/** Returns the id to follow all later changes from. */
async function currentId(
  { port }: { readonly port: number },
  token: string,
): Promise<string> {
  const feed = await follow(port, token);
  await feed.until(() => feed.lastEventId !== "");
  feed.cut();
  return feed.lastEventId;
}

describe("the event stream", () => {
  let server: Server;
  let token: string;
  before(async () => {
    server = await start({ env: { CORS_ORIGINS: "https://a.example" } });
    token = await server.signIn();
  });
  after(() => server.stop());

  test("has each creation, update and deletion, with the record as its collection shows it", async () => {
    const feed = await follow(server.port, token);
    const { headers } = feed.answer;
    assert.equal(feed.answer.statusCode, 200);
    assert.equal(headers["content-type"], "text/event-stream");
    assert.equal(headers["cache-control"], "no-store");
    assert.equal(headers["x-accel-buffering"], "no");
    assert.equal(headers["vary"], "Accept, Origin");
    assert.equal(headers["content-length"], undefined);
    assert.ok(headers["x-request-id"]);

    const made = await make(server, { token, path: "/v1/zoos", json: zoo });
    const path = new URL(made.url, server.origin).pathname;
    const created = await feed.next();
    assert.equal(created.type, "zoos.created");
    assert.deepEqual(created.data, made);
    const json = { city: "Emmen" };
    await server.request("PATCH", path, { token, json });
    const updated = await feed.next();
    assert.equal(updated.type, "zoos.updated");
    const { body } = await server.request("GET", `/v1/zoos?id=${made.id}`);
    assert.deepEqual(updated.data, body[0]);
    await server.request("PUT", path, { token, json: zoo });
    assert.equal((await feed.next()).type, "zoos.updated");
    // A request that changes nothing causes no event.
    await server.request("PUT", path, { token, json: zoo });
    await server.request("DELETE", path, { token });
    const deleted = await feed.next();
    assert.equal(deleted.type, "zoos.deleted");
    assert.deepEqual(deleted.data, { id: made.id });
    const first = parseInt(created.id);
    assert.deepEqual(
      feed.events.map(({ id, own }) => [parseInt(id), own]),
      [0, 1, 2, 3].map((behind) => [first + behind, true]),
    );
    assert.match(
      feed.text,
      /^retry: 1000\n:\nid: \d+-\w+\n\nid: \d+-\w+\nevent: /,
    );
    assert.match(
      feed.text,
      /\n\nid: \d+-\w+\nevent: zoos\.deleted\ndata: \{"id":\d+\}\n\n$/,
    );
    feed.cut();
  });

  test("has several events for a cascade, of which only the last has the id", async () => {
    const { id } = await make(server, { token, path: "/v1/zoos", json: zoo });
    const path = `/v1/zoos/${id}`;
    const animal = { name: "Momo", animal_type_id: 1 };
    const animals = `${path}/animals`;
    const one = await make(server, { token, path: animals, json: animal });
    const two = await make(server, { token, path: animals, json: animal });
    const feed = await follow(server.port, token);
    await feed.until(() => feed.lastEventId !== "");
    const before = feed.lastEventId;
    await server.request("DELETE", `${path}?cascade=true`, { token });
    for (let count = 0; count < 3; count++) await feed.next();
    const [first, second, last] = feed.events;
    assert.deepEqual(
      [first, second].map((event) => [event?.type, event?.own, event?.id]),
      Array(2).fill(["animals.deleted", false, before]),
    );
    assert.deepEqual(
      new Set([first?.data.id, second?.data.id]),
      new Set([one.id, two.id]),
    );
    assert.deepEqual(last, {
      id: later(before, 1),
      own: true,
      type: "zoos.deleted",
      data: { id },
    });
    const again = await follow(server.port, token, before);
    await again.until(() => again.events.length === 3);
    assert.deepEqual(again.events, feed.events);
    again.cut();
    feed.cut();
  });

  test("has only what its caller may read", async () => {
    const begin = await currentId(server, token);
    const viewer = await makeUser(server, token, "viewer", "vera");
    const keeper = await makeUser(server, token, "keeper", "kim");
    const feeds = await Promise.all(
      [viewer.token, keeper.token, token].map((token) =>
        follow(server.port, token, begin)
      ),
    );
    const { id } = await make(server, { token, path: "/v1/zoos", json: zoo });
    const path = `/v1/zoos/${id}/employees`;
    const json = { name: "Ada", job_title: "vet", email: `${id}@a.example` };
    const headers = { "idempotency-key": "once" };
    const made = await server.request("POST", path, { token, json, headers });
    assert.equal(made.status, 201);
    const last = "employees.created";
    for (const feed of feeds) {
      await feed.until(() => feed.events.at(-1)?.type === last);
    }
    const [seen, kept, all] = feeds.map(({ events }) => events);
    assert.ok(seen && kept && all);
    assert.deepEqual(seen, kept);
    // The stored response is not an event, but its transaction's id is sent.
    assert.ok(seen.at(-1)?.own);
    assert.ok(!typesOf(seen).some((type) => type.startsWith("users.")));
    assert.deepEqual(
      all.filter(({ type }) => type.startsWith("users."))
        .map(({ data }) => [data.username, data.role]),
      [["vera", "viewer"], ["kim", "keeper"]],
    );
    for (const { text } of feeds) {
      assert.doesNotMatch(text, /password|scrypt|authorizations|answers/);
    }
    for (const feed of feeds) feed.cut();
  });

  test("resumes from an id, and begins with a reset if it is invalid", async () => {
    const all = await follow(server.port, token);
    for (let count = 0; count < 4; count++) {
      await make(server, { token, path: "/v1/zoos", json: zoo });
    }
    await all.until(() => all.events.length === 4);
    const from = all.events[1]?.id;
    const rest = await follow(server.port, token, from);
    await rest.until(() => rest.lastEventId === all.lastEventId);
    assert.deepEqual(rest.events, all.events.slice(2));
    rest.cut();

    const current = all.lastEventId;
    const bad = [
      "x",
      "-1",
      "1.5",
      "01",
      "1e1",
      "1, 2",
      "99999",
      "9".repeat(40),
      String(parseInt(current)), // without a history
      `${parseInt(current)}-${"0".repeat(10)}`, // of another one
      later(current, 1),
    ];
    for (const id of bad) {
      const feed = await follow(server.port, token, id);
      const reset = { id: current, own: true, type: "reset", data: {} };
      assert.deepEqual(await feed.next(), reset, id);
      feed.cut();
    }
    all.cut();
  });

  test("is a URL like the others", async () => {
    const home = await server.request("GET", "/");
    assert.equal(home.body.events_url, "/v1/events");
    const head = await server.request("HEAD", "/v1/events", { token });
    assert.equal(head.status, 200);
    assert.equal(head.headers.get("content-type"), "text/event-stream");
    assert.equal(head.headers.get("content-length"), null);
    const options = await server.request("OPTIONS", "/v1/events", { token });
    assert.deepEqual(options.body, {
      methods: ["GET", "HEAD", "OPTIONS"],
      writable: [],
      schema: {},
    });
    assert.equal(options.headers.get("allow"), "GET, HEAD, OPTIONS");

    type Row = [number, string, string, Record<string, string>, boolean];
    const origin = "https://a.example";
    const table: readonly Row[] = [
      [401, "GET", "", {}, false],
      [405, "POST", "", {}, true],
      [406, "GET", "", { accept: "application/json" }, true],
      [400, "GET", "?last_event_id=1", {}, true],
      [200, "HEAD", "", { accept: "text/*;q=0.5" }, true],
      [200, "HEAD", "", { accept: "*/*", origin }, true],
    ];
    for (const [status, method, query, headers, signedIn] of table) {
      const path = `/v1/events${query}`;
      const options = { headers, ...(signedIn ? { token } : {}) };
      const answer = await server.request(method, path, options);
      assert.equal(answer.status, status, `${method} ${path}`);
      if (status > 400) assert.equal(typeof answer.body.error, "string");
      if (headers["origin"]) {
        const allowed = answer.headers.get("access-control-allow-origin");
        assert.equal(allowed, origin);
      }
    }
  });

  test("disconnects a client that sends another request on the connection", async () => {
    const get = "GET /v1/events HTTP/1.1\r\nHost: a\r\n" +
      `Authorization: Bearer ${token}\r\n\r\n`;
    for (const more of ["GET /v1/zoos HTTP/1.1\r\nHost: a\r\n\r\n", "?\r\n"]) {
      const socket = connect(server.port, "127.0.0.1");
      let text = "";
      socket.on("data", (bytes) => {
        if (text === "") socket.write(more);
        text += bytes.toString();
      });
      socket.on("error", () => {});
      socket.write(get);
      await once(socket, "close");
      assert.deepEqual(text.match(/HTTP\/1\.1 \d+/g), ["HTTP/1.1 200"]);
    }
    const both = await exchange(server.port, get + get, /retry/);
    assert.equal(both.match(/HTTP\/1\.1 200/g)?.length ?? 0, both ? 1 : 0);
  });
});

describe("a stream ends when its authorization does", () => {
  let time = Date.now();
  let app: Running;
  before(async () => {
    app = await startApplication({ now: () => time });
  });
  after(() => app.stop());

  /** Follows as a user, ends the authorization, and makes a change that must not be sent. */
  async function endsBy(
    name: string,
    end: (user: { id: number; token: string }) => Promise<{ status: number }>,
  ): Promise<void> {
    const user = await makeUser(app, app.token, "keeper", name);
    const feed = await follow(app.port, user.token);
    await make(app, { token: app.token, path: "/v1/zoos", json: zoo });
    assert.equal((await feed.next()).type, "zoos.created");
    const answer = await end(user);
    assert.ok(answer.status < 300, name);
    await make(app, {
      token: app.token,
      path: "/v1/zoos",
      json: { ...zoo, city: "Late" },
    });
    assert.equal(await feed.closed, true, "it ends as it should");
    assert.deepEqual(typesOf(feed.events), ["zoos.created"]);
    assert.doesNotMatch(feed.text, /Late/);
  }

  test("by signing out", () =>
    endsBy("ann", async ({ token }) => {
      const { body } = await app.request("GET", "/v1/authorizations", {
        token,
      });
      return app.request("DELETE", body[0]?.url ?? "", { token });
    }));

  test("by a new password", () =>
    endsBy("bob", ({ token }) =>
      app.request("PATCH", "/v1/user", {
        token,
        json: { password: "another long one" },
      })));

  test("by another role, so that it can be resumed with that one", () =>
    endsBy("cleo", ({ id }) =>
      app.request("PATCH", `/v1/users/${id}`, {
        token: app.token,
        json: { role: "viewer" },
      })));

  test("by deletion of the user, without a further change", async () => {
    const user = await makeUser(app, app.token, "keeper", "dan");
    const feed = await follow(app.port, user.token);
    const { token } = app;
    await app.request("DELETE", `/v1/users/${user.id}`, { token });
    assert.equal(await feed.closed, true);
    assert.deepEqual(feed.events, []);
  });

  test("by expiring", () =>
    endsBy("eve", () => {
      time += 3600_000;
      return app.signIn("admin").then((token) => {
        app = { ...app, token };
        return { status: 200 };
      });
    }));
});

describe("every 15 seconds", () => {
  let time = Date.now();
  let app: Running;
  before(async () => {
    mock.timers.enable({ apis: ["setInterval"] });
    app = await startApplication({ now: () => time });
  });
  after(async () => {
    await app.stop();
    mock.timers.reset();
  });

  test("a heartbeat is sent, with the id of the last change that was skipped", async () => {
    const viewer = await makeUser(app, app.token, "viewer", "vera");
    const feed = await follow(app.port, viewer.token);
    await feed.until(() => feed.lastEventId !== "");
    const start = feed.text;
    const comments = async (text: string) => {
      const { length } = feed.text;
      mock.timers.tick(15_000);
      await feed.until(() => feed.text.length > length);
      assert.equal(feed.text.slice(length), text);
    };
    mock.timers.tick(14_999);
    assert.equal(feed.text, start);
    mock.timers.tick(1);
    await feed.until(() => feed.text !== start);
    assert.equal(feed.text, `${start}:\nid: ${feed.lastEventId}\n\n`);

    // The witness shows when the feed has passed the change hidden from the viewer.
    const witness = await follow(app.port, app.token, feed.lastEventId);
    const hidden = { username: "hidden", password: adminPassword };
    await make(app, { token: app.token, path: "/v1/users", json: hidden });
    const { durableSeq } = app.store;
    await witness.until(() => witness.events.length === 1);
    const id = toEventId(app.store, durableSeq);
    await comments(`:\nid: ${id}\n\n`);
    assert.equal(feed.lastEventId, id);
    assert.deepEqual(feed.events, []);
    witness.cut();

    time += 3600_000;
    mock.timers.tick(15_000);
    assert.equal(
      await feed.closed,
      true,
      "an expired client is disconnected",
    );
  });

  test("a client that does not read costs no memory", async (t) => {
    const token = await app.signIn("admin");
    const head = "GET /v1/events HTTP/1.1\r\nHost: a\r\n" +
      `Authorization: Bearer ${token}\r\n\r\n`;
    const idle = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const socket = connect(app.port, "127.0.0.1");
        socket.on("error", () => {});
        socket.write(head);
        await once(socket, "readable"); // and then reads nothing more
        return socket;
      }),
    );
    const reader = await follow(app.port, token);
    const held = async () => {
      collectGarbage();
      await new Promise((resolve) => setImmediate(resolve));
      collectGarbage();
      return process.memoryUsage().arrayBuffers;
    };
    const before = await held();
    const { store } = app;
    const name = "x".repeat(100_000);
    const count = 100;
    for (let done = 1; done <= count; done++) {
      const id = done % 10 + 1;
      await commit(store, [["put", "animals", { id, name }]], 0);
      await reader.until(() => reader.events.length === done);
      reader.text = "";
    }
    const grown = await held() - before;
    t.diagnostic(`${grown} bytes more for 10,000,000 in events`);
    assert.ok(grown < 5e6, `${grown} bytes more`);

    for (const socket of idle) socket.destroy();
    await commit(store, [["del", "animals", 1]], 0);
    await reader.until(() => reader.events.length > count);
    assert.equal(reader.events.at(-1)?.type, "animals.deleted");
    reader.cut();
  });
});

test("an id that the logs no longer have is a reset", async () => {
  const app = await startApplication();
  try {
    const { token, store } = app;
    for (let round = 0; round < 3; round++) {
      await make(app, { token, path: "/v1/zoos", json: zoo });
      await store.checkpoint();
    }
    const feed = await follow(app.port, token, toEventId(store, 2));
    const reset = { own: true, type: "reset", data: {} };
    const id = toEventId(store, store.durableSeq);
    assert.deepEqual(await feed.next(), { ...reset, id });
    await make(app, { token, path: "/v1/zoos", json: zoo });
    const created = await feed.next();
    assert.equal(created.type, "zoos.created");
    assert.equal(created.id, later(id, 1));
    feed.cut();
  } finally {
    await app.stop();
  }
});

test("a client that is disconnected a hundred times, and once by a kill -9 of the server, gets each change once and in order", async (t) => {
  const folder = await temporaryFolder();
  const random = new Random(11);
  let server = await start({ folder });
  let up = Promise.resolve();
  try {
    const token = await server.signIn();
    const first = await make(server, { token, path: "/v1/zoos", json: zoo });
    const writers = await Promise.all(
      Array.from({ length: 8 }, () =>
        make(server, {
          token,
          path: `${first.url}/animals`,
          json: { name: "0", animal_type_id: 1 },
        })),
    );
    const seen: Event[] = [];
    let cuts = 0;
    let feed: Follower | undefined = await follow(server.port, token);
    await feed.until(() => feed?.lastEventId !== "");
    let last = feed.lastEventId;
    const begin = Number(last);
    const following = (async () => {
      while (seen.at(-1)?.data.name !== "the end") {
        await up;
        feed ??= await follow(server.port, token, last).catch(() => undefined);
        if (feed === undefined) continue;
        const { events } = feed;
        const some = 1 + random.below(Math.floor(changes / 100));
        await feed.until(() =>
          events.length >= some || events.at(-1)?.data.name === "the end"
        );
        feed.cut();
        seen.push(...events.slice(0, some));
        last = seen.at(-1)?.id ?? last;
        feed = undefined;
        cuts++;
      }
    })();

    let made = 0;
    const acknowledged = new Set<string>();
    const patch = async (url: string, name: string) => {
      const options = { token, json: { name } };
      await server.request("PATCH", url, options).then(
        ({ status }) => {
          assert.equal(status, 201);
          acknowledged.add(name);
        },
        () => up, // the server is gone: the outcome is unknown
      );
    };
    const writing = Promise.all(writers.map(async ({ id, url }) => {
      for (let count = 1; made < changes; count++) {
        made++;
        await patch(url, `${id} ${count}`);
      }
    }));
    for (const part of [0.3, 0.7]) {
      await eventually(() => made >= changes * part);
      up = server.end("SIGKILL").then(async () => {
        server = await start({ folder });
      });
      await up;
    }
    await writing;
    await patch(first.url, "the end");
    await following;

    t.diagnostic(`${seen.length} changes, ${cuts} cuts`);
    assert.ok(cuts >= 100, `${cuts} cuts`);
    assert.deepEqual(
      seen.map(({ id, own }) => own && Number(id)),
      seen.map((_, index) => begin + 1 + index),
      "every id once, in order, without a gap",
    );
    const names = new Set(seen.map(({ data }) => data.name));
    assert.equal(names.size, seen.length, "no change twice");
    for (const name of acknowledged) assert.ok(names.has(name), name);
    for (const { id } of writers) {
      const own = seen.filter(({ data }) => data.name.startsWith(`${id} `))
        .map(({ data }) => Number(data.name.split(" ")[1]));
      assert.deepEqual(own, own.toSorted((a, b) => a - b));
    }
  } finally {
    await up;
    await server.stop();
    await removeFolder(folder);
  }
});

test("a server that is stopped ends all streams at once, even those that nobody reads", async () => {
  const server = await start();
  try {
    const token = await server.signIn();
    const feeds = await Promise.all(
      Array.from({ length: 20 }, () => follow(server.port, token)),
    );
    const stuck = await follow(server.port, token);
    stuck.answer.pause();
    assert.equal(await server.end(), 0);
    // Ended by the server, not broken off after its grace period.
    for (const feed of feeds) assert.equal(await feed.closed, true);
  } finally {
    await server.stop();
  }
});

test("who may have missed a change, as a deletion after it was rolled back, is told to start anew", async (t) => {
  let isFull = false;
  let gate = Promise.resolve();
  let writes = 0;
  const files: FileSystem = {
    ...realFiles,
    async open(path, mode) {
      const file = await realFiles.open(path, mode);
      if (mode !== "log") return file;
      return {
        ...file,
        async write(bytes, position) {
          writes++;
          await gate;
          if (!isFull) return await file.write(bytes, position);
          throw Object.assign(new Error("no space"), { code: "ENOSPC" });
        },
      };
    },
  };
  const app = await startApplication({ files });
  t.after(() => app.stop());
  const { token } = app;
  const path = "/v1/zoos";
  const { id } = await make(app, { token, path, json: zoo });
  const follower = await follow(app.port, token);
  t.after(() => follower.cut());
  const hold = () => {
    let release = () => {};
    gate = new Promise((resolve) => release = resolve);
    return () => release();
  };
  /** Begins a change; returns its response once it is in memory. */
  const begin = async (change: () => Promise<Answer>) => {
    const { seq } = app.store;
    const response = change();
    await eventually(() => app.store.seq > seq);
    return { response };
  };
  const releaseFirst = hold();
  const count = writes;
  const create = (name: string) => () =>
    app.request("POST", path, { token, json: { ...zoo, name } });
  const first = await begin(create("First"));
  await eventually(() => writes === count + 1);
  // The change and what follows it share a write; the deletion waits for the next.
  const url = `${path}/${id}`;
  const json = { city: "Utrecht" };
  const changed = await begin(() => app.request("PATCH", url, { token, json }));
  const second = await begin(create("Second"));
  const releaseChange = hold();
  releaseFirst();
  await eventually(() => writes === count + 2);
  const deleted = await begin(() => app.request("DELETE", url, { token }));
  const releaseDeletion = hold();
  releaseChange();
  for (const { response } of [first, changed, second]) {
    assert.equal((await response).status, 201);
  }
  assert.equal((await follower.next()).data.name, "First");
  assert.equal((await follower.next()).data.name, "Second");
  isFull = true;
  releaseDeletion();
  assert.equal((await deleted.response).status, 503);
  isFull = false;
  assert.equal(app.store.table("zoos").get(id)?.document["city"], "Utrecht");
  await eventually(() => !app.store.fullDisk?.isFull);
  await make(app, { token, path, json: { ...zoo, name: "Third" } });
  assert.equal((await follower.next()).type, "reset");
});
