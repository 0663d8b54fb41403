/**
 * Runs inside the server that stalls.ts measures, loaded with `--import`:
 * measures every turn of the event loop between two messages of its socket,
 * `start` and `stop`.
 *
 * A turn is measured in processor time, not by the clock, because on a busy
 * machine the process often waits while others run. The pauses of the garbage
 * collector are measured separately, only by the clock, so the share of a turn
 * that was a pause is not counted.
 */

import { Buffer } from "node:buffer";
import { openSync, readSync } from "node:fs";
import { createServer } from "node:net";
import { performance, PerformanceObserver } from "node:perf_hooks";
import process from "node:process";

/** The longest of each, in ms. */
export interface Stops {
  /** Of one turn, without garbage collection. */
  readonly own: number;
  /** One pause of the garbage collector. */
  readonly collector: number;
  /** One turn by the clock, including the time of other processes. */
  readonly clock: number;
}

interface Interval {
  readonly start: number;
  readonly end: number;
}

interface Turn extends Interval {
  readonly processorMs: number;
}

/** Shorter turns are not of interest. */
const minTurnMs = 0.5;

const statistics = openSync(`/proc/self/task/${process.pid}/schedstat`, "r");
const buffer = Buffer.alloc(64);

/** Returns how long the main thread has run, in ms. */
function processorTime(): number {
  process.cpuUsage(); // brings the file below up to date
  const length = readSync(statistics, buffer, 0, buffer.length, 0);
  return Number.parseInt(buffer.toString("latin1", 0, length), 10) / 1e6;
}

let turns: Turn[] = [];
let pauses: Interval[] = [];
let isMeasuring = false;

new PerformanceObserver((list) => {
  for (const { startTime: start, duration } of list.getEntries()) {
    pauses.push({ start, end: start + duration });
  }
}).observe({ entryTypes: ["gc"] });

function measure(): void {
  turns = [];
  pauses = [];
  isMeasuring = true;
  let start = performance.now();
  let processor = processorTime();
  const turn = () => {
    const end = performance.now();
    const now = processorTime();
    const processorMs = now - processor;
    if (end - start > minTurnMs) turns.push({ start, end, processorMs });
    start = end;
    processor = now;
    if (isMeasuring) setImmediate(turn);
  };
  setImmediate(turn);
}

function longest(values: readonly number[]): number {
  return values.reduce((most, each) => Math.max(most, each), 0);
}

function result(): Stops {
  const own = turns.map(({ start, end, processorMs }) => {
    const pausedMs = pauses
      .filter((pause) => pause.start < end && pause.end > start)
      .reduce((sum, pause) => sum + pause.end - pause.start, 0);
    return processorMs * Math.max(0, 1 - pausedMs / (end - start));
  });
  return {
    own: longest(own),
    collector: longest(pauses.map(({ start, end }) => end - start)),
    clock: longest(turns.map(({ start, end }) => end - start)),
  };
}

const server = createServer((socket) => {
  socket.unref();
  socket.setEncoding("utf8").on("data", (word) => {
    if (String(word) === "start") {
      measure();
      socket.write("{}");
      return;
    }
    isMeasuring = false;
    // The observer is called some turns after the pause.
    setTimeout(() => socket.write(JSON.stringify(result())), 50);
  });
});
server.listen(process.env["PROBE_SOCKET"]).unref();
