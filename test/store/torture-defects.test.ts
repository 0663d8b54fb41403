/** The torture catches each store with a seeded defect. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { defects, isCaught } from "../torture/defects.ts";
import { simulateDefect } from "../torture/simulation.ts";
import { folderFor } from "./support.ts";

/** Seeds for defects that few seeds catch, or that most catch late. */
const firstSeeds: Readonly<Record<string, number>> = {
  "continues with the old log after a crash": 1032,
  "rewrites the log in place after a crash": 1140,
  "tries a failed fsync again": 1016,
  "does not look how much was written": 1042,
  "leaves stale bytes in the space that it allocates": 1088,
  "removes the old before the new has its name, on a full disk": 1036,
};

for (const [name, defect] of Object.entries(defects)) {
  test(`the torture catches a store that ${name}`, async (t) => {
    const folder = await folderFor(t);
    const first = firstSeeds[name] ?? 1000;
    for (let seed = first; seed < first + 100; seed++) {
      const torture = simulateDefect(defect, { folder, seed });
      if (await isCaught(defect, torture)) return;
    }
    assert.fail("it was not caught");
  });
}
