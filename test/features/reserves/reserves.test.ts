/** The feature reserves, on and off. The limit of the memory is filled in ../../memory.test.ts, the disk in ../../store/fault.test.ts. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { assertError } from "../../harness.ts";
import { startHere } from "../../in-process.ts";
import { Memory } from "../../../src/store/memory/limit.ts";
import { WritableTable } from "../../../src/store/memory/table.ts";

test("the limit is reported at the start and by /health, only with the feature", async () => {
  for (const names of ["reserves", "none"]) {
    const server = await startHere({ env: { FEATURES: names } });
    try {
      const isOn = names === "reserves";
      const { status, body } = await server.request("GET", "/health");
      assert.equal(status, 200);
      assert.deepEqual(Object.keys(body), [
        "status",
        ...(isOn ? ["memory"] : []),
      ]);
      assert.equal(/ records take \d+ MiB of /.test(server.output()), isOn);
      const missing = await server.request("GET", "/v1/zoos/99");
      assertError(missing, 40401);
    } finally {
      await server.stop();
    }
  }
});

test("/health says in whole MiB how full the memory is, which tells hardly anything of a private write", async () => {
  const server = await startHere({ env: { FEATURES: "reserves" } });
  try {
    const used = async () =>
      Object((await server.request("GET", "/health")).body["memory"]).used;
    assert.ok(await used() > 0);
    assert.equal(await used() % (1 << 20), 0);
    await server.signIn("admin");
    assert.equal(await used() % (1 << 20), 0);
  } finally {
    await server.stop();
  }
});

test("the records of a table are counted, and deleting gives back what they took", () => {
  const memory = new Memory(1e9);
  try {
    const table = new WritableTable({ name: "zoos" }, { memory });
    const undo = table.put({ id: 1, name: "Artis" }, 1);
    const { recordBytes } = memory;
    assert.ok(recordBytes > 0);
    table.put({ id: 1, name: "Artis Royal Zoo" }, 2);
    assert.ok(memory.recordBytes > recordBytes);
    table.put({ id: 1, name: "Artis" }, 3);
    assert.equal(memory.recordBytes, recordBytes);
    undo();
    assert.equal(memory.recordBytes, 0);
  } finally {
    memory.close();
  }
});
