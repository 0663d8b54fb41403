/** What changes while many records are worked on: CONTRACT sections 8, 9 and 17. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { beside, createDisk } from "../server.ts";
import { book, linesOf, ndjson, startLibrary } from "./library.ts";

const { disk, environment, untilHeld } = createDisk();
const library = await startLibrary({
  FEATURES:
    "imports,deletions,aggregates,batches,expand,idempotency,conditional",
  ...environment,
});
const { request, expect, count, importLines, ended, tokenOf } = library;

const asLines = { Accept: "application/x-ndjson" };

/** Long notes about a book: all of them are 8 MB. */
const long = (more: string) => ({
  text: `${"x".repeat(1000 - 8)}${more}`,
  book_id: 1,
});
const notes = Array.from({ length: 8000 }, () => long("Ordinary"));
await importLines("admin", "/books", linesOf([book(0)]));
await importLines("admin", "/notes", linesOf(notes));

test("What is longer than 1 MiB has no validator", async () => {
  for (const [last, has] of [[600, true], [1200, false]] as const) {
    const line = `GET /notes?id:lte=${last}`;
    const { headers } = await expect(200, "admin", line, undefined, asLines);
    assert.equal("etag" in headers, has);
  }
});

test("Two deletions at once delete each record once", async () => {
  disk("hold");
  const line = "DELETE /notes?text:contains=ordinary&limit=9";
  const begun = [];
  for (
    const each of [
      "POST /notes",
      line,
      line,
      "POST /notes",
      ...Array(50).fill("OPTIONS /notes"),
    ]
  ) {
    begun.push(request("admin", each, long("")));
    await request("admin", "OPTIONS /notes");
  }
  disk("");
  await Promise.all(begun);
  notes.length -= 16;
  assert.equal(await count("/notes"), notes.length);
});

test("A deletion by filter is judged by one state", async () => {
  const [first, last] = ["Ordinary", "Obsolete"].map(long);
  const path = "/notes?text:contains=obsolete";
  for (;;) {
    const { json: [{ id: one }] } = await request(
      "admin",
      "GET /notes?limit=1",
    );
    const { json: { id: other } } = await request("admin", "POST /notes", last);
    // The scan passes the first before it matches, and the last when it matches no more.
    const [{ json }, begun, done] = await Promise.all([
      request("admin", `DELETE ${path}`),
      request("admin", `PATCH /notes/${one}`, last),
      request("admin", `PATCH /notes/${other}`, first),
    ]);
    if (begun.status === 201 && done.status === 201) {
      assert.deepEqual(json, { deleted: 1, cascaded: 0 });
      await expect(410, "admin", `GET /notes/${one}`);
      await expect(200, "admin", `GET /notes/${other}`);
      return;
    }
    await request("admin", `DELETE ${path}`); // it was faster
  }
});

/** Begins an export, and returns its response before it is read. */
async function beginExport(who: string): Promise<IncomingMessage> {
  const Authorization = `Bearer ${await tokenOf(who)}`;
  const url = `${library.server.origin}/v1/notes`;
  const [response] = await once(
    get(url, { headers: { Authorization, ...asLines } }),
    "response",
  );
  return response;
}

const idOf = async (who: string, asker = "admin"): Promise<number> =>
  (await request(asker, `GET /users?username=${who}`)).json[0].id;

test("An export leaves out what its reader may not see any more", async () => {
  const response = await beginExport("admin1");
  const role = { role: "member" };
  await request("admin", `PATCH /users/${await idOf("admin1")}`, role);
  const { length } = (await text(response)).split("\n");
  assert.ok(length < notes.length, `${length} lines`);
});

test("An export breaks off when its reader is gone, or signs out", async () => {
  const losses = [
    async () => request("admin", `DELETE /users/${await idOf("admin2")}`),
    async () => {
      const { json } = await request("admin5", "GET /authorizations");
      return request("admin5", `DELETE /authorizations/${json[0].id}`);
    },
  ];
  for (const [at, lose] of losses.entries()) {
    const response = await beginExport(["admin2", "admin5"][at] ?? "");
    assert.equal((await lose()).status, 204);
    await assert.rejects(text(response), { code: "ECONNRESET" });
  }
});

test("An export leaves out a record that is given away", async () => {
  await tokenOf("admin6");
  const { json: [last], headers } = await request(
    "admin",
    "GET /notes?order=desc&limit=1",
  );
  const user = `PATCH /users/${await idOf("admin")}`;
  await request("admin6", user, { role: "member" }); // who sees their own notes
  const response = await beginExport("admin");
  const note = `PATCH /notes/${last.id}`;
  await request("admin6", note, { owner_id: await idOf("admin6", "admin6") });
  const lines = (await text(response)).trim().split("\n");
  await request("admin6", note, { owner_id: last.owner_id });
  await request("admin6", user, { role: "admin" });
  assert.equal(lines.length, Number(headers["x-total-count"]) - 1);
});

test("An aggregate is refused when its reader is gone", async () => {
  for (let at = 10;; at++) {
    const who = `admin${at}`;
    const id = await (await tokenOf(who), idOf(who));
    let isGone = false;
    const counted = Array.from({ length: 20 }, async () => {
      const { status } = await request(who, "GET /notes?aggregate=count");
      assert.equal(status, isGone ? 401 : status);
      return status;
    });
    await request("admin", `DELETE /users/${id}`);
    isGone = true;
    if ((await Promise.all(counted)).includes(401)) return; // or all were faster
  }
});

test("An aggregate leaves out what its reader may not see any more", async () => {
  await tokenOf("admin4");
  const path = `PATCH /users/${await idOf("admin4")}`;
  const found = new Set<number>();
  for (let count = 0; count < 100; count++) {
    const counted = request("admin4", "GET /notes?aggregate=count");
    await request("admin", path, { role: "member" });
    const { json: [group] } = await counted;
    await request("admin", path, { role: "admin" });
    found.add(group.count);
    if (group.count > 0 && group.count < notes.length) return;
  }
  assert.fail(`It counts ${[...found]}`);
});

test("A deletion of more than 1,000 records needs a limit", async () => {
  const path = "/notes?text:contains=ordinary";
  const before = await count(path);
  const { json } = await expect(40900, "admin", `DELETE ${path}`);
  assert.match(json.error, new RegExp(`^${before} .*limit=1000`));
  assert.equal(await count(path), before);
});

test("Groups of more than 4 MiB are refused", async () => {
  const path = "/notes?aggregate=count&by=id,text";
  const { json } = await expect(40004, "admin", `GET ${path}`);
  assert.match(json.error, /"by".*4 MiB/);
  await expect(200, "admin", `GET ${path}&id:lte=3000`);
});

test("Nothing of many records is shown before it is durable", async () => {
  const author = { name: "Old" };
  const key = { "Idempotency-Key": "a" };
  const { json: { id } } = await request("librarian", "POST /authors", author);
  const { json: { url } } = await request(
    "librarian",
    "POST /books",
    book(1, { author_id: id }),
  );
  for (const title of ["One", "Two"]) {
    await request("member", "POST /wishes", { title });
  }
  const newest = "/notes?order=desc&limit=1";
  const { json: [last] } = await request("admin", `GET ${newest}`);
  const begun = await beginExport("admin");
  disk("hold");
  const shown: string[] = [];
  const send = async (who: string, line: string, body?: object, more = {}) => {
    const { status } = await request(who, line, body, more);
    shown.push(line);
    return status;
  };
  const pass = async () => {
    for (let turn = 0; turn < 50; turn++) await request("anyone", "OPTIONS /");
  };
  const all = [
    send("librarian", "DELETE /wishes?title=One"),
    send("member", "POST /wishes", [{ title: "Three" }]),
    send("librarian", `PATCH /authors/${id}`, { name: "New" }),
    send("member", "POST /wishes", { title: "Four" }, key),
  ];
  // What a scan and an export show is what is there when they are sent.
  const texts = [
    request("admin", `GET ${newest}&text:contains=x`).then(({ text }) => text),
    text(begun),
  ];
  for (const each of texts) {
    each.then((text) => text.includes("Replaced") && shown.push(text));
  }
  all.push(send("admin", `PATCH /notes/${last.id}`, long("Replaced")));
  for (let turn = 0; turn < 9; turn++) await pass();
  all.push(
    send("member", "POST /wishes", { title: "Four" }, key),
    send("librarian", "GET /wishes?aggregate=count"),
    send("librarian", "GET /wishes", undefined, {
      Accept: "application/x-ndjson",
    }),
    send("anyone", `GET ${url.slice(3)}?expand=author`),
  );
  await pass();
  const early = [...shown];
  disk("");
  const statuses = await Promise.all(all);
  assert.deepEqual(statuses, [200, 201, 201, 201, 201, 201, 200, 200, 200]);
  await Promise.all(texts);
  assert.deepEqual(early, []);
});

test("An import pauses while the disk is full, and a deletion has a limit", async () => {
  const lines = linesOf(Array(20_000).fill({ text: "Short", note_id: 4000 }));
  const created = async () =>
    (await request("admin", "POST /notes", { text: "Refused" })).json;
  let total = 0;
  for (let isFaster = true; isFaster;) {
    const { json: { id } } = await request(
      "admin",
      "POST /notes",
      lines,
      ndjson,
    );
    disk("full");
    while ((await created()).errorCode !== 50301);
    const { json: { status } } = await request("admin", `GET /tasks/${id}`);
    isFaster = status === "succeeded";
    disk("");
    const task = await ended("admin", id);
    assert.deepEqual([task.status, task.imported], ["succeeded", 20_000]);
    total += task.imported;
  }
  assert.equal(await count("/notes?text=Short&limit=1"), total);
  // More than 10,000, and more than 8 MiB.
  await expect(409, "admin", "DELETE /notes/4000?cascade=true");
  await expect(409, "admin", "DELETE /books/1?cascade=true");
});

test("A batch that is created is not refused any more", async () => {
  const { hostname, port } = new URL(library.server.origin);
  const token = await tokenOf("admin");
  const body = JSON.stringify(Array(400).fill(long("Batched")));
  disk("hold");
  const socket = connect({
    host: hostname,
    port: Number(port),
    allowHalfOpen: true,
  });
  socket.write(
    `POST /v1/notes HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  await untilHeld();
  socket.end(); // it still reads
  for (let turn = 0; turn < 9; turn++) await request("admin", "OPTIONS /notes");
  disk("");
  assert.match(await text(socket), /^HTTP.1.1 201/);
});

test("A small server knows the last keys, and pauses an import when memory is full", async (t) => {
  const { request, ended, tokenOf, server } = await startLibrary({
    COLLECTIONS: beside("features/measured"),
    FEATURES: "imports,deletions,idempotency,memory",
    NODE_OPTIONS: "--max-old-space-size=64 --max-semi-space-size=1", // 67 MB in all on each version
  });

  await t.test("The last 5,000 keys of a user are known", async () => {
    const { hostname, port } = new URL(server.origin);
    const token = await tokenOf("admin");
    /** Sends keys in a row, and returns the URLs of what they create. */
    const create = async (from: number, count: number) => {
      const requests = Array.from(
        { length: count },
        (_, at) =>
          `POST /v1/readings HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: 2\r\nIdempotency-Key: key-${
            from + at
          }\r\n\r\n{}`,
      );
      const socket = connect(Number(port), hostname);
      socket.write(`${requests.join("")}GET /health HTTP/1.0\r\n\r\n`); // the last one
      const urls = (await text(socket)).match(/^Location: .*/gm);
      assert.equal(urls?.length, count);
      return urls?.[0];
    };
    const first = await create(0, 8);
    await Promise.all(
      Array.from({ length: 16 }, (_, at) => create(8 + at * 312, 312)),
    );
    assert.equal(await create(0, 1), first);
    await create(5000, 1);
    assert.notEqual(await create(0, 1), first);
  });

  await t.test("Bodies come byte by byte", async () => {
    const { hostname, port } = new URL(server.origin);
    const head =
      "POST /v1/authorizations HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    const form = '{"username":"admin","password":"admin-password"}';
    const sockets = Array.from({ length: 64 }, () => {
      const socket = connect(Number(port), hostname);
      return new Promise<typeof socket>((resolve) => {
        const bytes = head + "1\r\n \r\n".repeat(8000);
        socket.write(bytes, () => resolve(socket));
      });
    });
    for (const socket of await Promise.all(sockets)) {
      socket.end(`${form.length.toString(16)}\r\n${form}\r\n0\r\n\r\n`);
      assert.match(await text(socket), /^HTTP.1.1 201/);
    }
  });

  await t.test("An import pauses while memory is full", async () => {
    const count = 320;
    const article = { title: "Long", body: "x".repeat(100_000) };
    const lines = linesOf(Array(count).fill(article));
    const { json: { id } } = await request(
      "admin",
      "POST /articles",
      lines,
      ndjson,
    );
    const created = async () =>
      (await request("admin", "POST /articles", article)).json;
    while ((await created()).errorCode !== 50303);
    const { json } = await request("admin", `GET /tasks/${id}`);
    assert.equal(json.status, "running");
    assert.ok(json.lines < count);
    const few = "DELETE /articles?title=Long&limit=50";
    for (let deleted = 0; deleted < count;) {
      deleted += (await request("admin", few)).json.deleted;
    }
    assert.equal((await ended("admin", id)).imported, count);
  });
});
