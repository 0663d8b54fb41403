/**
 * This version opens the folders of the last one. Each folder in `0.2.0` is what
 * the package of version 0.2.0 left behind, compressed: after a stop, after a
 * kill -9, and after one in the midst of an import. In expected.json are the
 * lists that its server sent last.
 */

import { strict as assert } from "node:assert";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { TokenSigner } from "../../src/auth/jwt.ts";
import {
  type Body,
  lacks,
  removeFolder,
  root,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { ended, fetchLines, fromLines, taskWhen } from "../lines.ts";

/** The last responses of the earlier version: lists by collection, and the URLs of what was deleted. */
interface Expected {
  readonly authors: Body;
  readonly books: Body;
  /** As the admin sees them, and as their owner does. */
  readonly notes: Body;
  readonly keeperNotes: Body;
  readonly users: Body;
  /** Those of the keeper. */
  readonly tasks: Body;
  readonly deleted: readonly string[];
}

const folders = join(root, "test/upgrade/0.2.0");
const args = ["--collections", join(root, "test/upgrade/library.mjs")];

/** Unpacks a folder; returns what is expected of it. */
async function unpack(name: string, to: string): Promise<Expected> {
  await mkdir(join(to, "spool"), { recursive: true, mode: 0o700 });
  let expected = "{}";
  const files = await readdir(join(folders, name), { recursive: true });
  for (const each of files.filter((file) => file.endsWith(".gz"))) {
    const bytes = gunzipSync(await readFile(join(folders, name, each)));
    const file = each.replace(/\.gz$/, "");
    if (file === "expected.json") expected = String(bytes);
    else await writeFile(join(to, file), bytes, { mode: 0o600 });
  }
  return JSON.parse(expected);
}

async function listOf(
  server: Server,
  collection: string,
  token: string,
): Promise<Body> {
  const url = `/v1/${collection}?limit=100`;
  const { status, body } = await server.request("GET", url, { token });
  assert.equal(status, 200, collection);
  return body;
}

for (const name of ["clean", "killed"]) {
  test(`a folder of version 0.2.0 (${name}) has all its records, users and ids`, async (t) => {
    const own = await temporaryFolder();
    t.after(() => removeFolder(own));
    const folder = join(own, "store");
    const expected = await unpack(name, folder);
    const { authors, books, notes, keeperNotes, users, deleted } = expected;
    const lastId = Math.max(...books.map(({ id }) => id));
    let extra = 0;
    for (const round of [1, 2]) {
      const server = await start({ folder, args, hashesFully: true });
      t.after(() => server.stop());
      const admin = await server.signIn("admin", "correct horse 7");
      const keeper = await server.signIn("keeper", "battery staple");
      const found = {
        authors: await listOf(server, "authors", admin),
        books: (await listOf(server, "books", admin)).slice(0, books.length),
        notes: await listOf(server, "notes", admin),
        keeperNotes: await listOf(server, "notes", keeper),
        users: await listOf(server, "users", admin),
        deleted,
      };
      assert.deepEqual(
        found,
        { authors, books, notes, keeperNotes, users, deleted },
        `${round}`,
      );
      for (const url of deleted) {
        const { status } = await server.request("GET", url);
        assert.equal(status, 410, url);
      }
      const made = await server.request("POST", "/v1/books", {
        token: keeper,
        json: { author_id: 1, title: `Round ${round}`, state: "new" },
      });
      assert.equal(made.status, 201);
      assert.ok(made.body.id > lastId + extra, "an id is given once");
      extra++;
      const again = await server.request("POST", "/v1/authors", {
        token: keeper,
        json: { name: "Other", mail: "ADA@example.com" },
      });
      assert.equal(again.status, 422, "what must be unique still must");
      await server.stop();
    }
  });
}

/** Returns flags of Node.js for a server whose clock shows some time at its start. */
function clockAt(time: string): readonly string[] {
  const code = `
    const { now } = Date;
    const offsetMs = ${Date.parse(time)} - now();
    Date.now = () => now() + offsetMs;`;
  return ["--import", `data:text/javascript,${encodeURIComponent(code)}`];
}

/** Returns the token that the earlier version issued to the keeper. */
async function issuedToken(folder: string): Promise<string> {
  const secret = await readFile(join(folder, "secret"), "utf8");
  const iat = Date.parse("2026-11-26T23:49:56Z") / 1000;
  const claims = { sub: 2, jti: 2, iat, exp: iat + 3600 };
  return new TokenSigner([secret.trim()], "library").sign(claims);
}

for (const name of ["clean", "killed"]) {
  test(
    `tokens, keys and tasks of version 0.2.0 (${name}) are valid as long as they were`,
    {
      skip: lacks("idempotency") || lacks("imports"),
    },
    async (t) => {
      const own = await temporaryFolder();
      t.after(() => removeFolder(own));
      const folder = join(own, "store");
      const { authors, tasks } = await unpack(name, folder);
      const token = await issuedToken(folder);
      const startAt = async (time: string) => {
        const nodeArgs = clockAt(time);
        const env = { JWT_SECRET: "" }; // the one in the folder
        const server = await start({ folder, args, env, nodeArgs });
        t.after(() => server.stop());
        return server;
      };
      const soon = await startAt("2026-11-27T00:00:00Z");
      const user = await soon.request("GET", "/v1/user", { token });
      assert.deepEqual([user.status, user.body["username"]], [200, "keeper"]);
      const author = authors.find(({ id }) => id === 2);
      assert.ok(author);
      const { name: penName, mail, teacher_id } = author;
      const repeated = await soon.request("POST", "/v1/authors", {
        token,
        raw: JSON.stringify({ name: penName, mail, teacher_id }),
        headers: {
          "content-type": "application/json",
          "idempotency-key": "key-1",
        },
      });
      assert.equal(repeated.status, 201, repeated.text);
      const { link: _, ...body } = repeated.body;
      assert.deepEqual(body, author);
      assert.deepEqual(await listOf(soon, "tasks", token), tasks);
      await soon.stop();

      const late = await startAt("2026-11-27T00:50:00Z");
      const expired = await late.request("GET", "/v1/user", { token });
      assert.deepEqual([expired.status, expired.body["errorCode"]], [
        401,
        40103,
      ]);
    },
  );
}

test(
  "an import that killed version 0.2.0 goes on, and imports each line once",
  {
    skip: lacks("imports"),
  },
  async (t) => {
    const own = await temporaryFolder();
    t.after(() => removeFolder(own));
    const folder = join(own, "store");
    await unpack("importing", folder);
    const server = await start({ folder, args, hashesFully: true });
    t.after(() => server.stop());
    const token = await server.signIn("admin", "correct horse 7");
    const url = "/v1/tasks/1";
    const task = await taskWhen(server, { url, token, until: ended });
    const { status, lines, imported, rejected } = task;
    assert.deepEqual([status, lines, imported, rejected], [
      "succeeded",
      400,
      398,
      2,
    ]);
    const { text } = await fetchLines(
      server,
      "/v1/books?sortby=id&fields=title",
    );
    const numbers = Array.from({ length: 400 }, (_, at) => at + 1);
    assert.deepEqual(
      fromLines(text).map(({ title }) => title),
      numbers.filter((each) => each % 200 !== 1).map((each) => `Line ${each}`),
    );
  },
);
