/**
 * Durable writes per second on a slow disk: 64 writers, over HTTP, with a flush
 * that takes 10 ms longer than it would. Counts the responses that were sent
 * before the flush of their write: there must be none. The first two seconds,
 * in which the code is compiled, are not counted.
 *
 *     npm run bench:slow-disk [-- --delay 10 --seconds 5 --writers 64]
 */

import { Buffer } from "node:buffer";
import { once } from "node:events";
import { extname } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Worker } from "node:worker_threads";
import { type FileSystem, realFiles } from "../../src/store/store.ts";
import { startApplication } from "../application.ts";
import type { WriterResult, WriterTask } from "./writers.ts";

const { values } = parseArgs({
  options: {
    delay: { type: "string", default: "10" },
    seconds: { type: "string", default: "5" },
    writers: { type: "string", default: "64" },
  },
});

/** The lines written to the log, and how many of them were there before the first zoo. */
let written = 0;
let base = Infinity;
/** When the last write to the log began, and how long each took with its flush. */
let writeStart = 0;
const flushes: number[] = [];
const durableId = new Int32Array(new SharedArrayBuffer(4));
const files: FileSystem = {
  ...realFiles,
  async open(path, mode) {
    const file = await realFiles.open(path, mode);
    if (!path.includes("wal-")) return file;
    return {
      ...file,
      write(bytes, position) {
        written += linesOf(bytes);
        writeStart = performance.now();
        return file.write(bytes, position);
      },
      // Everything that was written before it began is on the disk when it has
      // ended.
      async datasync() {
        const upTo = written;
        await delay(Number(values.delay));
        await file.datasync();
        flushes.push(performance.now() - writeStart);
        if (upTo > base) Atomics.store(durableId, 0, upTo - base);
      },
    };
  },
};

function linesOf(bytes: Uint8Array): number {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let lines = 0;
  for (let at = -1; (at = buffer.indexOf(0x0a, at + 1)) >= 0;) lines++;
  return lines;
}

/** Lets the writers write for some seconds. */
async function measure(seconds: number): Promise<WriterResult> {
  flushes.length = 0;
  const writers = Number(values.writers);
  const workerData: WriterTask = {
    port: app.port,
    message,
    writers,
    seconds,
    durableId,
  };
  const file = `writers${extname(import.meta.url)}`;
  const thread = new Worker(new URL(file, import.meta.url), { workerData });
  const [result] = await once(thread, "message");
  return result;
}

function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? NaN;
}

const app = await startApplication({ files });
const body = JSON.stringify({
  name: "Artis",
  city: "Amsterdam",
  country: "NL",
});
const message = "POST /v1/zoos HTTP/1.1\r\nHost: localhost\r\n" +
  `Authorization: Bearer ${app.token}\r\n` +
  "Content-Type: application/json\r\n" +
  `Content-Length: ${body.length}\r\n\r\n${body}`;

try {
  base = written;
  await measure(2);
  const { waits, early } = await measure(Number(values.seconds));
  const waited = median(waits) / median(flushes);
  process.stdout.write(
    `${values.writers} writers, ${values.delay} ms more for each flush: ` +
      `${
        Math.round(waits.length / Number(values.seconds))
      } durable writes/s, ` +
      `half of them within ${waited.toFixed(2)} flushes, ` +
      `${(waits.length / flushes.length).toFixed(1)} in each, ` +
      `${early} answers before theirs\n`,
  );
} finally {
  await app.stop();
}
