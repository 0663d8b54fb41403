/** The properties on which the tests rely. */

import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { loaderFor } from "./harness.ts";
import { extension } from "./root.ts";

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

test("a server dies with the test that started it, even if that one is killed", async () => {
  const { href } = new URL(`harness${extension}`, import.meta.url);
  const program = `const { start } = await import(${JSON.stringify(href)});
    const server = await start();
    console.log(server.child.pid);`;
  const parent = spawn(
    process.execPath,
    [...loaderFor(href), "--input-type=module", "-e", program],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const [text] = await once(parent.stdout.setEncoding("utf8"), "data");
  const pid = Number(text);
  assert.ok(isAlive(pid));
  parent.kill("SIGKILL");
  while (isAlive(pid)) await wait(5);
});
