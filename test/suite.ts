/**
 * The tests of `npm test`. A few processes run the files, each one after another
 * (`group.ts`); they start with those that record coverage. Recording takes up to
 * half of a test's processor time, so files do not record it that repeat parts of
 * the source many times, or read it.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import type { Order, Report } from "./group.ts";
import { root } from "./root.ts";

/** Run only by `.ci/run`, as they start dozens of programs or fill the memory: the commands of the README and of the operator's guide, the container, the package, permissions, the deletion of features and each that is off, the harness of the tests, full memory, upgrades, seeded defects of the disk, and the tools for etcd. */
const wholeOnly =
  /^(?:deletion|dockerfile|features|guide|harness|least-privilege|memory|package|readme|upgrade\/upgrade|store\/torture-defects|etcd\/(?:command-line|linearizability))\./;

/** Files that generate histories, queries or declarations, and those whose code other files run too. */
const unrecorded =
  /^(?:admission|architecture|documents|faults|library|limits|log|races|server-log|size|store\/(?:torture|upgrade)[\w-]*|api\/(?:select|private)|features\/(?:events\/feed|evolution\/sequences))\.test\./;

/** Run first of all: before another file makes the hashes of the process cheap, and those that mostly wait. */
const first = [
  "etcd/stores.test.js",
  "features/open-network/connections.test.js",
  "auth/passwords.test.js",
];

/** More than processors, as many tests wait for a server. */
const processes = 5;

const folder = import.meta.dirname;
const coverage = join(root, "coverage/tmp");
const files = readdirSync(folder, { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".test.js") && !wholeOnly.test(file))
  .sort((a, b) => first.indexOf(b) - first.indexOf(a));
const queues = {
  recorded: files.filter((file) => !unrecorded.test(file)),
  unrecorded: files.filter((file) => unrecorded.test(file)),
};
let failures = 0;

function fail(message: string): void {
  console.error(`\nFAILED ${message}`);
  failures++;
}

function startProcess(queue: keyof typeof queues): ChildProcess {
  const flags = [
    `--import=${join(folder, "untracked.js")}`,
    "--test-force-exit",
    `--test-reporter=${join(folder, "reporter.js")}`,
    "--test-reporter-destination=stdout",
  ];
  const env = {
    ...process.env,
    MAIN: "build/test/src/main.js",
    ...(queue === "recorded" && { NODE_V8_COVERAGE: coverage }),
  };
  return spawn(process.execPath, [...flags, join(folder, "group.js")], {
    cwd: root,
    env,
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
}

/** Runs files of a queue in one process, until none is left or it ends by itself. */
async function runFiles(queue: keyof typeof queues): Promise<void> {
  const child = startProcess(queue);
  let file: string | undefined = "The first file";
  child.on("message", ({ registered, ended }: Report) => {
    if (ended < registered) {
      fail(`${file}: only ${ended} of ${registered} tests ended`);
    }
    file = queues[queue].shift();
    child.send({ file } satisfies Order);
  });
  const [code, signal] = await once(child, "exit");
  if (file !== undefined) {
    fail(`${file}: the process ended (${signal ?? code})`);
  } else if (code !== 0) failures++;
}

async function runQueues(): Promise<void> {
  for (const queue of ["recorded", "unrecorded"] as const) {
    while (queues[queue].length > 0) await runFiles(queue);
  }
}

rmSync(coverage, { recursive: true, force: true });
await Promise.all(Array.from({ length: processes }, runQueues));
const c8 = [join(root, "node_modules/c8/bin/c8.js"), "report"];
const report = spawn(process.execPath, c8, { cwd: root, stdio: "inherit" });
const [code] = await once(report, "exit");
process.exitCode = code === 0 && failures === 0 ? 0 : 1;
