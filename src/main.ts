#!/usr/bin/env node
/**
 * The entry point. Loads the command line only if Node.js is new enough: an
 * older version would fail to link it and print a stack trace.
 */

import process from "node:process";

const isTooOld = process.version
  .localeCompare("v20.19.0", "en", { numeric: true }) < 0;
if (isTooOld) {
  process.stderr.write(
    `zoo-api: Node.js 20.19 or later is required, but this is ${process.version}\n`,
  );
  process.exitCode = 1;
} else {
  await import("./cli/commands.ts");
  // A timer in a declaration file would keep the process alive.
  process.stdout.write("", () => process.exit());
}
