/** What the tests themselves rely on. */

import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { join } from "node:path";
import { loader, root } from "./harness.ts";

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

test("a server dies with the test that started it, even if that one is killed", async () => {
  const harness = pathToFileURL(join(root, "test/harness.ts")).href;
  const program = `const { start } = await import(${JSON.stringify(harness)});
    const server = await start();
    console.log(server.child.pid);`;
  const parent = spawn(
    process.execPath,
    [...loader, "--input-type=module", "-e", program],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const [text] = await once(parent.stdout.setEncoding("utf8"), "data");
  const pid = Number(text);
  assert.ok(isAlive(pid));
  parent.kill("SIGKILL");
  while (isAlive(pid)) await wait(5);
});
