/**
 * Durable writes a second on a slow disk: 64 writers, over HTTP, with an
 * fdatasync that takes 10 ms more than it does. Counts the answers that came
 * before the fsync of their write: there must be none.
 *
 *     npm run bench:slow-disk [-- --delay 10 --seconds 5 --writers 64]
 */

import { connect } from "node:net";
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
const body = JSON.stringify({
  name: "Artis",
  city: "Amsterdam",
  country: "NL",
});
const message = "POST /v1/zoos HTTP/1.1\r\nHost: localhost\r\n" +
  `Authorization: Bearer ${app.token}\r\n` +
  "Content-Type: application/json\r\n" +
  `Content-Length: ${body.length}\r\n\r\n${body}`;

/** A writer with a connection of its own; the client shall cost less than the server. */
function openWriter(): { post: () => Promise<number>; close: () => void } {
  const socket = connect(app.port, "127.0.0.1");
  socket.setEncoding("latin1").setNoDelay();
  return {
    post: () =>
      new Promise((resolve, reject) => {
        // The answer is short enough to come in one piece.
        socket.once("data", (text) => {
          const found = /^HTTP\/1\.1 201 [^]*"id":(\d+)/.exec(String(text));
          if (found) resolve(Number(found[1]));
          else reject(new Error(String(text)));
        });
        socket.write(message);
      }),
    close: () => socket.destroy(),
  };
}

try {
  const base = app.store.seq; // what came before the zoos
  const header = written - base;
  let done = 0;
  let early = 0;
  const end = performance.now() + Number(values.seconds) * 1000;
  await Promise.all(
    Array.from({ length: Number(values.writers) }, async () => {
      const { post, close } = openWriter();
      while (performance.now() < end) {
        const id = await post();
        done++;
        if (base + id + header > synced) early++;
      }
      close();
    }),
  );
  process.stdout.write(
    `${values.writers} writers, ${values.delay} ms more for each fdatasync: ` +
      `${Math.round(done / Number(values.seconds))} durable writes/s, ` +
      `${early} answers before their fsync\n`,
  );
} finally {
  await app.stop();
}
