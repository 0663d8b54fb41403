/** Memory has an end: CONTRACT section 16. Real servers with small heaps. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { launch, send, serve, stop, temporaryFolder } from "../server.ts";

const folder = temporaryFolder();
const COLLECTIONS = join(folder, "notes.mjs");
writeFileSync(
  COLLECTIONS,
  `export default ({ collection, text, optional, reference }) => ({ collections: [collection({
    name: "notes", singular: "note",
    access: { read: "anyone", write: "viewer", delete: "viewer" },
    properties: { text: text({ maxLength: 200000 }), note_id: optional(reference("notes")) },
  })] });`,
);
const DATA_DIR = join(folder, "store");
const start = (mebibytes: string) => ({
  COLLECTIONS,
  DATA_DIR,
  FEATURES: "all",
  NODE_OPTIONS: `--max-old-space-size=${mebibytes}`,
});

/** Starts a server, and returns what sends requests as admin. */
async function open(mebibytes: string) {
  const server = await serve(start(mebibytes));
  const signIn = () =>
    send(server.origin, "/v1/authorizations", {
      method: "POST",
      body: { username: "admin", password: "admin-password" },
    });
  const { json: { token } } = await signIn();
  const headers = { Authorization: `Bearer ${token}` };
  const request = (method: string, path: string, body?: object) =>
    send(server.origin, path, { method, headers, body });
  const create = (note_id: number | null = null) =>
    request("POST", "/v1/notes", { text: "a".repeat(150_000), note_id });
  /** Creates records on eight connections until there is no room. */
  const fill = () =>
    Promise.all(Array.from({ length: 8 }, async () => {
      for (;;) {
        const { status, json } = await create(1);
        if (status === 201) continue;
        return assert.equal(json.errorCode, 50303);
      }
    }));
  const health = async () => (await request("GET", "/health")).json;
  return { server, signIn, request, create, fill, health };
}

test("A full memory refuses what grows and serves all else", async () => {
  const { server, signIn, request, create, fill, health } = await open("64");
  assert.equal((await create()).status, 201);
  assert.equal((await health()).status, "ok");
  await fill();
  const { status, memory: { used, limit } } = await health();
  assert.equal(status, "memory-full");
  assert.ok(used > limit * 0.9 && limit < 64 << 20);
  assert.equal((await signIn()).status, 201);
  assert.equal((await request("GET", "/v1/notes/1")).status, 200);
  const longer = { text: "a".repeat(160_000) };
  assert.equal((await request("PATCH", "/v1/notes/2", longer)).status, 503);
  assert.equal(
    (await request("PATCH", "/v1/notes/2", { text: "a" })).status,
    201,
  );
  // 64 busy clients that do not read what they ask for.
  const paths = [
    "?expand=note&limit=100",
    "?text:contains=b",
    "?limit=100",
    "?aggregate=count&by=note_id",
  ];
  const sockets = Array.from({ length: 64 }, (_, at) => {
    const kind = at % 3 === 0 ? "Accept: application/x-ndjson\r\n" : "";
    const head = `GET /v1/notes${
      paths[at % 4]
    } HTTP/1.1\r\nHost: a\r\n${kind}\r\n`;
    const { port, hostname } = new URL(server.origin);
    const socket = connect(Number(port), hostname).on("error", () => {});
    socket.write(head.repeat(600));
    return socket.pause();
  });
  for (let count = 0; count < 100; count++) {
    assert.equal((await request("GET", "/v1/notes?limit=3")).status, 200);
  }
  for (const socket of sockets) socket.destroy();
  for (let id = 3; id < 14; id++) {
    assert.equal((await request("DELETE", `/v1/notes/${id}`)).status, 204);
  }
  assert.equal((await create()).status, 201);
  assert.equal((await health()).status, "ok");
  await fill();
  assert.equal(await stop(server), 0);
});

test("A full store starts, and one that does not fit says what it needs", async () => {
  const { server, health } = await open("64");
  assert.match(server.output, /the records take \d+ MiB of \d+ MiB/);
  const { memory: { used, limit } } = await health();
  assert.ok(used > limit * 0.9);
  await stop(server);
  const larger = await open("100");
  await larger.fill();
  await stop(larger.server);
  const refused = launch(["serve"], { ...start("64"), PORT: "0" });
  assert.equal(await refused.exit, 1, refused.output);
  const [, needed = ""] =
    /need a heap of about (\d+) MiB.*=\1 \(in MiB\)/.exec(refused.output) ?? [];
  assert.notEqual(needed, "", refused.output);
  await stop((await open(needed)).server);
});

test("A heap that is too small for any server is refused", async () => {
  const run = launch(["serve"], { ...start("48"), PORT: "0" });
  assert.equal(await run.exit, 1, run.output);
  assert.match(run.output, /48 MiB.*needs 64 MiB.*max-old-space-size=64/);
});
