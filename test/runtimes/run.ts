/**
 * The contract on other runtimes: servers and commands run in Deno and Bun, the
 * tests in this Node.js. Tests that cannot pass there are skipped by name, with
 * the reason.
 *
 *     node test/runtimes/run.ts [Bun] [Deno]
 */

import { strict as assert } from "node:assert";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { loader, root } from "../harness.ts";

/** A runtime, and the tests that it cannot pass. */
interface Runtime {
  readonly name: string;
  /** Prints the path of the program, which `npx` has installed. */
  readonly locate: readonly string[];
  readonly flags: readonly string[];
  /** The names of tests or files, by the reason why they are skipped. */
  readonly skipped: Readonly<Record<string, readonly string[]>>;
}

const runtimes: readonly Runtime[] = [
  {
    name: "Bun",
    locate: ["bun@1", "-p", "process.execPath"],
    flags: [],
    skipped: {
      "it takes OPTIONS * for malformed": [
        "* tells the methods of the server",
        "is on responses to requests that are hardly HTTP",
        "is listed by OPTIONS *, unlike SEARCH",
      ],
    },
  },
  {
    name: "Deno",
    locate: ["deno@2", "eval", "console.log(Deno.execPath())"],
    flags: ["run", "-A"],
    skipped: {
      "after a large body was refused it serves no other request of the connection":
        [
          "a body too large is 41300: POST /v1/zoos",
          "media type before size: POST /v1/zoos",
          "size before JSON: PUT /v1/zoos/1",
          "size before record: PUT /v1/zoos/999",
          "PATCH /v1/zoos/1 is 41300",
          "POST /v1/zoos reports 41300 as RFC 9457 defines",
          "is the one that was sent, on every response",
          "has the size limit of every body",
          "of more than 64 KiB is too large",
        ],
      "it refuses methods that it does not know": [
        "is on responses to requests that are hardly HTTP",
      ],
      "it reads the requests of many connections in another order": [
        "searches.test.ts",
      ],
    },
  },
];

const chosen = process.argv.slice(2);
for (const { name, locate, flags, skipped } of runtimes) {
  if (chosen.length > 0 && !chosen.includes(name)) continue;
  const path = execFileSync("npx", ["-y", ...locate], { encoding: "utf8" });
  const names = Object.values(skipped).flat();
  for (const [reason, tests] of Object.entries(skipped)) {
    const list = tests.map((test) => `"${test}"`).join(", ");
    process.stdout.write(`${name}: ${reason}, so this is skipped: ${list}\n`);
  }
  // A server must not outlive a test that is killed.
  const prefix = ["setpriv", "--pdeathsig", "KILL"];
  const RUNTIME = [...prefix, path.trim(), ...flags].join(" ");
  await runContract(RUNTIME, names);
  process.stdout.write(`${name}: the contract holds\n`);
}

/** Runs the tests of the contract with servers in a runtime, except some. */
async function runContract(
  RUNTIME: string,
  skipped: readonly string[],
): Promise<void> {
  const folder = join(root, "test/contract");
  const files = readdirSync(folder).filter((file) => !skipped.includes(file))
    .map((file) => join(folder, file));
  const child = spawn(process.execPath, [
    ...loader,
    "--test",
    "--test-concurrency=4",
    "--test-force-exit",
    "--test-reporter=dot",
    ...skipped.map((name) => `--test-skip-pattern=/${escapePattern(name)}$/`),
    ...files,
  ], {
    env: { ...process.env, RUNTIME },
    stdio: ["ignore", "inherit", "inherit"],
  });
  const [code] = await once(child, "close");
  assert.equal(code, 0);
}

function escapePattern(name: string): string {
  return name.replace(/[^\w ]/g, "\\$&");
}
