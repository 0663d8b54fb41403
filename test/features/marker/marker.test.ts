/** The feature marker, on and off. The rules are tested in ../../store/. */

import { strict as assert } from "node:assert";
import { readdir, readFile, truncate } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { removeFolder, temporaryFolder } from "../../harness.ts";
import { startHere } from "../../in-process.ts";

test("a server with the feature refuses a log that has lost its end; one without has no marker", async (t) => {
  for (const isOn of [true, false]) {
    const own = await temporaryFolder();
    t.after(() => removeFolder(own));
    const folder = join(own, "store");
    const env = { FEATURES: isOn ? "marker" : "none" };
    await (await startHere({ env, folder })).stop();
    assert.equal((await readdir(folder)).includes("mark"), isOn);
    const path = join(folder, "wal-1.jsonl");
    const log = await readFile(path);
    await truncate(path, log.lastIndexOf("\n", log.length - 2) + 1);
    const again = startHere({ env, folder });
    if (isOn) await assert.rejects(again, /the marker proves that \d+ was/);
    else await (await again).stop();
  }
});
