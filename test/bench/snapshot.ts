/**
 * What readers and writers notice while a snapshot of a million records is
 * written: latencies of single reads from before its beginning until after its
 * end, while writes continue.
 *
 *     npm run bench:snapshot [-- --records 1000000]
 */

import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { Agent, request as send } from "node:http";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { tablesOf } from "../../src/api/routes.ts";
import { sample } from "../collections.ts";
import { type Mutation, openStore } from "../../src/store/store.ts";
import { removeFolder, start, temporaryFolder } from "../harness.ts";
import { commit } from "../commit.ts";

const { values } = parseArgs({
  options: { records: { type: "string", default: "1000000" } },
});
const records = Number(values.records);
const readers = 16;
const writers = 4;
const at = "2026-01-01T00:00:00.000Z";
const times = { created_at: at, updated_at: at };

/** A store whose log holds everything and is due for a snapshot at the first write. */
async function build(folder: string): Promise<void> {
  const limits = { minLogBytes: 1e12, maxQueueBytes: 1e9 };
  const tables = tablesOf(sample, []);
  const store = await openStore({ folder, tables, limits });
  const zoo = { name: "Zoo", city: "City", country: "DE", opened_on: null };
  await commit(store, [["put", "zoos", {
    id: 1,
    ...zoo,
    website: null,
    ...times,
  }]], 0);
  for (let id = 1; id <= records;) {
    const batch: Mutation[] = [];
    for (; batch.length < 5000 && id <= records; id++) {
      batch.push(["put", "animals", {
        id,
        zoo_id: 1,
        animal_type_id: 1 + id % 60,
        name: `Animal ${id}`,
        species: "Panthera leo",
        sex: "unknown",
        born_on: "2015-05-05",
        weight_kg: id % 300 + 1,
        ...times,
      }]);
    }
    await commit(store, batch, 0);
  }
  await store.close();
}

const agent = new Agent({ keepAlive: true });

/** Sends one request and returns its status. */
function ask(
  address: string,
  method = "GET",
  headers: Record<string, string> = {},
  body = "",
): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = send(address, { agent, method, headers }, (answer) => {
      answer.resume();
      answer.on("end", () => resolve(answer.statusCode ?? 0));
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

const top = await temporaryFolder();
const folder = join(top, "store");
await mkdir(folder, { mode: 0o700 });
await build(folder);
const began = performance.now();
const server = await start({ folder });
const opened = (performance.now() - began) / 1000;
try {
  const token = await server.signIn(); // a write: the snapshot begins here
  const latencies: number[] = [];
  let writes = 0;
  let failed = 0;
  let stop = false;
  const random = () => 1 + Math.floor(Math.random() * records);
  const reading = Array.from({ length: readers }, async () => {
    while (!stop) {
      const begin = performance.now();
      const status = await ask(`${server.origin}/v1/animals/${random()}`);
      latencies.push(performance.now() - begin);
      if (status !== 200) failed++;
    }
  });
  const writing = Array.from({ length: writers }, async (_, writer) => {
    const headers = {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
    };
    while (!stop) {
      const address = `${server.origin}/v1/animals/${writer + 1}`;
      const body = JSON.stringify({ weight_kg: ++writes });
      const status = await ask(address, "PATCH", headers, body);
      if (status !== 201) failed++;
    }
  });
  const from = performance.now();
  while (!existsSync(join(folder, "snapshot-2.jsonl"))) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const took = (performance.now() - from) / 1000;
  await new Promise((resolve) => setTimeout(resolve, 500));
  stop = true;
  await Promise.all([...reading, ...writing]);
  latencies.sort((a, b) => a - b);
  const percentile = (part: number) =>
    (latencies[Math.floor(latencies.length * part)] ?? NaN).toFixed(1);
  process.stdout.write(
    `${records} records; opened in ${opened.toFixed(1)} s; snapshot in ` +
      `${took.toFixed(1)} s; ${latencies.length} reads, ${writes} writes, ` +
      `${failed} failed; reads: median ${percentile(0.5)} ms, 99 % ` +
      `${percentile(0.99)} ms, 99.9 % ${percentile(0.999)} ms, most ` +
      `${percentile(1 - 1e-9)} ms\n`,
  );
} finally {
  agent.destroy();
  await server.stop();
  await removeFolder(top);
}
