/**
 * Durable writes a second on a slow disk: 64 writers, over HTTP, with an
 * fdatasync that takes 10 ms more than it does. Counts the answers that came
 * before the fsync of their write: there must be none.
 *
 *     npm run bench:slow-disk [-- --delay 10 --seconds 5 --writers 64]
 */

import { Agent, request as send } from "node:http";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { type FileSystem, realFiles } from "../../src/store/store.ts";
import { startApplication } from "../application.ts";

const { values } = parseArgs({
  options: {
    delay: { type: "string", default: "10" },
    seconds: { type: "string", default: "5" },
    writers: { type: "string", default: "64" },
  },
});

// All that was written before a sync began is on the disk when it has ended.
let written = 0;
let synced = 0;
const files: FileSystem = {
  ...realFiles,
  async open(path, how) {
    const file = await realFiles.open(path, how);
    if (!path.includes("wal-")) return file;
    const write = file.write.bind(file) as typeof file.write;
    const datasync = file.datasync.bind(file);
    file.write = ((...args: Parameters<typeof file.write>) => {
      const [bytes] = args;
      if (typeof bytes !== "string") written += linesOf(bytes);
      return write(...args);
    }) as typeof file.write;
    file.datasync = async () => {
      const upTo = written;
      await delay(Number(values.delay));
      await datasync();
      synced = upTo;
    };
    return file;
  },
};

function linesOf(bytes: NodeJS.ArrayBufferView): number {
  const view = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return view.reduce((sum, byte) => sum + (byte === 0x0a ? 1 : 0), 0);
}

const app = await startApplication({ files });
const agent = new Agent({ keepAlive: true });
const json = JSON.stringify({
  name: "Artis",
  city: "Amsterdam",
  country: "NL",
});

function post(): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = send({
      agent,
      port: app.port,
      method: "POST",
      path: "/v1/zoos",
      headers: {
        authorization: `Bearer ${app.token}`,
        "content-type": "application/json",
        "content-length": json.length,
      },
    }, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (part) => text += part);
      answer.on("end", () => {
        if (answer.statusCode === 201) resolve(JSON.parse(text).id);
        else reject(new Error(text));
      });
    });
    sent.on("error", reject);
    sent.end(json);
  });
}

try {
  const base = app.store.seq; // what came before the zoos
  const header = written - base;
  let done = 0;
  let early = 0;
  const end = performance.now() + Number(values.seconds) * 1000;
  await Promise.all(
    Array.from({ length: Number(values.writers) }, async () => {
      while (performance.now() < end) {
        const id = await post();
        done++;
        if (base + id + header > synced) early++;
      }
    }),
  );
  process.stdout.write(
    `${values.writers} writers, ${values.delay} ms more for each fdatasync: ` +
      `${Math.round(done / Number(values.seconds))} durable writes/s, ` +
      `${early} answers before their fsync\n`,
  );
} finally {
  agent.destroy();
  await app.stop();
}
