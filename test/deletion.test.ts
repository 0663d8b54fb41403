/**
 * Features are optional: without the folder of one, or of all, and without their
 * lines in `src/features.ts`, what is left compiles and keeps its contract.
 *
 * By default, a few tests of the core run with all features deleted. With
 * `WHOLE=1`, all of them run so, and those of the contract but the slow ones also
 * run with each feature deleted that is on by default.
 */

import { strict as assert } from "node:assert";
import {
  cp,
  readdir,
  readFile,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { test, type TestContext } from "node:test";
import { featureNames } from "../src/features.ts";
import {
  copyAssets,
  removeFolder,
  root,
  runNode,
  temporaryFolder,
} from "./harness.ts";

const isWhole = process.env["WHOLE"] === "1";

/** The core's tests that run by default. */
const quick = [
  "test/contract/merge-patch.test.ts",
  "test/contract/records.test.ts",
];

/** Tests whose subject is not a feature, and which run only with all features deleted. */
const slow = [
  "test/contract/authorizations.test.ts",
  "test/contract/command-line.test.ts",
  "test/contract/durability.test.ts",
  "test/contract/order.test.ts",
  "test/contract/validation.test.ts",
];

/** How many files run at a time. */
const concurrency = 2;

/** The folders with the tests of what clients see of the core. */
const coreTests = ["test/contract", "test/api"];

const features = await readdir(join(root, "src/features"));

const deletions = new Map<string, readonly string[]>(
  (isWhole ? features : []).map((name) => [name, [name]]),
);
deletions.set("all", features);

/** The features that a setting of their own switches on, and values of these. */
const withSetting: Readonly<Record<string, Record<string, string>>> = {
  cors: { CORS_ORIGINS: "*" },
  static: { PUBLIC: "src" },
  "rate-limit": { RATE_LIMIT: "9" },
  tls: { TLS_CERT: "cert.pem", TLS_KEY: "key.pem" },
  "trust-proxy": { TRUST_PROXY: "127.0.0.1" },
};

test("each feature is one folder; FEATURES names those without a setting", () => {
  const all = [...featureNames, ...Object.keys(withSetting)];
  assert.deepEqual(features.toSorted(), all.sort());
});

for (const [title, names] of deletions) {
  test(`the core without ${title} compiles and keeps its contract`, async (t) => {
    const copy = await copyTree(t);
    for (const name of names) await deleteFeature(copy, name);
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    await runInside(copy, [tsc, "-p", "test"]);
    const build = join(copy, "build/test");
    await copyAssets(join(copy, "src"), join(build, "src"));
    await cp(join(root, "package.json"), join(build, "package.json"));
    for (const name of names) await assertRefused(copy, withSetting[name]);
    // Without its setting a feature does nothing, as in all other tests.
    if (names.every((name) => name in withSetting)) return;
    const all = isWhole ? await testsIn(copy) : quick;
    const isNamed = (file: string) =>
      names.length > 1 || file.startsWith("test/contract/");
    const skipped = names.length > 1 ? [] : slow;
    const files = all
      .filter((file) => isNamed(file) && !skipped.includes(file)).values();
    const worker = async () => {
      for (const file of files) {
        await runInside(copy, [join(build, file.replace(/ts$/, "js"))]);
      }
    };
    await Promise.all(Array.from({ length: concurrency }, worker));
  });
}

/** Copies the files of the server and its tests into a temporary folder. */
async function copyTree(t: TestContext): Promise<string> {
  const copy = await temporaryFolder();
  t.after(() => removeFolder(copy));
  for (const name of ["src", "test", "data", "package.json", "tsconfig.json"]) {
    await cp(join(root, name), join(copy, name), { recursive: true });
  }
  await symlink(join(root, "node_modules"), join(copy, "node_modules"));
  return copy;
}

/** Deletes the folder of a feature, that of its tests, and its line. */
async function deleteFeature(copy: string, name: string): Promise<void> {
  await rm(join(copy, "src/features", name), { recursive: true });
  await rm(join(copy, "test/features", name), { recursive: true });
  const list = join(copy, "src/features.ts");
  const lines = (await readFile(list, "utf8")).split("\n");
  const own = RegExp(`^  "?${name}"?[,:]`);
  const others = lines.filter((line) => !own.test(line));
  assert.equal(others.length, lines.length - 1, `one line names ${name}`);
  await writeFile(list, others.join("\n"));
}

/** Asserts that a server without a feature does not start with its settings: they must not be ignored. */
async function assertRefused(
  cwd: string,
  settings: Readonly<Record<string, string>> = {},
): Promise<void> {
  for (const [name, value] of Object.entries(settings)) {
    const env = { [name]: value, DATA_DIR: join(cwd, "store") };
    const args = ["build/test/src/main.js", "serve", "--port", "0"];
    const { code, stderr } = await runNode(args, { cwd, env });
    assert.equal(code, 2, stderr);
    assert.match(stderr, RegExp(`^zoo-api: ${name}: .*lacks the feature`));
  }
}

async function testsIn(copy: string): Promise<string[]> {
  const files = await Promise.all(coreTests.map(async (folder) => {
    const names = await readdir(join(copy, folder));
    return names.map((name) => join(folder, name));
  }));
  return files.flat().filter((file) => file.endsWith(".test.ts"));
}

/** Runs Node.js in a folder; throws with all its output if it fails. */
async function runInside(
  cwd: string,
  args: readonly string[],
): Promise<void> {
  const env = {
    MAIN: "build/test/src/main.js",
    NODE_V8_COVERAGE: "", // coverage of copies does not count
  };
  const { code, stdout, stderr } = await runNode(args, { cwd, env });
  assert.equal(code, 0, `${args.at(-1)}: ${stdout}${stderr}`);
}
