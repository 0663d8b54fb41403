/**
 * How long a new server takes to serve a large store in etcd, beside a start
 * from a folder with the same records and the plain transfer of all values.
 * Prints medians and a ratio; asserts nothing.
 *
 *     node --import tsx test/etcd/join.ts [--records 1000000] [--rounds 3]
 */

import { Buffer } from "node:buffer";
import { createWriteStream } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { parseArgs } from "node:util";
import {
  removeFolder,
  runNode,
  start,
  type StartOptions,
  temporaryFolder,
} from "../harness.ts";
import { buildInto } from "./cluster.ts";
import { requireEtcd, startEtcd } from "./etcd.ts";
import { collections } from "./workload.ts";

const { values } = parseArgs({
  options: {
    records: { type: "string", default: "1000000" },
    rounds: { type: "string", default: "3" },
  },
});

function* lines(count: number): Generator<string> {
  for (let each = 1; each <= count; each++) {
    const tag = `order ${each} of a large store`;
    yield `{"round":${each},"tag":"${tag}","value":"value ${each}"}\n`;
  }
}

async function secondsOf(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return (performance.now() - startedAt) / 1000;
}

function medianOf(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? NaN;
}

/** Reads all values below a prefix, one after the other; returns their length. */
async function transfer(url: string, prefix: string): Promise<number> {
  const get = async (body: object) => {
    const init = { method: "POST", body: JSON.stringify(body) };
    return await fetch(`${url}/v3/kv/range`, init);
  };
  const ends = { key: encode(prefix), range_end: encode(`${prefix}~`) };
  const response = await get({ ...ends, keys_only: true });
  const { kvs } = await response.json() as { kvs: { key: string }[] };
  let bytes = 0;
  for (const { key } of kvs) {
    bytes += (await (await get({ key })).arrayBuffer()).byteLength;
  }
  return bytes;
}

function encode(text: string): string {
  return Buffer.from(text).toString("base64");
}

requireEtcd();
const folder = await temporaryFolder();
const etcd = await startEtcd(3, { isOnDisk: true });
try {
  const main = await buildInto(folder, []);
  const file = join(folder, "collections.mjs");
  await writeFile(file, collections);
  const env = { COLLECTIONS: file, LOG: "error" };
  const records = join(folder, "records.ndjson");
  await pipeline(
    Readable.from(lines(Number(values.records))),
    createWriteStream(records),
  );
  const own = join(folder, "own");
  const store = etcd.store("zoo");
  const options = { main, env, isNew: true };
  /** Returns how long a server takes to respond, until it has all records. */
  const startOf = (more: StartOptions) =>
    secondsOf(async () => {
      const server = await start({ ...options, ...more });
      const path = `/v1/registers/${values.records}`;
      const { status } = await server.request("GET", path);
      if (status !== 200) throw new Error(`${path}: ${status}`);
      after.push(() => server.stop());
    });
  const after: (() => Promise<void>)[] = [];
  const stopAll = async () => {
    for (const stop of after.splice(0)) await stop();
  };
  const run = async (...args: readonly string[]) => {
    const { code, stdout, stderr } = await runNode([main, ...args], { env });
    if (code !== 0) throw new Error(stdout + stderr);
  };
  const first = await start({ ...options, folder: own });
  await first.stop();
  await run("import", "registers", records, "--data-dir", own);
  await startOf({ folder: own });
  await stopAll();
  const copied = await secondsOf(() =>
    run("copy", "--from", own, "--to", store)
  );
  process.stdout.write(`copied to etcd in ${copied.toFixed(1)} s\n`);
  const fromFolder: number[] = [];
  const fromEtcd: number[] = [];
  const transfers: number[] = [];
  let bytes = 0;
  for (let round = 0; round < Number(values.rounds); round++) {
    fromFolder.push(await startOf({ folder: own }));
    await stopAll();
    fromEtcd.push(await startOf({ env: { ...env, STORE: store } }));
    await stopAll();
    const url = etcd.nodes[0]?.url ?? "";
    const seconds = await secondsOf(async () => {
      bytes = await transfer(url, "zoo/");
    });
    transfers.push(seconds);
  }
  const folderS = medianOf(fromFolder);
  const etcdS = medianOf(fromEtcd);
  const transferS = medianOf(transfers);
  const ratio = (etcdS - transferS) / folderS;
  process.stdout.write(
    `${values.records} records: from a folder ${folderS.toFixed(2)} s, ` +
      `from etcd ${etcdS.toFixed(2)} s; transfer of ${bytes >> 20} MiB ` +
      `${transferS.toFixed(2)} s; without it ${
        ratio.toFixed(2)
      } of the folder\n`,
  );
} finally {
  await etcd.stop();
  await removeFolder(folder);
}
