/** A client's view of a disk that fails, fills up or is slow. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { execFileSync } from "node:child_process";
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import { type FileSystem, realFiles } from "../src/store/store.ts";
import { Representation } from "../src/api/representation.ts";
import {
  eventually,
  heldFiles,
  holdHashes,
  startApplication,
} from "./application.ts";
import {
  adminPassword,
  type Answer,
  assertError,
  lacks,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "./harness.ts";
import { runHere, startHere } from "./in-process.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
const seed = { zoos: [zoo, { ...zoo, name: "Blijdorp" }] };

/** Repeats a request until its response is the expected one. */
async function until(
  ask: () => Promise<Answer>,
  fits: (answer: Answer) => boolean,
): Promise<Answer> {
  while (true) {
    const answer = await ask();
    if (fits(answer)) return answer;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test("health is ok, is public, and has HEAD and OPTIONS", async () => {
  const server = await startHere({ env: { BASE_URL: "/api" } });
  try {
    const health = await server.request("GET", "/api/health");
    assert.equal(health.status, 200);
    const { memory } = health.body;
    assert.deepEqual(health.body, { status: "ok", memory });
    const { used, limit } = Object(memory);
    assert.ok(used > 0 && used < limit && Number.isInteger(limit));
    const head = await server.request("HEAD", "/api/health");
    assert.equal(head.status, 200);
    const options = await server.request("OPTIONS", "/api/health");
    assert.equal(options.headers.get("allow"), "GET, HEAD, OPTIONS");
    const post = await server.request("POST", "/api/health");
    assert.equal(post.status, 405);
    const elsewhere = await server.request("GET", "/api/v1/health");
    assert.equal(elsewhere.status, 404);
  } finally {
    await server.stop();
  }
});

test("after a disk fault the outcome of one write is unknown, then all is read-only and reads stay right", async () => {
  const server = await start({ seed });
  try {
    const token = await server.signIn();
    // The log is removed under the server: later writes are lost.
    await rm(join(server.folder, "wal-1.jsonl"));
    const post = () => server.request("POST", "/v1/zoos", { token, json: zoo });
    const unknown = await post();
    assertError(unknown, 50000);
    assert.doesNotMatch(unknown.text, /wal|\/tmp/);
    const refused = await post();
    assertError(refused, 50300);
    const deleted = await server.request("DELETE", "/v1/zoos/1", { token });
    assertError(deleted, 50300);
    const health = await server.request("GET", "/health");
    assert.equal(health.status, 503);
    const { memory } = health.body;
    assert.deepEqual(health.body, { status: "read-only", memory });
    const zoos = await server.request("GET", "/v1/zoos");
    assert.equal(zoos.headers.get("x-total-count"), "2");
    const third = await server.request("GET", "/v1/zoos/3");
    assert.equal(
      third.status,
      404,
      "an id that was rolled back was never assigned",
    );
    assert.match(server.output(), /"level":"error"/);
    assert.equal(await server.end(), 0);
  } finally {
    await server.stop();
  }
});

test("health reports a torn last write after the restart", async () => {
  const server = await start({ seed });
  const folder = await temporaryFolder();
  try {
    await server.end("SIGKILL");
    const store = join(folder, "store");
    await rename(server.folder, store);
    execFileSync("sh", ["-c", `printf '{"crc":"0' >> "$0"/wal-1.jsonl`, store]);
    const again = await startHere({ folder: store });
    const { status, body } = await again.request("GET", "/health");
    assert.equal(status, 200);
    assert.equal(body.status, "ok");
    assert.match(body.notices.join(), /torn write.*never acknowledged/);
    await again.stop();
  } finally {
    await server.stop();
    await removeFolder(folder);
  }
});

const noMount = process.getuid?.() === 0
  ? false
  : "mounting a small disk needs root";

test(
  "a full disk changes nothing, accepts sign-ins and deletes, and is freed by them",
  {
    skip: noMount,
  },
  async () => {
    const disk = await temporaryFolder();
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", disk]);
    let server: Server | undefined;
    try {
      const folder = join(disk, "store");
      server = await start({ folder, seed, isNew: true });
      const token = await server.signIn();
      await fill(server, token);
    } finally {
      await server?.stop();
      execFileSync("umount", ["-l", disk]);
      await removeFolder(disk);
    }
  },
);

test(
  "a start that finds no space names the folder on the full disk, and what to do",
  { skip: noMount },
  async () => {
    const disk = await temporaryFolder();
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", disk]);
    try {
      const folder = join(disk, "store");
      const declare = async (name: string) => {
        const path = join(disk, `${name}.js`);
        await writeFile(
          path,
          `const access = { read: "anyone", write: "viewer", delete: "viewer" };
          export default ({ collection, string }) => ({
            title: "Plants",
            collections: [collection({
              name: "plants", singular: "plant", access,
              properties: { ${name}: string({ maxLength: 9 }) },
            })],
          });`,
        );
        return path;
      };
      const [first, changed] = [await declare("name"), await declare("title")];
      const runIn = (dataDir: string, file: string, ...words: string[]) =>
        runHere([...words, "--data-dir", dataDir, "--collections", file], {
          input: `${adminPassword}\n`,
          env: { JWT_SECRET: "" },
        });
      const added = await runIn(folder, first, "user", "add", "ada");
      assert.equal(added.code, 0, added.stderr);
      await rm(join(folder, "reserve"), { force: true });
      const filler = Buffer.alloc(1 << 22);
      await assert.rejects(writeFile(join(disk, "filler"), filler));
      const cases: [string, string, ...string[]][] = [
        [folder, first, "serve"], // writes the secret
        [join(disk, "new"), first, "serve"],
      ];
      if (!lacks("evolution")) cases.push([folder, changed, "serve"]);
      for (const words of cases) {
        const { code, stderr } = await runIn(...words);
        assert.equal(code, 1, stderr);
        assert.ok(stderr.includes(words[0]), stderr);
        assert.match(
          stderr,
          / is full: delete .* larger one/,
        );
        assert.doesNotMatch(stderr, /ENOSPC/);
      }
    } finally {
      execFileSync("umount", ["-l", disk]);
      await removeFolder(disk);
    }
  },
);

test(
  "on a full disk whoever must delete records is created, and gets a new password",
  { skip: noMount },
  async () => {
    const disk = await temporaryFolder();
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", disk]);
    try {
      const place = ["--data-dir", join(disk, "store")];
      const input = `${adminPassword}\n`;
      const user = (...words: string[]) =>
        runHere(["user", ...words, ...place], { input });
      assert.equal((await user("add", "ada")).code, 0);
      const filler = Buffer.alloc(1 << 22);
      await assert.rejects(writeFile(join(disk, "filler"), filler));
      for (const words of [["password", "ada"], ["add", "kim"]]) {
        const { code, stderr } = await user(...words);
        assert.equal(code, 0, stderr);
      }
    } finally {
      execFileSync("umount", ["-l", disk]);
      await removeFolder(disk);
    }
  },
);

async function fill(server: Server, token: string): Promise<void> {
  const website = `https://example.org/${"x".repeat(1900)}`;
  const post = () =>
    server.request("POST", "/v1/zoos", { token, json: { ...zoo, website } });
  let made = 2;
  let refused: Answer | undefined;
  while (refused === undefined) {
    const answer = await post();
    if (answer.status === 201) made++;
    else refused = answer;
    assert.ok(made < 5000, "the disk never became full");
  }
  assertError(refused, 50301);
  const list = await server.request("GET", "/v1/zoos");
  assert.equal(list.headers.get("x-total-count"), String(made));
  const health = await server.request("GET", "/health");
  assert.equal(health.status, 200);
  assert.match(
    health.body.notices.join(),
    /disk is full: only deletes and sign-ins are/,
  );

  // A user who wants to free the disk may have no token yet.
  const fresh = await server.signIn("admin", adminPassword);
  for (let id = 3; id <= made; id++) {
    const path = `/v1/zoos/${id}`;
    const gone = await server.request("DELETE", path, { token: fresh });
    assert.equal(gone.status, 204, gone.text);
  }
  const again = await until(post, ({ status }) => status === 201);
  assert.equal(again.body.id, made + 1);
}

test("health warns of a disk without the space for a start after a crash", async (t) => {
  let free: number | undefined = undefined;
  const files = {
    ...realFiles,
    free: async (folder: string) => free ?? await realFiles.free(folder),
  };
  const app = await startApplication({ files });
  t.after(() => app.stop());
  const well = await app.request("GET", "/health");
  assert.equal(well.body.status, "ok");
  assert.equal(well.body.notices, undefined);
  free = -(1 << 24); // the reserve counts as free
  const low = await app.request("GET", "/health");
  assert.equal(low.status, 200);
  const [notice = ""] = low.body.notices;
  assert.match(notice, /^The disk is nearly full: \d{3,4} more bytes must be/);
});

test("writes wait while many bytes wait for a slow disk, and none is refused", async () => {
  const { files, hold } = heldFiles();
  const app = await startApplication({ files, queueBytes: 4000 });
  const { token } = app;
  const release = hold();
  try {
    const posts = Array.from(
      { length: 40 },
      () => app.request("POST", "/v1/zoos", { token, json: zoo }),
    );
    const zoos = app.store.table("zoos");
    await eventually(() => zoos.size > 0);
    for (let round = 0; round < 50; round++) {
      await app.request("GET", "/health");
    }
    assert.ok(zoos.size < 20, `${zoos.size} are in memory only`);
    release();
    for (const { status } of await Promise.all(posts)) {
      assert.equal(status, 201);
    }
    const list = await app.request("GET", "/v1/zoos");
    assert.equal(list.headers.get("x-total-count"), "40");
  } finally {
    release();
    await app.stop();
  }
});

describe("a write that is rolled back", () => {
  /** A disk that lets writes wait, and then fails the first of them. */
  function fillingFiles(
    code = "ENOSPC",
  ): { files: FileSystem; fill: () => () => void } {
    let gate: Promise<void> | undefined;
    const files: FileSystem = {
      ...realFiles,
      async open(path, how) {
        const file = await realFiles.open(path, how);
        const write = file.write.bind(file);
        if (!path.includes("wal-")) return file;
        file.write = async (...to) => {
          if (gate === undefined) return await write(...to);
          await gate;
          gate = undefined;
          throw Object.assign(new Error("failed"), { code });
        };
        return file;
      },
    };
    const fill = () => {
      let open = () => {};
      gate = new Promise((resolve) => open = resolve);
      return () => open();
    };
    return { files, fill };
  }

  for (const [code, status] of [["ENOSPC", 503], ["EIO", 500]] as const) {
    test(`because of ${code} is shown to no reader: readers see the current state`, async () => {
      const { files, fill } = fillingFiles(code);
      const app = await startApplication({ files });
      const { token } = app;
      try {
        await app.request("POST", "/v1/zoos", { token, json: zoo });
        const open = fill();
        const { seq } = app.store;
        const change = app.request("PATCH", "/v1/zoos/1", {
          token,
          json: { name: "New" },
        });
        while (app.store.seq === seq) await app.request("GET", "/v1/animals");
        const readers = ["GET", "QUERY"].map((method) =>
          app.request(method, "/v1/zoos", {
            headers: method === "QUERY"
              ? { "content-type": "application/x-www-form-urlencoded" }
              : {},
          })
        );
        await app.request("GET", "/v1/animals"); // by now they wait
        open();
        assert.equal((await change).status, status);
        for (const answer of await Promise.all(readers)) {
          assert.equal(answer.status, 200, answer.text);
          assert.equal(answer.body[0]?.name, "Artis");
        }
      } finally {
        await app.stop();
      }
    });
  }

  test("is not the response to a retry with its Idempotency-Key", {
    skip: lacks("idempotency"),
  }, async (t) => {
    const { files, fill } = fillingFiles();
    const app = await startApplication({ files });
    const { token } = app;
    const post = () =>
      app.request("POST", "/v1/users", {
        token,
        headers: { "idempotency-key": "k1" },
        json: { username: "bob", password: "long enough, this" },
      });
    try {
      await app.request("POST", "/v1/zoos", { token, json: zoo });
      const open = fill();
      const { seq } = app.store;
      const first = post();
      while (app.store.seq === seq) await app.request("GET", "/v1/animals");
      // It finds the response and begins to compare the bodies, by a hash.
      const hashes = holdHashes(t);
      const second = post();
      await hashes.begun(1);
      open();
      assert.equal((await first).status, 503);
      await app.request("DELETE", "/v1/zoos/1", { token });
      hashes.computeAll();
      assert.equal((await second).status, 503, (await second).text);
      const { body: users } = await app.request("GET", "/v1/users", { token });
      assert.equal(users.length, 1);
    } finally {
      await app.stop();
    }
  });
});

test("nothing is shown before it is on the disk, not even in errors", async () => {
  const { files, hold } = heldFiles();
  const app = await startApplication({ files });
  const { token } = app;
  const employee = {
    zoo_id: 1,
    name: "Eva",
    job_title: "Vet",
    email: "eva@example.org",
  };
  await app.request("POST", "/v1/zoos", { token, json: zoo });
  await app.request("POST", "/v1/zoos", { token, json: zoo });
  const release = hold();
  try {
    const events: string[] = [];
    const note = (name: string, answer: Promise<Answer>) =>
      answer.then(({ status }) => events.push(`${name} ${status}`));
    const write = note(
      "made",
      app.request("POST", "/v1/employees", { token, json: employee }),
    );
    const gone = note("gone", app.request("DELETE", "/v1/zoos/2", { token }));
    // Reads of durable records respond at once; by then the writes are applied.
    while (app.store.seq < app.store.durableSeq + 2) {
      await app.request("GET", "/v1/animals");
    }
    const readers = [
      note("read", app.request("GET", "/v1/employees/1", { token })),
      note("list", app.request("GET", "/v1/zoos/1/employees", { token })),
      note(
        "taken",
        app.request("POST", "/v1/employees", {
          token,
          json: employee,
        }),
      ),
      note("absent", app.request("GET", "/v1/zoos/2")),
      note("deleted", app.request("DELETE", "/v1/zoos/2", { token })),
      note(
        "changed",
        app.request("GET", "/v1/employees/1", {
          token,
          headers: { "if-match": '"another"' },
        }),
      ),
      note("related", app.request("DELETE", "/v1/zoos/1", { token })),
    ];
    const settled = await app.request("GET", "/v1/zoos/1");
    assert.equal(settled.status, 200);
    const refused = await app.request("GET", "/v1/zoos?nope=1");
    assert.equal(refused.status, 400);
    assert.deepEqual(events, []);
    release();
    await Promise.all([write, gone, ...readers]);
    assert.deepEqual(events.sort(), [
      "absent 410",
      "changed 412",
      "deleted 404",
      "gone 204",
      "list 200",
      "made 201",
      "read 200",
      "related 409",
      "taken 422",
    ]);
  } finally {
    release();
    await app.stop();
  }
});

test("a response that cannot be written ends its own connection and no other", async (t) => {
  const { files, hold } = heldFiles();
  const app = await startApplication({ files });
  try {
    const { token } = app;
    const post = () => app.request("POST", "/v1/zoos", { token, json: zoo });
    const release = hold();
    const posting = post();
    await eventually(() => app.store.table("zoos").get(1) !== undefined);
    // No body can be a number.
    const mock = t.mock.method(
      Representation.prototype,
      "asStandalone",
      () => 7 as unknown as string,
    );
    // It is sent by the writer's loop, once the log is on the disk.
    const reading = assert.rejects(app.request("GET", "/v1/zoos/1"));
    release();
    await reading;
    assert.equal((await posting).status, 201);
    assert.equal(app.store.isWritable, true);
    await assert.rejects(app.request("GET", "/v1/zoos/1"));
    mock.mock.restore();
    assert.equal((await app.request("GET", "/v1/zoos/1")).status, 200);
    assert.equal((await post()).status, 201);
  } finally {
    await app.stop();
  }
});
