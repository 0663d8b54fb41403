/** The torture catches each store with a seeded defect. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { defects, isCaught } from "../torture/defects.ts";
import { simulateDefect } from "../torture/simulation.ts";
import { folderFor } from "./support.ts";

/** Seeds for defects that few seeds catch. */
const firstSeeds: Readonly<Record<string, number>> = {
  "continues with the old log after a crash": 1004,
  "rewrites the log in place after a crash": 1024,
  "does not look how much was written": 1003,
  "leaves stale bytes in the space that it allocates": 1005,
};

for (const [name, defect] of Object.entries(defects)) {
  test(`the torture catches a store that ${name}`, async (t) => {
    const folder = await folderFor(t);
    for (let seed = firstSeeds[name] ?? 1000; seed < 1100; seed++) {
      const torture = simulateDefect(defect, { folder, seed });
      if (await isCaught(defect, torture)) return;
    }
    assert.fail("it was not caught");
  });
}
