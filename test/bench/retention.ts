/**
 * How much longer reads take while records expire: a server with many records, of
 * which one hour's share of a day has expired, is read while it deletes these,
 * and as long after that.
 *
 *     npm run bench:retention [-- --records 1000000]
 */

import { mkdir, writeFile } from "node:fs/promises";
import { Agent, get } from "node:http";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { loadApi } from "../../src/cli/declaration/load-api.ts";
import { openDataFolder } from "../../src/data-folder.ts";
import { removeFolder, start, temporaryFolder } from "../harness.ts";
import { commit } from "../commit.ts";

const { values } = parseArgs({
  options: { records: { type: "string", default: "1000000" } },
});
const records = Number(values.records);
const expired = Math.ceil(records / 24);

const declaration = `export default ({ collection, number }) => ({
  collections: [collection({
    name: "readings", singular: "reading",
    access: { read: "anyone", write: "viewer", delete: "viewer" },
    properties: { value: number() },
    keep: { days: 1 },
  })],
});`;

const dayMs = 86_400_000;
const batchLength = 5000;

/** Creates a data folder of readings, of which the first have expired. */
async function fill(folder: string, file: string): Promise<void> {
  await mkdir(folder, { mode: 0o700 });
  const store = await openDataFolder(folder, await loadApi(file));
  const now = Date.now();
  for (let from = 1; from <= records; from += batchLength) {
    const length = Math.min(batchLength, records + 1 - from);
    await commit(
      store,
      Array.from({ length }, (_, at) => {
        const id = from + at;
        // None of the others expires while the server runs.
        const age = id <= expired ? dayMs + 1000 : dayMs * (1 - id / records);
        const created_at = new Date(now - age).toISOString();
        const times = { created_at, updated_at: created_at };
        return ["put", "readings", { id, value: id % 1000, ...times }] as const;
      }),
      0,
    );
  }
  await store.checkpoint();
  await store.close();
}

const agent = new Agent({ keepAlive: true });

/** Reads a record; returns how long that took, in milliseconds. */
function read(url: string): Promise<number> {
  const begin = performance.now();
  return new Promise((resolve, reject) => {
    get(url, { agent }, (response) => {
      response.resume();
      response.once("end", () => resolve(performance.now() - begin));
    }).once("error", reject);
  });
}

/** Reads one record after the other with short pauses; returns how long each took, sorted. */
async function readUntil(
  origin: string,
  isDone: () => boolean,
): Promise<number[]> {
  const times: number[] = [];
  while (!isDone()) {
    const id = records - times.length * 97 % Math.floor(records / 2);
    times.push(await read(`${origin}/v1/readings/${id}`));
    await delay(1);
  }
  return times.sort((one, other) => one - other);
}

function describe(times: readonly number[]): string {
  const at = (share: number) =>
    `${(times[Math.floor(times.length * share)] ?? 0).toFixed(2)} ms`;
  return `median ${at(0.5)}, p99 ${at(0.99)} of ${times.length}`;
}

const own = await temporaryFolder();
const file = join(own, "api.mjs");
await writeFile(file, declaration);
const folder = join(own, "store");
await fill(folder, file);
const server = await start({ folder, args: ["--collections", file] });
try {
  const begin = performance.now();
  const during = await readUntil(
    server.origin,
    () => /deleted what had expired/.test(server.output()),
  );
  const tookMs = performance.now() - begin;
  const end = performance.now() + tookMs;
  const after = await readUntil(server.origin, () => performance.now() > end);
  const seconds = (tookMs / 1000).toFixed(1);
  process.stdout.write(
    `${expired} of ${records} records expired in ${seconds} s\n` +
      `reads meanwhile: ${describe(during)}\nreads after that: ${
        describe(after)
      }\n`,
  );
} finally {
  await server.stop();
  await removeFolder(own);
}
