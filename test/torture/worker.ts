/**
 * A process that writes to a store until it is ended, and records everything
 * that it does in a file, before and after: `worker.ts FOLDER BOOK SECONDS`,
 * with the keys and the versions sent so far on standard input. A fourth
 * argument is the name of a defect to add. Each line has a letter, key and
 * version: s(ent), a(cknowledged), r(efused), v(iewed), u(nknown). Not through
 * a pipe, because what waits in one is lost with the process.
 */

import { openSync, readFileSync, writeSync } from "node:fs";
import process from "node:process";
import { FullDisk } from "../../src/store/full-disk.ts";
import { fastFiles, FastWrites } from "../../src/store/log/fast-writes.ts";
import * as marker from "../../src/store/log/marker.ts";
import { openStore } from "../../src/store/store.ts";
import { defects } from "./defects.ts";
import { type History, historyOf, look, write } from "./oracle.ts";
import { tables } from "./scene.ts";

const [folder = "", path = "", seconds = "1000", defect = ""] = process.argv
  .slice(2);
const book = openSync(path, "a");
const tell = (text: string) => writeSync(book, `${text}\n`);
const history: History = new Map();
for (const line of readFileSync(0, "utf8").split("\n")) {
  const [key = 0, sent = 0] = line.split(" ").map(Number);
  if (key > 0) historyOf(history, key).sent = sent;
}
process.stdout.write("opening\n");
const store = await openStore({
  folder,
  tables,
  fullDisk: FullDisk,
  marker,
  fastWrites: new FastWrites(),
  files: defects[defect]?.files?.(fastFiles) ?? fastFiles,
  limits: {
    minLogBytes: 100_000,
    reserveBytes: 100_000,
    markerDelayMs: 50,
    checkpointRetryMs: 50,
    retryMs: 50,
  },
});
process.stdout.write("open\n");
const end = Date.now() + Number(seconds) * 1000;
const client = async (key: number) => {
  while (store.isWritable && Date.now() < end) {
    const book = historyOf(history, key);
    tell(`s ${key} ${book.sent + 1}`);
    const outcome = await write(store, history, key);
    tell(`${outcome.charAt(0)} ${key} ${book.sent}`);
    if (outcome === "refused") await new Promise((go) => setTimeout(go, 5));
  }
};
const reader = async (key: number) => {
  while (store.isWritable && Date.now() < end) {
    await look(store, history, key);
    tell(`v ${key} ${historyOf(history, key).seen}`);
    await new Promise((go) => setTimeout(go, 1));
  }
};
await Promise.all(
  Array.from({ length: 16 }, (_, key) => [client(key + 1), reader(key + 1)])
    .flat(),
);
await store.close();
