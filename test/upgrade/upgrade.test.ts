/**
 * This version opens the folders of the last one. Each folder in `0.2.0` is what
 * the package of version 0.2.0 left behind, compressed: after a stop, and after
 * a kill -9. In expected.json are the lists that its server sent last.
 */

import { strict as assert } from "node:assert";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import {
  type Body,
  removeFolder,
  root,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";

/** The last responses of the earlier version: lists by collection, and the URLs of what was deleted. */
interface Expected {
  readonly authors: Body;
  readonly books: Body;
  /** As the admin sees them, and as their owner does. */
  readonly notes: Body;
  readonly keeperNotes: Body;
  readonly users: Body;
  readonly deleted: readonly string[];
}

const folders = join(root, "test/upgrade/0.2.0");
const args = ["--collections", join(root, "test/upgrade/library.mjs")];

/** Unpacks a folder; returns what is expected of it. */
async function unpack(name: string, to: string): Promise<Expected> {
  await mkdir(to, { mode: 0o700 });
  let expected = "";
  for (const each of await readdir(join(folders, name))) {
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
