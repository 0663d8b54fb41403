/**
 * The contract over three servers that share a store in etcd: the tests of
 * `contract/`, and of retries and events, each of whose requests goes to
 * another server.
 * A test that cannot hold there is skipped by name, with the reason.
 *
 *     npx -y node@24 test/etcd/contract.ts [FILE…]
 */

import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { loader, root } from "../harness.ts";
import { requireEtcd, startEtcd } from "./etcd.ts";

/** The names of tests or files, by the reason why they are skipped. */
const skipped: Readonly<Record<string, readonly string[]>> = {
  "commands and messages of a store in a folder": [
    "command-line.test.ts",
    "histories.test.ts",
  ],
  "it kills one server, and the others answer": ["durability.test.ts"],
  "each server has a limit of its own": [
    "searches.test.ts",
    "waits for clients that do not read, and takes little memory for them",
  ],
};

requireEtcd();
const names = Object.values(skipped).flat();
for (const [reason, tests] of Object.entries(skipped)) {
  const list = tests.map((test) => `"${test}"`).join(", ");
  process.stdout.write(`${reason}, so this is skipped: ${list}\n`);
}
const etcd = await startEtcd(1);
try {
  const chosen = process.argv.slice(2);
  const files = chosen.length > 0 ? chosen : allFiles();
  const child = spawn(process.execPath, [
    ...loader,
    "--test",
    "--test-concurrency=2",
    "--test-force-exit",
    `--test-reporter=${process.env["REPORTER"] ?? "dot"}`,
    ...names.map((name) => `--test-skip-pattern=/${escapePattern(name)}$/`),
    ...files,
  ], {
    env: {
      ...process.env,
      ETCD: etcd.nodes.map(({ url }) => new URL(url).host).join(),
    },
    stdio: ["ignore", "inherit", "inherit"],
  });
  const [code] = await once(child, "close");
  assert.equal(code, 0);
  process.stdout.write("The contract holds over three servers\n");
} finally {
  await etcd.stop();
}

function allFiles(): string[] {
  const folders = ["contract", "features/idempotency", "features/events"];
  return folders.flatMap((name) => {
    const folder = join(root, "test", name);
    return readdirSync(folder)
      .filter((file) => file.endsWith(".test.ts") && !names.includes(file))
      .map((file) => join(folder, file));
  });
}

function escapePattern(name: string): string {
  return name.replace(/[^\w ]/g, "\\$&");
}
