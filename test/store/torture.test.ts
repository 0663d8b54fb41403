/**
 * Short forms of the torture, longer in the whole check (`WHOLE=1`);
 * test/torture/run.ts has the long ones.
 */

import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { damages, makeSpecimens, verifyDamage } from "../torture/corruption.ts";
import { type History, historyOf } from "../torture/oracle.ts";
import { verifyFolder } from "../torture/processes.ts";
import { simulate } from "../torture/simulation.ts";
import { everyOperation, fullStarts } from "../torture/steps.ts";
import { folderFor } from "./support.ts";

const isWhole = process.env["WHOLE"] === "1";

test("power cuts and kills at any step lose nothing that was acknowledged or shown", async (t) => {
  const folder = await folderFor(t);
  const total = { opened: 0, rotations: 0, acknowledged: 0 };
  for (let seed = 1; seed <= (isWhole ? 8 : 2); seed++) {
    const options = { seed, folder, lives: 10, states: 6, faults: false };
    const report = await simulate(options);
    total.opened += report.opened;
    total.rotations += report.rotations;
    total.acknowledged += report.acknowledged;
  }
  // Less would prove nothing; a life without enough writes counts as none.
  const share = isWhole ? 1 : 0.25;
  const { opened, rotations, acknowledged } = total;
  assert.ok(opened > 150 * share, JSON.stringify(total));
  assert.ok(rotations > 50 * share, JSON.stringify(total));
  assert.ok(acknowledged > 500 * share, JSON.stringify(total));
});

test("a folder without a store is a loss only if something was sent to it", async (t) => {
  const folder = await folderFor(t);
  await verifyFolder(folder, new Map());
  const history: History = new Map();
  historyOf(history, 1).acknowledged = 1;
  await assert.rejects(verifyFolder(folder, history), /there is no store/);
});

test("faults at any step are reported correctly and survived", async (t) => {
  const folder = await folderFor(t);
  let faults = 0;
  for (let seed = 1; seed <= (isWhole ? 12 : 4); seed++) {
    const options = { seed, folder, lives: 10, states: 4, faults: true };
    faults += (await simulate(options)).faults;
  }
  assert.ok(faults > (isWhole ? 15 : 4), `only ${faults} faults`);
});

test("each operation may fail, once and in any way, and nothing is lost", async (t) => {
  const folder = await folderFor(t);
  // A different way for each operation; the long form takes all ways for all
  // operations.
  const stride = isWhole ? 1 : 9;
  const options = { seed: 1, folder, states: 1, each: false, stride };
  const report = await everyOperation(options);
  assert.ok(report.faults > 150 / stride, JSON.stringify(report));
});

test("a power cut at any step of a start on a full disk loses nothing", async (t) => {
  const folder = await folderFor(t);
  const report = await fullStarts({ seed: 1, folder, states: 3 });
  assert.ok(report.opened > 100, JSON.stringify(report));
});

test("a damaged store is recovered exactly or refused with the place", async (t) => {
  const folder = await folderFor(t);
  const count = { recovered: 0, refused: 0, cut: 0 };
  let number = 0;
  for (const specimen of await makeSpecimens(folder)) {
    for (const damage of damages(specimen, isWhole ? 613 : 1601)) {
      // The short form takes every fourth damage of all kinds.
      if (number++ % 4 > 0 && !isWhole) continue;
      count[await verifyDamage(folder, specimen, damage)]++;
    }
  }
  assert.ok(count.recovered > 50 && count.refused > 50 && count.cut > 10);
});
