/**
 * The tests of `npm test`, in two groups that run at the same time. Recording
 * coverage takes up to half of a test's processor time, so only the group
 * records it that runs all of the source; the other group repeats parts of it
 * many times, or reads it.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { root } from "./root.ts";

/** Run only by `.ci/run`, as they start dozens of programs or fill the memory: the commands of the README and of the operator's guide, the container, the package, permissions, the deletion of features and each that is off, full memory, upgrades, seeded defects of the disk, and the tools for etcd. */
const wholeOnly =
  /^(?:deletion|dockerfile|features|guide|least-privilege|memory|package|readme|upgrade\/upgrade|store\/torture-defects|etcd\/(?:command-line|linearizability))\./;

/** Files that generate histories, queries or declarations, and those whose code other files run too. */
const unrecorded =
  /^(?:admission|architecture|documents|faults|harness|library|limits|log|races|server-log|size|store\/(?:torture|upgrade)[\w-]*|api\/(?:select|private)|features\/(?:events\/feed|evolution\/sequences))\.test\./;

const folder = import.meta.dirname;
const files = readdirSync(folder, { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".test.js") && !wholeOnly.test(file));

/** Starts the test runner of Node.js with some files. */
function startRunner(
  tests: readonly string[],
  wrapper: readonly string[] = [],
): ChildProcess {
  const flags = [
    `--import=${join(folder, "untracked.js")}`,
    "--test",
    "--test-concurrency=3",
    "--test-timeout=1800000",
    "--test-force-exit",
    `--test-reporter=${join(folder, "reporter.js")}`,
  ];
  const [program = "", ...args] = [
    ...wrapper,
    process.execPath,
    ...flags,
    ...tests.map((file) => join(folder, file)),
  ];
  const env = { ...process.env, MAIN: "build/test/src/main.js" };
  return spawn(program, args, { cwd: root, env, stdio: "inherit" });
}

const isUnrecorded = (file: string) => unrecorded.test(file);
const runners = [
  startRunner(files.filter(isUnrecorded)),
  startRunner(
    files.filter((file) => !isUnrecorded(file)),
    [process.execPath, join(root, "node_modules/c8/bin/c8.js")],
  ),
];
const codes = await Promise.all(
  runners.map(async (runner) => (await once(runner, "exit"))[0]),
);
process.exitCode = codes.every((code) => code === 0) ? 0 : 1;
