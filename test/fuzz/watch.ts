/** Observes a server: how long GET /health takes, and how much memory the process has. */

import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";

/** Returns the resident memory of a process in MB; 0 where /proc is missing. */
export function residentMegabytes(pid: number | undefined): number {
  try {
    const text = readFileSync(`/proc/${pid}/status`, "utf8");
    return Math.round(Number(/VmRSS:\s+(\d+)/.exec(text)?.[1] ?? 0) / 1024);
  } catch {
    return 0;
  }
}

/** The value below which a fraction of the numbers lies. */
export function quantile(values: readonly number[], fraction: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = Math.min(sorted.length - 1, Math.floor(sorted.length * fraction));
  return Math.round((sorted[at] ?? 0) * 10) / 10;
}

/** The observations while a server was under load. */
export class Watch {
  /** How long each GET /health took. */
  readonly healthMs: number[] = [];
  readonly memoryMegabytes: number[] = [];
  #isRunning = true;

  constructor(origin: string, pid: number | undefined) {
    void this.#observe(origin, pid);
  }

  async #observe(origin: string, pid: number | undefined): Promise<void> {
    while (this.#isRunning) {
      const start = performance.now();
      try {
        await (await fetch(`${origin}/health`)).text();
        this.healthMs.push(performance.now() - start);
      } catch {
        // The server has ended; the requests that fail report it.
      }
      this.memoryMegabytes.push(residentMegabytes(pid));
      await setTimeout(100);
    }
  }

  stop(): void {
    this.#isRunning = false;
  }

  /** Returns the least memory in the second and in the last quarter of the time. */
  growth(): { readonly before: number; readonly after: number } {
    const all = this.memoryMegabytes;
    const quarter = Math.floor(all.length / 4);
    return {
      before: Math.min(...all.slice(quarter, 2 * quarter)),
      after: Math.min(...all.slice(3 * quarter)),
    };
  }
}
