/**
 * A program that opens a store, for tests that need a process of its own:
 * `process.ts FOLDER [hold]` opens, prints `open` (or the error's code), and
 * closes when its standard input ends.
 */

import process from "node:process";
import { openStore, StoreError } from "../../src/store/store.ts";

const [folder = ""] = process.argv.slice(2);
try {
  const store = await openStore({ folder, tables: [{ name: "zoos" }] });
  process.stdout.write("open\n");
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.once("end", resolve));
  await store.close();
} catch (error) {
  process.stdout.write(
    `${error instanceof StoreError ? error.code : String(error)}\n`,
  );
}
