/** Imports when the disk is slow or full, loses a file or loses power. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { mkdir, readdir, rm } from "node:fs/promises";
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import type { Socket } from "node:net";
import { join } from "node:path";
import { Readable } from "node:stream";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { deriveCollections } from "../../../src/api/declaration/declaration.ts";
import { Records } from "../../../src/api/records/records.ts";
import { awaitedTable } from "../../../src/api/own-tables.ts";
import { tablesOf } from "../../../src/api/routes.ts";
import { receiveImport } from "../../../src/features/imports/requests.ts";
import { tasks } from "../../../src/api/tasks/tasks.ts";
import {
  createWorker,
  type ImportWorker,
} from "../../../src/features/imports/worker.ts";
import { sample } from "../../collections.ts";
import {
  type FileSystem,
  openStore,
  realFiles,
  type Store,
} from "../../../src/store/store.ts";
import { eventually, startApplication } from "../../application.ts";
import { start } from "../../harness.ts";
import { type ServerHere, startHere } from "../../in-process.ts";
import {
  ended,
  importLines,
  lines,
  sendLines,
  taskWhen,
  toLines,
} from "../../lines.ts";
import { folderFor } from "../../store/support.ts";
import { Disk } from "../../torture/disk.ts";
import { Random } from "../../torture/random.ts";
import { signalBeforeWrite } from "./interrupted.ts";
import { operatorContext } from "../../operator.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

/** Real files that call `before` for each write to a path that contains `part`. */
function filesWith(
  part: string,
  before: (bytes: number) => void | Promise<void>,
): FileSystem {
  return {
    ...realFiles,
    async open(path, how) {
      const file = await realFiles.open(path, how);
      if (!path.includes(part)) return file;
      const write = file.write.bind(file);
      file.write = async (bytes, position) => {
        await before(bytes.length);
        return await write(bytes, position);
      };
      return file;
    },
  };
}

test("a body is not read faster than the disk writes", async () => {
  let taken = 0;
  const files = filesWith("/spool/", async (bytes) => {
    await wait(1);
    taken += bytes;
  });
  const app = await startApplication({ files });
  try {
    const part = Buffer.from(`{"x":"${"y".repeat(1000)}"}\n`.repeat(60));
    const parts = 500;
    let most = 0;
    let socket: Socket | undefined;
    const sending = httpRequest({
      port: app.port,
      path: "/v1/zoos",
      method: "POST",
      headers: {
        authorization: `Bearer ${app.token}`,
        "content-type": lines,
      },
    });
    sending.once("socket", (own) => socket = own);
    const answered = once(sending, "response");
    const source = function* () {
      for (let each = 0; each < parts; each++) {
        most = Math.max(most, (socket?.bytesWritten ?? 0) - taken);
        yield part;
      }
    };
    Readable.from(source()).pipe(sending);
    const [response] = await answered;
    assert.equal(response.statusCode, 202);
    response.resume();
    assert.equal(taken, parts * part.length);
    // The kernel buffers some megabytes for both ends.
    assert.ok(most > 0 && most < 16 * 2 ** 20, `${most} bytes`);
  } finally {
    await app.stop();
  }
});

test("an import waits while the disk is full, and then imports each line once", async () => {
  let isFreed = false;
  let batches = 0;
  let refused = 0;
  let hasRecords = () => false;
  const files = filesWith("wal-", () => {
    // Only the first batch finds space.
    if (isFreed || !hasRecords() || ++batches === 1) return;
    refused++;
    throw Object.assign(new Error("no space left"), { code: "ENOSPC" });
  });
  const app = await startApplication({ files });
  hasRecords = () => app.store.table("zoos").size > 0;
  try {
    const { token } = app;
    const raw = toLines(Array(3000).fill(zoo));
    const { body: { url } } = await sendLines(app, "/v1/zoos", { token, raw });
    await eventually(() => refused > 0);
    const until = ({ imported }: { imported: number }) => imported > 0;
    const { status } = await taskWhen(app, { url, token, until });
    assert.equal(status, "running");
    assert.ok(refused < 10, `${refused} tries`);
    isFreed = true;
    const task = await taskWhen(app, { url, token, until: ended });
    assert.deepEqual([task.status, task.imported], ["succeeded", 3000]);
    const { headers } = await app.request("GET", "/v1/zoos?limit=1");
    assert.equal(headers.get("x-total-count"), "3000");
  } finally {
    await app.stop();
  }
});

test("an import whose body is lost fails with that reason, and the next one runs", async () => {
  const killed = await start({
    nodeArgs: signalBeforeWrite("SIGKILL", '"id":1,"name"'),
  });
  const { folder } = killed;
  let server: ServerHere | undefined;
  try {
    let token = await killed.signIn();
    const { body: { url } } = await sendLines(killed, "/v1/zoos", {
      token,
      raw: toLines([zoo]),
    });
    assert.equal(await killed.ended, null);
    const spool = join(folder, "spool");
    const names = await readdir(spool);
    assert.equal(names.length, 1);
    await rm(join(spool, names[0] ?? ""));
    server = await startHere({ folder });
    token = await server.signIn();
    const task = await taskWhen(server, { url, token, until: ended });
    assert.equal(task.status, "failed");
    assert.match(task.failure, /no longer on the disk/);
    const next = await importLines(server, "/v1/zoos", {
      token,
      raw: toLines([zoo]),
    });
    assert.equal(next.imported, 1);
  } finally {
    await server?.stop();
    await killed.stop();
  }
});

test("without a free file descriptor, imports and resumed events are 503, and later work", async () => {
  let isOut = false;
  const files: FileSystem = {
    ...realFiles,
    open: (path, how) => {
      if (!isOut) return realFiles.open(path, how);
      const error = new Error("too many open files");
      return Promise.reject(Object.assign(error, { code: "EMFILE" }));
    },
  };
  const app = await startApplication({ files });
  try {
    const { token } = app;
    await app.request("POST", "/v1/zoos", { token, json: zoo });
    isOut = true;
    const raw = toLines([zoo]);
    const refused = await sendLines(app, "/v1/zoos", { token, raw });
    const headers = { "last-event-id": "1" };
    const events = await app.request("GET", "/v1/events", { token, headers });
    for (const { status, headers, body } of [refused, events]) {
      assert.equal(status, 503);
      assert.equal(body.errorCode, 50302);
      assert.equal(headers.get("retry-after"), "1");
    }
    isOut = false;
    const task = await importLines(app, "/v1/zoos", { token, raw });
    assert.equal(task.imported, 1);
  } finally {
    await app.stop();
  }
});

/** The worker of imports on a store without a server. */
async function workerOn(store: Store): Promise<{
  readonly worker: ImportWorker;
  readonly zoos: Records;
}> {
  const collections = deriveCollections([
    ...sample.collections,
    tasks(sample.roles),
  ]);
  const recordsOf = (name: string) => {
    const collection = collections.get(name);
    assert.ok(collection);
    const prefix = "/";
    const context = { store, collections, prefix, now: Date.now };
    return new Records(collection, context);
  };
  const zoos = recordsOf("zoos");
  const worker = createWorker({
    declaration: sample,
    store,
    records: recordsOf("tasks"),
    importable: (name) => name === "zoos" ? zoos : undefined,
    now: Date.now,
    log: () => {},
  });
  await worker.start();
  return { worker, zoos };
}

test("a power cut at any step of an import neither loses nor repeats a line", async (t) => {
  const random = new Random(7);
  const count = 1500;
  const records = Array.from({ length: count }, (_, at) => ({
    ...zoo,
    name: at % 10 === 0 ? "" : `N${at}`,
  }));
  const body = Buffer.from(toLines(records));
  const good = records.filter(({ name }) => name !== "").length;
  const call = operatorContext({ method: "POST" });
  const open = (disk: Disk) =>
    openStore({
      folder: disk.folder,
      files: disk,
      tables: tablesOf(sample, [
        {
          collections: (roles) => [tasks(roles)],
          tables: [{ name: awaitedTable }],
        },
      ]),
      limits: { reserveBytes: 0, minLogBytes: 100_000, markerDelayMs: 5 },
    });
  let midway = 0;
  for (let round = 0; round < 15; round++) {
    const folder = await folderFor(t);
    await mkdir(join(folder, "spool")); // the simulated disk has no folders
    const disk = new Disk({ folder });
    const store = await open(disk);
    const { worker, zoos } = await workerOn(store);
    const later = await folderFor(t);
    await mkdir(join(later, "spool"));
    let acknowledged = false;
    let steps = random.below(60);
    let crashed: Disk | undefined;
    let promised = false;
    disk.fate = () => {
      if (steps-- === 0) {
        crashed = disk.crash(later, random);
        promised = acknowledged;
      }
      return undefined;
    };
    await receiveImport(worker, {
      call,
      body: Readable.from([body.subarray(0, 9), body.subarray(9)]),
      target: zoos,
    });
    acknowledged = true;
    await worker.idle();
    await store.close();
    crashed ??= disk.crash(later, random);

    const again = await open(crashed);
    const found = again.table("tasks").get(1)?.document;
    assert.ok(found || !promised, "the task is lost");
    if (found?.["status"] === "running") midway++;
    const next = await workerOn(again);
    await next.worker.idle();
    const names = again.table("zoos").rows().map(({ document }) =>
      document["name"]
    );
    assert.equal(names.length, found ? good : 0);
    assert.equal(new Set(names).size, names.length);
    const task = again.table("tasks").get(1)?.document;
    assert.equal(task?.["status"], found && "succeeded");
    assert.equal(task?.["imported"], found && good);
    assert.equal(task?.["rejected"], found && count - good);
    const files = [...crashed.contents().keys()];
    assert.ok(!files.some((name) => name.includes(".spool")), files.join());
    await again.close();
  }
  assert.ok(midway > 3, `${midway} were cut midway`);
});
