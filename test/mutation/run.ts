/**
 * Mutation testing of the security core: changes one decision of the code at a
 * time, and expects a test to fail. Ends with exit code 1 if a mutant survives
 * that `explained.ts` does not name.
 *
 *     npm run mutate -- --files src/auth/jwt.ts,src/auth/access.ts
 */

import { spawn } from "node:child_process";
import {
  cpSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { copyAssets, removeFolder, root, temporaryFolder } from "../harness.ts";
import { explained } from "./explained.ts";
import { type Mutant, mutantsOf } from "./mutants.ts";

/** The files whose every decision must be tested. */
const wholeFiles = [
  ...readdirSync(join(root, "src/auth")).map((name) => `src/auth/${name}`),
  "src/api/accounts/authentication.ts",
  "src/features/open-network/sign-ins.ts",
  "src/api/accounts/users.ts",
];

/** The files in which only the lines about access must be tested. */
const accessFiles = [
  "src/app.ts",
  "src/api/request-context.ts",
  "src/api/operations.ts",
  "src/api/routes.ts",
  "src/api/accounts/authorizations.ts",
  "src/api/records/reading.ts",
  "src/api/records/records.ts",
  "src/api/records/writing.ts",
  "src/features/metrics/feature.ts",
  "src/http/server.ts",
];
const aboutAccess =
  /access|caller|role|authenticat|credential|afterWaiting|locked|scope|loopback|remoteAddress|forwarding|host\.test|isCurrent|isRight/i;

/** The tests that guard the core, the cheapest first. */
const allTests = [
  ...readdirSync(join(root, "test/auth")).map((name) => `test/auth/${name}`),
  "test/api/authentication.test.ts",
  "test/features/open-network/sign-ins.test.ts",
  "test/api/authorizations.test.ts",
  "test/races.test.ts",
  "test/api/private.test.ts",
  "test/api/scope.test.ts",
  "test/contract/authorizations.test.ts",
  "test/features/conditional/validators.test.ts",
  "test/contract/order.test.ts",
  "test/features/imports/exports.test.ts",
  "test/api/cascade.test.ts",
  "test/contract/records.test.ts",
  "test/contract/collections.test.ts",
  "test/features/conditional/requests.test.ts",
  "test/features/metrics/metrics.test.ts",
  "test/etcd/servers.test.ts",
  "test/features/tls/tls.test.ts",
  "test/http/edge.test.ts",
];

const { values } = parseArgs({
  options: {
    files: { type: "string" },
    tests: { type: "string" },
    seconds: { type: "string", default: "300" },
  },
});

/** A mutant counts as hanging if a test takes longer than this. */
const timeoutMs = Number(values.seconds) * 1000;

const workers = 2;

const tests = values.tests?.split(",") ?? allTests;

/** Compiles source and tests into a folder of their own, as `npm test` does. */
async function compile(): Promise<string> {
  const folder = await temporaryFolder();
  const copied = ["src", "test", "data", "package.json", "tsconfig.json"];
  for (const name of copied) {
    cpSync(join(root, name), join(folder, name), { recursive: true });
  }
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  const compiler = "node_modules/typescript/lib/tsc.js";
  const result = await runNode(folder, [compiler, "-p", "test", "--noCheck"]);
  if (result !== "passed") throw new Error("Cannot compile the tests");
  await copyAssets(join(folder, "src"), join(folder, "build/test/src"));
  cpSync(join(folder, "package.json"), join(folder, "build/test/package.json"));
  return folder;
}

/** Copies the output of {@linkcode compile}, so that it can be changed. */
async function copyCompiled(original: string): Promise<string> {
  const folder = await temporaryFolder();
  for (const name of ["build", "data"]) {
    cpSync(join(original, name), join(folder, name), { recursive: true });
  }
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  return folder;
}

/** Returns the compiled form of a file. */
function compiledFile(file: string): string {
  return join("build/test", file.replace(/ts$/, "js"));
}

/** Runs Node.js in a folder. */
function runNode(
  folder: string,
  args: readonly string[],
): Promise<"passed" | Failure> {
  const env = { ...process.env, MAIN: "build/test/src/main.js" };
  const child = spawn(process.execPath, args, {
    cwd: folder,
    env,
    stdio: "ignore",
  });
  let failure: Failure = "failed";
  const timer = setTimeout(() => {
    failure = "hung";
    child.kill("SIGKILL");
  }, timeoutMs);
  return new Promise((resolve) => {
    child.once("close", (code) => {
      clearTimeout(timer);
      resolve(code === 0 ? "passed" : failure);
    });
  });
}

type Failure = "failed" | "hung";

/** Returns the first test that does not pass; undefined if all do. */
async function findFailure(
  folder: string,
  tests: readonly string[],
): Promise<{ readonly test: string; readonly failure: Failure } | undefined> {
  for (const test of tests) {
    const args = ["--test-force-exit", compiledFile(test)];
    const result = await runNode(folder, args);
    if (result !== "passed") return { test, failure: result };
  }
  return undefined;
}

/** Returns the tests for a file, first the one that killed its latest mutant. */
function testsFor(file: string, latest: string | undefined): readonly string[] {
  // The unit tests of other files are slow, or do not use this file.
  const own = file.replace(/^src(.*)ts$/, "test$1test.ts");
  const relevant = tests.filter((test) =>
    test === own || !test.startsWith("test/auth/")
  );
  return latest === undefined
    ? relevant
    : [latest, ...relevant.filter((test) => test !== latest)];
}

function mutantsIn(original: string, file: string): Mutant[] {
  const read = (path: string) => readFileSync(join(original, path), "utf8");
  const mutants = mutantsOf(file, {
    code: read(file),
    compiled: read(compiledFile(file)),
  });
  return accessFiles.includes(file)
    ? mutants.filter(({ code }) => aboutAccess.test(code))
    : mutants;
}

/** Tests mutants one after the other in a copy of the project, and returns those that survive. */
async function work(original: string, queue: Mutant[]): Promise<Mutant[]> {
  const folder = await copyCompiled(original);
  const survivors: Mutant[] = [];
  const killers = new Map<string, string>();
  for (let mutant = queue.shift(); mutant; mutant = queue.shift()) {
    const { file, line, change } = mutant;
    const path = compiledFile(file);
    writeFileSync(join(folder, path), mutant.source);
    const killer = await findFailure(folder, testsFor(file, killers.get(file)));
    cpSync(join(original, path), join(folder, path));
    const result = killer ? `${killer.failure} ${killer.test}` : "SURVIVED";
    process.stdout.write(`${file}:${line} ${change}: ${result}\n`);
    if (killer === undefined) survivors.push(mutant);
    else killers.set(file, killer.test);
  }
  await removeFolder(folder);
  return survivors;
}

/** Returns why a mutant may survive; undefined if it may not. */
function reasonFor({ file, code, change }: Mutant): string | undefined {
  return explained.find((each) =>
    each.file === file && each.code === code && each.change === change
  )?.reason;
}

const files = values.files?.split(",") ?? [...wholeFiles, ...accessFiles];
const original = await compile();
const queue = files.flatMap((file) => mutantsIn(original, file));
const broken = await findFailure(original, tests);
if (broken !== undefined) {
  throw new Error(`Without mutants ${broken.test} ${broken.failure}`);
}
const { length } = queue;
const results = await Promise.all(
  Array.from({ length: workers }, () => work(original, queue)),
);
await removeFolder(original);
const survivors = results.flat();
process.stdout.write(`${length} mutants, ${survivors.length} survived:\n`);
for (const mutant of survivors) {
  const { file, line, code, change } = mutant;
  const reason = reasonFor(mutant);
  if (reason === undefined) process.exitCode = 1;
  process.stdout.write(
    `${file}:${line} ${change}: ${code}\n  ${reason ?? "NOT EXPLAINED"}\n`,
  );
}
