/**
 * The worker in the background: it runs one deletion after the other, and deletes
 * what has expired. While the disk is full it tries again.
 */

import { setImmediate as nextTick, setTimeout } from "node:timers/promises";
import { refusals, type Task, unfinishedTasks } from "../../api/tasks/tasks.ts";
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

export type DeletionWorker = ReturnType<typeof createWorker>;

/** Creates a worker. */
export function createWorker(context: DeletionContext, kept: readonly Kept[]) {
  const { store, log } = context;
  const shared = asShared(store);
  const stopping = new AbortController();
  const { signal } = stopping;
  const timers: NodeJS.Timeout[] = [];
  let running: Promise<void> | undefined;
  let sweeping: Promise<void> | undefined;

  async function run(): Promise<void> {
    try {
      await nextTick();
      while (!signal.aborted) {
        const [task] = unfinishedTasks(context, "deletion").filter(isOwn);
        if (task === undefined) return;
        await attempt(() => runDeletion(context, task.id, signal));
      }
    } finally {
      // In the same tick as the search that found no task.
      running = undefined;
    }
  }

  /** Does work that the store may refuse for a while. */
  async function attempt(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const code = errorCode(error);
      if (code === "overtaken") return;
      if (!refusals.includes(code)) {
        if (code !== "closed") {
          log("error", `A deletion cannot continue: ${errorText(error)}`);
        }
        // Nothing can be deleted before the next start.
        stopping.abort();
        return;
      }
      await setTimeout(retryDelayMs, undefined, { signal }).catch(() => {});
    }
  }

  /** Returns whether this server works on a task. */
  const isOwn = ({ server = "" }: Task) => server === (shared?.serverId ?? "");

  /** Takes the deletions of servers that are gone. */
  async function takeAbandoned(shared: SharedStore): Promise<void> {
    for (const { id, server = "" } of unfinishedTasks(context, "deletion")) {
      if (server === shared.serverId || await shared.isServed(server)) continue;
      const task = findDeletion(context, id);
      if (task === undefined) continue;
      const own = { ...task, server: shared.serverId };
      await store.commit([context.records.putMutation(own)], task.user_id ?? 0);
    }
    wake();
  }

  /** Runs unfinished tasks, unless that runs already. */
  function wake(): void {
    running ??= run();
  }

  /** Deletes what has expired, unless that runs already. */
  function sweep(): void {
    sweeping ??= attempt(() => expire(context, kept, signal))
      .finally(() => sweeping = undefined);
  }

  return {
    context,
    wake,
    sweep,
    /** Returns a promise until all is done that can be done now. */
    idle: () => Promise.all([running, sweeping]),
    start() {
      timers.push(setInterval(sweep, sweepMs));
      if (shared) {
        const look = () => void takeAbandoned(shared).catch(() => {}); // again after the pause
        timers.push(setInterval(look, lookMs));
      }
      wake();
      sweep();
    },
    async stop() {
      stopping.abort();
      timers.forEach(clearInterval);
      await Promise.all([running, sweeping]);
    },
  };
}
