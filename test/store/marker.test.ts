import assert from "node:assert/strict";
import { test } from "node:test";
import { Disk } from "../torture/disk.ts";
import { folderFor, openFor } from "./support.ts";
import { commit } from "../commit.ts";

test("the marker is written a while after the first write that it does not cover, and at the stop", async (t) => {
  const folder = await folderFor(t);
  const disk = new Disk({ folder });
  const markerDelayMs = 12_345;
  const timers: (() => void)[] = [];
  const { setTimeout } = globalThis;
  t.mock.method(globalThis, "setTimeout", (run: () => void, ms: number) => {
    if (ms !== markerDelayMs) return setTimeout(run, ms);
    timers.push(run);
    return { unref: () => timers.length };
  });
  const store = await openFor(t, folder, {
    files: disk,
    limits: { markerDelayMs },
  });
  const put = (id: number) => commit(store, [["put", "zoos", { id }]], 0);
  const marks = () =>
    disk.trace.filter((step) => step.includes(" write mark ")).length;
  const before = marks();
  for (let id = 1; id < 10; id++) await put(id);
  assert.equal(timers.length, 1);
  assert.equal(marks(), before);
  timers[0]?.();
  while (marks() === before) await new Promise((done) => setImmediate(done));
  await put(10);
  assert.equal(timers.length, 2);
  await store.close();
  assert.equal(marks(), before + 2); // the last one by the stop
});
