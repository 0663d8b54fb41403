/** The writers of slow-disk.ts, in a thread of their own, so that they take no time from the server. */

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
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

const bytes = Buffer.from(message);
const waits: number[] = [];
let early = 0;
const end = performance.now() + seconds * 1000;

/** Writes on a connection of its own until the time is over; it shall cost less than the server. */
function write(): Promise<void> {
  const socket = connect(port, "127.0.0.1").setNoDelay();
  let start = performance.now();
  socket.write(bytes);
  return new Promise((resolve, reject) => {
    socket.on("error", reject);
    // The answer is short enough to come in one piece.
    socket.on("data", (answer) => {
      const text = answer.toString("latin1");
      if (!text.startsWith("HTTP/1.1 201 ")) return reject(new Error(text));
      const id = parseInt(text.slice(text.lastIndexOf('"id":') + 5));
      if (id > Atomics.load(durableId, 0)) early++;
      const now = performance.now();
      waits.push(now - start);
      start = now;
      if (now < end) return socket.write(bytes);
      socket.destroy();
      resolve();
    });
  });
}

await Promise.all(Array.from({ length: writers }, write));
const result: WriterResult = { waits, early };
assert.ok(parentPort);
parentPort.postMessage(result);
