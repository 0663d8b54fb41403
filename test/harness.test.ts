/** The properties on which the tests rely. */

import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import process from "node:process";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import {
  loaderFor,
  removeFolder,
  runNode,
  temporaryFolder,
} from "./harness.ts";
import { extension } from "./root.ts";

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

test("a server dies with the test that started it, even if that one is killed", async (t) => {
  const top = await temporaryFolder(); // nobody else removes what is in it
  t.after(() => removeFolder(top));
  const { href } = new URL(`harness${extension}`, import.meta.url);
  const program = `const { start } = await import(${JSON.stringify(href)});
    const server = await start();
    console.log(server.child.pid);`;
  const parent = spawn(
    process.execPath,
    [...loaderFor(href), "--input-type=module", "-e", program],
    {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, TMPDIR: top },
    },
  );
  const [text] = await once(parent.stdout.setEncoding("utf8"), "data");
  const pid = Number(text);
  assert.ok(isAlive(pid));
  parent.kill("SIGKILL");
  while (isAlive(pid)) await wait(5);
});

test("a process that removes no temporary folder leaves none behind", async (t) => {
  const { href } = new URL(`harness${extension}`, import.meta.url);
  const program = `const { removeAtExit, start, temporaryFolder } =
      await import(${JSON.stringify(href)});
    const { mkdirSync } = await import("node:fs");
    const server = await start();
    const folder = await temporaryFolder();
    mkdirSync(removeAtExit(folder + ".2"));
    await server.end();
    console.log(server.folder, folder);
    process.exit(3);`;
  const top = await temporaryFolder();
  t.after(() => removeFolder(top));
  const { code, stdout } = await runNode(
    [...loaderFor(href), "--input-type=module", "-e", program],
    { env: { TMPDIR: top } },
  );
  assert.equal(code, 3);
  for (const folder of stdout.trim().split(" ")) {
    assert.ok(folder.startsWith(top), stdout);
  }
  const left = readdirSync(top).filter((name) => name.startsWith("zoo-api"));
  assert.deepEqual(left, []);
});

for (
  const [what, code] of [
    ["thrown by a timer", "setTimeout(() => { throw error; });"],
    ["of a promise that nobody awaits", "Promise.reject(error);"],
  ] as const
) {
  test(`an error ${what} fails a file of tests that do not observe promises`, async () => {
    const { href } = new URL(`untracked${extension}`, import.meta.url);
    const program = `import { describe, test } from "node:test";
      const error = new Error("nobody caught this");
      describe("a suite", () => test("waits", () => {
        ${code}
        setInterval(() => {}, 1000);
        return new Promise(() => {});
      }));`;
    const { code: exitCode, stderr } = await runNode([
      ...loaderFor(href),
      ...["--import", href],
      ...["--input-type=module", "-e", program],
    ]);
    assert.equal(exitCode, 1);
    assert.match(stderr, /nobody caught this/);
  });
}

test("tests that do not observe promises are nested in their suites", async () => {
  const { href } = new URL(`untracked${extension}`, import.meta.url);
  const program = `import { describe, test } from "node:test";
    describe("outer", () => describe("inner", () => test("innermost", () => {})));`;
  const { code, stdout } = await runNode([
    ...loaderFor(href),
    ...["--import", href, "--test-reporter=tap"],
    ...["--input-type=module", "-e", program],
  ]);
  assert.equal(code, 0);
  assert.match(stdout, /^ {8}ok 1 - innermost/m);
});
