/**
 * Histories: the id of an event that is not in the store, because a copy of the
 * folder or a repair of it has assigned its number again, is unknown.
 */

import { strict as assert } from "node:assert";
import { cp, readdir, readFile, writeFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { test } from "node:test";
import { follow } from "../../follower.ts";
import {
  adminPassword,
  lacks,
  removeFolder,
  signInNew,
  temporaryFolder,
} from "../../harness.ts";
import { runHere, type ServerHere, startHere } from "../../in-process.ts";

const declaration = (properties: string) => `
  export default ({ collection, optional, string }) => ({
    roles: ["member", "admin"],
    collections: [collection({
      name: "books", singular: "book",
      access: { read: "anyone", write: "member", delete: "member" },
      properties: { title: string({ maxLength: 20 }) ${properties} },
    }), collection({
      name: "notes", singular: "note", private: true,
      access: { read: "member", write: "member", delete: "member" },
      properties: { text: string({ maxLength: 20 }) },
    })],
  });`;

/** A way in which a folder is changed before its server starts. */
interface Way {
  readonly name: string;
  readonly seed?: unknown;
  readonly properties?: string;
  /** The titles of the books before the folder is copied. */
  readonly titles?: readonly string[];
  readonly prepare?: (
    command: (
      args: readonly string[],
      input?: string,
    ) => Promise<number | null>,
  ) => Promise<void>;
  readonly needs?: string;
  /** The features of a server that writes to the copy before. */
  readonly features?: string;
}

const ways: readonly Way[] = [
  { name: "a copy" },
  { name: "a copy to which a server without events wrote", features: "none" },
  {
    name: "a copy to which users were added",
    async prepare(command) {
      for (const name of ["kim", "kom"]) {
        assert.equal(await command(["user", "add", name], adminPassword), 0);
      }
    },
  },
  {
    name: "a copy to which books were imported",
    needs: "imports",
    async prepare(command) {
      const args = ["import", "books", "-"];
      assert.equal(await command(args, '{"title":"Emma"}'), 0);
    },
  },
  {
    name: "a copy of which keys were deleted",
    needs: "idempotency",
    async prepare(command) {
      assert.equal(await command(["prune", "answers"]), 0);
    },
  },
  {
    name: "a copy with another declaration",
    needs: "evolution",
    properties: ", pages: optional(string({ maxLength: 3 }))",
  },
  {
    name: "a copy with a seed",
    titles: [],
    seed: { books: [{ title: "Emma" }] },
  },
];

async function create(server: ServerHere, token: string, title: string) {
  const { status } = await server.request("POST", "/v1/books", {
    token,
    json: { title },
    headers: { "idempotency-key": title.replace(" ", "-") },
  });
  assert.equal(status, 201);
}

/** Asserts that a server sends a reset to a client that has seen any of the numbers. */
async function assertResets(server: ServerHere, ids: readonly string[]) {
  const token = await server.signIn();
  assert.equal(ids.length, 3);
  for (const id of ids) {
    const follower = await follow(server.port, token, id);
    assert.equal((await follower.next()).type, "reset", id);
    follower.cut();
  }
}

for (const { name, needs, ...way } of ways) {
  const skip = lacks("events") || (needs ? lacks(needs) : false);
  test(`an id that was lost is a reset: ${name}`, { skip }, async () => {
    const own = await temporaryFolder();
    const file = join(own, `books${extname(import.meta.filename)}`);
    await writeFile(file, declaration(""));
    const folder = join(own, "original");
    const original = await startHere({ folder, args: ["--collections", file] });
    const copy = join(own, "copy");
    try {
      const token = await original.signIn();
      const follower = await follow(original.port, token);
      for (const title of way.titles ?? ["Faust"]) {
        await create(original, token, title);
      }
      await cp(folder, copy, {
        recursive: true,
        filter: (path) => !path.endsWith(".sock"),
      });
      const lost: string[] = [];
      for (const title of ["Lost 1", "Lost 2", "Lost 3"]) {
        await create(original, token, title);
        while ((await follower.next()).data["title"] !== title);
        lost.push(follower.lastEventId);
      }
      await original.end();
      const changed = file.replace("books", "changed");
      await writeFile(changed, declaration(way.properties ?? ""));
      const args = ["--collections", changed];
      await way.prepare?.(async (words, input = "") => {
        const all = [...words, "--data-dir", copy, ...args];
        return (await runHere(all, { input })).code;
      });
      if (way.features !== undefined) {
        const env = { FEATURES: way.features };
        const server = await startHere({ folder: copy, args, env });
        const token = await server.signIn();
        for (const title of ["New 1", "New 2", "New 3", "New 4"]) {
          await create(server, token, title);
        }
        await server.end();
      }
      const { seed } = way;
      const server = await startHere({
        folder: copy,
        args,
        ...(seed !== undefined && { seed }),
      });
      try {
        await assertResets(server, lost);
      } finally {
        await server.stop();
      }
    } finally {
      await original.stop();
      await removeFolder(own);
    }
  });
}

test("an id that was lost is a reset: a repair", {
  skip: lacks("events") || lacks("marker"),
}, async () => {
  const server = await startHere();
  const { folder } = server;
  let ids: string[] = [];
  try {
    const token = await server.signIn();
    const follower = await follow(server.port, token);
    for (const name of ["Kept", "Lost 1", "Lost 2"]) {
      const json = { name, city: "Bern", country: "CH" };
      await server.request("POST", "/v1/zoos", { token, json });
      await follower.next();
      ids = [...ids, follower.lastEventId];
    }
    await server.end();
    const logs = (await readdir(folder)).filter((each) => /^wal/.test(each));
    for (const log of logs) {
      const bytes = await readFile(join(folder, log));
      for (const text of ["Lost 1", "Lost 2"]) {
        const at = bytes.indexOf(text);
        if (at > 0) bytes[at] = 0x23;
      }
      await writeFile(join(folder, log), bytes);
    }
    const repaired = await runHere(["repair", "--data-dir", folder]);
    assert.match(repaired.stdout, /lost transactions: [1-9]/);
    const next = await startHere({ folder });
    try {
      await assertResets(next, ids);
    } finally {
      await next.stop();
    }
  } finally {
    await server.stop();
    await removeFolder(folder);
  }
});

test(
  "the id with which a stream begins is one to resume from, in a new folder, a backup and a copy",
  {
    skip: lacks("events"),
  },
  async () => {
    const own = await temporaryFolder();
    const file = join(own, `books${extname(import.meta.filename)}`);
    const args = ["--collections", file];
    await writeFile(file, declaration(""));
    const [first, backup, copy] = ["first", "backup", "copy"]
      .map((name) => join(own, name));
    assert.ok(first && backup && copy);
    let count = 0;
    try {
      for (const folder of [first, backup, copy]) {
        const server = await startHere({ folder, args });
        try {
          const token = await server.signIn();
          const kim = folder === first
            ? await signInNew(server, {
              token,
              username: "kim",
              role: "member",
            })
            : await server.signIn("kim");
          for (const reader of [kim, token]) {
            let id: string | undefined;
            for (let round = 0; round < 3; round++) {
              const follower = await follow(server.port, reader, id);
              await follower.until(() => /^id: .*\n/m.test(follower.text));
              follower.cut();
              assert.doesNotMatch(follower.text, /reset/);
              id = follower.lastEventId;
            }
            const follower = await follow(server.port, reader, id);
            await create(server, token, `Faust ${++count}`);
            assert.equal((await follower.next()).type, "books.created");
            follower.cut();
          }
          await server.end();
        } finally {
          await server.stop();
        }
        const words: readonly string[] = [
          "backup",
          backup,
          "--data-dir",
          folder,
          ...args,
        ];
        if (folder === first) assert.equal((await runHere(words)).code, 0);
        if (folder === backup) await cp(folder, copy, { recursive: true });
      }
    } finally {
      await removeFolder(own);
    }
  },
);

test(
  "a client whose rights a changed declaration has changed is told to read anew",
  { skip: lacks("events") || lacks("evolution") },
  async () => {
    const own = await temporaryFolder();
    const folder = join(own, "store");
    const serve = async (name: string, read: string) => {
      const file = join(own, `${name}${extname(import.meta.filename)}`);
      const text = declaration("").replace("anyone", read);
      await writeFile(file, text);
      return await startHere({ folder, args: ["--collections", file] });
    };
    try {
      let server = await serve("closed", "admin");
      const token = await server.signIn();
      const kim = await signInNew(server, {
        token,
        username: "kim",
        role: "member",
      });
      let follower = await follow(server.port, kim);
      await follower.until(() => follower.lastEventId !== "");
      await create(server, token, "Faust");
      await server.end();
      server = await serve("open", "member");
      follower = await follow(server.port, kim, follower.lastEventId);
      await create(server, token, "Emma");
      assert.equal((await follower.next()).type, "reset");
      assert.equal((await follower.next()).data["title"], "Emma");
      await server.end();
      // Nothing has changed since.
      server = await serve("same", "member");
      follower = await follow(server.port, kim, follower.lastEventId);
      await create(server, token, "Ulysses");
      assert.equal((await follower.next()).data["title"], "Ulysses");
      await server.stop();
    } finally {
      await removeFolder(own);
    }
  },
);

test(
  "a client is not told of changes when hidden values are pruned, but to read anew",
  { skip: lacks("events") || lacks("evolution") },
  async () => {
    const own = await temporaryFolder();
    const folder = join(own, "store");
    const declare = async (name: string, properties: string) => {
      const file = join(own, `${name}${extname(import.meta.filename)}`);
      await writeFile(file, declaration(properties));
      return ["--collections", file];
    };
    const whole = await declare(
      "whole",
      ", author: optional(string({ maxLength: 20 }))",
    );
    const less = await declare("less", "");
    try {
      let server = await startHere({ folder, args: whole });
      const token = await server.signIn();
      for (const title of ["Faust", "Emma"]) {
        const json = { title, author: "nobody" };
        await server.request("POST", "/v1/books", { token, json });
      }
      await server.end();
      server = await startHere({ folder, args: less });
      let follower = await follow(server.port, token);
      await follower.until(() => follower.lastEventId !== "");
      await server.end();
      const words = ["prune", "books.author", "--data-dir", folder, ...less];
      const { code, stderr } = await runHere(words);
      assert.equal(code, 0, stderr);
      server = await startHere({ folder, args: less });
      follower = await follow(server.port, token, follower.lastEventId);
      await create(server, token, "Ulysses");
      assert.equal((await follower.next()).type, "reset");
      assert.equal((await follower.next()).data["title"], "Ulysses");
      await server.stop();
    } finally {
      await removeFolder(own);
    }
  },
);
