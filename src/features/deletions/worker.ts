/**
 * The worker in the background: it runs one deletion after the other, and deletes
 * what has expired. While the disk is full it tries again.
 */

import { setImmediate as nextTick, setTimeout } from "node:timers/promises";
import {
  isOwnTask,
  refusals,
  saveTask,
  unfinishedTasks,
} from "../../api/tasks/tasks.ts";
import { errorCode, errorText } from "../../store/error.ts";
import { asShared, type SharedStore } from "../../store/shared.ts";
import { expire, type Kept } from "./retention.ts";
import { type DeletionContext, findDeletion, runDeletion } from "./task.ts";

/** The time between two attempts while the store refuses a batch. */
const retryDelayMs = 1000;

/** The time between two looks at the deletions of other servers. */
const lookMs = 20_000;

/** The time between two looks for what has expired. */
const sweepMs = 3_600_000;

/** The worker of one server. */
export class DeletionWorker {
  readonly context: DeletionContext;
  readonly #kept: readonly Kept[];
  readonly #shared: SharedStore | undefined;
  readonly #stopping = new AbortController();
  readonly #timers: NodeJS.Timeout[] = [];
  #running: Promise<void> | undefined;
  #sweeping: Promise<void> | undefined;

  constructor(context: DeletionContext, kept: readonly Kept[]) {
    this.context = context;
    this.#kept = kept;
    this.#shared = asShared(context.store);
  }

  /** Resumes unfinished tasks, and begins to look for what has expired. */
  start(): Promise<void> {
    this.#timers.push(setInterval(() => this.#sweep(), sweepMs));
    if (this.#shared) {
      const shared = this.#shared;
      const look = () => void this.#takeAbandoned(shared).catch(() => {}); // again after the pause
      this.#timers.push(setInterval(look, lookMs));
    }
    const { context } = this;
    const resumed = unfinishedTasks(context, "deletion")
      .filter((each) => isOwnTask(this.context, each));
    for (const { id: task, collection } of resumed) {
      context.log("info", "resumes a deletion", { task, collection });
    }
    this.wake();
    this.#sweep();
    return Promise.resolve();
  }

  /** Stops after the current batch. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#timers.forEach(clearInterval);
    await Promise.all([this.#running, this.#sweeping]);
  }

  /** Runs unfinished tasks, unless that runs already. */
  wake(): void {
    this.#running ??= this.#run();
  }

  /** Deletes what has expired, unless that runs already. */
  #sweep(): void {
    const { signal } = this.#stopping;
    const work = () => expire(this.context, this.#kept, signal);
    this.#sweeping ??= this.#attempt(work)
      .finally(() => this.#sweeping = undefined);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    try {
      await nextTick();
      while (!signal.aborted) {
        const [task] = unfinishedTasks(this.context, "deletion")
          .filter((each) => isOwnTask(this.context, each));
        if (task === undefined) return;
        await this.#attempt(() => runDeletion(this.context, task.id, signal));
      }
    } finally {
      // In the same tick as the search that found no task.
      this.#running = undefined;
    }
  }

  /** Does work that the store may refuse for a while. */
  async #attempt(work: () => Promise<void>): Promise<void> {
    const { signal } = this.#stopping;
    try {
      await work();
    } catch (error) {
      const code = errorCode(error);
      if (code === "overtaken") return;
      if (refusals.includes(code)) {
        return await setTimeout(retryDelayMs, undefined, { signal })
          .catch(() => {});
      }
      // Nothing can be deleted before the next start.
      this.#stopping.abort();
      if (code === "closed") return;
      const text = `A deletion cannot continue: ${errorText(error)}`;
      this.context.log("error", text);
    }
  }

  /** Takes the deletions of servers that are gone. */
  async #takeAbandoned(shared: SharedStore): Promise<void> {
    const { serverId } = shared;
    for (
      const { id, server = "" } of unfinishedTasks(this.context, "deletion")
    ) {
      if (server === serverId || await shared.isServed(server)) continue;
      const task = findDeletion(this.context, id);
      if (task === undefined) continue;
      await saveTask(this.context, { ...task, server: serverId });
    }
    this.wake();
  }
}
