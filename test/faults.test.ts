/** What a client sees when the disk fails, fills up or is slow. */

import { strict as assert } from "node:assert";
import { execFileSync } from "node:child_process";
import { rename, rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { Application } from "../src/app.ts";
import { tablesFor } from "../src/api/routes.ts";
import { TokenSigner } from "../src/auth/jwt.ts";
import { collections } from "../src/collections.ts";
import { createUser } from "../src/commands.ts";
import { listen } from "../src/http/server.ts";
import { type FileSystem, openStore, realFiles } from "../src/store/store.ts";
import {
  adminPassword,
  type Answer,
  jwtSecret,
  removeFolder,
  request,
  type Server,
  start,
  temporaryFolder,
} from "./harness.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
const seed = { zoos: [zoo, { ...zoo, name: "Blijdorp" }] };

/** Asks again until the answer is as it should be; gives up after 30 s. */
async function until(
  ask: () => Promise<Answer>,
  fits: (answer: Answer) => boolean,
): Promise<Answer> {
  const deadline = Date.now() + 30_000;
  while (true) {
    const answer = await ask();
    if (fits(answer)) return answer;
    if (Date.now() > deadline) assert.fail(`still ${answer.text}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test("health is ok, is nobody's secret, and has HEAD and OPTIONS", async () => {
  const server = await start({ env: { BASE_URL: "/api" } });
  try {
    const health = await server.request("GET", "/api/health");
    assert.equal(health.status, 200);
    assert.deepEqual(health.body, { status: "ok" });
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

test("after a disk fault the outcome is unknown once, then all is read-only and reads stay right", async () => {
  const server = await start({ seed });
  try {
    const token = await server.signIn();
    // The log is gone under the server: what it writes now is lost.
    await rm(join(server.folder, "wal-1.jsonl"));
    const post = () => server.request("POST", "/v1/zoos", { token, json: zoo });
    const unknown = await post();
    assert.equal(unknown.status, 500);
    assert.equal(unknown.body.errorCode, 50000);
    assert.doesNotMatch(unknown.text, /wal|\/tmp/);
    const refused = await post();
    assert.equal(refused.status, 503);
    assert.equal(refused.body.errorCode, 50300);
    const deleted = await server.request("DELETE", "/v1/zoos/1", { token });
    assert.equal(deleted.body.errorCode, 50300);
    const health = await server.request("GET", "/health");
    assert.equal(health.status, 503);
    assert.deepEqual(health.body, { status: "read-only" });
    const zoos = await server.request("GET", "/v1/zoos");
    assert.equal(zoos.headers.get("x-total-count"), "2");
    const third = await server.request("GET", "/v1/zoos/3");
    assert.equal(
      third.status,
      404,
      "an id that was taken back was never given",
    );
    assert.match(server.output(), /"level":"error"/);
    assert.equal(await server.end(), 0);
  } finally {
    await server.stop();
  }
});

test("a torn last write is told by health after the restart", async () => {
  const server = await start({ seed });
  const folder = await temporaryFolder();
  try {
    await server.end("SIGKILL");
    const store = join(folder, "store");
    await rename(server.folder, store);
    execFileSync("sh", ["-c", `printf '{"crc":"0' >> "$0"/wal-1.jsonl`, store]);
    const again = await start({ folder: store });
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
  "a full disk changes nothing, takes sign-ins and deletes, and is freed by them",
  {
    skip: noMount,
  },
  async () => {
    const disk = await temporaryFolder();
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", disk]);
    let server: Server | undefined;
    try {
      const folder = join(disk, "store");
      server = await start({ folder, seed });
      const token = await server.signIn();
      await fill(server, token);
    } finally {
      await server?.stop();
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
  assert.equal(refused.status, 503);
  assert.equal(refused.body.errorCode, 50301);
  const list = await server.request("GET", "/v1/zoos");
  assert.equal(list.headers.get("x-total-count"), String(made));
  const health = await server.request("GET", "/health");
  assert.equal(health.status, 200);
  assert.match(health.body.notices.join(), /disk is full/);

  // Who comes to free the disk may have no token yet.
  const fresh = await server.signIn("admin", adminPassword);
  for (let id = 3; id <= made; id++) {
    const path = `/v1/zoos/${id}`;
    const gone = await server.request("DELETE", path, { token: fresh });
    assert.equal(gone.status, 204, gone.text);
  }
  const again = await until(post, ({ status }) => status === 201);
  assert.equal(again.body.id, made + 1);
}

test("too much that waits is refused with the time to come back", async () => {
  const folder = await temporaryFolder();
  let release = () => {};
  const stuck = new Promise<void>((resolve) => release = resolve);
  let slow = false;
  // A disk whose syncs take as long as the test wants.
  const files: FileSystem = {
    ...realFiles,
    async open(path, how) {
      const file = await realFiles.open(path, how);
      const datasync = file.datasync.bind(file);
      file.datasync = async () => {
        if (slow) await stuck;
        await datasync();
      };
      return file;
    },
  };
  const store = await openStore({
    folder,
    files,
    tables: tablesFor(collections),
    limits: { queueBytes: 4000 },
  });
  await createUser(store, {
    username: "admin",
    role: "admin",
    password: adminPassword,
  });
  const application = new Application({
    declarations: collections,
    store,
    signer: new TokenSigner([jwtSecret]),
    base: { origin: "", path: "/" },
    now: Date.now,
    log: () => {},
  });
  const listener = await listen(
    (incoming, response) => application.handle(incoming, response),
    { host: "127.0.0.1", port: 0 },
  );
  try {
    const origin = `http://127.0.0.1:${listener.port}/v1`;
    const { body: { token } } = await request(
      "POST",
      `${origin}/authorizations`,
      { json: { username: "admin", password: adminPassword } },
    );
    slow = true;
    const posts = Array.from(
      { length: 40 },
      () => request("POST", `${origin}/zoos`, { token, json: zoo }),
    );
    const refused = await Promise.race(posts);
    assert.equal(refused.status, 503);
    assert.equal(refused.body.errorCode, 50302);
    assert.equal(refused.headers.get("retry-after"), "1");
    release();
    const statuses = (await Promise.all(posts)).map(({ status }) => status);
    const made = statuses.filter((status) => status === 201).length;
    const turned = statuses.filter((status) => status === 503).length;
    assert.ok(made > 0 && turned > 0 && made + turned === 40);
    const list = await request("GET", `${origin}/zoos`);
    assert.equal(list.headers.get("x-total-count"), String(made));
  } finally {
    release();
    await listener.close(1000);
    await store.close();
    await removeFolder(folder);
  }
});
