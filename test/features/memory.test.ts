/** Memory has an end: CONTRACT section 16. Real servers with small heaps. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { fileOf, outputOf, send, signIn, stop } from "../server.ts";
import { besiege, open, start } from "./load.ts";

test("A full memory refuses what grows and serves all else", async () => {
  const { server, expect, create, fill, health } = await open("64");
  assert.equal((await create()).status, 201);
  assert.equal((await health()).status, "ok");
  await fill();
  const { status, memory: { used, limit } } = await health();
  assert.equal(status, "memory-full");
  assert.ok(used > limit * 0.9 && limit < 64 << 20);
  assert.equal((await signIn(server.origin)).status, 201);
  await expect(200, "admin", "GET /notes/1");
  const longer = { text: "a".repeat(160_000) };
  await expect(503, "admin", "PATCH /notes/2", longer);
  await expect(201, "admin", "PATCH /notes/2", { text: "a" });
  const sockets = besiege(server.origin);
  for (let count = 0; count < 40; count++) {
    await expect(200, "admin", "GET /notes?limit=3");
  }
  for (const socket of sockets) socket.destroy();
  for (let id = 3; id < 14; id++) {
    await expect(204, "admin", `DELETE /notes/${id}`);
  }
  assert.equal((await create()).status, 201);
  assert.equal((await health()).status, "ok");
  await fill();
  assert.equal(await stop(server), 0);
});

test("A full store starts, and many exports at once do not fill it", async () => {
  const { server, count, health } = await open("64");
  assert.match(server.output, /the records take \d+ MiB of \d+ MiB/);
  const { memory: { used, limit } } = await health();
  assert.ok(used > limit * 0.9);
  const total = await count("/notes?limit=1");
  const { port, hostname } = new URL(server.origin);
  const headers = { Accept: "application/x-ndjson" };
  /** Asks for an export, and does not read it. */
  const begin = async () => {
    const socket = connect(Number(port), hostname);
    socket.write(
      `GET /v1/notes HTTP/1.1\r\nHost: a\r\nAccept: ${headers.Accept}\r\n\r\n`,
    );
    await Promise.race(["data", "close"].map((name) => once(socket, name)));
    return socket.pause().on("error", () => {});
  };
  const begun = await Promise.all(Array.from({ length: 32 }, begin));
  for (const socket of begun) socket.destroy();
  const { text } = await send(server.origin, "/v1/notes", { headers });
  assert.equal(text.split("\n").length, total + 1);
  assert.equal(await stop(server), 0);
  await outputOf(["repair"], start("64")); // takes less than a server
});

test("A store that does not fit says what it needs", async () => {
  const line = `{"text":"${"a".repeat(150_000)}"}\n`;
  const path = fileOf("notes.ndjson", line.repeat(90));
  await outputOf(["import", "notes", path], start("700"));
  const refused = await outputOf(["serve"], start("64"), 1);
  const [, needed = ""] =
    /need a heap of about (\d+) MiB.*=\1 \(in MiB\)/.exec(refused) ?? [];
  assert.notEqual(needed, "", refused);
  await stop((await open(needed)).server);
});

test("Many long batches and thousands of groups at once end nothing", async () => {
  const path = fileOf("small.ndjson", '{"text":"a"}\n'.repeat(10_000));
  await outputOf(["import", "notes", path], start("64", "groups"));
  const { server, expect } = await open("64", "groups");
  const line =
    "GET /notes?aggregate=count&by=id,created_at,updated_at,minute(created_at),hour(created_at),note_id";
  type Rest = [status: number, line: string, body?: unknown, headers?: object];
  const many = (length: number, [status, ...rest]: Rest) =>
    Promise.all(
      Array.from({ length }, () => expect(status, "admin", ...rest)),
    );
  await many(16, [200, line]);
  await many(64, [422, "POST /notes", [{ many: Array(340_000).fill([]) }]]);
  const notes = Array(500).fill({ text: "a".repeat(200) });
  const batch = [{ ...notes[0], link: Array(300_000).fill([]) }, ...notes];
  await many(32, [201, "POST /notes", batch, { "Idempotency-Key": "a" }]);
  await stop(server);
});

test("A heap that is too small for any server is refused", async () => {
  const output = await outputOf(["serve"], start("48"), 1);
  assert.match(output, /48 MiB.*needs 64 MiB.*max-old-space-size=64/);
});
