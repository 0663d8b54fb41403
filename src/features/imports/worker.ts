/**
 * The background worker of imports. It runs one task after the other, and
 * commits each batch of records in one transaction with the task's progress. So
 * after a crash it resumes after the last durable batch, and each line is
 * imported exactly once.
 *
 * While the disk or the memory is full it retries until there is space. On a
 * read-only store it stops until the next start. A task fails if its user has
 * lost a right that the request had.
 */

import { performance } from "node:perf_hooks";
import { setImmediate as nextTick, setTimeout } from "node:timers/promises";
import { mayAccess } from "../../auth/access.ts";
import { errorCode, errorText, StoreError } from "../../store/error.ts";
import { asShared, type SharedStore } from "../../store/shared.ts";
import type { Records } from "../../api/records/records.ts";
import {
  countRenamings,
  finished,
  isOwnTask,
  isUnfinished,
  refusals,
  saveTask,
  senderOf,
  touch,
} from "../../api/tasks/tasks.ts";
import { advice } from "../../store/memory/limit.ts";
import { importBatch, maxLineBytes, maxRejectedLines } from "./batch.ts";
import {
  awaitedMutation,
  findAbandoned,
  markEnded,
  settleAwaited,
} from "./awaited.ts";
import { newRun, transactAs } from "./run.ts";
import { readSpool, removeOtherSpools } from "./spool.ts";
import {
  findTask,
  type ImportContext,
  logFailure,
  type Part,
  partsOf,
  referencesOf,
  removeBodies,
  type Task,
  unfinishedTasks,
} from "./task.ts";

/** The longest time between two saves of progress while no line is valid. */
const saveIntervalMs = 250;

/** The time between two looks at the imports of other servers. */
const lookMs = 20_000;

/** The time between two attempts while the store refuses a batch. */
const retryDelayMs = 1000;

export type ImportWorker = ReturnType<typeof createWorker>;

/** Creates a worker that runs queued imports in the background. */
export function createWorker(context: ImportContext) {
  const stopping = new AbortController();
  const { signal } = stopping;
  let running: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let lastUser: Task["user_id"] = 0;

  async function run(): Promise<void> {
    try {
      await nextTick();
      while (!signal.aborted) {
        const task = findNext(context, lastUser);
        const abandoned = task ? 0 : findAbandoned(context);
        if (abandoned === undefined) return;
        lastUser = task?.user_id ?? null;
        await (task
          ? runTask(context, task, signal)
          : settleAwaited(context, abandoned, signal))
          .catch((error) => pauseAfter(context, error, signal));
      }
    } catch (error) {
      logFailure(context, error);
    } finally {
      // In the same tick as the search that found nothing, so that a later wake
      // starts a new run.
      running = undefined;
    }
  }

  /** Runs unfinished tasks, unless the worker is running already. */
  function wake(): void {
    running ??= run();
  }

  return {
    context,
    wake,
    /** Removes files that no task needs and resumes imports. Call before the first request. */
    async start() {
      await keepNeeded(context);
      const shared = asShared(context.store);
      if (shared) {
        const look = lookAtOthers(context, shared, signal);
        timer = setInterval(look, lookMs);
      }
      wake();
    },
    /** Returns a promise until no task is left, or none can be run. */
    idle: () => running,
    /** Stops after the current batch. */
    async stop() {
      stopping.abort();
      clearInterval(timer);
      await running;
    },
  };
}

/** Returns whether a task can be run here: one with users waits for a command, as a server accepts no hashes. */
function isPossible({ importable }: ImportContext, task: Task): boolean {
  const isOfUsers = ({ collection }: Part) => collection === "users";
  return !partsOf(task).some(isOfUsers) || importable("users") !== undefined;
}

/** Returns the next task. The users take turns; one that was interrupted comes first. */
function findNext(
  context: ImportContext,
  lastUser: Task["user_id"],
): Task | undefined {
  const tasks = unfinishedTasks(context)
    .filter((task) => isOwnTask(context, task) && isPossible(context, task));
  return tasks.find(({ status }) => status === "running") ??
    tasks.find(({ user_id }) => user_id !== lastUser) ?? tasks[0];
}

/** Removes files that no task needs, and logs which imports are resumed. */
async function keepNeeded(context: ImportContext): Promise<void> {
  const tasks = unfinishedTasks(context);
  const needed = tasks.flatMap((task) =>
    partsOf(task).map(({ spool }) => spool)
  );
  await removeOtherSpools(context.store, needed);
  for (const task of tasks) {
    const { id, collection, imported } = task;
    const fields = { task: id, collection, imported };
    const what = isPossible(context, task)
      ? "resumes an import"
      : "an import of users waits for the next command that imports";
    context.log("info", what, fields);
  }
}

/** Waits until the store may accept a batch; throws an error after which it never does. */
async function pauseAfter(
  { isAlone }: ImportContext,
  error: unknown,
  signal: AbortSignal,
): Promise<void> {
  const code = errorCode(error);
  if (code === "overtaken") return;
  if (isAlone && code === "memory-full") {
    throw new Error(`the memory is full: ${advice}`);
  }
  if (!refusals.includes(code)) throw error;
  await setTimeout(retryDelayMs, undefined, { signal }).catch(() => {});
}

/** Returns a function that looks at what other servers have done, or no longer do. */
function lookAtOthers(
  context: ImportContext,
  shared: SharedStore,
  signal: AbortSignal,
): () => Promise<void> {
  const removeEnded = endedBodies(context);
  return async () => {
    try {
      await endAbandoned(context, shared, signal);
      await removeEnded();
    } catch { /* again after the pause */ }
  };
}

/** Ends the imports of servers that are gone. Their bodies stay with them until their next start. */
async function endAbandoned(
  context: ImportContext,
  store: SharedStore,
  signal: AbortSignal,
): Promise<void> {
  const failure = "The server that had the request body is gone.";
  for (const task of unfinishedTasks(context)) {
    if (isOwnTask(context, task)) continue;
    if (await store.isServed(task.server ?? "")) continue;
    // It may have imported more before it was gone.
    const latest = findTask(context, task.id) ?? task;
    await finishTask(context, latest, failure, signal);
  }
}

/** Returns a function that removes the bodies of imports here that have ended since its last call: another server may have ended them. */
function endedBodies(context: ImportContext): () => Promise<void> {
  let stored: readonly Part[] = [];
  return async () => {
    const { store } = context;
    const own = unfinishedTasks(context)
      .filter((task) => isOwnTask(context, task)).flatMap(partsOf);
    const needed = new Set(own.map(({ spool }) => spool));
    const ended = stored.filter(({ spool }) => !needed.has(spool));
    await store.durable(store.seq); // until then any of that may be rolled back
    stored = own;
    await removeBodies(context, ended);
  };
}

/** Runs a task, or resumes it after its last durable batch. */
async function runTask(
  idle: ImportContext,
  task: Task,
  signal: AbortSignal,
): Promise<void> {
  const run = newRun(idle, task);
  const context = { ...idle, run };
  try {
    await importLines(context, task, signal);
  } catch (error) {
    if (error instanceof StoreError) throw error;
    logFailure(context, error);
    const code = errorCode(error);
    const latest = findTask(context, task.id) ?? task;
    const failure = code === "rule"
      ? `${errorText(error).split(":", 1)}.` // it names the collection
      : code === "ENOENT"
      ? "The request body is no longer on the disk."
      : "The request body cannot be read.";
    await finishTask(context, latest, failure, signal);
  } finally {
    run.end();
  }
}

/** Reads all files, sets what their records await, and reads them again if lines wait for that; unless the task must not continue. */
async function importLines(
  context: ImportContext,
  task: Task,
  signal: AbortSignal,
): Promise<void> {
  const lastIds = Object.fromEntries(
    partsOf(task).map(({ collection }) => [
      collection,
      context.store.tables.get(collection)?.lastId ?? 0,
    ]),
  );
  let current: Task | undefined = task.status === "queued"
    ? { ...task, lastIds, references: referencesOf(context, task) }
    : task;
  while (current) {
    const { part = 0, hasLate, isLast }: Task = current;
    const next = partsOf(task)[part];
    if (next && isLast && !hasOptional(context, next)) {
      current = { ...current, part: part + 1, byte: 0, line: 0 };
    } else if (next) current = await importPart(context, current, next, signal);
    else if (!hasLate || isLast) {
      return await finishTask(context, current, null, signal);
    } else {
      await saveProgress(context, current);
      await settleAwaited(context, task.id, signal);
      const settled = findTask(context, task.id);
      if (signal.aborted || !settled) return;
      current = { ...settled, part: 0, byte: 0, line: 0, isLast: true };
    }
  }
}

/** Returns whether records of a file may wait for others. */
function hasOptional({ importable }: ImportContext, { collection }: Part) {
  return importable(collection)?.collection.parents
    .some(({ isRequired }) => !isRequired) ?? false;
}

/** Imports a file in batches; returns the task after it, or undefined if it must not continue. */
async function importPart(
  context: ImportContext,
  task: Task,
  { collection, given, spool }: Part,
  signal: AbortSignal,
): Promise<Task | undefined> {
  const { store, now } = context;
  const { user_id, byte: start, lastIds = {}, part = 0, more } = task;
  const records = context.importable(collection);
  let current = task;
  let savedAt = performance.now();
  const range = { start, maxLineBytes: records ? maxLineBytes(records) : 0 };
  for await (const lines of readSpool(store, spool, range)) {
    while (lines.length > 0) {
      await nextTick();
      // From here to the transaction nothing is awaited.
      if (signal.aborted || !isStored(context, task)) return undefined;
      const failure = abortReason(context, current, records);
      if (records === undefined || failure !== null) {
        return void await finishTask(context, current, failure, signal);
      }
      const caller = senderOf(context, current);
      const seq = transactAs(context, user_id, (apply) => {
        let isChanged = performance.now() > savedAt + saveIntervalMs;
        const { progress, awaited } = importBatch(lines, {
          progress: current,
          hasParts: more !== undefined,
          records,
          caller,
          isTrusted: mayAccess(
            caller?.grants,
            context.declaration.roles.highest,
          ),
          given,
          lastIds,
          apply(mutation) {
            isChanged = true;
            apply(mutation);
          },
          // The clock of a machine that has just started may be behind.
          latest: Math.max(now(), Date.parse(String(current["created_at"]))),
        });
        current = { ...current, ...progress, status: "running" };
        if (awaited.length > 0) {
          apply(awaitedMutation(context, current, collection, awaited));
        }
        if (!isChanged) return;
        current = touch(context, current);
        apply(context.records.putMutation(current));
        savedAt = performance.now();
      });
      await store.durable(seq);
    }
  }
  const failure = abortReason(context, current, records);
  if (failure !== null) {
    return void await finishTask(context, current, failure, signal);
  }
  return { ...current, part: part + 1, byte: 0, line: 0 };
}

function tooManyRejected({ rejected }: Task): string | null {
  return rejected < maxRejectedLines
    ? null
    : `It was stopped at ${maxRejectedLines} rejected lines.`;
}

/** Returns why a task must not continue; null if it may. */
function abortReason(
  context: ImportContext,
  task: Task,
  records: Records | undefined,
): string | null {
  const { renamings = 0, part = 0 } = task;
  const { collection, given, accepted = Object.keys(given) } =
    partsOf(task)[part] ?? task;
  const tooMany = tooManyRejected(task);
  if (tooMany !== null) return tooMany;
  if (renamings !== countRenamings(context.store)) {
    return "Collections or properties were renamed after the request.";
  }
  if (records === undefined) {
    return `The collection "${collection}" no longer exists.`;
  }
  const { access: { write }, acceptedNames } = records.collection;
  const removed = accepted.find((name) => !acceptedNames.has(name));
  if (removed) return `The property "${removed}" no longer exists.`;
  if (task.references && task.references !== referencesOf(context, task)) {
    return "References were changed after it had begun.";
  }
  return mayAccess(senderOf(context, task)?.grants, write)
    ? null
    : "The user no longer has the rights that the request had.";
}

/** Stores the progress of a task, unless it was deleted: what is awaited changes it there. */
async function saveProgress(
  context: ImportContext,
  task: Task,
): Promise<void> {
  if (isStored(context, task)) await saveTask(context, touch(context, task));
}

/** Ends a task, unless it was deleted, with the reason if it failed; first sets what its records await. */
async function finishTask(
  context: ImportContext,
  task: Task,
  failure: string | null,
  signal: AbortSignal,
): Promise<void> {
  await saveProgress(context, task);
  await settleAwaited(context, task.id, signal);
  if (signal.aborted || !isStored(context, task)) return;
  await markEnded(context, task.id);
  const settled = findTask(context, task.id) ?? task;
  const reason = failure ?? tooManyRejected(settled);
  await saveTask(context, finished(context, settled, reason));
  const { id, collection, imported, rejected } = settled;
  const fields = { task: id, collection, imported, rejected };
  context.log("info", "finished an import", { ...fields, failure: reason });
  await removeBodies(context, partsOf(task));
}

/** Returns whether a task must still be run: it may have been deleted, ended by another server, or rolled back and its id assigned to another one. */
function isStored(context: ImportContext, { id, spool }: Task): boolean {
  const task = findTask(context, id);
  return task?.spool === spool && isUnfinished(task);
}
