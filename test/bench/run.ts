/**
 * What a start, a record and a request cost: `npm run bench -- RECORDS SECONDS`,
 * on an idle machine with Linux. The password of the first admin is hashed
 * cheaply, as in all tests. Each load runs twice, as the first run warms up; its
 * processor time is that of the server, with the part of node:http.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import {
  authorize,
  fileOf,
  send,
  serve,
  stop,
  temporaryFolder,
} from "../server.ts";

const [, , records = "100000", seconds = "5"] = process.argv;
const folder = temporaryFolder();
const body =
  '{"name":"Nele","species":"Lynx lynx","zoo_id":1,"animal_type_id":1}';
const SEED = fileOf(
  "seed.json",
  `{"zoos":[{"name":"Zoo","city":"Bern","country":"CH"}],"animals":[${
    Array(+records).fill(body)
  }]}`,
);

/** Starts a server; returns what Linux tells about its process. */
async function start(what: string, environment: Record<string, string>) {
  const begun = performance.now();
  const server = await serve({ FEATURES: "all", ...environment });
  const took = performance.now() - begun;
  const told = (file: string) =>
    readFileSync(`/proc/${server.child.pid}/${file}`, "utf8");
  const memory = () =>
    `${/VmRSS:\s+(\d+)\d{3} kB/.exec(told("status"))?.[1]} MB`;
  /** The processor time that it has taken, in microseconds. */
  const time = () => {
    const [user, system] = told("stat").split(" ").slice(13);
    return (Number(user) + Number(system)) * 1e4;
  };
  console.log(`start with ${what}: ${took.toFixed()} ms, ${memory()}`);
  return { server, memory, time };
}

const environment = { DATA_DIR: join(folder, "store"), SEED };
await stop((await start("nothing", {})).server);
await stop((await start("a seed", environment)).server);
const { server, memory, time } = await start("all records", environment);
const headers = await authorize(server.origin);
const write = { headers, body };
for (
  const [clients, path, sent] of [
    [64, "/v1/animals/777", {}],
    [64, "/v1/animals?offset=40", {}],
    [64, "/v1/animals", write],
    [16, "/v1/animals", write],
    [1, "/v1/animals", write],
  ] as const
) {
  for (const isWarm of [false, true]) {
    const before = time();
    const end = performance.now() + 1000 * +seconds;
    let count = 0;
    await Promise.all(Array.from({ length: clients }, async () => {
      for (; performance.now() < end; count++) {
        assert.ok((await send(server.origin, path, sent)).status < 300);
      }
    }));
    const each = ((time() - before) / count).toFixed();
    if (isWarm) {
      console.log(
        `${
          sent === write ? "POST" : "GET"
        } ${path}, ${clients} clients: ${each} µs, ${count} requests`,
      );
    }
  }
}
console.log(`then ${memory()}`);
process.exit();
