/** A client's view of a full memory: real servers with small heaps. */

import { strict as assert } from "node:assert";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { startApplication } from "./application.ts";
import {
  adminPassword,
  type Answer,
  assertError,
  command,
  commandEnvironment,
  lacks,
  notInNode,
  removeFolder,
  runNode,
  type Server,
  start,
  temporaryFolder,
} from "./harness.ts";

test("no request leaves a listener of the store behind", async (t) => {
  const { store, token, request, stop } = await startApplication();
  t.after(stop);
  const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
  const ndjson = { accept: "application/x-ndjson" };
  const countListeners = () => [
    store.advanceListeners.size,
    store.memory?.onTight.size,
    ...Array.from(store.tables.values(), ({ listeners }) => listeners.size),
  ];
  const useEverything = async () => {
    const { body: { id } } = await request("POST", "/v1/zoos", {
      token,
      json: zoo,
    });
    const animal = { zoo_id: id, animal_type_id: 7, name: "Momo" };
    for (
      const [method, path, options] of [
        ["POST", `/v1/zoos/${id}/animals`, { json: animal }],
        ["POST", "/v1/animals", { json: [animal, animal] }],
        ["PATCH", `/v1/zoos/${id}`, { json: { city: "Berlin" } }],
        ["GET", "/v1/animals?expand=zoo&sortby=-name", {}],
        ["GET", "/v1/animals?expand=zoo", {}],
        ["GET", "/v1/animals?expand=zoo", { headers: ndjson }],
        ["GET", "/v1/animals?name:contains=om&sortby=name", {}],
        ["GET", "/v1/animals?by=zoo_id&aggregate=count", {}],
        ["GET", `/v1/zoos/${id}/animals?fields=name`, { headers: ndjson }],
        ["OPTIONS", "/v1/animals", {}],
        ["GET", "/v1/openapi.json", {}],
        ["DELETE", "/v1/animals?name=Momo", {
          headers: { prefer: "wait=10" },
        }],
        ["DELETE", `/v1/zoos/${id}?cascade=true`, {}],
      ] as const
    ) {
      await request(method, path, { token, ...options });
    }
  };
  await useEverything();
  const before = countListeners();
  for (let n = 0; n < 3; n++) await useEverything();
  assert.deepEqual(countListeners(), before);
});

const heap = (mebibytes: number) => `--max-old-space-size=${mebibytes}`;

/** An API of texts that fill a small heap soon. */
const notes = `export default ({ collection, string }) => ({
  collections: [collection({
    name: "notes", singular: "note",
    access: { read: "anyone", write: "viewer", delete: "viewer" },
    properties: { text: string({ maxLength: 100000 }) },
  })],
});`;

const text = "a".repeat(100_000);

async function until(isDone: () => Promise<boolean>): Promise<void> {
  while (!await isDone()) await wait(50);
}

/** Creates a folder with the declaration of {@linkcode notes}; returns how to use it. */
async function prepare() {
  const own = await temporaryFolder();
  const file = join(own, "notes.mjs");
  await writeFile(file, notes);
  const folder = join(own, "store");
  const settings = ["--collections", file, "--data-dir", folder];
  return {
    own,
    start: (mebibytes: number) =>
      start({
        folder,
        isNew: true,
        args: ["--collections", file],
        nodeArgs: [heap(mebibytes)],
      }),
    run: (mebibytes: number, ...words: string[]) =>
      runNode([heap(mebibytes), ...command, ...words, ...settings], {
        env: { ...commandEnvironment(), ADMIN_PASSWORD: adminPassword },
      }),
    remove: () => removeFolder(own),
  };
}

/** Creates notes on many connections until the memory is full, and not only for a moment; returns a refusal. */
async function fill(server: Server, token: string): Promise<Answer> {
  let refusal: Answer | undefined;
  do {
    let isRefused = false;
    await Promise.all(Array.from({ length: 8 }, async () => {
      while (!isRefused) {
        const answer = await create(server, token);
        if (answer.status === 201) continue;
        isRefused = true;
        refusal = answer;
      }
    }));
  } while (await statusOf(server) === "ok");
  assert.ok(refusal);
  return refusal;
}

function create(server: Server, token: string): Promise<Answer> {
  return server.request("POST", "/v1/notes", { token, json: { text } });
}

async function statusOf(server: Server): Promise<string> {
  const { status, body } = await server.request("GET", "/health");
  assert.equal(status, 200);
  return body.status;
}

describe("a full memory", { skip: notInNode || lacks("reserves") }, () => {
  test("refuses creates, and nothing else; deletes end it, and a restart does not", async () => {
    const place = await prepare();
    try {
      let server = await place.start(64);
      assert.match(server.output(), /\d+ records take \d+ MiB of \d+ MiB/);
      let token = await server.signIn();
      const refusal = await fill(server, token);
      assertError(refusal, 50303);
      assert.match(refusal.body.error, /memory is full.*delete/);
      await server.end("SIGKILL");
      server = await place.start(64);
      token = await server.signIn();
      assertError(await fill(server, token), 50303);
      const { body: [first] } = await server.request("GET", "/v1/notes");
      assert.equal(first?.["text"], text);
      const page = "/v1/notes?limit=100";
      const list = await server.request("GET", page);
      assert.equal(list.headers.get("content-length"), `${list.text.length}`);
      assert.equal(list.body.length, 100);
      const head = await server.request("HEAD", page);
      assert.equal(
        head.headers.get("content-length"),
        list.headers.get("content-length"),
      );
      const change = (text: string) =>
        server.request("PATCH", "/v1/notes/1", { token, json: { text } });
      assert.equal((await change("b".repeat(100_000))).status, 201);
      assert.equal((await change("shorter")).status, 201);
      assert.notEqual(await server.signIn(), "");
      for (const { url } of list.body.slice(10, 60)) {
        const { status } = await server.request("DELETE", url, { token });
        assert.equal(status, 204);
      }
      assert.equal((await create(server, token)).status, 201);
      assert.equal(await statusOf(server), "ok");
      const metrics = await server.request("GET", "/metrics", { token });
      assert.match(metrics.text, /_store_memory_limit_bytes \d{8}\n/);
      assert.match(metrics.text, /_store_memory_full 0\n/);
      await server.stop();
    } finally {
      await place.remove();
    }
  });

  test("pauses an import, which ends by itself once there is room", {
    skip: lacks("imports"),
  }, async () => {
    const place = await prepare();
    try {
      const server = await place.start(64);
      const token = await server.signIn();
      await fill(server, token);
      const lines = `${JSON.stringify({ text })}\n`.repeat(80);
      for (let id = 2; await statusOf(server) !== "ok"; id++) {
        await server.request("DELETE", `/v1/notes/${id}`, { token });
      }
      const accepted = await server.request("POST", "/v1/notes", {
        token,
        raw: lines,
        headers: { "content-type": "application/x-ndjson" },
      });
      assert.equal(accepted.status, 202, accepted.text);
      const task = () => server.request("GET", accepted.body.url, { token });
      await until(async () =>
        await statusOf(server) === "memory-full" &&
        (await task()).body.status === "running"
      );
      for (let id = 40; id < 160; id++) {
        await server.request("DELETE", `/v1/notes/${id}`, { token });
      }
      await until(async () => (await task()).body.status !== "running");
      const { status, imported, rejected } = (await task()).body;
      assert.deepEqual([status, imported, rejected], ["succeeded", 80, 0]);
      await server.stop();
    } finally {
      await place.remove();
    }
  });

  test(
    "ends an import by the command with what to do, and lets the first user be created",
    {
      skip: lacks("imports"),
    },
    async () => {
      const place = await prepare();
      try {
        const file = join(place.own, "notes.ndjson");
        await writeFile(file, `${JSON.stringify({ text })}\n`.repeat(800));
        const { code, stderr } = await place.run(64, "import", "notes", file);
        assert.equal(code, 1, stderr);
        assert.match(
          stderr,
          /An import cannot continue: the memory is full: .*--max-old-space-size=N.*\n.*the next start .* finishes it/s,
        );
        const server = await place.start(64);
        assert.notEqual(await server.signIn(), "");
        assert.equal(await statusOf(server), "memory-full");
        await server.stop();
      } finally {
        await place.remove();
      }
    },
  );

  test("a store that does not fit is refused with what to do, and commands work on it with less", async () => {
    const place = await prepare();
    try {
      const server = await place.start(96);
      await fill(server, await server.signIn());
      await server.end("SIGKILL");
      const refused = await place.run(64, "serve", "--port", "0");
      assert.equal(refused.code, 1);
      assert.match(
        refused.stderr,
        /^zoo-api: Cannot open .*: its records need a heap of about \d\d MiB, but there are 64 MiB\. .*--max-old-space-size=N.*prune.*export.*\n$/,
      );
      const check = await place.run(48, "check");
      assert.match(check.stdout, /notes: \d+ records/);
      assert.equal(check.code, 0, check.stderr);
      const exported = await place.run(48, "export", "notes");
      assert.equal(exported.code, 0, exported.stderr);
      const [, count = ""] = /notes: (\d+)/.exec(check.stdout) ?? [];
      assert.equal(exported.stdout.split("\n").length - 1, Number(count));
      const copy = join(server.folder, "..", "copy");
      const backup = await place.run(48, "backup", copy);
      assert.equal(backup.code, 0, backup.stderr);
      await rm(join(server.folder, "meta.json"));
      const repair = await place.run(48, "repair");
      assert.equal(repair.code, 0, repair.stderr);
      const again = await place.run(48, "check");
      assert.equal(
        again.stdout,
        check.stdout.replace("generation 2", "generation 3"),
      );
    } finally {
      await place.remove();
    }
  });

  test("a heap that is too small is refused", async () => {
    const place = await prepare();
    try {
      const { code, stderr } = await place.run(63, "serve", "--port", "0");
      assert.equal(code, 1);
      assert.match(
        stderr,
        /^zoo-api: Cannot start: 63 MiB .* at least 64 MiB .*--max-old-space-size=N \(in MiB\) in the command that starts Node\.js if it is there, .*\n$/,
      );
    } finally {
      await place.remove();
    }
  });
});
