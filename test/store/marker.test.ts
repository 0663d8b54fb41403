import assert from "node:assert/strict";
import { performance } from "node:perf_hooks";
import { test } from "node:test";
import { Disk } from "../torture/disk.ts";
import { folderFor, openFor } from "./support.ts";

test("the marker is written once there was no write for a while, and under load after four times as long", async (t) => {
  const folder = await folderFor(t);
  const disk = new Disk({ folder });
  const markerDelayMs = 12_345;
  let now = 0;
  t.mock.method(performance, "now", () => now);
  // The marker's timer, and when it is due.
  let timer: { due: number; run: () => void } | undefined;
  const { setTimeout } = globalThis;
  t.mock.method(globalThis, "setTimeout", (run: () => void, ms: number) => {
    if (ms !== markerDelayMs) return setTimeout(run, ms);
    const started = timer = { due: now + ms, run };
    const handle = {
      unref: () => handle,
      refresh: () => void (started.due = now + ms),
    };
    return handle;
  });
  const store = await openFor(t, folder, {
    files: disk,
    limits: { markerDelayMs },
  });
  const put = (id: number) => store.commit([["put", "zoos", { id }]], 0);
  const marks = () =>
    disk.trace.filter((step) => step.includes(" write mark ")).length;
  const before = marks();
  await put(1);
  const alone = timer;
  assert.equal(alone?.due, markerDelayMs);
  for (let id = 2; now < 10 * markerDelayMs && timer === alone; id++) {
    await put(id);
    now += markerDelayMs / 10;
    if (alone.due > now) continue;
    alone.run();
    await put(id); // the next timer
  }
  assert.ok(now > 3 * markerDelayMs && now <= 4 * markerDelayMs, `${now}`);
  await store.durable(store.seq);
  while (marks() === before) await new Promise((done) => setImmediate(done));
  assert.notEqual(timer, alone);
  await store.close();
  assert.equal(marks(), before + 2); // the last one by the stop
});
