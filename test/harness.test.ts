/** The properties on which the tests rely. */

import { strict as assert } from "node:assert";
import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import process from "node:process";
import { test, type TestContext } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import type { Order, Report } from "./group.ts";
import {
  commandEnvironment,
  loaderFor,
  removeFolder,
  runNode,
  stripsTypes,
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

/** Runs a file in a group; returns its exit code, output, and how many tests it registered and ended. */
async function runInGroup(t: TestContext, text: string) {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const path = join(folder, "some.test.mjs");
  await writeFile(
    path,
    `import { after, before, describe, test } from "node:test";\n${text}`,
  );
  const [untracked, reporter, group] = ["untracked", "reporter", "group"]
    .map((name) => new URL(`${name}${extension}`, import.meta.url).href);
  const child = fork(new URL(String(group)), [], {
    execArgv: [
      ...loaderFor(String(group)),
      ...["--import", String(untracked), `--test-reporter=${reporter}`],
      ...["--test-reporter-destination=stdout", "--test-force-exit"],
    ],
    stdio: ["ignore", "pipe", "pipe", "ipc"],
    env: { ...commandEnvironment(), NODE_V8_COVERAGE: "" },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (part) => output += part);
  }
  const reports: Report[] = [];
  const orders: Order[] = [{ file: relative(import.meta.dirname, path) }, {}];
  child.on("message", (report: Report) => {
    reports.push(report);
    child.send(orders[reports.length - 1] ?? {});
  });
  const [code] = await once(child, "close");
  return { code, output, last: reports[1] };
}

test("a group runs the suites and hooks of a file as Node.js does", async (t) => {
  const { code, output, last } = await runInGroup(
    t,
    `const log = (word) => () => console.log(word);
    after(log("8"));
    before(log("1"));
    describe("a suite", () => {
      before(log("2"));
      after(log("5"));
      test("one", log("3"));
      test("skipped", { skip: "for a reason" }, log("never"));
      test("two", log("4"));
    });
    test("three", async (t) => {
      t.after(log("7"));
      await t.test("four", log("6"));
    });`,
  );
  assert.equal(code, 0, output);
  assert.equal(output.replace(/\D/g, ""), "12345678", output);
  assert.deepEqual(last, { registered: 5, ended: 5 });
});

for (
  const [what, text, expected] of [
    ["a test fails", 'test("x", () => { throw 1; });', /some\.test\.mjs: x\n/],
    [
      "a test in a suite fails",
      'describe("y", () => test("x", () => { throw 1; }));',
      /some\.test\.mjs: x\n/,
    ],
    [
      "a hook fails",
      'before(() => { throw 1; }); test("x", () => {});',
      /some\.test\.mjs\n/,
    ],
    [
      "its import fails",
      'test("x", () => {}); throw new Error("at import");',
      /some\.test\.mjs\n.*at import/,
    ],
    ["it has no tests", "", /some\.test\.mjs\n.*no tests/],
    [
      "a test never ends",
      'test("x", () => new Promise(() => {}));',
      /some\.test\.mjs: x\n/,
    ],
  ] as const
) {
  test(`a group reports the file if ${what}`, {
    // Later versions wait for such a test until the time limit of its file.
    skip: stripsTypes && what === "a test never ends",
  }, async (t) => {
    const { code, output } = await runInGroup(t, text);
    assert.equal(code, 1, output);
    assert.match(output, /FAILED \S*some\.test\.mjs/);
    assert.match(output, expected);
  });
}
