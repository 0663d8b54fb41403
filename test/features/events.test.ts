/** Server-sent events: CONTRACT section 8. */

import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { get } from "node:http";
import { describe, test } from "node:test";
import { createDisk, serve, stop } from "../server.ts";
import { book, linesOf, ndjson, startLibrary } from "./library.ts";

const { disk, environment, untilHeld } = createDisk();
const library = await startLibrary({
  FEATURES: "events,batches,imports,deletions",
  ...environment,
});
const { request, expect, tokenOf, server } = library;

type Event = [
  name: string,
  data: Record<string, unknown>,
  id: string,
];

/** Opens a stream of events. */
async function follow(who: string, last?: string, origin = server.origin) {
  const headers = {
    Authorization: `Bearer ${await tokenOf(who)}`,
    ...(last !== undefined && { "Last-Event-ID": last }),
  };
  const [response] = await once(
    get(`${origin}/v1/events`, { headers, agent: false }),
    "response",
  );
  const events: Event[] = [];
  const arrivals = new EventEmitter();
  const stream = {
    id: "",
    status: response.statusCode,
    headers: response.headers,
  };
  const read = async () => {
    let text = "";
    for await (const part of response.setEncoding("utf8")) {
      const blocks = (text + part).split("\n\n");
      text = blocks.pop() ?? "";
      for (const block of blocks) {
        const lines = block.split("\n").map((line) => line.split(/: ?(.*)/s));
        const { event, data, id } = Object.fromEntries(lines);
        stream.id = id ?? stream.id;
        if (event) events.push([event, JSON.parse(data), stream.id]);
        arrivals.emit("block");
      }
    }
  };
  const ended = read().catch(() => {}) // it may be cut
    .then(() => response.complete);
  if (stream.id === "") await once(arrivals, "block");
  let count = 0;
  return Object.assign(stream, {
    ended,
    close: () => response.destroy(),
    next: async () => {
      while (events.length === 0) await once(arrivals, "block");
      return events.shift();
    },
    /** Returns the events that come before that of an author who is created now. */
    before: async () => {
      const name = `${who} ${stream.id} ${count++}`;
      await request("librarian", "POST /authors", { name });
      for (;;) {
        const at = events.findIndex(([, data]) => data.name === name);
        if (at >= 0) return events.splice(0, at + 1).slice(0, -1);
        await once(arrivals, "block");
      }
    },
  });
}

/** Returns a public record that is created, and its URL below `/v1`. */
async function createAuthor(name: string) {
  const { json } = await request("librarian", "POST /authors", { name });
  const { link: _, ...author } = json;
  return { author, url: author.url.slice(3) };
}

const names = (events: Event[]) =>
  events.map(([name, { id }]) => `${name} ${id}`);

describe("Events", { timeout: 600_000 }, () => {
  test("are for users, as text/event-stream", async () => {
    await expect(40100, "anyone", "GET /events");
    await expect(401, "anyone", "HEAD /events");
    await expect(40003, "member", "GET /events?x=1");
    await expect(40600, "member", "GET /events", undefined, {
      Accept: "application/json",
    });
    await expect(40500, "librarian", "POST /events");
    await expect(200, "member", "HEAD /events");
    const stream = await follow("member");
    assert.equal(stream.status, 200);
    assert.equal(stream.headers["content-type"], "text/event-stream");
    assert.equal(stream.headers["cache-control"], "no-store");
    stream.close();
  });

  test("tell each change of a record, and none that changes nothing", async () => {
    const stream = await follow("member");
    const { author, url } = await createAuthor("One");
    await request("librarian", `PATCH ${url}`, { name: "Two" });
    await request("librarian", `PATCH ${url}`, { name: "Two" });
    await request("librarian", "POST /authors", {});
    await request("admin", `DELETE ${url}`);
    const events = await stream.before();
    assert.deepEqual(
      names(events),
      ["created", "updated", "deleted"].map((kind) =>
        `authors.${kind} ${author.id}`
      ),
    );
    assert.equal(new Set(events.map(([, , id]) => id)).size, 3);
    assert.deepEqual(events[0]?.[1], author);
    assert.equal(events[1]?.[1].name, "Two");
    assert.deepEqual(events[2]?.[1], { id: author.id });
    stream.close();
  });

  test("tell what a batch creates, an import, and a cascade deletes", async () => {
    const stream = await follow("member");
    const { author, url } = await createAuthor("Parent");
    const { id: author_id } = author;
    const batch = [book(1, { author_id }), book(2, { author_id })];
    const { json: [one, two] } = await request(
      "librarian",
      "POST /books",
      batch,
    );
    const id = two.id + 10;
    const created_at = "2001-01-01T00:00:00.000Z";
    const lines = linesOf([book(3, { id, author_id, created_at })]);
    await request("librarian", "POST /books", lines, ndjson);
    while ((await request("admin", `GET /books/${id}`)).status !== 200);
    await request("admin", `DELETE /books?id:in=${one.id},${two.id}`);
    await request("admin", `DELETE ${url}?cascade=true`);
    const found = names(await stream.before()).sort();
    assert.deepEqual(
      found,
      [
        `authors.created ${author.id}`,
        `authors.deleted ${author.id}`,
        ...[one.id, two.id, id].map((each) => `books.created ${each}`),
        ...[one.id, two.id].map((each) => `books.deleted ${each}`),
        `books.updated ${id}`,
      ].sort(),
    );
    stream.close();
  });

  test("of private records are for those who may see them", async () => {
    const streams = await Promise.all(
      ["member", "member2", "librarian", "admin"].map((who) => follow(who)),
    );
    const { json: { id } } = await request("member", "POST /notes", {
      text: "Mine",
    });
    const { json: users } = await request(
      "admin",
      "GET /users?username=member2",
    );
    const url = `/notes/${id}`;
    await request("member", `PATCH ${url}`, { text: "Still" });
    const [created, updated, deleted] = ["created", "updated", "deleted"].map((
      kind,
    ) => `notes.${kind} ${id}`);
    const seen = async () => {
      const all = [];
      for (const stream of streams) {
        const notes = (await stream.before()).filter(([name]) =>
          name.startsWith("notes")
        );
        all.push(names(notes));
      }
      return all;
    };
    assert.deepEqual(await seen(), [[created, updated], [], [], [
      created,
      updated,
    ]]);
    await request("admin", `PATCH ${url}`, { owner_id: users[0].id });
    assert.deepEqual(await seen(), [[], [updated], [], [updated]]);
    await request("member2", `DELETE ${url}`);
    assert.deepEqual(await seen(), [[], [deleted], [], [deleted]]);
    // Only librarians read wishes.
    await request("member", "POST /wishes", { title: "Unread" });
    const counts = [];
    for (const stream of streams) {
      const told = names(await stream.before()).join();
      counts.push(told.match(/wishes/g)?.length ?? 0);
      stream.close();
    }
    assert.deepEqual(counts, [0, 0, 1, 1]);
  });

  test("resume after the last id, with records as they are by then", async () => {
    const first = await follow("member");
    first.close();
    const { author, url } = await createAuthor("Wrong");
    await request("librarian", `PATCH ${url}`, { name: "Corrected" });
    const { json: note } = await request("member", "POST /notes", {
      text: "Gone",
    });
    await request("member", `DELETE /notes/${note.id}`);
    for (const who of ["member", "member3"]) {
      const stream = await follow(who, first.id);
      const events = await stream.before();
      const own = who === "member" ? [`notes.deleted ${note.id}`] : [];
      assert.deepEqual(names(events).slice(0, 2 + own.length), [
        `authors.created ${author.id}`,
        `authors.updated ${author.id}`,
        ...own,
      ]);
      assert.doesNotMatch(names(events).join(), /notes.created/);
      assert.doesNotMatch(JSON.stringify(events), /Wrong|Gone/);
      const [, , id = ""] = events.at(-1) ?? [];
      stream.close();
      const again = await follow(who, id);
      assert.doesNotMatch(
        names(await again.before()).join(),
        new RegExp(` ${author.id}\\b`),
      );
      again.close();
    }
  });

  test("begin anew after an id that is unknown", async () => {
    const { id, close } = await follow("member");
    close();
    const unknown = [
      "",
      "x",
      "0",
      id.replace(/\d+/, "99999"),
      `${id}0`,
      id.slice(0, -1),
    ];
    for (const last of unknown) {
      const stream = await follow("member", last);
      const [[name, data] = [], ...others] = await stream.before();
      assert.deepEqual([name, data, others], ["reset", {}, []], last);
      stream.close();
    }
  });

  test("end when a right ends", async () => {
    const ends: [string, string, string, object?][] = [
      ["librarian2", "admin", "PATCH /users/", { role: "member" }],
      ["librarian3", "admin", "PATCH /users/", { password: "other-password" }],
      ["librarian4", "admin", "DELETE /users/"],
      ["librarian5", "librarian5", "DELETE /authorizations/"],
    ];
    for (const [reader, who, line, body] of ends) {
      const own = line.endsWith("users/") ? "GET /user" : "GET /authorizations";
      const { json } = await request(reader, own);
      const { ended } = await follow(reader);
      const { id } = [json].flat()[0];
      assert.ok((await request(who, `${line}${id}`, body)).status < 300);
      await ended;
    }
  });

  test("wait for the disk, and outlive what it takes back", async () => {
    const { author, url } = await createAuthor("Durable");
    const other = await createAuthor("Other");
    const { id, close } = await follow("member");
    close();
    const { author: last, url: lastUrl } = await createAuthor("Last");
    disk("hold");
    const held = request("librarian", `PATCH ${url}`, { name: "Held" });
    await untilHeld();
    const refused = request("librarian", `PATCH ${lastUrl}`, {
      name: "Refused",
    });
    const changed = request("admin", `PATCH ${other.url}`, { name: "Changed" });
    for (let turn = 0; turn < 50; turn++) { // each gives the others time
      await request("librarian", "GET /books");
    }
    const stream = await follow("member", id);
    await request("librarian", "GET /books");
    disk("full");
    assert.equal((await held).status, 201);
    assert.equal((await refused).json.errorCode, 50301);
    assert.equal((await changed).json.errorCode, 50301);
    disk("");
    const events = await stream.before();
    assert.deepEqual(names(events), [
      `authors.created ${last.id}`,
      `authors.updated ${author.id}`,
    ]);
    assert.equal(events[0]?.[1].name, "Last");
    stream.close();
  });

  test("are remembered up to 10,000", async () => {
    const before = await follow("member");
    before.close();
    const batch = (at: number) =>
      Array.from(
        { length: 1000 },
        (_, each) => ({ name: `Many ${at} ${each}` }),
      );
    for (let at = 0; at < 10; at++) {
      await expect(201, "librarian", "POST /authors", batch(at));
    }
    const stream = await follow("member", before.id);
    assert.equal((await stream.before()).length, 10_000);
    stream.close();
    const late = await follow("member", before.id);
    assert.deepEqual(names(await late.before()), ["reset undefined"]);
    late.close();
  });

  test("end with the server, and begin anew with the next", async () => {
    const stream = await follow("member");
    assert.equal(await stop(server), 0);
    assert.ok(await stream.ended, "the stream was cut");
    const next = await serve(library.options);
    const reader = await follow("member", stream.id, next.origin);
    assert.equal((await reader.next())?.[0], "reset");
    reader.close();
  });
});
