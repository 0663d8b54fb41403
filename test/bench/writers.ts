/** The writers of slow-disk.ts, in a thread of their own, so that they take no time from the server. */

import assert from "node:assert/strict";
import { connect } from "node:net";
import { parentPort, workerData } from "node:worker_threads";

/** The request that the writers send, and how long. */
export interface WriterTask {
  readonly port: number;
  /** A whole request that creates a zoo. */
  readonly message: string;
  readonly writers: number;
  readonly seconds: number;
  /** The id of the last zoo that is on the disk. */
  readonly durableId: Int32Array;
}

/** How long each response took, in ms, and how many came before their fsync. */
export interface WriterResult {
  readonly waits: readonly number[];
  readonly early: number;
}

const { port, message, writers, seconds, durableId } = workerData as WriterTask;

/** A writer with a connection of its own; it shall cost less than the server. */
function openWriter(): { post: () => Promise<number>; close: () => void } {
  const socket = connect(port, "127.0.0.1");
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

const waits: number[] = [];
let early = 0;
const end = performance.now() + seconds * 1000;
await Promise.all(Array.from({ length: writers }, async () => {
  const { post, close } = openWriter();
  while (performance.now() < end) {
    const start = performance.now();
    const id = await post();
    if (id > Atomics.load(durableId, 0)) early++;
    waits.push(performance.now() - start);
  }
  close();
}));
const result: WriterResult = { waits, early };
assert.ok(parentPort);
parentPort.postMessage(result);
