/**
 * Deletions of many records: DELETE of a collection with filters, cascades of any
 * size, and records that expire.
 */

import { setTimeout } from "node:timers/promises";
import type { Api, Feature } from "../../api/feature.ts";
import type { Operation, Resource } from "../../api/operation.ts";
import type { Collection } from "../../api/declaration/declaration.ts";
import { retentionTable } from "../../api/own-tables.ts";
import { boolean, optional } from "../../api/declaration/properties.ts";
import {
  type Parameters,
  parseQuery,
  readParameter,
} from "../../api/query/parameters.ts";
import { TooManyChanges } from "../../api/records/deleting.ts";
import type {
  Outcome,
  RequestContext,
  Result,
} from "../../api/request-context.ts";
import {
  evictOldestFinished,
  isUnfinished,
  newTask,
  queuedResponse,
  roomForTask,
  type Task,
  tasks,
} from "../../api/tasks/tasks.ts";
import { addTasks } from "../../api/tasks/urls.ts";
import { mayAccess } from "../../auth/access.ts";
import { ApiError } from "../../http/errors.ts";
import { splitList } from "../../http/headers.ts";
import { foldText } from "../../store/store.ts";
import { endedTasks } from "./retention.ts";
import { digestOfRules } from "./task.ts";
import { DeletionWorker } from "./worker.ts";

/** The longest that a request waits for the end of its task, in seconds. */
const maxWaitSeconds = 30;

/** The characters that tell flags and forms of ideographs apart: no filter compares them. */
const uncomparedCharacters = /[\u{e0000}-\u{e0fff}]/u;

const cascade = optional(boolean(), false);

/** The filters of a deletion. */
interface Selected {
  readonly filters: readonly (readonly [string, string])[];
  readonly cascade: boolean;
}

/** @throws {ApiError} 40003, 40004; 40000 without a filter */
function parseDeletion(
  collection: Collection,
  parameters: Parameters,
): Selected {
  const others = collection.children.length > 0 ? ["cascade"] : [];
  const query = parseQuery(collection, parameters, others);
  const filters = [...parameters].filter(([name]) => !others.includes(name));
  if (query.filters.length === 0) {
    throw new ApiError(
      40000,
      `A deletion needs a filter, such as ?id:lt=100: it would delete all ${collection.name}.`,
    );
  }
  // A forgotten value, as in ?name:contains=$NAME, must not delete everything.
  const empty = query.filters.find(({ operator, value }) =>
    operator !== "eq" && foldText(String(value)) === ""
  );
  if (empty) {
    throw new ApiError(
      40004,
      `The filter "${empty.property.name}:${empty.operator}" of a deletion must have a text: with none it fits nearly all ${collection.name}.`,
    );
  }
  const padded = filters.find(([name, value]) => {
    const compared = foldText(`|${value}|`).slice(1, -1); // with its spaces
    return /:(?:contains|starts)$/.test(name) &&
      (compared !== compared.trim() || uncomparedCharacters.test(value));
  });
  if (padded) {
    throw new ApiError(
      40004,
      `The filter "${
        padded[0]
      }" of a deletion must not begin or end with a space, or tell flags or forms of ideographs apart: that is not compared, so more ${collection.name} would match.`,
    );
  }
  return {
    filters,
    cascade: readParameter(parameters, "cascade", cascade) === true,
  };
}

/**
 * Stores a task that deletes what matches, and responds with it; waits for its
 * end if the client prefers that (`Prefer: wait`, RFC 7240 section 4.3).
 *
 * @throws {ApiError} 40401, 41200; {OverloadedError}
 */
async function begin(
  worker: DeletionWorker,
  context: RequestContext,
  { records }: Resource,
  selected: Selected,
  isOne = false,
): Promise<Result> {
  const { collection } = records;
  const { context: tasks } = worker;
  await roomForTask(tasks, context.signal);
  const result = await tasks.store.settle(() => {
    context.authenticate();
    const scope = context.scope();
    const row = isOne ? records.find(context, scope) : undefined;
    context.shared.hooks.precondition?.(
      context,
      row ? { collection, document: row.document } : { collection, scope },
    );
    const { name } = collection;
    const sender = context.caller;
    const next = {
      ...newTask(tasks, { type: "deletion", collection: name, sender }),
      ...selected,
      given: scope?.conditions ?? {},
      rules: digestOfRules(tasks.store),
      after: 0,
      upTo: tasks.store.table(name).lastId,
    };
    return {
      ...tasks.records.commit(context, {
        mutations: [
          tasks.records.putMutation(next),
          ...evictOldestFinished(tasks),
        ],
        response: queuedResponse(tasks.records, next),
        change: { previous: undefined, next },
        allowWhenFull: true,
      }),
      id: next.id,
    };
  });
  worker.wake();
  const seconds = Math.min(waitOf(context), maxWaitSeconds);
  return seconds > 0 ? await ended(worker, context, result, seconds) : result;
}

/** Waits for the end of a task; returns it, or the first response if it takes longer. */
async function ended(
  { context: { records, store } }: DeletionWorker,
  context: RequestContext,
  queued: Result & { readonly id: number },
  seconds: number,
): Promise<Result> {
  const end = performance.now() + 1000 * seconds;
  const find = () => records.table.get(queued.id);
  let row = find();
  while (
    row && (isUnfinished(row.document as Task) || row.seq > store.durableSeq)
  ) {
    if (performance.now() > end || context.signal.aborted) return queued;
    await setTimeout(10);
    row = find();
  }
  if (row === undefined || !isStillSignedIn(context)) return queued;
  return {
    ...queuedResponse(records, row.document),
    status: 200,
    headers: [
      ...["Content-Location", records.representation.url(queued.id)],
      ...["Preference-Applied", `wait=${seconds}`],
    ],
    seq: row.seq,
    isCommitted: true, // it must not be judged again
  };
}

/** Returns whether the caller is still signed in. One whose own user the deletion has deleted is not, and gets the first response: it is no error. */
function isStillSignedIn(context: RequestContext): boolean {
  try {
    context.authenticate();
    return true;
  } catch {
    return false;
  }
}

/** Returns how many seconds a client prefers to wait, 0 if it did not say. */
function waitOf({ headers }: RequestContext): number {
  for (const member of splitList(String(headers["prefer"] ?? ""), ",")) {
    const [, seconds] =
      /^\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:;|$)/i.exec(member) ?? [];
    if (seconds) return Number(seconds);
  }
  return 0;
}

/** Describes the responses of a deletion that is a task. */
function responsesOf({ context: { records } }: DeletionWorker) {
  const { collection: record } = records;
  const waited = ["Content-Location", "Preference-Applied"];
  return {
    200: { record, headers: waited },
    202: { record, headers: ["Location"] },
  };
}

/** Returns the DELETE of a collection. */
function deleteMatching(worker: DeletionWorker, resource: Resource): Operation {
  const { collection } = resource.records;
  const { read, delete: own } = collection.access;
  const { roles } = worker.context.declaration;
  const operation: Operation<Selected> = {
    resource,
    // The number of matches reveals something about the records, which not everybody may read.
    access: mayAccess(roles.grantsOf(own), read) ? own : read,
    parse: (parameters) => parseDeletion(collection, parameters),
    run: (context, selected) => begin(worker, context, resource, selected),
    docs: {
      summary: `Delete the ${collection.name} that match`,
      description:
        "Needs a filter, any of the list. `Prefer: wait=5` waits for the end.",
      responses: responsesOf(worker),
    },
  };
  return operation;
}

/** Returns the DELETE of a record, which becomes a task if it has too many consequences. */
function deleteLarge(
  worker: DeletionWorker,
  resource: Resource,
  DELETE: Operation,
): Operation {
  return {
    ...DELETE,
    docs: { ...DELETE.docs, responses: responsesOf(worker) },
    run(context, parsed, body): Outcome {
      try {
        return DELETE.run(context, parsed, body);
      } catch (error) {
        if (!(error instanceof TooManyChanges)) throw error;
        const filters = [["id", String(context.ids.at(-1))]] as const;
        return begin(
          worker,
          context,
          resource,
          { filters, cascade: true },
          true,
        );
      }
    },
  };
}

/** Returns what the declaration and the server keep for a while. */
function keptOf({ served, records }: Api) {
  return [
    ...served.flatMap((each) => {
      const { keep } = each.collection;
      return keep ? [{ records: each, by: "created_at", ...keep }] : [];
    }),
    { records: records("tasks"), ...endedTasks },
  ];
}

/** Deletions by filter, large cascades, and retention. */
export const feature: Feature = {
  keeps: true,
  collections: (roles) => [tasks(roles)],
  tables: [{ name: retentionTable }],
  open(api) {
    const served = new Map(
      api.served.map((each) => [each.collection.name, each]),
    );
    const context = {
      ...api,
      records: addTasks(api),
      recordsOf: (name: string) => served.get(name),
    };
    const worker = new DeletionWorker(context, keptOf(api));
    const isServed = ({ resource }: Operation) =>
      resource !== undefined && !resource.scopeOf &&
      served.has(resource.records.collection.name);
    return {
      start: () => worker.start(),
      stop: () => worker.stop(),
      extend(methods) {
        const { GET, POST, DELETE } = methods;
        if (DELETE?.resource && isServed(DELETE)) {
          const { resource } = DELETE;
          if (resource.records.collection.children.length === 0) {
            return undefined;
          }
          return { ...methods, DELETE: deleteLarge(worker, resource, DELETE) };
        }
        const isList = GET?.list && POST?.resource && isServed(POST);
        if (!isList || !POST?.resource || DELETE) return undefined;
        return { ...methods, DELETE: deleteMatching(worker, POST.resource) };
      },
    };
  },
};
