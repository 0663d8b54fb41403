/**
 * Imports: POST to a collection accepts NDJSON and responds with a task, which
 * creates the records in the background. The command `import` does the same.
 */

import type { Feature } from "../../api/feature.ts";
import type { RequestContext } from "../../api/request-context.ts";
import { ndjsonType } from "../../api/representation.ts";
import {
  collectionMethods,
  ownedByCaller,
  recordMethods,
  resourceRoute,
} from "../../api/operations.ts";
import { deriveCollection } from "../../api/declaration/declaration.ts";
import { importCommand } from "./command.ts";
import { deleteTask, receiveImport } from "./requests.ts";
import { tasks } from "./task.ts";
import { createWorker } from "./worker.ts";

/** Tasks without their errors: those of 250 tasks would take 30 MB. */
const { errors: _, ...listedProperties } = tasks.properties;
const listedTasks = deriveCollection({
  ...tasks,
  singular: "listed task",
  properties: listedProperties,
});

/** Imports of NDJSON, and the tasks that show their progress. */
export const feature: Feature = {
  collections: [tasks],
  commands: { import: [2, importCommand] },
  open(api) {
    const { add, declarations } = api;
    const declared = new Set<string>(declarations.map(({ name }) => name));
    const importable = (name: string) =>
      declared.has(name) ? api.records(name) : undefined;
    const records = api.records(tasks.name);
    const worker = createWorker({ ...api, records, importable });
    const ownTasks = ownedByCaller("user_id");
    const view = {
      records,
      listed: listedTasks,
      scope: (call: RequestContext) =>
        call.caller?.role === "admin" ? undefined : ownTasks(call),
    };
    const { GET, QUERY } = collectionMethods(view);
    const summary = "Your tasks; all tasks if you are an admin";
    const list = resourceRoute(view, {
      GET: { ...GET, summary },
      QUERY: { ...QUERY, summary },
    });
    add("tasks", list, "tasks_url");
    const record = recordMethods(view);
    const task = resourceRoute(view, {
      GET: { ...record.GET, summary: "One of your tasks" },
      DELETE: {
        ...record.DELETE,
        summary: "Cancel a task; records already imported stay",
        run: (call) => deleteTask(worker, call),
      },
    });
    add("tasks/:id", task);
    return {
      start: () => worker.start(),
      stop: () => worker.stop(),
      extendCreate(post, target) {
        if (!declared.has(target.collection.name)) return undefined;
        return {
          ...post,
          consumes: [...post.consumes ?? [], ndjsonType],
          docs: {
            responses: {
              202: { record: records.collection, headers: ["Location"] },
            },
          },
          importNdjson: (call, body, runOnce) =>
            receiveImport(worker, { call, body, target, runOnce }),
        };
      },
    };
  },
};
