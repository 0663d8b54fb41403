/**
 * The requests that start and cancel imports. A body of NDJSON is written to
 * disk and a task that names it is stored; the worker does the rest.
 */

import type { Actor } from "../../auth/access.ts";
import { localOperator } from "../../api/operator.ts";
import { Turns } from "../../admission.ts";
import { deletedForGood, type Records } from "../../api/records/records.ts";
import { deleteRecord } from "../../api/records/deleting.ts";
import {
  evictOldestFinished,
  newTask,
  queuedResponse,
  roomForTask,
  visibleTask,
} from "../../api/tasks/tasks.ts";
import type {
  RequestContext,
  Result,
  Scope,
} from "../../api/request-context.ts";
import { errorCode, StoreError } from "../../store/error.ts";
import type { Document } from "../../store/store.ts";
import { writeSpool } from "./spool.ts";
import {
  findTask,
  type ImportContext,
  maxUploads,
  type Part,
  partsOf,
  removeBodies,
} from "./task.ts";
import type { ImportWorker } from "./worker.ts";

/** The bodies that are received; at most half of them are of one client. */
const uploads = new Turns(maxUploads, maxUploads / 2);

/** A request to import records. */
export interface ImportRequest {
  readonly call: RequestContext;
  readonly body: AsyncIterable<Uint8Array>;
  /** The records of the collection to import into. */
  readonly target: Records;
}

/**
 * Stores a body and its task, in turn. Responds once both survive power loss.
 *
 * @throws {ApiError} 40401, 41200; {OverloadedError}; errors of the body
 */
export async function receiveImport(
  worker: ImportWorker,
  { call, body, target }: ImportRequest,
): Promise<Result> {
  // Both refuse the request before the body is received.
  checkTarget(target, call);
  if (worker.context.store.memory?.isFull) {
    throw new StoreError("memory-full", "The memory is full");
  }
  return await uploads.run(call, async () => {
    await roomForTask(worker.context, call.signal);
    return await storeImport(worker, { call, body, target });
  });
}

/**
 * Checks that records can be created now, and returns the scope of the URL.
 *
 * @throws {ApiError} 40401, 41200
 */
function checkTarget(
  { collection }: Records,
  call: RequestContext,
): Scope | undefined {
  const scope = call.scope();
  call.shared.hooks.precondition?.(call, { collection, scope });
  return scope;
}

async function storeImport(
  worker: ImportWorker,
  { call, body, target }: ImportRequest,
): Promise<Result> {
  const { context } = worker;
  const { name: spool, hash } = await writeSpool(context.store, body);
  let isNeeded = false;
  try {
    const result = await context.store.settle(() => {
      isNeeded = false;
      call.authenticate();
      const collection = target.collection.name;
      const execute = () => {
        const given = checkTarget(target, call)?.conditions ?? {};
        const part = { collection, given, spool };
        const { next, mutations } = planTask(context, call.caller, [part]);
        const { records } = context;
        const response = queuedResponse(records, next);
        const change = { previous: undefined, next };
        const queued = records.commit(call, { mutations, response, change });
        isNeeded = true;
        return queued;
      };
      const repeat = (createdId: number) =>
        repeatQueued(context, collection, createdId);
      const { runOnce } = call.shared.hooks;
      return runOnce?.(call, { body: hash, execute, repeat }) ?? execute();
    });
    worker.wake();
    return result;
  } catch (error) {
    // After any other error of the store the task may exist after a restart.
    if (errorCode(error) === "disk-full") isNeeded = false;
    throw error;
  } finally {
    if (!isNeeded) await removeBodies(context, [{ spool }]);
  }
}

/**
 * Stores the files of an import of the command line, and one task for all of
 * them.
 *
 * @returns the id of the task
 * @throws {StoreError}; errors of the bodies
 */
export async function storeFiles(
  { context }: ImportWorker,
  files: readonly {
    readonly collection: string;
    readonly body: AsyncIterable<Uint8Array>;
  }[],
): Promise<number> {
  const { store } = context;
  const parts: Part[] = [];
  try {
    for (const { collection, body } of files) {
      const { name: spool } = await writeSpool(store, body);
      parts.push({ collection, given: {}, spool });
    }
    const { id } = await store.settle(() => {
      const { next, mutations } = planTask(context, localOperator, parts);
      return { seq: store.apply(mutations, localOperator.id), id: next.id };
    });
    return id;
  } catch (error) {
    await removeBodies(context, parts);
    throw error;
  }
}

/** Returns a new task, and the mutations that store it. */
function planTask(
  context: ImportContext,
  sender: Actor | undefined,
  parts: readonly Part[],
) {
  const [first, ...more] = parts.map((part) => ({
    ...part,
    accepted: [
      ...context.importable(part.collection)?.collection.acceptedNames ?? [],
    ],
  }));
  const collection = first?.collection ?? "";
  const next: Document = {
    ...newTask(context, { type: "import", collection, sender }),
    byte: 0,
    line: 0,
    ...first,
    ...more.length > 0 && { more },
  };
  const mutations = [
    context.records.putMutation(next),
    ...evictOldestFinished(context),
  ];
  return { next, mutations };
}

/**
 * Returns the response to the request that queued a task once more.
 *
 * @throws {ApiError} 41000 if the task was deleted
 */
function repeatQueued(
  { records }: ImportContext,
  collection: string,
  id: number,
): Result {
  const row = records.table.get(id);
  if (row === undefined) throw deletedForGood(records.collection, id);
  const { created_at } = row.document;
  const first = visibleTask(id, "import", collection, String(created_at));
  return { ...queuedResponse(records, first), seq: row.seq };
}

/**
 * Deletes a task, which cancels its import: records already imported stay.
 *
 * @throws {ApiError} 40401
 */
export function deleteTask(worker: ImportWorker, call: RequestContext): Result {
  const { context } = worker;
  const task = findTask(context, call.ids[0] ?? 0);
  const result = deleteRecord(context.records, call, false);
  const removeSpool = async () => {
    await context.store.durable(result.seq);
    if (task?.spool) removeBodies(context, partsOf(task));
  };
  // A full disk may roll the deletion back.
  removeSpool().catch(() => {}).finally(() => worker.wake());
  return result;
}
