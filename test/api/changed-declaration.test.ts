/** A changed declaration, without the feature that adapts the stored records to it. */

import { strict as assert } from "node:assert";
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import {
  collection,
  type CollectionDeclaration,
} from "../../src/api/declaration/declaration.ts";
import { optional, string } from "../../src/api/declaration/properties.ts";
import { openDataFolder } from "../../src/data-folder.ts";
import { loadFeatures } from "../../src/features.ts";
import { openStore } from "../../src/store/store.ts";
import { apiOf } from "../collections.ts";
import {
  lacks,
  removeFolder,
  run,
  storedAdmin,
  temporaryFolder,
} from "../harness.ts";
import { runHere, startHere } from "../in-process.ts";
import { commit } from "../commit.ts";

const otherFile = `export default ({ collection, string }) => ({
  collections: [collection({
    name: "zoos",
    singular: "zoo",
    access: { read: "anyone", write: "keeper", delete: "keeper" },
    properties: { name: string({ maxLength: 9 }) },
  }), collection({
    name: "shelves",
    singular: "shelf",
    access: { read: "anyone", write: "keeper", delete: "keeper" },
    properties: { room: string({ maxLength: 9 }) },
  })],
});`;

const room = string({ maxLength: 9 });

const shelves = (options: Partial<CollectionDeclaration> = {}) =>
  apiOf([
    collection({
      name: "shelves",
      singular: "shelf",
      access: { read: "anyone", write: "keeper", delete: "keeper" },
      properties: { room },
      ...options,
    }),
  ]);

test("another declaration than the last one is refused by name, and changes nothing", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const first = await openDataFolder(folder, shelves());
  await commit(first, [["put", "shelves", { id: 1, room: "A" }]], 0);
  const { seq } = first;
  await first.close();
  const others: readonly [Partial<CollectionDeclaration>, RegExp][] = [
    [
      { properties: { room: string({ maxLength: 10 }) } },
      /of shelves\.room is/,
    ],
    [{ properties: { room, floor: optional(room) } }, /of shelves\.floor is/],
    [{ properties: { floor: room } }, /of shelves\.floor, shelves\.room is/],
    [{ check: () => {} }, /of shelves is/],
    [{ name: "racks" }, /of racks, racks\.room, shelves, shelves\.room is/],
  ];
  for (const [options, names] of others) {
    await assert.rejects(openDataFolder(folder, shelves(options)), {
      name: "CommandError",
      message: names,
    });
  }
  const store = await openDataFolder(folder, shelves());
  assert.equal(store.seq, seq);
  assert.deepEqual(store.table("shelves").get(1)?.document, {
    id: 1,
    room: "A",
  });
  await store.close();
});

test("records of a store that remembers no declaration are not served unseen", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const tables = [{ name: "users" }];
  const store = await openStore({ folder, tables });
  await commit(store, [["put", "users", storedAdmin]], 0);
  await store.close();
  await assert.rejects(
    openDataFolder(folder, shelves()),
    /declaration of shelves, shelves\.room, users, .* is not the one/,
  );
});

test(
  "a server without the feature starts with an unchanged declaration, also after renamings",
  {
    skip: lacks("evolution"),
  },
  async (t) => {
    const folder = await temporaryFolder();
    t.after(() => removeFolder(folder));
    const [feature] = await loadFeatures(["evolution"]);
    await (await openDataFolder(folder, shelves())).close();
    const renamed = { properties: { floor: { ...room, renamed: "room" } } };
    const store = await openDataFolder(folder, shelves(renamed), {
      ...feature,
    });
    const { seq } = store;
    await commit(store, [["put", "shelves", { id: 1, floor: "A" }]], 0);
    await store.close();
    const again = await openDataFolder(folder, shelves(renamed));
    assert.equal(again.seq, seq + 1);
    assert.deepEqual(again.table("shelves").get(1)?.document, {
      id: 1,
      floor: "A",
    });
    await again.close();
  },
);

test("FEATURES=none: a first start and an unchanged one succeed, a changed one is exit code 1", async (t) => {
  const own = await temporaryFolder();
  t.after(() => removeFolder(own));
  const folder = join(own, "store");
  const file = join(own, "other.mjs");
  await writeFile(file, otherFile);
  const env = { FEATURES: "none" };
  for (let starts = 0; starts < 2; starts++) {
    const server = await startHere({ folder, env, isNew: starts === 0 });
    assert.equal(await server.end(), 0);
  }
  const { code, stderr } = await run(["serve", "--port", "0"], {
    env: { ...env, DATA_DIR: folder, COLLECTIONS: file },
  });
  assert.equal(code, 1, stderr);
  assert.match(
    stderr,
    /^zoo-api: the declaration of zoos\.name, shelves, shelves\.room, .* is not the one .*: start the server with it once, with the feature evolution, or .*--collections\n$/,
  );
  const server = await startHere({ folder, env });
  assert.equal((await server.request("GET", "/v1/zoos")).status, 200);
  assert.equal(await server.end(), 0);
});

test("a command accepts another text of the same check, but no other declaration", async (t) => {
  const own = await temporaryFolder();
  t.after(() => removeFolder(own));
  const folder = join(own, "store");
  let files = 0;
  /** Adds a user with a declaration that has this check. */
  const add = async (check: string, maxLength = 9) => {
    const file = join(own, `${++files}.mjs`); // a module is loaded once
    const text = otherFile.replaceAll("maxLength: 9", `maxLength: ${maxLength}`)
      .replace('name: "zoos",', `name: "zoos", ${check}`);
    await writeFile(file, text);
    return await runHere(["user", "add", `user${files}`], {
      env: { DATA_DIR: folder, COLLECTIONS: file },
      input: "a long password",
    });
  };
  assert.equal((await add("check: ({ name }) => null,")).code, 0);
  // As another loader prints it.
  assert.equal((await add("check: ({\n name\n}) => null,")).code, 0);
  const others = [["", 9], ["check: ({ name }) => null,", 8]] as const;
  for (const [check, maxLength] of others) {
    const { code, stderr } = await add(check, maxLength);
    assert.equal(code, 1);
    assert.match(stderr, /the declaration of zoos.* is not the one with/);
  }
});

test(
  "FEATURES=none: a start succeeds after names were exchanged with the feature, also with the log that says so",
  { skip: lacks("evolution") },
  async (t) => {
    const own = await temporaryFolder();
    t.after(() => removeFolder(own));
    const folder = join(own, "store");
    const file = join(own, "other.mjs");
    const renamedFile = join(own, "renamed.mjs");
    await writeFile(file, otherFile);
    await writeFile(
      renamedFile,
      otherFile.replace("room: string({", 'floor: string({ renamed: "room",'),
    );
    const serve = async (FEATURES: string, COLLECTIONS: string) => {
      const env = { FEATURES, COLLECTIONS };
      const server = await startHere({ folder, env });
      assert.equal(await server.end(), 0);
    };
    await serve("none", file);
    await serve("evolution", renamedFile);
    const logs = async () =>
      (await readdir(folder)).filter((name) => name.startsWith("wal-")).sort();
    assert.deepEqual(await logs(), ["wal-1.jsonl", "wal-2.jsonl"]);
    const text = await readFile(join(folder, "wal-1.jsonl"), "utf8");
    assert.match(text, /\["rename","shelves","room","floor"\]/);
    await serve("none", renamedFile);
    // As if the server had died before the snapshot that follows.
    for (const name of await readdir(folder)) {
      if (!/^(?:wal|snapshot)-2|^mark$/.test(name)) continue;
      await rm(join(folder, name));
    }
    await writeFile(
      join(folder, "wal-1.jsonl"),
      text.replace(/^\{"crc":"\w+","seal":.*\n/m, ""),
    );
    await serve("none", renamedFile);
    await serve("evolution", renamedFile);
  },
);
