import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { readdir } from "node:fs/promises";
import process from "node:process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { openStore } from "../../src/store/store.ts";
import { folderFor, tables } from "./support.ts";

const program = fileURLToPath(new URL("process.ts", import.meta.url));

/** Starts a process on a folder; `said` is its first line. */
function starter(folder: string, prefix: string[] = []): {
  child: ChildProcess;
  said: Promise<string>;
  ended: Promise<unknown>;
} {
  const command = [
    ...prefix,
    process.execPath,
    "--import",
    import.meta.resolve("tsx"),
    program,
    folder,
  ];
  const child = spawn(command[0] ?? "", command.slice(1), {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => child.once("close", resolve));
  const said = new Promise<string>((resolve) => {
    child.stdout.setEncoding("utf8").once("data", (text) => {
      resolve(text.trim());
    });
    ended.then(() => resolve("nothing"));
  });
  return { child, said, ended };
}

test("of twelve processes that start at once exactly one opens the store", async (t) => {
  const folder = await folderFor(t);
  const starters = Array.from({ length: 12 }, () => starter(folder));
  const said = await Promise.all(starters.map((each) => each.said));
  assert.deepEqual(said.toSorted(), [...Array(11).fill("in-use"), "open"]);
  for (const { child } of starters) child.stdin?.end();
  await Promise.all(starters.map((each) => each.ended));
  const names = await readdir(folder);
  assert.deepEqual(names.filter((name) => name.startsWith("lock-")), []);
});

test("a killed owner leaves nothing that a person must delete", async (t) => {
  const folder = await folderFor(t);
  const owner = starter(folder);
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
  const owner = starter(folder);
  assert.equal(await owner.said, "open");
  owner.child.kill("SIGSTOP");
  const limits = { lockPatience: 100 };
  await assert.rejects(openStore({ folder, tables, limits }), {
    code: "in-use",
  });
  owner.child.kill("SIGKILL");
  await owner.ended;
});
