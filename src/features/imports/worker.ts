/**
 * The background worker of imports. It runs one task after the other, and
 * commits each batch of records in one transaction with the task's progress:
 * after a crash it resumes after the last durable batch, so each line is
 * imported exactly once.
 *
 * While the disk is full it retries until there is space. On a read-only store
 * it stops until the next start. A task fails if its user has lost the right
 * to write.
 */

import { performance } from "node:perf_hooks";
import { setImmediate as nextTick, setTimeout } from "node:timers/promises";
import { mayAccess } from "../../auth/access.ts";
import { errorCode, StoreError } from "../../store/error.ts";
import { roleOf } from "../../api/accounts/authentication.ts";
import type { Records } from "../../api/records/records.ts";
import { importBatch, maxLineBytes } from "./batch.ts";
import {
  readSpool,
  removeOtherSpools,
  removeSpool,
  type SpoolLine,
} from "./spool.ts";
import {
  findTask,
  type ImportContext,
  isUnfinished,
  listTasks,
  logFailure,
  type Task,
} from "./task.ts";

const maxBatchLines = 500;
const maxBatchBytes = 1 << 18;

/** The longest time between two saves of progress while no line is valid. */
const saveIntervalMs = 250;

/** The time between two attempts while the store refuses a batch. */
const retryDelayMs = 1000;

/** Runs queued imports until none is left. */
export class ImportWorker {
  readonly context: ImportContext;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;

  constructor(context: ImportContext) {
    this.context = context;
  }

  /** Removes the bodies that no task needs and resumes unfinished tasks. Call before the first request. */
  async start(): Promise<void> {
    const needed = listTasks(this.context).filter(isUnfinished)
      .map(({ spool }) => spool);
    await removeOtherSpools(this.context.store, needed);
    this.wake();
  }

  /** Runs unfinished tasks, unless the worker is running already. */
  wake(): void {
    this.#running ??= this.#run();
  }

  /** Resolves when no task is left, or none can be run. */
  async idle(): Promise<void> {
    await this.#running;
  }

  /** Stops after the current batch. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    try {
      await nextTick();
      while (!signal.aborted) {
        const task = listTasks(this.context).find(isUnfinished);
        if (task === undefined) return;
        try {
          await runTask(this.context, task, signal);
        } catch (error) {
          const { code = "" } = error instanceof StoreError ? error : {};
          if (code !== "disk-full" && code !== "overloaded") throw error;
          await setTimeout(retryDelayMs, undefined, { signal }).catch(() => {});
        }
      }
    } catch (error) {
      logFailure(this.context, error);
    } finally {
      // Set in the same tick in which no task was found, so that a wake that
      // follows is not lost.
      this.#running = undefined;
    }
  }
}

/** Runs a task from where it was left. */
async function runTask(
  context: ImportContext,
  task: Task,
  signal: AbortSignal,
): Promise<void> {
  const lines = readSpool(context.store, {
    name: task.spool,
    from: task.byte,
    maxLineBytes,
  });
  try {
    await importLines(context, { task, lines, signal });
  } catch (error) {
    if (error instanceof StoreError) throw error;
    logFailure(context, error);
    const failure = errorCode(error) === "ENOENT"
      ? "The request body is no longer on the disk."
      : "The request body cannot be read.";
    const current = findTask(context, task.id);
    if (current) await finishTask(context, current, failure);
  } finally {
    await lines.return(undefined);
  }
}

/** Imports batches of lines until the body ends or the task must not continue. */
async function importLines(
  context: ImportContext,
  { task, lines, signal }: {
    readonly task: Task;
    readonly lines: AsyncGenerator<SpoolLine, undefined>;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const { store, now } = context;
  const { given, user_id } = task;
  const records = context.importable(task.collection);
  let current = task;
  let savedAt = performance.now();
  const pending: SpoolLine[] = [];
  while (true) {
    await nextTick();
    await fillBatch(pending, lines);
    // From here to the transaction nothing else can run.
    if (signal.aborted || !findTask(context, task.id)) return;
    const failure = abortReason(context, task, records);
    if (records === undefined || failure !== null || pending.length === 0) {
      return await finishTask(context, current, failure);
    }
    const seq = store.transact(user_id, (apply) => {
      const { imported } = current;
      const target = { records, given, apply, now: now() };
      const progress = importBatch(pending, { progress: current, ...target });
      current = { ...current, ...progress, status: "running" };
      const isDue = performance.now() > savedAt + saveIntervalMs;
      if (current.imported === imported && !isDue) return;
      current = touch(context, current);
      apply(context.records.putMutation(current));
      savedAt = performance.now();
    });
    await store.durable(seq);
  }
}

/** Reads lines until there are enough for a batch. */
async function fillBatch(
  pending: SpoolLine[],
  lines: AsyncGenerator<SpoolLine, undefined>,
): Promise<void> {
  while (pending.length < maxBatchLines) {
    const [first, last] = [pending[0], pending.at(-1)];
    if (first && last && last.next - first.byte > maxBatchBytes) return;
    const { value } = await lines.next();
    if (value === undefined) return;
    pending.push(value);
  }
}

/** Returns why a task must not continue; null if it may. */
function abortReason(
  { store }: ImportContext,
  { user_id, collection }: Task,
  records: Records | undefined,
): string | null {
  if (records === undefined) {
    return `The collection "${collection}" no longer exists.`;
  }
  if (user_id === 0) return null; // from the command line
  const user = store.table("users").get(user_id)?.document;
  return mayAccess(roleOf(user?.["role"]), records.collection.access.write)
    ? null
    : "The user no longer has the right to write.";
}

/** Ends a task, with the reason if it failed, and removes its body. */
async function finishTask(
  context: ImportContext,
  task: Task,
  failure: string | null,
): Promise<void> {
  const { store, records } = context;
  const status = failure === null ? "succeeded" : "failed";
  const finished = touch(context, { ...task, status, failure });
  await store.commit([records.putMutation(finished)], task.user_id);
  await removeSpool(store, task.spool)
    .catch((error) => logFailure(context, error));
}

/** Sets a task's time of change. */
function touch({ records }: ImportContext, task: Task): Task {
  const updated_at = records.timestamp(task.updated_at);
  return { ...task, updated_at };
}
