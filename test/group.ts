/**
 * Runs files of tests one after another in one process, as `suite.ts` hands them
 * out, so that Node.js, the harness and the source are loaded once and not for
 * each file. While a file is loaded, the functions of node:test only record what
 * it registers; then its tests run as subtests of one that has the file's name.
 */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import process from "node:process";
import type { TestContext, TestOptions } from "node:test";
import { pathToFileURL } from "node:url";

/** A message of the suite: the next file, or undefined after the last. */
export interface Order {
  readonly file?: string | undefined;
}

/** A message of this process: it is ready, and so many tests of the last file have run. */
export interface Report {
  readonly registered: number;
  readonly ended: number;
}

type Run = (t: TestContext) => void | Promise<void>;

/** A test, or a suite as a test with subtests. */
interface Entry {
  readonly name: string;
  readonly options: TestOptions;
  readonly run: Run;
}

/** The tests and hooks that a file, or the function of a `describe`, registers. */
class Suite {
  readonly entries: Entry[] = [];
  readonly hooks: Record<HookName, Run[]> = {
    before: [],
    after: [],
    beforeEach: [],
    afterEach: [],
  };
}

type HookName = "before" | "after" | "beforeEach" | "afterEach";

// Loaded here first, so that all files import the functions replaced below.
const nodeTest = process.getBuiltinModule("node:test");
const { test: runTest } = nodeTest;

/** A file that takes longer has failed. */
const timeout = 1_800_000;

/** The suite that registers its tests; undefined while tests run. */
let current: Suite | undefined;
let currentFile = "";
let count = { registered: 0, ended: 0 };

function readEntry(args: readonly unknown[]): Entry {
  const [name] = args;
  const run = args.at(-1);
  assert.ok(typeof name === "string" && typeof run === "function", `${name}`);
  const options = args.length > 2 ? Object(args[1]) : {};
  return { name: `${currentFile}: ${name}`, options, run: run as Run };
}

function add(suite: Suite, entry: Entry): void {
  suite.entries.push(entry);
  count.registered++;
}

function test(...args: readonly unknown[]): void {
  assert.ok(current, "a running test has subtests only by its context");
  add(current, readEntry(args));
}

function describe(...args: readonly unknown[]): void {
  assert.ok(current, "a running test has no suites");
  const { name, options, run } = readEntry(args);
  const [outer, suite] = [current, new Suite()];
  current = suite;
  const returned: unknown = (run as () => unknown)();
  assert.equal(returned, undefined, `${name} is not synchronous`);
  current = outer;
  add(outer, { name, options, run: (t) => runSuite(t, suite) });
}

function recordHook(name: HookName): (run: Run) => void {
  return (run) => {
    assert.ok(current, "a running test has hooks only by its context");
    current.hooks[name].push(run);
  };
}

/** Runs the tests of a suite as subtests, and its hooks as Node.js does. */
async function runSuite(t: TestContext, suite: Suite): Promise<void> {
  const { before, after, beforeEach, afterEach } = suite.hooks;
  for (const run of after) t.after(() => run(t));
  for (const run of beforeEach) t.beforeEach(() => run(t));
  for (const run of afterEach) t.afterEach(() => run(t));
  for (const run of before) await run(t);
  await Promise.all(suite.entries.map(async ({ name, options, run }) => {
    await t.test(name, options, run);
    count.ended++;
  }));
}

async function runFile(t: TestContext, file: string): Promise<void> {
  const suite = new Suite();
  current = suite;
  currentFile = file;
  try {
    await import(pathToFileURL(join(import.meta.dirname, file)).href);
  } finally {
    current = undefined;
  }
  assert.ok(suite.entries.length > 0, "The file has no tests.");
  await runSuite(t, suite);
}

/** Asks for the next file; reports on the one before. */
async function nextFile(): Promise<Order> {
  process.send?.(count satisfies Report);
  count = { registered: 0, ended: 0 };
  const [order] = await once(process, "message");
  return order;
}

Object.assign(nodeTest, {
  test,
  describe,
  ...Object.fromEntries(
    (["before", "after", "beforeEach", "afterEach"] as const).map((name) => [
      name,
      recordHook(name),
    ]),
  ),
});
syncBuiltinESMExports();

await runTest("the files of a process", async (t) => {
  for (;;) {
    const { file } = await nextFile();
    if (file === undefined) break;
    await t.test(file, { timeout }, (each) => runFile(each, file));
  }
});
