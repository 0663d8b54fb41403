/**
 * Imports: POST to a collection accepts NDJSON and responds with a task, which
 * creates the records in the background. The command `import` does the same.
 */

import type { Feature } from "../../api/feature.ts";
import { ndjsonType } from "../../api/representation.ts";
import {
  collectionMethods,
  recordMethods,
  route,
} from "../../api/operations.ts";
import { deriveCollection } from "../../api/declaration/declaration.ts";
import { streamBody } from "./body.ts";
import { deleteTask, receiveImport } from "./requests.ts";
import { listedTasks, tasks } from "./task.ts";
import { createWorker } from "./worker.ts";

/** The longest NDJSON body. */
const maxNdjsonBytes = 1 << 30;

/** Imports of NDJSON, and the tasks that show their progress. */
export const feature: Feature = {
  collections: (roles) => [tasks(roles)],
  commands: {
    import: [
      Infinity,
      async (...of) =>
        await (await import("./command.ts")).importCommand(...of),
    ],
  },
  open(api) {
    const { add, declaration: { roles, collections } } = api;
    const declared = new Set(collections.map(({ name }) => name));
    const importable = (name: string) =>
      declared.has(name) ? api.records(name) : undefined;
    const records = api.records("tasks");
    const worker = createWorker({ ...api, records, importable });
    const view = {
      records,
      listed: deriveCollection(listedTasks(roles)),
      scope: records.scope(),
      summary: `Your tasks; all tasks with the role ${roles.highest}`,
    };
    const { GET, QUERY } = collectionMethods(view);
    add("tasks", route({ GET, QUERY }, records.collection), "tasks_url");
    const record = recordMethods(view);
    const task = route({
      GET: { ...record.GET, summary: "One of your tasks" },
      DELETE: {
        ...record.DELETE,
        summary: "Cancel a task; records already imported stay",
        run: (call) => deleteTask(worker, call),
      },
    }, records.collection);
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
          importNdjson(call, response, runOnce) {
            const body = streamBody(response, maxNdjsonBytes);
            return receiveImport(worker, { call, body, target, runOnce });
          },
        };
      },
    };
  },
};
