/**
 * The requests that start and cancel imports. A body of NDJSON is written to
 * disk and a task that names it is stored; the worker does the rest.
 */

import { Turns } from "../../admission.ts";
import { countRenamings } from "../../api/declaration/evolution.ts";
import type { Records } from "../../api/records/records.ts";
import { deleteRecord } from "../../api/records/deleting.ts";
import { prepareCreate } from "../../api/records/writing.ts";
import type {
  RequestContext,
  Result,
  RunOnce,
} from "../../api/request-context.ts";
import { errorCode } from "../../store/error.ts";
import { type Document, formatTime } from "../../store/store.ts";
import { writeSpool } from "./spool.ts";
import {
  evictOldestFinished,
  findTask,
  type ImportContext,
  maxUploads,
  removeBody,
  roomForTask,
  type Task,
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
  readonly runOnce: RunOnce;
}

/**
 * Stores a body and its task, in turn. Responds once both survive power loss.
 *
 * @throws {ApiError} 40401, 41200; {OverloadedError}; errors of the body
 */
export async function receiveImport(
  worker: ImportWorker,
  { call, body, target, runOnce }: ImportRequest,
): Promise<Result> {
  prepareCreate(target, call); // refuses the request before the body is received
  return await uploads.run(call, async () => {
    await roomForTask(worker.context, call.signal);
    return await storeImport(worker, { call, body, target, runOnce });
  });
}

async function storeImport(
  worker: ImportWorker,
  { call, body, target, runOnce }: ImportRequest,
): Promise<Result> {
  const { context } = worker;
  const { name: spool, hash } = await writeSpool(context.store, body);
  let isNeeded = false;
  try {
    const result = await context.store.settle(() => {
      isNeeded = false;
      call.authenticate();
      return runOnce(hash, (storeResponse) => {
        call.storeResponse = storeResponse;
        const given = prepareCreate(target, call)?.conditions ?? {};
        const collection = target.collection.name;
        const task = { collection, given, spool };
        const queued = queueTask(context, call, task);
        isNeeded = true;
        return queued;
      });
    });
    worker.wake();
    return result;
  } catch (error) {
    // After any other error of the store the task may exist after a restart.
    if (errorCode(error) === "disk-full") isNeeded = false;
    throw error;
  } finally {
    if (!isNeeded) await removeBody(context, spool);
  }
}

function queueTask(
  context: ImportContext,
  call: RequestContext,
  task: Pick<Task, "collection" | "given" | "spool">,
): Result {
  const { records, now, store } = context;
  const { representation } = records;
  const at = formatTime(now());
  const document: Document = {
    id: records.nextId(),
    type: "import",
    status: "queued",
    lines: 0,
    imported: 0,
    rejected: 0,
    errors: [],
    failure: null,
    created_at: at,
    updated_at: at,
    user_id: call.caller?.id ?? null,
    byte: 0,
    line: 0,
    renamings: countRenamings(store),
    ...store.serverId && { server: store.serverId },
    ...task,
  };
  const mutations = [
    records.putMutation(document),
    ...evictOldestFinished(context),
  ];
  const response = {
    status: 202,
    headers: ["Location", representation.url(document.id)],
    body: representation.asStandalone(representation.serialize(document)),
  };
  return records.commit(call, { mutations, response });
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
  context.store.onDurable(result.seq, (error) => {
    worker.wake(); // a full disk may have rolled the deletion back
    if (task && !error) removeBody(context, task.spool);
  });
  return result;
}
