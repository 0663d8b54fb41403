import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readdir, rename } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { openStore } from "../../src/store/store.ts";
import { startOpener } from "../torture/locks.ts";
import { commit } from "../commit.ts";
import { contents, documents, folderFor, openFor, tables } from "./support.ts";

test("exactly one of six processes that start at once opens the store", async (t) => {
  const folder = await folderFor(t);
  const starters = Array.from({ length: 6 }, () => startOpener(folder));
  const said = await Promise.all(starters.map((each) => each.said));
  assert.deepEqual(said.toSorted(), [...Array(5).fill("in-use"), "open"]);
  for (const { child } of starters) child.stdin?.end();
  await Promise.all(starters.map((each) => each.ended));
  const names = await readdir(folder);
  assert.deepEqual(names.filter((name) => name.startsWith("lock-")), []);
});

test("a killed owner leaves nothing that must be deleted by hand", async (t) => {
  const folder = await folderFor(t);
  const owner = startOpener(folder);
  assert.equal(await owner.said, "open");
  await assert.rejects(openStore({ folder, tables }), { code: "in-use" });
  owner.child.kill("SIGKILL");
  await owner.ended;
  await (await openStore({ folder, tables })).close();
  const names = await readdir(folder);
  assert.deepEqual(names.filter((name) => name.startsWith("lock-")), []);
});

test("a stopped owner is still the owner", async (t) => {
  const folder = await folderFor(t);
  const owner = startOpener(folder);
  assert.equal(await owner.said, "open");
  owner.child.kill("SIGSTOP");
  await assert.rejects(openStore({ folder, tables }), { code: "in-use" });
  owner.child.kill("SIGKILL");
  await owner.ended;
});

test("a release does not wait for a client that does not read", async (t) => {
  const folder = await folderFor(t);
  const store = await openStore({ folder, tables });
  const name = (await readdir(folder)).find((each) => each.endsWith(".sock"));
  const socket = connect({
    path: join(folder, name ?? ""),
    allowHalfOpen: true,
  });
  t.after(() => socket.destroy());
  await once(socket, "connect");
  await store.close();
});

test("a store whose folder has been replaced writes nothing into the new one", async (t) => {
  const parent = await folderFor(t);
  const folder = join(parent, "store");
  const moved = join(parent, "moved");
  const logged: string[] = [];
  const store = await openFor(t, folder, {
    log: (level, message) => level === "error" && logged.push(message),
    limits: { markerDelayMs: 1 },
  });
  await commit(store, [["put", "zoos", { id: 1, name: "Lodz" }]], 0);
  await rename(folder, moved);
  const isOther = /it is not the folder that was opened/;
  // While there is nothing at its path, and with a store of another process there.
  await assert.rejects(store.checkpoint(), { code: "ENOENT" });
  execFileSync("cp", ["-a", moved, folder]); // with the lock's socket
  const before = await contents(folder);
  await commit(store, [["put", "zoos", { id: 2, name: "Riga" }]], 0);
  await assert.rejects(store.checkpoint(), isOther);
  const { files } = store.folder;
  await assert.rejects(files.remove(join(folder, "meta.json")), isOther);
  assert.deepEqual(await contents(folder), before);
  const other = startOpener(folder);
  assert.equal(await other.said, "open");
  const opened = await contents(folder);
  await store.close();
  assert.deepEqual(await contents(folder), opened);
  assert.ok(logged.some((message) => /Cannot write a snapshot/.test(message)));
  assert.ok(logged.some((message) => /Cannot write the marker/.test(message)));
  other.child.stdin?.end();
  await other.ended;
  // Where it was moved to, it is whole.
  const reopened = await openFor(t, moved);
  const ids = documents(reopened.table("zoos")).map((each) => Object(each).id);
  assert.deepEqual(ids, [1, 2]);
});

test("a process in another network namespace is refused", async (t) => {
  const prefix = ["unshare", "--net"];
  if (spawnSync("unshare", ["--net", "true"]).status !== 0) {
    t.skip("network namespaces cannot be made here");
    return;
  }
  const folder = await folderFor(t);
  const owner = startOpener(folder);
  assert.equal(await owner.said, "open");
  const other = startOpener(folder, { prefix });
  assert.equal(await other.said, "in-use");
  owner.child.stdin?.end();
  await owner.ended;
  const next = startOpener(folder, { prefix });
  assert.equal(await next.said, "open");
  await assert.rejects(openStore({ folder, tables }), { code: "in-use" });
  next.child.stdin?.end();
  await next.ended;
});

test("the store works under the permission model", async (t) => {
  const major = Number(process.versions.node.split(".")[0]);
  if (major >= 25) {
    t.skip("this version allows no fsync under the permission model");
    return;
  }
  const folder = await folderFor(t);
  const nodeArgs = [
    major < 22 ? "--experimental-permission" : "--permission",
    "--no-warnings",
    "--allow-worker", // for the loader of TypeScript
    "--allow-fs-read=/",
    `--allow-fs-write=${folder}`,
  ];
  const owner = startOpener(folder, { nodeArgs });
  assert.equal(await owner.said, "open");
  const other = startOpener(folder, { nodeArgs });
  assert.equal(await other.said, "in-use");
  owner.child.stdin?.end();
  await owner.ended;
  const next = await openStore({ folder, tables });
  assert.deepEqual(next.notices, []);
  await next.close();
});
